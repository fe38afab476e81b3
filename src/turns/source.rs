//! Decisions of the engine that differ between a room's question and an app's request, side by side.
//!
//! Most of these differences are here; the others are in `finish`, `input_slot`, `asks` and `turn_run` (`fetch_media`). The
//! compiler names only the places that match on [`TurnSource`]: for a new variant, also search for `source.room()` and
//! `source.app()`.

use std::path::PathBuf;
use std::sync::Arc;

use talaria_platform::{PlaceLifetime, SendKey, UserId, spawn_task};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::token_budget::UsedUp;
use super::{BudgetPayer, Turns, checkpoint, prompt_text};
use crate::access::{AccessAction, AccessDecision, AgentAsker, GrantScope, PlaceKind};
use crate::agent::{AgentTurn, NoteScope, TurnEvent, TurnOrigin};
use crate::chat_command::ChatCommand;
use crate::delivery::{Delivery, DeliveryAccount};
use crate::i18n::TextKey;
use crate::ids::AgentName;
use crate::metrics::SurfaceMetrics;
use crate::notice::Notice;
use crate::reply::TurnOutcome;
use crate::rules::Rules;
use crate::store::{self, TurnRow, Tx};
use crate::turn_log::TurnLog;
use crate::turn_source::{AppRequest, RoomQuestion, TurnSource, WhenAway, WhenUnread};
use crate::{conversation, media};

/// Whether the asker may still ask. It was decided when the prompt came; since then a person may have left, the rules
/// may have changed, or the app's token may have been revoked.
pub(crate) fn permitted(tx: &Tx<'_>, rules: &Rules, source: &TurnSource) -> store::Result<bool> {
    match source {
        TurnSource::Room(question) => may(tx, rules, question, &question.author, AccessAction::Message),
        TurnSource::App(request) => tx.app_may_ask(&request.app),
    }
}

/// Whether the asker may still talk to an agent: its list may have changed since the prompt came.
pub(crate) fn may_talk_to(
    tx: &Tx<'_>,
    rules: &Rules,
    source: &TurnSource,
    agent: &AgentName,
) -> store::Result<bool> {
    let question = match source {
        TurnSource::Room(question) => question,
        TurnSource::App(request) => {
            let asker = match request.app.as_str() {
                "" => AgentAsker::Admin,
                app => AgentAsker::App(app),
            };
            return Ok(rules.agents.admit(agent, asker));
        }
    };
    let author = UserId::new(question.author.clone());
    let decision = decide(tx, rules, question, &author, AccessAction::Message)?;
    Ok(rules.agents.admit(agent, AgentAsker::of(decision.rule, &author, &question.place.room)))
}

/// Whether the asker may still be answered by the fallback that the request of a turn was made for. An agent that the
/// configuration no longer has forbids nothing: a turn that runs keeps it.
pub(crate) fn may_keep_fallback(tx: &Tx<'_>, rules: &Rules, turn: &TurnRow) -> store::Result<bool> {
    match &turn.prepared {
        Some(prepared) if rules.agents.by_name.contains_key(&prepared.agent) => {
            may_talk_to(tx, rules, &turn.source, &prepared.agent)
        }
        Some(_) | None => Ok(true),
    }
}

/// Whether the asker may use `/retry`.
pub(super) fn may_retry(tx: &Tx<'_>, rules: &Rules, source: &TurnSource) -> store::Result<bool> {
    match source {
        TurnSource::Room(question) => {
            may(tx, rules, question, &question.author, AccessAction::Command(ChatCommand::Retry))
        }
        // Apps have no commands.
        TurnSource::App(_) => Ok(false),
    }
}

/// Whether a grant that `by` gave earlier still counts for an ask of this agent: its giver must still be one of those who
/// may approve, and on the list of the agent.
pub(super) fn grant_holds(
    tx: &Tx<'_>,
    rules: &Rules,
    source: &TurnSource,
    agent: &AgentName,
    grant: GrantScope,
    by: &str,
) -> store::Result<bool> {
    match source {
        TurnSource::Room(question) => {
            let giver = UserId::new(by.to_owned());
            let decision = decide(tx, rules, question, &giver, AccessAction::Approve(grant))?;
            let asker = AgentAsker::of(decision.rule, &giver, &question.place.room);
            Ok(decision.allowed && rules.agents.admit(agent, asker))
        }
        TurnSource::App(request) => {
            Ok(tx.app_may_ask(&request.app)? && may_talk_to(tx, rules, source, agent)?)
        }
    }
}

fn may(
    tx: &Tx<'_>,
    rules: &Rules,
    question: &RoomQuestion,
    person: &str,
    action: AccessAction,
) -> store::Result<bool> {
    Ok(decide(tx, rules, question, &UserId::new(person.to_owned()), action)?.allowed)
}

