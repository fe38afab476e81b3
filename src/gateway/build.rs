//! Makes the settings of turns from the configuration.

use std::time::Duration;

use crate::agent::TURN_BYTES;
use crate::config::Config;
use crate::testing;
use crate::turns::TurnSettings;

/// Time that an agent has to end a turn during shutdown, so that time is left for the last messages.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// Time that people have to answer an ask.
const ASK_FOR: Duration = Duration::from_secs(5 * 60);

pub(super) fn settings(config: &Config) -> TurnSettings {
    TurnSettings {
        context: config.turns.context_prompt.clone(),
        names: config.turns.names,
        files: config.turns.files,
        history_messages: config.turns.history_messages,
        history_bytes: config.turns.history_bytes,
        retry_for: config.turns.retry_for,
        retry_scripts_for: config.turns.retry_scripts_for,
        turn_bytes: TURN_BYTES,
        stop_grace: STOP_GRACE,
        ask_for: testing::answer_time(ASK_FOR),
        review: config.review.clone(),
    }
}
