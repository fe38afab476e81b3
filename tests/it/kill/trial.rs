//! One gateway's lives: prompts come, it dies as planned, starts again, and must make everything good.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use talaria_platform::EventId;
use tokio::sync::Semaphore;

use super::life::{self, Life};
use crate::support::agent_server::{AgentServer, Kind};
use crate::support::network::{Network, Shown};
use crate::support::upstream::Nobody;

/// Gateways at a time: enough to fill the waits of each other, few enough for a small machine.
pub static TRIALS: Semaphore = Semaphore::const_new(4);

/// How long a trial waits for what must happen. Only a failure takes this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The same without the outbox: what must happen can never happen then.
const NO_PATIENCE: Duration = Duration::from_secs(1);

/// The longest message, so that a long answer has several parts.
pub const MAX_TEXT: usize = 400;

/// How a life ends.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    /// By itself, when it gets to a failpoint for the nth time.
    At(&'static str, u32),
    /// From outside, some time after its start.
    After(Duration),
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Trial {
    kind: Kind,
    deaths: Vec<Death>,
    prompts: &'static [(&'static str, &'static str)],
    busy: bool,
    /// A safety mechanism that is switched off, for the checker's own test.
    without: Option<&'static str>,
    /// The agent server is down until the last life, and another one stands in.
    stand_in: bool,
}

/// What the network and the agent server saw, for the checker.
pub struct History {
    /// What the agent server can do.
    pub kind: Kind,
    /// How often something died whose work cannot be asked for again.
    pub deaths: usize,
    /// What people wrote, in order.
    pub prompts: Vec<Prompt>,
    /// What the rooms show and have shown.
    pub messages: Vec<Shown>,
    /// How often the agent server ran each prompt.
    pub executions: HashMap<String, usize>,
    /// What all lives of the gateway logged.
    pub log: String,
}

/// Something a person wrote.
pub struct Prompt {
    /// The network's id of it.
    pub event: EventId,
    /// Where it was written.
    pub room: &'static str,
    /// Unique in its trial.
    pub text: String,
    /// It came after the last death, so nothing may be missing from its answer.
    pub undisturbed: bool,
}

impl Trial {
    /// Three prompts in two rooms, one of them with a long answer.
    pub fn new(kind: Kind, deaths: Vec<Death>) -> Self {
        let prompts = &[("garden", "first"), ("cellar", "long"), ("garden", "second")];
        Self { kind, deaths, prompts, busy: false, without: None, stand_in: false }
    }

    /// A single prompt, where it matters which one is hit.
    pub fn with_one_prompt(self) -> Self {
        Self { prompts: &[("garden", "first")], ..self }
    }

    /// A network that takes every finished message only at the second try.
    pub fn on_a_busy_network(self) -> Self {
        Self { busy: true, ..self }
    }

    /// With an agent server that is down until the last life, and another one that stands in.
    pub fn with_a_stand_in(self) -> Self {
        Self { stand_in: true, ..self }
    }

    /// With a safety mechanism switched off.
    pub fn without(self, mechanism: &'static str) -> Self {
        Self { without: Some(mechanism), ..self }
    }

    /// How the gateway dies.
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// Lives through it all. Panics if a planned death does not happen.
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
            "gateway: {{fallback: {}}}\nplatforms:\n  test:\n    socket: {}\n    pause_ms: 5\n    max_text: {MAX_TEXT}\n    \
             access: {{allow_all: true}}\n    limits: {{per_minute: 10000, per_hour: 100000}}\n",
            if self.stand_in { "local" } else { "none" },
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
        // Whatever ran at the stand-in, or may have, must not run here.
        let first = AgentServer::on(nobody.becomes_a_listener(), self.kind, self.pause(), answer);
        let _last = start(None);
        self.settled(&network, &prompts).await;
        // A session answers in order: when these are answered, nothing that was asked before, once or
        // twice, can still come.
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

    /// Waits until every prompt has an answer and none of them still grows. What is missing when the
    /// patience ends is for the checker to say.
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

    /// Differs between the kills at one point, so that what else is under way differs too.
    fn pause(&self) -> Duration {
        match self.deaths.first() {
            Some(Death::At(_, time)) => Duration::from_millis(4 + u64::from(*time) * 3 % 7),
            Some(Death::After(time)) => Duration::from_millis(4 + time.as_millis() as u64 % 7),
            None => Duration::from_millis(4),
        }
    }
}

/// Waits until every prompt has an answer and none of them still grows, for as long as that.
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

    /// What the agent server says to it.
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
    /// Everything a person needs to understand a failure.
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

/// The environment of a life that ends like this.
fn with(death: Option<&Death>, environment: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let mut environment = environment.to_vec();
    if let Some(Death::At(point, time)) = death {
        environment.push(("TALARIA_FAILPOINT", format!("{point}:{time}")));
    }
    environment
}

/// What several agent servers ran, together.
fn sum(servers: [HashMap<String, usize>; 2]) -> HashMap<String, usize> {
    let mut all = HashMap::new();
    for (prompt, times) in servers.into_iter().flatten() {
        *all.entry(prompt).or_default() += times;
    }
    all
}

/// What the hub says to a prompt that has to wait; it is no answer.
fn is_queue_notice(shown: &Shown) -> bool {
    shown.body().markdown.starts_with("Noted; ")
}

/// What the agent server says: a dozen pieces, or three times as many for a long answer.
pub fn answer(prompt: &str) -> Vec<String> {
    let pieces = if prompt == "long" { 36 } else { 12 };
    let opening = format!("My answer to \"{prompt}\":");
    std::iter::once(opening).chain((1..pieces).map(|number| format!(" this is part {number},"))).collect()
}