fn decide(
    tx: &Tx<'_>,
    rules: &Rules,
    question: &RoomQuestion,
    person: &UserId,
    action: AccessAction,
) -> store::Result<AccessDecision> {
    let RoomQuestion { account, place, direct, .. } = question;
    let actor = tx.known_actor(account, &place.room, person)?;
    let rules = rules.account(account);
    Ok(rules.access_in(&place.room).authorize(actor, PlaceKind::from(*direct), action))
}

/// The party that is charged for the input in memory.
pub(super) fn payer(source: &TurnSource) -> BudgetPayer {
    match source {
        TurnSource::Room(_) => BudgetPayer::Rooms,
        TurnSource::App(request) => BudgetPayer::app(&request.app),
    }
}

/// When to stop a turn that nobody reads; `None` if it needs no reader.
pub(super) fn when_unread(source: &TurnSource) -> Option<WhenUnread> {
    match source {
        TurnSource::Room(_) => None,
        TurnSource::App(request) => Some(request.patience),
    }
}

/// Whether nobody can find the turn again once its reader is gone, so that it must not go on in another process.
pub(super) fn is_ephemeral(source: &TurnSource) -> bool {
    when_unread(source) == Some(WhenUnread::None)
}

/// The reaction of the turn while the agent is away or busy.
pub(super) fn when_away(source: &TurnSource) -> WhenAway {
    match source {
        TurnSource::Room(_) => WhenAway::Wait,
        TurnSource::App(request) => request.when_away,
    }
}

/// The end of a turn that a budget of tokens leaves nothing for. A program is told when to ask again.
pub(super) fn used_up(source: &TurnSource, used_up: UsedUp) -> TurnOutcome {
    let UsedUp { words, retry_after } = used_up;
    match source {
        TurnSource::Room(_) => TurnOutcome::Failed { words },
        TurnSource::App(_) => TurnOutcome::Unavailable { words, rate_limited: true, retry_after },
    }
}

/// Whether the prompt may be edited while the turn waits. Comparing prompts costs little, because people's are short.
pub(super) fn prompt_may_be_edited(source: &TurnSource) -> bool {
    match source {
        TurnSource::Room(_) => true,
        TurnSource::App(_) => false,
    }
}

/// Bytes of input beside the prompt.
pub(super) fn input_bytes(source: &TurnSource) -> usize {
    match source {
        // Attachments count when they are fetched; everything else is short.
        TurnSource::Room(_) => 0,
        TurnSource::App(request) => request.bytes(),
    }
}

/// The prompt as the agent gets it and the transcript keeps it.
pub(super) fn prompt(row: &TurnRow) -> String {
    match &row.source {
        TurnSource::Room(question) => prompt_text::spoken(question, &row.prompt),
        TurnSource::App(_) => row.prompt.clone(),
    }
}

/// Text for the system message beside the operator's own. With `names`, a room's is about the place and the person.
pub(super) fn system_text(source: &TurnSource, names: bool) -> Option<String> {
    match source {
        TurnSource::Room(question) => names.then(|| prompt_text::surroundings(question)).flatten(),
        TurnSource::App(request) => request.system.clone(),
    }
}

/// Attachments as the transcript names them. `fetched` is the list for a room, unless an earlier process fetched them.
pub(super) fn attached(source: &TurnSource, fetched: Option<String>) -> String {
    match source {
        TurnSource::Room(question) => fetched.unwrap_or_else(|| media::named(&question.media)),
        TurnSource::App(request) => request.pictures(),
    }
}

/// Sets the fields of an agent's turn that depend on the source.
pub(super) fn describe(source: &TurnSource, turn: &mut AgentTurn) {
    match source {
        TurnSource::Room(question) => {
            (turn.origin, turn.notes) = (room_origin(question), Some(room_notes(question)));
            turn.asked_in_room = true;
        }
        TurnSource::App(request) => {
            turn.notes = app_notes(request);
            (turn.parts, turn.params) = (request.parts.clone(), request.params.clone());
            (turn.memory, turn.hops) = (request.memory.clone(), request.hops);
            // An app is no room, but it may relay for one.
            turn.origin = request.origin.clone();
            turn.app = Some(request.app.clone()).filter(|app| !app.is_empty());
            if let Some(forge) = &request.forge {
                turn.folder = Some(forge.folder.clone());
                turn.effort = forge.effort.clone();
                turn.wants_raw = true;
            }
        }
    }
}

/// Whether the system text of the source stands alone, in place of the operator's.
pub(super) fn replaces_system(source: &TurnSource) -> bool {
    let forge = source.app().and_then(|request| request.forge.as_ref());
    forge.is_some_and(|forge| forge.replaces_system)
}

/// The folder in which a program works for the room, if it has one of its own. A request over HTTP brings its folder.
pub(super) fn folder(source: &TurnSource, rules: &Rules) -> Option<PathBuf> {
    let question = source.room()?;
    rules.accounts.get(&question.account)?.folder_in(&question.place.room).cloned()
}

/// The model that the source asks for, besides one that was chosen for the session.
pub(super) fn wanted_model(source: &TurnSource) -> Option<String> {
    source.app()?.forge.as_ref()?.model.clone()
}

