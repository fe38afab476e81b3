//! Questions of codex to the person: several at once become several asks, one after the other.

use serde_json::{Map, Value, json};

use super::{ApprovalAnswer, ApprovalContext, NAME_CHARS, Verdict};
use crate::agent::{AnswerForm, Ask, AskOption, OptionKind};
use crate::agents::sorted_json::{list_field, text_field};
use crate::i18n::{LocalizedText, TextKey};
use crate::util::{clip, code_span};

/// Questions of one request that are asked. Codex itself allows three.
const QUESTIONS: usize = 8;

pub(super) async fn answer(params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let (mut answers, mut remarks, mut halts) = (Map::new(), Vec::new(), false);
    let questions = list_field(params, "questions");
    if questions.len() > QUESTIONS {
        remarks.push(LocalizedText::from(TextKey::CodexDeclinedQuestions));
    }
    for question in questions.iter().take(QUESTIONS) {
        if question["isSecret"] != false && !question["isSecret"].is_null() {
            let title = code_span(text_field(question, "header"), NAME_CHARS);
            remarks.push(TextKey::CodexDeclinedSecret.with("title", title));
            continue;
        }
        let decision = context.decide(ask_of(question)).await;
        remarks.extend(decision.remark);
        let answer = match decision.verdict {
            Verdict::Chosen(id) => {
                let option = id.parse::<usize>().ok().and_then(|at| list_field(question, "options").get(at));
                option.map(|option| text_field(option, "label").to_owned())
            }
            Verdict::Answered(text) => Some(text),
            Verdict::Allowed(_) | Verdict::Declined => None,
            Verdict::Cancelled => break,
            Verdict::Halted => {
                halts = true;
                break;
            }
        };
        if let Some(answer) = answer {
            answers.insert(text_field(question, "id").to_owned(), json!({ "answers": [answer] }));
        }
    }
    ApprovalAnswer { remarks, halts, ..ApprovalAnswer::new(json!({ "answers": answers })) }
}

/// The ask of one question. Options that explain themselves do so in its detail: an option has only a label.
fn ask_of(question: &Value) -> Ask {
    let options = list_field(question, "options");
    let mut detail = text_field(question, "question").to_owned();
    for option in options.iter().filter(|option| !text_field(option, "description").trim().is_empty()) {
        detail.push_str(&format!(
            "\n- {}: {}",
            text_field(option, "label"),
            text_field(option, "description")
        ));
    }
    let title = match text_field(question, "header").trim() {
        "" => TextKey::CodexAskQuestion.into(),
        header => LocalizedText::Said(clip(header, NAME_CHARS).to_owned()),
    };
    let option = |(number, option): (usize, &Value)| AskOption {
        id: number.to_string(),
        label: text_field(option, "label").to_owned(),
        kind: OptionKind::Answer,
    };
    let takes_text = options.is_empty() || question["isOther"] == true;
    let form = AnswerForm { options: options.iter().enumerate().map(option).collect(), takes_text };
    Ask { title, detail, cwd: None, is_elsewhere: false, reason: None, form, gap: None }
}
