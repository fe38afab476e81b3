//! One gateway's lives with a scripted codex, and a person who answers asks.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use talaria::agents::process::count_children;

use super::super::life::{self, Life};
use super::super::trial::{PATIENCE, Prompt, TRIALS};
use crate::codex::scripted_peer::{Act, LogEntry, LogEvent, Scenario, ScriptedCodex};
use crate::support::network::{Network, Shown};

/// The two prompts.
pub const PROMPTS: [&str; 2] = ["tidy up", "is all well?"];

/// The command that the person allows, unless they refuse everything.
pub const ALLOWED: &str = "touch a.txt";

/// The command that nobody is asked about.
pub const UNASKED: &str = "ls -l";

/// The command that the person always refuses.
pub const REFUSED: &str = "rm -rf b";

/// Last words of a whole answer to each prompt.
pub const LAST_WORDS: [&str; 2] = ["That was all.", "All is well."];

/// How often we look whether processes have ended.
const LOOK: Duration = Duration::from_millis(3);

/// The process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodexVictim {
    Codex,
    Gateway,
    Both,
    /// The process between them.
    Shim,
}

/// When it dies.
#[derive(Clone, Copy, Debug)]
pub enum DeathMoment {
    /// After so many entries of the codex' log since the start or the last death; or when the first answer is there.
    Entries(usize),
    /// When a command runs that nobody was asked about.
    Command,
    /// When the room shows the first ask.
    Ask,
    After(Duration),
}

#[derive(Clone, Copy, Debug)]
pub struct CodexDeath {
    pub victim: CodexVictim,
    pub moment: DeathMoment,
}

/// One trial.
#[derive(Clone, Debug)]
pub struct CodexTrial {
    deaths: Vec<CodexDeath>,
    person: PersonHabit,
    /// Safety mechanism to switch off, for the checker's own test.
    without: Option<&'static str>,
}

/// How the person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonHabit {
    /// Allows one command and refuses the other.
    Picky,
    Refuses,
    /// Allows everything, but only after the deaths.
    Late,
}

/// Everything that the network, codex and the system saw, for the checker.
pub struct CodexHistory {
    pub person: PersonHabit,
    pub prompts: Vec<Prompt>,
    pub messages: Vec<Shown>,
    /// The log of the scripted codex.
    pub codex: Vec<LogEntry>,
    /// Processes that were left after each death of the gateway and after the end, when their time was up.
    pub orphans: usize,
    /// The log of all lives of the gateway.
    pub log: String,
}

impl CodexTrial {
    pub fn new(deaths: Vec<CodexDeath>) -> Self {
        Self { deaths, person: PersonHabit::Picky, without: None }
    }

    /// The person allows an ask only after this victim has died with it.
    pub fn approved_late(victim: CodexVictim) -> Self {
        let deaths = vec![CodexDeath { victim, moment: DeathMoment::Ask }];
        Self { deaths, person: PersonHabit::Late, without: None }
    }

    /// The person refuses every ask.
    pub fn refused(self) -> Self {
        Self { person: PersonHabit::Refuses, ..self }
    }

    /// Switches a safety mechanism off.
    pub fn without(self, mechanism: &'static str) -> Self {
        Self { without: Some(mechanism), ..self }
    }

    pub fn deaths(&self) -> usize {
        self.deaths.len()
    }

