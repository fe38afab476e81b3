//! An agent that follows a test's script, and remembers the turns that it got.
//!
//! ```ignore
//! let agent = gateway.agent().says(["Let me ", "think"]).then_hangs();
//! ```
//! Each script is for one run of a turn, the next one that comes (or the next one about `when(…)`);
//! without a script the agent answers "ok".

mod script;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria::agent::{
    Agent, AgentError, AgentErrorKind, AgentInfo, AgentKind, AgentOutput, AgentTurn, AnswerForm,
    AnsweringAgent, Ask, AskChoice, AskOption, Attachment, AttemptKind, EndedSession, LearningTools,
    NoteScope, OptionKind, PreparedTurn, PromptImage, PromptPart, ReviewRequest, ReviewResult, RewindSupport,
    SessionMessage, TurnEnd, TurnEvent, TurnOrigin,
};
use talaria_platform::{BoxFuture, CancellationToken};
use tokio::time::Instant;

use super::room::Gate;
pub use script::Script;

/// The agent; cheap to clone.
#[derive(Clone)]
pub struct Scripted {
    info: AgentInfo,
    /// Whether a repeated request does not run a turn twice.
    resumable: bool,
    /// Pause before the first word of each answer.
    pause: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    scripts: Vec<Script>,
    heard: Vec<Heard>,
    prepared: usize,
    /// Attachments of each turn at the time of its request.
    attached: HashMap<String, (Vec<PromptImage>, Vec<Attachment>)>,
    /// The next requests to prepare wait at these gates, one each.
    slow: Vec<Gate>,
    refusals: Vec<AgentError>,
    /// Whether it does not even answer reachability checks.
    away: bool,
    /// Number of reachability checks.
    questions: usize,
    /// Number of reviews that it was asked for.
    reviews: usize,
    /// The answer to that comes once this is open.
    hesitates: Option<Gate>,
    /// The answer to that while it lets nobody in.
    refuses: Option<AgentError>,
    /// Which life of the gateway this is; one that was killed does nothing any more.
    life: u64,
    asked: Vec<Asked>,
    answers: Vec<Answer>,
    ran: Vec<String>,
    /// Sessions that it was told are over.
    ended: Vec<EndedSession>,
    /// It never frees the next of them, and opens this when it is told.
    never_frees: Option<Gate>,
    /// Opened when it is told the next of them.
    told: Option<Gate>,
}

/// An ask of the agent, with its time on the clock and its place in the [`count`]ed order.
#[derive(Clone, Debug)]
pub struct Asked {
    pub ask: Ask,
    pub at: Instant,
    pub order: u64,
}

/// The answer to an ask of the agent.
#[derive(Clone, Debug)]
pub struct Answer {
    pub asked: Asked,
    pub choice: AskChoice,
    pub at: Instant,
    pub order: u64,
}

impl Answer {
    pub fn is_denied(&self) -> bool {
        matches!(self.choice, AskChoice::Deny(_))
    }
}

/// Counts events, so that two at the same moment of a paused clock have an order.
pub fn count() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

/// A turn that the agent was asked to run.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The system message; empty for none.
    pub context: String,
    pub prompt: String,
    /// The prompt in parts, if an app sent pictures with it.
    pub parts: Vec<PromptPart>,
    /// The scope of the memory, if an app named one.
    pub memory: Option<String>,
    /// The notes that it may read and write.
    pub notes: Option<NoteScope>,
    /// The model that was chosen for the session.
    pub model: Option<String>,
    /// Tokens that the budget leaves for the turn.
    pub tokens_left: Option<u64>,
    pub history: Vec<SessionMessage>,
    pub session: String,
    pub key: String,
    pub images: Vec<PromptImage>,
    pub files: Vec<Attachment>,
    /// The session's own folder, if it has one.
    pub folder: Option<std::path::PathBuf>,
    pub origin: TurnOrigin,
    pub resumed: bool,
    /// Its own report about the session, as it was given back.
    pub upstream: Option<serde_json::Value>,
    /// The stored bytes: they contain the number of requests made before this one.
    pub request: String,
}

impl Scripted {
    pub fn new(kind: AgentKind, name: &str, rewind: RewindSupport, resumable: bool) -> Self {
        let takes_folder = true;
        let info = AgentInfo { rewind, resume: resumable, takes_folder, ..AgentInfo::new(kind, name) };
        Self { info, resumable, pause: Duration::ZERO, state: Arc::default() }
    }

