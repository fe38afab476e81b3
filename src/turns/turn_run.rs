//! One turn while it runs: its row, the agent's turn, its request and its sink in one place.
//!
//! `drive` makes it; `retry`, `attempt`, `recover` and `input_slot` each add their part of its functions.

use std::sync::Arc;

use super::sink::TurnSink;
use super::{RunningTurn, Turns, input_slot, prompt_text, source};
use crate::agent::{
    AgentInfo, AgentKind, AgentScratch, AgentTurn, AttemptKind, ModelParams, PreparedTurn, SessionMessage,
    SharedAgent, TurnOrigin,
};
use crate::ids::AgentName;
use crate::media;
use crate::store::{SessionRow, TurnRow, TurnState};
use crate::turn_log::TurnLog;

/// A turn from its first try in this process to its end, or to the end of the process.
pub(super) struct TurnRun<'a> {
    pub turns: &'a Turns,
    /// Follows the edits of the prompt as long as nothing ran. Borrowed, because the end of the turn is made from it.
    pub row: &'a mut Arc<TurnRow>,
    /// The turn as the agent gets it. Boxed: every future that holds the run would hold its whole size.
    pub turn: Box<AgentTurn>,
    /// The request, once there is one; taken from the store if an earlier process or try made it.
    pub prepared: Option<PreparedTurn>,
    /// Receives the events of all tries.
    pub sink: TurnSink<'a>,
    pub running: &'a RunningTurn,
}

impl<'a> TurnRun<'a> {
    /// A run of the turn from its stored state. Asks nobody yet.
    pub fn new(
        turns: &'a Turns,
        row: &'a mut Arc<TurnRow>,
        session: &SessionRow,
        history: Vec<SessionMessage>,
        log: &'a TurnLog,
        running: &'a RunningTurn,
    ) -> Self {
        let resumed = row.state != TurnState::Queued;
        let prepared = turns.prepared_of(row);
        let turn = Box::new(turns.agent_turn(row, session, history, resumed));
        // The first text of a resumed turn came in an earlier process.
        let first = (!resumed).then(|| turns.surface(&row.source).first_delta.clone());
        Self { turns, row, turn, prepared, sink: TurnSink::new(log, first), running }
    }

    /// The agent of the turn.
    pub fn agent(&self) -> SharedAgent {
        self.turns.agent_of(self.row).agent
    }

    /// Waits for any reason to end a running agent early.
    pub async fn interrupted(&self) {
        tokio::select! {
            () = self.running.stop.cancelled() => {}
            () = self.turns.draining.cancelled() => {}
            () = self.sink.full.cancelled() => {}
        }
    }

    /// Fetches the attachments of a room's prompt. Pictures and files go into the request, text into the prompt; for
    /// each attachment that is left out, a line in the prompt says why.
    pub async fn fetch_media(&mut self) {
        let Some(media) = self.row.source.room().map(|question| &question.media) else { return };
        if media.is_empty() {
            return;
        }
        let Some(account) = self.turns.account_of(&self.row.source) else { return };
        // Charged by the announced size first, so that a slow file does not block others; then by the real size.
        let asked = input_slot::size(self.row, &self.turn.history);
        self.running.input.put(None);
        let waiting = self.wait_for_input_budget(asked + media::announced(media));
        let Some(mut permit) = waiting.await else { return };
        let fetched = tokio::select! {
            fetched = media::fetch(account.platform(), media, self.turns.settings.files) => fetched,
            // `make_ready` checks for an interruption too, so no request is prepared without the attachments.
            () = self.interrupted() => return,
        };
        self.sink.attached(fetched.kept);
        self.turn.prompt.push_str(&fetched.notes);
        self.turn.images = fetched.images;
        self.turn.files = fetched.files;
        let bytes = asked + input_slot::attached(&self.turn);
        permit.shrink_to(bytes);
        let permit = match permit.grow_to(bytes) {
            true => Some(permit),
            false => {
                drop(permit);
                self.wait_for_input_budget(bytes).await
            }
        };
        self.running.input.put(permit);
    }
}

impl Turns {
    fn agent_turn(
        &self,
        row: &TurnRow,
        session: &SessionRow,
        history: Vec<SessionMessage>,
        resumed: bool,
    ) -> AgentTurn {
        let (context, fallback_context) = self.contexts(row);
        let own = self.agent_of(row);
        // For an agent that works in none, it would keep the fallback from answering.
        let folder = source::folder(&row.source, &self.live.now()).filter(|_| own.agent.about().takes_folder);
        let mut turn = AgentTurn {
            id: row.id.clone(),
            agent: own.name,
            session: session.upstream_id(),
            conversation: session.folder_name(),
            // Settled when the request is stored.
            upstream: None,
            context,
            fallback_context,
            history,
            prompt: source::prompt(row),
            parts: Vec::new(),
            images: Vec::new(),
            files: Vec::new(),
            key: row.key.clone(),
            origin: TurnOrigin::default(),
            // The source sets these in `source::describe`.
            app: None,
            asked_in_room: false,
            attempt: if resumed { AttemptKind::Resume } else { AttemptKind::First },
            params: ModelParams::default(),
            memory: None,
            notes: None,
            model: model_of(row, session, &own.agent.about()),
            effort: None,
            // Settled when the request is stored.
            tokens_left: None,
            hops: 0,
            without_fallback: false,
            // The surface that asked sets it in `source::describe`.
            wants_raw: false,
            folder,
            scratch: AgentScratch::default(),
        };
        source::describe(&row.source, &mut turn);
        turn
    }

    /// The system messages of a turn, for its own agent and for the fallback of that one; the second is empty without a
    /// fallback.
    pub(super) fn contexts(&self, row: &TurnRow) -> (String, String) {
        let own = self.agent_of(row);
        let fallback = own.agent.about().fallback;
        let other = fallback.map(|fallback| self.context(row, &fallback.agent));
        (self.context(row, &own.name), other.unwrap_or_default())
    }

    /// The system message for an agent: the operator's text for all agents, then that for this one, then the text of the
    /// source.
    fn context(&self, row: &TurnRow, agent: &AgentName) -> String {
        let rules = self.live.now();
        let texts = [self.settings.context.as_str(), rules.agents.instructions(agent)];
        let is_replaced = source::replaces_system(&row.source);
        let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty() && !is_replaced).collect();
        let own = source::system_text(&row.source, self.settings.names);
        prompt_text::context(&texts.join("\n\n"), own)
    }
}

/// The model of a turn: the one that its app asks for, or the one that was chosen for its session. A reload may have taken
/// that off the list since.
fn model_of(row: &TurnRow, session: &SessionRow, about: &AgentInfo) -> Option<String> {
    let is_listed = |model: &String| about.models.contains(model);
    // Only a running agent of these kinds knows its models.
    let (takes_any_of_app, takes_any) = match about.kind {
        AgentKind::Acp => (true, true),
        AgentKind::Codex => (true, false),
        AgentKind::Proxy | AgentKind::Model | AgentKind::Guide => (false, false),
    };
    let wanted = source::wanted_model(&row.source).filter(|model| takes_any_of_app || is_listed(model));
    wanted.or_else(|| session.chosen_model.clone().filter(|model| takes_any || is_listed(model)))
}