/// The notes of a place. Nobody's own notes enter a prompt that others read the answer to.
fn room_notes(question: &RoomQuestion) -> NoteScope {
    let RoomQuestion { account, place, author, direct, .. } = question;
    match PlaceKind::from(*direct) {
        PlaceKind::Direct => NoteScope::Person { account: account.clone(), person: author.clone() },
        PlaceKind::Room => NoteScope::Room { account: account.clone(), room: place.room.clone() },
    }
}

/// The notes of an app's session key. Without a key nobody knows for whom the app asks.
fn app_notes(request: &AppRequest) -> Option<NoteScope> {
    let key = request.memory.clone()?;
    Some(NoteScope::AppKey { app: request.app.clone(), key })
}

fn room_origin(question: &RoomQuestion) -> TurnOrigin {
    let RoomQuestion { place, author, author_name, room_name, direct, .. } = question;
    TurnOrigin {
        user_id: Some(author.clone()),
        user_name: author_name.clone(),
        chat_id: Some(place.room.as_str().to_owned()),
        chat_name: room_name.clone(),
        chat_type: Some(if *direct { "direct" } else { "group" }.to_owned()),
        thread_id: place.thread.as_ref().map(|thread| thread.as_str().to_owned()),
    }
}

/// Longest message of the platform that shows the turn, in bytes; unlimited for an app, which is shown none.
pub(super) fn max_text(delivery: &Delivery, source: &TurnSource) -> usize {
    source.room().map_or(usize::MAX, |question| delivery.max_text(&question.account))
}

/// A notice about the turn in its room. `None` for an app: it has no place to be told in, and reads the log.
pub(super) fn notice(source: &TurnSource, key: SendKey, max_text: usize) -> Option<Notice<'_>> {
    let RoomQuestion { account, place, event, .. } = &**source.room()?;
    Some(Notice { key, account, place, reply_to: Some(event), max_text })
}

/// Says that the process ends before the answer is complete, so that nobody takes the part for the whole.
pub(super) fn tell_suspended(source: &TurnSource, log: &TurnLog) {
    match source {
        // A full log ends its turn anyway.
        TurnSource::Room(_) => _ = log.append(TurnEvent::Notice(Some(TextKey::GatewayStopped.into()))),
        // Readers of an app's turn see that their stream breaks off, and come back to the next process.
        TurnSource::App(_) => {}
    }
}

impl Turns {
    /// The account that shows the turn; `None` for an app, and if the platform is no longer configured.
    pub(super) fn account_of(&self, source: &TurnSource) -> Option<Arc<DeliveryAccount>> {
        self.delivery.account(&source.room()?.account)
    }

    /// Whether the end of the turn can reach its asker: a room needs its platform, an app any connection.
    pub(super) fn can_be_answered(&self, source: &TurnSource) -> bool {
        match source {
            TurnSource::Room(question) => {
                let account = &question.account;
                let is_there = self.delivery.account(account).is_some();
                if !is_there {
                    tracing::warn!(%account, "a turn waits for a platform that is no longer configured");
                }
                is_there
            }
            TurnSource::App(_) => true,
        }
    }

    /// Lifetime of the place of a turn.
    pub(super) fn lasts(&self, source: &TurnSource) -> PlaceLifetime {
        match source {
            TurnSource::Room(question) => self
                .delivery
                .account(&question.account)
                .map_or(PlaceLifetime::Always, |account| account.platform().lasts(&question.place)),
            TurnSource::App(_) => PlaceLifetime::Always,
        }
    }

    /// Counters of the surface that the turn came through.
    pub(super) fn surface(&self, source: &TurnSource) -> &SurfaceMetrics {
        match source {
            TurnSource::Room(_) => &self.metrics.rooms,
            TurnSource::App(_) => &self.metrics.http,
        }
    }

    /// Puts a mark on the question in its room. A question that is asked again has its marks already, and they cannot
    /// be taken back.
    pub(super) fn mark(&self, source: &TurnSource, mark: &'static str) {
        if let (TurnSource::Room(question), Some(account)) = (source, self.account_of(source))
            && question.attempt == 0
        {
            account.mark(&question.place, &question.event, mark);
        }
    }

    /// Starts the task that keeps the growing text: in a room it also shows it. The task ends with the log; a delta
    /// does not wake it.
    pub(super) fn present(
        &self,
        row: &TurnRow,
        log: &Arc<TurnLog>,
        already_shown: String,
    ) -> Option<JoinHandle<()>> {
        let (id, log) = (row.id.clone(), log.clone());
        match &row.source {
            TurnSource::Room(question) => {
                let account = self.delivery.account(&question.account)?;
                let shown = conversation::show(account, id, question.clone(), log, already_shown);
                Some(spawn_task("show-a-turn", shown.in_current_span()))
            }
            TurnSource::App(_) => {
                let kept = checkpoint::keep(self.store.clone(), id, log, already_shown.len());
                Some(spawn_task("checkpoint-a-turn", kept.in_current_span()))
            }
        }
    }
}