    /// Makes the agent pause before the first word of each answer.
    pub fn slowly(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Gives the agent models to choose from, the usual one first.
    pub fn with_models(self, models: &[&str]) -> Self {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        Self { info: AgentInfo { models, ..self.info }, ..self }
    }

    /// Keeps the agent from working in the folder of a session.
    pub fn without_folder(self) -> Self {
        Self { info: AgentInfo { takes_folder: false, ..self.info }, ..self }
    }

    /// Gives the agent tools to learn with. It has no model loop for reviews.
    pub fn with_learning(self, learns: LearningTools) -> Self {
        Self { info: AgentInfo { learns, ..self.info }, ..self }
    }

    /// How often it was asked to review a conversation.
    pub fn reviews(&self) -> usize {
        self.state().reviews
    }

    /// Adds a script for the next run.
    pub fn script(&self) -> Script {
        let script = Script::new();
        self.state().scripts.push(script.clone());
        script
    }

    /// Makes the next request fail while it is prepared.
    pub fn cannot_prepare(&self, kind: AgentErrorKind, words: &str) {
        self.state().refusals.push(AgentError::new(kind, words));
    }

    /// Makes the preparation of the next request wait for the gate.
    pub fn prepares_slowly(&self) -> Gate {
        let gate = Gate::default();
        self.state().slow.push(gate.clone());
        gate
    }

    /// From now on no request can be prepared and no check is answered, as with a server that is down.
    pub fn goes_away(&self) {
        self.state().away = true;
    }

    /// The agent answers again.
    pub fn comes_back(&self) {
        self.state().away = false;
    }

    /// From now on it answers only that it lets nobody in.
    pub fn refuses(&self, error: AgentError) {
        self.state().refuses = Some(error);
    }

    /// From now on it does not say whether it is there until the gate is opened.
    pub fn hesitates(&self) -> Gate {
        self.state().hesitates.insert(Gate::default()).clone()
    }

    /// How often it was asked whether it is there.
    pub fn questions(&self) -> usize {
        self.state().questions
    }

    /// All its asks, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// Every answer it got, in order.
    pub fn answers(&self) -> Vec<Answer> {
        self.state().answers.clone()
    }

    /// The actions that it ran because they were allowed, in order.
    pub fn ran(&self) -> Vec<String> {
        self.state().ran.clone()
    }

    /// Asks, and acts only if that is allowed.
    async fn ask(&self, out: &dyn AgentOutput, ask: Ask) {
        let asked = Asked { ask: ask.clone(), at: Instant::now(), order: count() };
        let life = {
            let mut state = self.state();
            state.asked.push(asked.clone());
            state.life
        };
        let choice = out.ask(ask).await;
        if self.state().life != life {
            return std::future::pending().await;
        }
        let mut state = self.state();
        let runs = match &choice {
            AskChoice::Allow(_) => true,
            AskChoice::Option(id) => asked.ask.form.option(id).is_some_and(|option| option.kind.allows()),
            AskChoice::Text(_) | AskChoice::Deny(_) => false,
        };
        if runs {
            state.ran.push(asked.ask.detail.clone());
        }
        state.answers.push(Answer { asked, choice, at: Instant::now(), order: count() });
    }

    /// Ends every running turn together with its gateway; returns the counted moment.
    pub fn dies(&self) -> u64 {
        let mut state = self.state();
        state.life += 1;
        count()
    }

    /// The sessions that it was told are over, in order.
    pub fn ended(&self) -> Vec<EndedSession> {
        self.state().ended.clone()
    }

    /// Makes it hang when it is told that the next session is over. The gate opens then.
    pub fn never_frees(&self) -> Gate {
        self.state().never_frees.insert(Gate::default()).clone()
    }

    /// The gate opens when it is told that the next session is over.
    pub fn is_told(&self) -> Gate {
        self.state().told.insert(Gate::default()).clone()
    }

    /// Every turn that it was asked to run.
    pub fn heard(&self) -> Vec<Heard> {
        self.state().heard.clone()
    }

    fn take_script(&self, prompt: &str) -> Option<Script> {
        let mut state = self.state();
        let at = state.scripts.iter().position(|script| script.fits(prompt))?;
        Some(state.scripts.remove(at))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Agent for Scripted {
    fn about(&self) -> AgentInfo {
        self.info.clone()
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move {
            let slow =
                Some(&mut self.state().slow).filter(|slow| !slow.is_empty()).map(|slow| slow.remove(0));
            if let Some(gate) = slow {
                gate.opened().await;
            }
            let mut state = self.state();
            if state.away {
                let kind = AgentErrorKind::NothingRan { after: None };
                return Err(AgentError::new(kind, "The agent cannot be reached."));
            }
            if !state.refusals.is_empty() {
                return Err(state.refusals.remove(0));
            }
            state.prepared += 1;
            // When a turn with a large question runs, it no longer holds the attachments itself.
            state.attached.insert(turn.id.0.clone(), (turn.images.clone(), turn.files.clone()));
            let (name, number) = (&self.info.name, state.prepared);
            let request = format!("{name}, request {number}: {}", turn.prompt).into_bytes();
            Ok(PreparedTurn { resumable: self.resumable, ..PreparedTurn::new(turn, request) })
        })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            if self.state().away {
                let kind = AgentErrorKind::NothingRan { after: None };
                return Err(AgentError::new(kind, "The agent cannot be reached."));
            }
            let attached = self.state().attached.get(&turn.id.0).cloned();
            let (images, files) = attached.unwrap_or_default();
            self.state().heard.push(Heard {
                context: turn.context.clone(),
                prompt: turn.prompt.clone(),
                parts: turn.parts.clone(),
                memory: turn.memory.clone(),
                notes: turn.notes.clone(),
                model: turn.model.clone(),
                tokens_left: turn.tokens_left,
                history: turn.history.clone(),
                session: turn.session.0.clone(),
                key: turn.key.clone(),
                images,
                files,
                folder: turn.folder.clone(),
                origin: turn.origin.clone(),
                resumed: turn.attempt == AttemptKind::Resume,
                upstream: turn.upstream.clone(),
                request: String::from_utf8_lossy(&prepared.request).into_owned(),
            });
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            match self.take_script(&turn.prompt) {
                Some(script) => script.run(self, out, &stop).await,
                None => {
                    out.emit(TurnEvent::Text("ok"));
                    Ok(TurnEnd::Done)
                }
            }
        })
    }