    /// Runs through all lives.
    pub async fn run(&self) -> CodexHistory {
        let _permit = TRIALS.acquire().await.expect("never closed");
        let folder = || tempfile::tempdir().expect("a folder of the test's own");
        let (home, workspace) = (folder(), folder());
        let network = Arc::new(Network::listen(home.path()));
        let codex = ScriptedCodex::new(&scenario());
        configure(home.path(), workspace.path(), &network, &codex);
        let begin = || Life::begin(home.path(), &self.environment());

        let says = |text: &str, undisturbed| Prompt {
            event: network.says("garden", text),
            room: "garden",
            text: text.to_owned(),
            undisturbed,
        };
        let mut prompts = vec![says(PROMPTS[0], false)];
        let person = Person::new(network.clone(), self.person);
        let mut orphans = 0;
        let mut life = Some(begin());
        for death in &self.deaths {
            self.comes(death.moment, &network, &codex, &prompts[0]).await;
            if matches!(death.victim, CodexVictim::Codex | CodexVictim::Both) {
                kill(last_process(&codex, home.path()));
            }
            if death.victim == CodexVictim::Shim {
                kill(last_process(&codex, home.path()).and_then(parent_of));
            }
            if matches!(death.victim, CodexVictim::Gateway | CodexVictim::Both) {
                if let Some(life) = life.take() {
                    life.kill().await;
                }
                orphans += processes_left(home.path()).await;
                life = Some(begin());
            }
        }
        person.is_free();
        settled(&network, &prompts).await;
        prompts.push(says(PROMPTS[1], true));
        settled(&network, &prompts).await;
        if let Some(life) = life.take() {
            life.kill().await;
        }
        orphans += processes_left(home.path()).await;

        CodexHistory {
            person: self.person,
            prompts,
            messages: network.messages(),
            codex: codex.log(),
            orphans,
            log: std::fs::read_to_string(life::log(home.path())).unwrap_or_default(),
        }
    }

    async fn comes(&self, moment: DeathMoment, network: &Network, codex: &ScriptedCodex, prompt: &Prompt) {
        let before = codex.log().len();
        let answered = network.shows(PATIENCE, |shown| is_answered(prompt, shown));
        match moment {
            DeathMoment::Entries(count) => {
                tokio::select! {
                    () = codex.has_logged(|log| log.len() >= before + count) => {}
                    _ = answered => {}
                }
            }
            DeathMoment::Command => {
                let runs = |entry: &LogEntry| matches!(&entry.event, LogEvent::Ran { command, .. } if command == UNASKED);
                codex.has_logged(|log| log.iter().any(runs)).await;
            }
            DeathMoment::Ask => {
                let asks = |shown: &[Shown]| shown.iter().any(|shown| code_of(shown).is_some());
                assert!(network.shows(PATIENCE, asks).await, "no ask: {}", codex.history());
            }
            DeathMoment::After(time) => tokio::time::sleep(time).await,
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = vec![("PATH", std::env::var("PATH").unwrap_or_default())];
        environment.extend(self.without.map(|mechanism| ("TALARIA_BROKEN", mechanism.to_owned())));
        environment
    }
}

impl CodexHistory {
    /// How often a command ran.
    pub fn runs(&self, wanted: &str) -> usize {
        let is_run =
            |entry: &&LogEntry| matches!(&entry.event, LogEvent::Ran { command, .. } if command == wanted);
        self.codex.iter().filter(is_run).count()
    }
}

impl fmt::Display for CodexHistory {
    /// Prints everything that a person needs to understand a failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, shown) in self.messages.iter().enumerate() {
            for body in &shown.bodies {
                let state = if body.done { "done" } else { "    " };
                writeln!(f, "message {index} {state} {:?}", body.markdown)?;
            }
        }
        for entry in &self.codex {
            match &entry.event {
                LogEvent::Started { .. } => writeln!(f, "{} started", entry.process)?,
                event => writeln!(f, "{} {event:?}", entry.process)?,
            }
        }
        writeln!(f, "orphans: {}\n{}", self.orphans, self.log)
    }
}

/// The person in the room. Dropping this ends them.
struct Person {
    free: tokio::sync::watch::Sender<bool>,
    answering: tokio::task::JoinHandle<()>,
}

