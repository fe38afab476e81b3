//! What a reader is told while a turn waits: the agent is away and asked again, or its answer is looked for.

use serde_json::{Value, json};

use crate::i18n::LocalizedText;
use crate::rules::LiveRules;
use crate::util::one_line;

/// The type of the event by which it is told, where clients leave alone what they do not know.
pub const NOTICE: &str = "run.notice";

/// The comment by which it is told elsewhere, so that a silent stream is not taken for a dead one.
pub const WAITING: &str = "waiting for the agent";

/// The longest sentence, in characters.
const LONGEST: usize = 500;

/// How it is told: `message` is null when it is over. `None` where the operator silenced it.
pub fn told(live: &LiveRules, notice: Option<&LocalizedText>) -> Option<Value> {
    let Some(phrase) = notice else { return Some(json!({ "message": null })) };
    let words = one_line(&live.now().words.say(phrase), LONGEST);
    // The sign is for rooms.
    let words = words.trim_start_matches(['\u{26a0}', '\u{fe0f}', ' ']);
    (!words.is_empty()).then(|| json!({ "message": words }))
}