    fn end(&self, ended: EndedSession) -> BoxFuture<'_, ()> {
        let gate = {
            let mut state = self.state();
            state.ended.push(ended);
            if let Some(told) = state.told.take() {
                told.open();
            }
            state.never_frees.take()
        };
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.open();
                std::future::pending::<()>().await;
            }
        })
    }

    /// An agent with unknown capabilities never reports them, so that this waits for ever.
    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        match self.info.rewind {
            RewindSupport::Unknown => Box::pin(std::future::pending()),
            RewindSupport::Possible | RewindSupport::Impossible => Box::pin(async {}),
        }
    }

    fn review(&self, _request: ReviewRequest) -> BoxFuture<'_, Result<ReviewResult, AgentError>> {
        self.state().reviews += 1;
        Box::pin(async { Ok(ReviewResult::default()) })
    }

    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        let mut state = self.state();
        state.questions += 1;
        let reached = match state.away {
            true => Err(AgentError::new(AgentErrorKind::NothingRan { after: None }, "nobody is there")),
            false => state.refuses.clone().map_or(Ok(AnsweringAgent::Agent), Err),
        };
        let gate = state.hesitates.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.opened().await;
            }
            reached
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// An ask without a folder.
pub fn ask(title: &str, detail: &str) -> Ask {
    let (title, detail, form) = (title.into(), detail.to_owned(), AnswerForm::default());
    Ask { title, detail, cwd: None, is_elsewhere: false, reason: None, form, gap: None }
}

/// An option of an ask.
pub fn option(id: &str, label: &str, kind: OptionKind) -> AskOption {
    AskOption { id: id.to_owned(), label: label.to_owned(), kind }
}

/// An ask with options.
pub fn choice(title: &str, detail: &str, options: impl IntoIterator<Item = AskOption>) -> Ask {
    let form = AnswerForm { options: options.into_iter().collect(), takes_text: false };
    Ask { form, ..ask(title, detail) }
}

/// An ask that also, or only, takes a text.
pub fn or_text(ask: Ask) -> Ask {
    Ask { form: AnswerForm { takes_text: true, ..ask.form }, ..ask }
}
