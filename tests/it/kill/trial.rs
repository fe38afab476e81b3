//! One gateway's lives: prompts come, it dies as planned, starts again, and must repair everything.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use talaria_platform::EventId;
use tokio::sync::Semaphore;

use super::life::{self, Life};
use crate::support::agent_server::{AgentServer, Kind};
use crate::support::network::{Network, Shown};
use crate::support::upstream::Nobody;

/// Gateways at a time: enough to use each other's waits, few enough for a small machine.
pub static TRIALS: Semaphore = Semaphore::const_new(4);

/// Longest wait of a trial. Only a failure takes this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait of a trial without the outbox, where the answers can never come.
const NO_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of the longest message, so that a long answer has several parts.
pub const MAX_TEXT: usize = 400;

/// How a life ends.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    /// By itself, when it reaches a failpoint for the nth time.
    At(&'static str, u32),
    /// From outside, some time after its start.
    After(Duration),
}

/// One trial: the prompts, the deaths and the circumstances.
#[derive(Clone, Debug)]
pub struct Trial {
    kind: Kind,
    deaths: Vec<Death>,
    prompts: &'static [(&'static str, &'static str)],
    busy: bool,
    /// Safety mechanism to switch off, for the checker's own test.
    without: Option<&'static str>,
    /// Whether the agent server is down until the last life, and a fallback answers.
    stand_in: bool,
}

/// Everything that the network and the agent server saw, for the checker.
pub struct History {
    /// The kind of agent server.
    pub kind: Kind,
    /// Number of deaths of processes whose work cannot be asked for again.
    pub deaths: usize,
    /// The people's prompts, in order.
    pub prompts: Vec<Prompt>,
    /// The messages of the rooms, with all their earlier texts.
    pub messages: Vec<Shown>,
    /// How often the agent server ran each prompt.
    pub executions: HashMap<String, usize>,
    /// The log of all lives of the gateway.
    pub log: String,
}

/// A prompt that a person wrote.
pub struct Prompt {
    /// The network's id of it.
    pub event: EventId,
    /// The room where it was written.
    pub room: &'static str,
    /// Unique in its trial.
    pub text: String,
    /// Whether it came after the last death, so that nothing may be missing from its answer.
    pub undisturbed: bool,
}

impl Trial {
    /// Three prompts in two rooms, one of them with a long answer.
    pub fn new(kind: Kind, deaths: Vec<Death>) -> Self {
        let prompts = &[("garden", "first"), ("cellar", "long"), ("garden", "second")];
        Self { kind, deaths, prompts, busy: false, without: None, stand_in: false }
    }

    /// Uses a single prompt, where it matters which one is hit.
    pub fn with_one_prompt(self) -> Self {
        Self { prompts: &[("garden", "first")], ..self }
    }

    /// Uses a network that accepts every finished message only at the second attempt.
    pub fn on_a_busy_network(self) -> Self {
        Self { busy: true, ..self }
    }

    /// Uses an agent server that is down until the last life, and a fallback.
    pub fn with_a_stand_in(self) -> Self {
        Self { stand_in: true, ..self }
    }

    /// Switches a safety mechanism off.
    pub fn without(self, mechanism: &'static str) -> Self {
        Self { without: Some(mechanism), ..self }
    }

    /// The planned deaths of the gateway.
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// Runs through all lives. Panics if a planned death does not happen.
    pub async fn run(&self) -> History {
        let _permit = TRIALS.acquire().await.expect("never closed");
        let home = tempfile::tempdir().expect("a folder for the state");
        let network = Network::listen(home.path());
        if self.busy {
            network.takes_finished_messages_at_the_second_try();
        }
        let server = AgentServer::listen(self.kind, self.pause(), answer).await;
        let nobody = Nobody::new();
        let environment = self.environment(&server, &nobody);
        let start = |death| Life::begin(home.path(), &with(death, &environment));
        let config = format!(
            "gateway: {{fallback: {}, idle_timeout: {}, upstream: {}}}\nplatforms:\n  test:\n    socket: {}\n    pause_ms: 5\n    max_text: {MAX_TEXT}\n    \
             access: {{allow_all: true}}\n    limits: {{per_minute: 10000, per_hour: 100000}}\n",
            if self.stand_in { "local" } else { "none" },
            // A run that never began is looked for only so long.
            if self.kind == Kind::Runs { "5s" } else { "300s" },
            if self.kind == Kind::Runs { "runs" } else { "auto" },
            network.socket().display(),
        );
        std::fs::write(home.path().join("talaria.yaml"), config).expect("the test's own folder");

        let says = |&(room, text): &(&'static str, &'static str), undisturbed| Prompt {
            event: network.says(room, text),
            room,
            text: text.to_owned(),
            undisturbed,
        };
        let mut prompts: Vec<_> = self.prompts.iter().map(|prompt| says(prompt, false)).collect();
        for death in &self.deaths {
            let life = start(Some(death));
            match death {
                Death::At(..) => {
                    let died = life.dies(PATIENCE).await;
                    let log = || std::fs::read_to_string(life::log(home.path())).unwrap_or_default();
                    died.unwrap_or_else(|instead| panic!("{death:?}: {instead}\n{}", log()));
                }
                Death::After(time) => {
                    tokio::time::sleep(*time).await;
                    life.kill().await;
                }
            }
        }
        // A prompt that ran at the fallback, or may have, must not run here.
        let first = AgentServer::on(nobody.becomes_a_listener(), self.kind, self.pause(), answer);
        let _last = start(None);
        self.settled(&network, &prompts).await;
        // A session answers in order: once these are answered, no repetition of an earlier prompt can still come.
        prompts.extend([says(&("garden", "is all well?"), true), says(&("cellar", "and here?"), true)]);
        self.settled(&network, &prompts).await;

        History {
            kind: self.kind,
            deaths: self.deaths.len(),
            prompts,
            messages: network.messages(),
            executions: sum([server.executions(), first.executions()]),
            log: std::fs::read_to_string(life::log(home.path())).unwrap_or_default(),
        }
    }