impl Person {
    fn new(network: Arc<Network>, habit: PersonHabit) -> Self {
        let (free, mut is_free) = tokio::sync::watch::channel(false);
        let answering = tokio::spawn(async move {
            if habit == PersonHabit::Late && is_free.wait_for(|free| *free).await.is_err() {
                return;
            }
            let answered = Mutex::new(HashSet::new());
            loop {
                let next = |shown: &[Shown]| {
                    let mut asks = shown
                        .iter()
                        .filter_map(|shown| Some((code_of(shown)?, shown.bodies[0].markdown.clone())));
                    asks.find(|(code, _)| !answered.lock().contains(code))
                };
                if !network.shows(PATIENCE, |shown| next(shown).is_some()).await {
                    continue;
                }
                let Some((code, words)) = next(&network.messages()) else { continue };
                let allows = match habit {
                    PersonHabit::Picky => words.contains(ALLOWED),
                    PersonHabit::Refuses => false,
                    PersonHabit::Late => true,
                };
                network.says("garden", &format!("/{} {code}", if allows { "approve" } else { "deny" }));
                answered.lock().insert(code);
            }
        });
        Self { free, answering }
    }

    /// The deaths are over.
    fn is_free(&self) {
        self.free.send_replace(true);
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

/// The code of an ask, if a message is one.
fn code_of(shown: &Shown) -> Option<String> {
    let (_, rest) = shown.bodies[0].markdown.split_once("`/approve ")?;
    Some(rest.split('`').next()?.to_owned())
}

/// Whether a message is an answer to a prompt, and no ask or notice about it.
pub fn is_answer(prompt: &Prompt, shown: &Shown) -> bool {
    let text = &shown.body().markdown;
    let notice =
        ["Queued: ", "Allowed", "Denied", "The agent asks"].iter().any(|words| text.starts_with(words));
    shown.replies_to(&prompt.event) && !notice
}

fn is_answered(prompt: &Prompt, shown: &[Shown]) -> bool {
    let mut answers = shown.iter().filter(|shown| is_answer(prompt, shown)).peekable();
    answers.peek().is_some() && answers.all(|answer| answer.body().done)
}

/// Waits until every prompt has an answer that does not grow any more. If that fails, the checker reports it.
async fn settled(network: &Network, prompts: &[Prompt]) {
    network.shows(PATIENCE, |shown| prompts.iter().all(|prompt| is_answered(prompt, shown))).await;
}

/// The codex process, if it still runs with this home.
fn last_process(codex: &ScriptedCodex, home: &Path) -> Option<u32> {
    codex.processes().last().copied().filter(|process| {
        // Its number may belong to another process by now.
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let folder = codex.folder().display().to_string();
        count_children(home) > 0 && memchr::memmem::find(&environment, folder.as_bytes()).is_some()
    })
}

fn parent_of(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn kill(process: Option<u32>) {
    if let Some(pid) = process.and_then(|process| Pid::from_raw(process as i32)) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Waits until no process of this home is left. Returns how many are, when the time is up.
async fn processes_left(home: &Path) -> usize {
    let gone = async {
        while count_children(home) > 0 {
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(PATIENCE, gone).await {
        Ok(()) => 0,
        Err(_) => count_children(home),
    }
}

fn scenario() -> Scenario {
    Scenario::default()
        .turn(
            PROMPTS[0],
            [
                Act::says(&["I will ", "make a file, ", "look, ", "and clear up."]),
                Act::runs_if_allowed(ALLOWED, ""),
                Act::Thinks("**Looking**".to_owned()),
                Act::runs(UNASKED, "a.txt\n"),
                Act::runs_if_allowed(REFUSED, ""),
                Act::says(&["That ", "was ", "all."]),
            ],
        )
        .turn(PROMPTS[1], [Act::says(&["All ", "is ", "well."])])
}

fn configure(home: &Path, workspace: &Path, network: &Network, codex: &ScriptedCodex) {
    let config = format!(
        "agents:\n  helper: {{kind: codex, command: {}, workspace: {}, access: {{allow_all: true}}}}\n\
         default_agent: helper\n\
         platforms:\n  test: {{socket: {}, pause_ms: 5, access: {{allow_all: true}}}}\n",
        codex.command().display(),
        workspace.display(),
        network.socket().display(),
    );
    std::fs::write(home.join("talaria.yaml"), config).expect("the test's own folder");
}
