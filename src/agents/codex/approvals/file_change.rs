//! Requests to change files. They name only an item, whose patch codex has told before.

use serde_json::{Value, json};

use super::{ApprovalAnswer, ApprovalContext, Verdict, reason_of};
use crate::agent::{AnswerForm, Ask};
use crate::agents::sorted_json::text_field;
use crate::i18n::TextKey;

pub(super) async fn answer(params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let Some(patch) = context.items.patch(text_field(params, "itemId")) else {
        let decline = json!({ "decision": "decline" });
        return ApprovalAnswer::declined(decline, TextKey::CodexDeclinedUnclear);
    };
    let (mut title, mut detail) = (TextKey::CodexAskFiles, patch.detail());
    let root = &params["grantRoot"];
    if !root.is_null() {
        title = TextKey::CodexAskFilesRoot;
        detail = format!("{detail}\ngrantRoot: {root}");
    }
    let ask = Ask {
        title: title.into(),
        detail,
        is_elsewhere: context.is_elsewhere(params),
        cwd: context.folder(params),
        reason: reason_of(params),
        form: AnswerForm::default(),
        gap: None,
    };
    let decision = context.decide_approval(ask).await;
    // Never for the session: that would hold for other files and other content.
    let word = match &decision.verdict {
        Verdict::Allowed(_) => "accept",
        Verdict::Declined | Verdict::Chosen(_) | Verdict::Answered(_) => "decline",
        Verdict::Cancelled | Verdict::Halted => "cancel",
    };
    ApprovalAnswer::after(decision, json!({ "decision": word }))
}