    /// Waits until every prompt has an answer and none of them still grows. If the wait ends early, the checker
    /// reports the missing answers.
    async fn settled(&self, network: &Network, prompts: &[Prompt]) {
        let patience = if self.without == Some("outbox") { NO_PATIENCE } else { PATIENCE };
        settled(network, prompts, patience).await;
    }

    fn environment(&self, server: &AgentServer, nobody: &Nobody) -> Vec<(&'static str, String)> {
        let mut environment = match self.stand_in {
            false => vec![("GATEWAY_PROXY_URL", server.url())],
            true => vec![
                ("GATEWAY_PROXY_URL", nobody.url()),
                ("OPENAI_BASE_URL", format!("{}/v1", server.url())),
                ("OPENAI_MODEL", "small".to_owned()),
            ],
        };
        environment.extend(self.without.map(|mechanism| ("TALARIA_BROKEN", mechanism.to_owned())));
        environment
    }

    /// A pause that differs between the kills at one point, so that other work in progress differs too.
    fn pause(&self) -> Duration {
        match self.deaths.first() {
            Some(Death::At(_, time)) => Duration::from_millis(4 + u64::from(*time) * 3 % 7),
            Some(Death::After(time)) => Duration::from_millis(4 + time.as_millis() as u64 % 7),
            None => Duration::from_millis(4),
        }
    }
}

/// Waits until every prompt has an answer and none of them still grows, but no longer than `patience`.
pub async fn settled(network: &Network, prompts: &[Prompt], patience: Duration) {
    let settled = |shown: &[Shown]| {
        let mut answers = prompts.iter().map(|prompt| prompt.answers(shown));
        answers.all(|answers| !answers.is_empty() && answers.iter().all(|answer| answer.body().done))
    };
    network.shows(patience, settled).await;
}

impl Prompt {
    /// The messages that answer it, in the order in which they were posted.
    pub fn answers<'a>(&self, shown: &'a [Shown]) -> Vec<&'a Shown> {
        shown.iter().filter(|shown| shown.replies_to(&self.event) && !is_queue_notice(shown)).collect()
    }

    /// The agent server's answer to it.
    pub fn said(&self) -> String {
        answer(&self.text).concat()
    }
}

impl History {
    /// How often the agent server ran a prompt.
    pub fn executions(&self, prompt: &Prompt) -> usize {
        self.executions.get(&prompt.text).copied().unwrap_or_default()
    }
}

impl fmt::Display for History {
    /// Prints everything that a person needs to understand a failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, shown) in self.messages.iter().enumerate() {
            let about = shown.body().reply_to.as_ref().map_or("nothing", EventId::as_str);
            writeln!(f, "message {index} in {}, to {about}:", shown.place.room)?;
            for body in &shown.bodies {
                writeln!(f, "  {} {:?}", if body.done { "done" } else { "    " }, body.markdown)?;
            }
        }
        writeln!(f, "executions: {:?}\n{}", self.executions, self.log)
    }
}

/// The environment of a life that ends with this death.
fn with(death: Option<&Death>, environment: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let mut environment = environment.to_vec();
    if let Some(Death::At(point, time)) = death {
        environment.push(("TALARIA_FAILPOINT", format!("{point}:{time}")));
    }
    environment
}

/// Adds up the executions of several agent servers.
fn sum(servers: [HashMap<String, usize>; 2]) -> HashMap<String, usize> {
    let mut all = HashMap::new();
    for (prompt, times) in servers.into_iter().flatten() {
        *all.entry(prompt).or_default() += times;
    }
    all
}

/// Whether a message is the hub's notice for a prompt that has to wait; it is no answer.
fn is_queue_notice(shown: &Shown) -> bool {
    shown.body().markdown.starts_with("Queued: ")
}

/// The agent server's answer: a dozen pieces, or three times as many for the prompt `long`.
pub fn answer(prompt: &str) -> Vec<String> {
    let pieces = if prompt == "long" { 36 } else { 12 };
    let opening = format!("My answer to \"{prompt}\":");
    std::iter::once(opening).chain((1..pieces).map(|number| format!(" this is part {number},"))).collect()
}
