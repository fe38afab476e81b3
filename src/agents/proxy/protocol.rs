//! Chooses how a turn is run at the upstream.
//!
//! A run in the background goes on without a reader, can be stopped while it is silent, and asks people for approval. The
//! stream of a chat completion can do none of that, but every server has it. The upstream does not read the session
//! for a run, so a run is given the messages of our own history.

use super::capabilities::UpstreamCapabilities;
use super::runs::request;
use crate::agent::AgentTurn;

/// How a turn is run at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnProtocol {
    /// `POST /v1/chat/completions` with a stream: a server like ours, and every server that announces nothing else.
    Stream,
    /// `POST /v1/runs`, and the events of that run.
    Runs,
}

impl TurnProtocol {
    /// The protocol for a turn that has not begun.
    pub fn choose(able: UpstreamCapabilities, turn: &AgentTurn) -> Self {
        // A resumable stream can do all that a run can, and more. A run takes files unchecked, so a server that cannot
        // read them would not say so, as it does in a stream.
        match able.runs && !able.idempotent && turn.files.is_empty() {
            true => Self::Runs,
            false => Self::Stream,
        }
    }

    /// The protocol that a stored request was made for.
    pub fn of(request: &[u8]) -> Self {
        if request::is_run(request) { Self::Runs } else { Self::Stream }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Attachment;
    use crate::ids::{AgentName, SessionId, TurnId};

    fn turn() -> AgentTurn {
        AgentTurn::new(TurnId("t1".to_owned()), AgentName::proxy(), SessionId("s1".to_owned()))
    }

    #[test]
    fn runs_are_used_only_where_they_are_announced_and_nothing_better_is() {
        let able = |runs, idempotent| UpstreamCapabilities { runs, idempotent, ..Default::default() };
        for (runs, idempotent, expected) in [
            (false, false, TurnProtocol::Stream),
            (false, true, TurnProtocol::Stream),
            (true, true, TurnProtocol::Stream),
            (true, false, TurnProtocol::Runs),
        ] {
            assert_eq!(TurnProtocol::choose(able(runs, idempotent), &turn()), expected);
        }
    }

    #[test]
    fn a_turn_with_files_is_a_stream() {
        let able = UpstreamCapabilities { runs: true, ..Default::default() };
        let file = Attachment { name: "a.pdf".to_owned(), mime: "application/pdf", content: vec![1] };
        let turn = AgentTurn { files: vec![file], ..turn() };
        assert_eq!(TurnProtocol::choose(able, &turn), TurnProtocol::Stream);
    }
}
