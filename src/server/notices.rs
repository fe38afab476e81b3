//! Notices to a reader while its turn waits: the agent is away and we retry, or its answer is being recovered.

use serde_json::{Value, json};

use crate::i18n::LocalizedText;
use crate::rules::LiveRules;
use crate::util::one_line;

/// Event type of a notice, on surfaces whose clients ignore unknown events.
pub const NOTICE: &str = "run.notice";

/// Comment in place of a notice, on other surfaces, so that a silent stream is not taken for a dead one.
pub const WAITING: &str = "waiting for the agent";

/// Most characters of a notice.
const LONGEST: usize = 500;

/// Data of a notice; `message` is null when the wait is over. `None` if the operator silenced this text.
pub fn told(live: &LiveRules, notice: Option<&LocalizedText>) -> Option<Value> {
    let Some(phrase) = notice else { return Some(json!({ "message": null })) };
    let words = one_line(&live.now().words.say(phrase), LONGEST);
    // The warning sign is for rooms.
    let words = words.trim_start_matches(['\u{26a0}', '\u{fe0f}', ' ']);
    (!words.is_empty()).then(|| json!({ "message": words }))
}
