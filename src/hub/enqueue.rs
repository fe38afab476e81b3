//! Makes a person's message a turn that waits in its session.

use talaria_platform::{IncomingMessage, ShowMode};

use super::accept::EventContext;
use crate::command;
use crate::i18n::TextKey;
use crate::ids::{AgentName, SessionId, TurnId, idempotency_key};
use crate::post_commit::PostCommit;
use crate::rules::BusyPolicy;
use crate::store::{Result, SessionRow, TurnRow, TurnState, Tx, unix_now};
use crate::turn_source::{RoomQuestion, TurnSource};
use crate::util::random_hex;

/// Prompts that may wait behind a running turn. More would only be answered when nobody remembers them.
pub const WAITING: usize = 16;

/// Names of the counted notices about messages that wait, and about those that no longer fit into the queue.
const QUEUED: &str = "queued";
const FULL: &str = "full";

impl EventContext<'_> {
    /// Puts a person's message into the queue of its session.
    pub(super) fn prompt(&self, message: &IncomingMessage) -> Result<Vec<PostCommit>> {
        if message.text.trim().is_empty() && message.media.is_empty() {
            return Ok(Vec::new());
        }
        let (tx, room) = (self.tx, &self.event.place.room);
        let session = tx.session_for(&self.key())?;
        let open = tx.open_turns(&session.id)?;
        let mut after = Vec::new();
        let session = if open.is_empty() { self.perhaps_anew(session, &mut after)? } else { session };
        tx.use_session(&session.id)?;
        let before = open.iter().filter(|turn| !turn.stopping).count();
        match self.rules.busy_in(room) {
            BusyPolicy::Interrupt => after.extend(command::stop_all(tx, &session.id, &open)?),
            // The messages were sent while we did not read: the sender no longer waits for a notice, and none is refused.
            BusyPolicy::Queue if self.late => {}
            BusyPolicy::Queue if before > WAITING => {
                self.refuse_full(&session.id)?;
                return Ok(Vec::new());
            }
            BusyPolicy::Queue if before == 0 => self.end_run(QUEUED, &session.id)?,
            BusyPolicy::Queue => self.count_notice(QUEUED, &session.id, |_| match before {
                1 => TextKey::QueuedOne.into(),
                ahead => TextKey::QueuedMany.with("ahead", ahead),
            })?,
        }
        // A message that is refused later begins a new count.
        self.end_run(FULL, &session.id)?;
        let agent = self.agent_name(session.agent.clone());
        let turn = self.turn(session.id, agent, message);
        if crate::testing::broken("dedupe") && tx.turn(&turn.id)?.is_some() {
            return doubled(tx, turn);
        }
        tx.add_turn(&turn)?;
        after.push(PostCommit::Run(turn.session, turn.id));
        Ok(after)
    }

    /// Says that the queue is full. Where notices cannot be edited, each lost message gets its own.
    fn refuse_full(&self, session: &SessionId) -> Result<()> {
        let one = TextKey::LineFull.with("limit", WAITING);
        match self.acceptor.about.show {
            ShowMode::Once => self.notice(&one),
            ShowMode::Edit { .. } | ShowMode::Append => {
                self.count_notice(FULL, session, |count| match count {
                    1 => one,
                    count => TextKey::LineFullMany.with("limit", WAITING).with("count", count),
                })
            }
        }
    }

    /// Begins another session if the rules say that this one is over. Tells the room so, and how to go back.
    fn perhaps_anew(&self, session: SessionRow, after: &mut Vec<PostCommit>) -> Result<SessionRow> {
        if !self.rules.session.reset.is_due(session.used, unix_now()) || !self.tx.is_used(&session.id)? {
            return Ok(session);
        }
        let next = self.tx.begin_session(&self.key())?;
        after.push(PostCommit::EndSessions);
        self.notice(&TextKey::SessionReset.with("number", session.number.to_string()))?;
        Ok(next)
    }

    fn turn(&self, session: SessionId, agent: AgentName, message: &IncomingMessage) -> TurnRow {
        let (account, event) = (self.account(), self.event);
        let room = &event.place.room;
        let question = RoomQuestion {
            account: account.clone(),
            place: event.place.clone(),
            event: event.id.clone(),
            question: event.id.clone(),
            author: event.author.id.as_str().to_owned(),
            author_name: event.author.name.clone(),
            speaker: None,
            room_name: event.room.name.clone(),
            direct: event.room.direct,
            quote: message.quote.clone(),
            media: message.media.clone(),
            attempt: 0,
        };
        TurnRow {
            id: TurnId::new(account, room, &event.id, 0),
            session,
            source: TurnSource::Room(question.into()),
            prompt: message.text.clone(),
            agent: Some(agent),
            key: idempotency_key(account, room, &event.id, 0),
            state: TurnState::Queued,
            stop: false,
            prepared: None,
        }
    }
}

/// Acts like a gateway without dedupe; only for the self-test of the kill tests' checker.
fn doubled(tx: &Tx<'_>, turn: TurnRow) -> Result<Vec<PostCommit>> {
    let id = TurnId(random_hex(8));
    let turn = TurnRow { key: random_hex(16), id, ..turn };
    tx.add_turn(&turn)?;
    Ok(vec![PostCommit::Run(turn.session, turn.id)])
}
