//! One gateway's lives around a turn with three tool calls: it dies as planned, starts again, and the person goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use talaria::agent::{MessageRole, SessionMessage};

use super::super::life::{self, Life};
use super::super::trial::{Death, PATIENCE, Prompt, TRIALS, settled};
use super::counting_server::CountingServer;
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, Request, Upstream, delta};
use crate::tools::support::calls;

/// The prompt whose turn is killed, and the one after it.
pub const PROMPTS: [&str; 2] = ["work", "and now?"];

/// The model's words before the first two calls, before the third, and at the end.
pub const WORDS: [&str; 3] = ["I begin.", "One more.", "All of it is done."];

/// A half of the model's last words.
pub const HALF: &str = "All of it";

/// The model's answer to the second prompt.
pub const LAST_WORDS: &str = "All is well.";

/// Ids of the calls. The first adds a mark to a file; the others are counted by a server.
pub const CALLS: [&str; 3] = ["c1", "c2", "c3"];

/// The file that the first call edits. Each edit adds one more `+`.
const FILE: &str = "notes.txt";

/// One trial.
#[derive(Clone, Debug)]
pub struct ToolTrial {
    deaths: Vec<Death>,
    /// Whether the calls of the counting server end only when the room shows the text before them.
    shown: bool,
    /// Whether the second prompt comes while the gateway is dead.
    early: bool,
    /// Whether one more death comes first, when the room shows a half of the last answer.
    half_answered: bool,
    /// Safety mechanism to switch off, for the checker's own test.
    without: Option<&'static str>,
}

/// Everything that the network, the model, the tools and the database saw, for the checker.
pub struct ToolHistory {
    /// The two prompts.
    pub prompts: Vec<Prompt>,
    /// The messages of the room, with all their earlier texts.
    pub messages: Vec<Shown>,
    /// The messages of every request to the model.
    pub requests: Vec<Vec<Value>>,
    /// How often each call ran.
    pub runs: BTreeMap<String, usize>,
    /// The transcript of the unfinished turn in the database, at the death where it was longest.
    pub recorded: Vec<SessionMessage>,
    /// The log of all lives of the gateway.
    pub log: String,
}

impl ToolTrial {
    pub fn new(deaths: Vec<Death>) -> Self {
        Self { deaths, shown: false, early: false, half_answered: false, without: None }
    }

    /// Chooses one of four kinds of circumstances. A death while the answer is shown needs a room that shows it.
    pub fn varied(self, variant: usize) -> Self {
        let shows = |point: &str| ["checkpoint", "anchor", "edit"].iter().any(|kind| point.starts_with(kind));
        let needs = self.deaths.iter().any(|death| matches!(death, Death::At(point, _) if shows(point)));
        Self { shown: needs || variant & 1 != 0, early: variant & 2 != 0, ..self }
    }

    /// Lets the model hang in the middle of its last answer, and the gateway die when people can read that half.
    pub fn half_answered(self) -> Self {
        Self { half_answered: true, ..self }
    }

    /// Switches a safety mechanism off.
    pub fn without(self, mechanism: &'static str) -> Self {
        Self { without: Some(mechanism), ..self }
    }

    /// Number of deaths.
    pub fn deaths(&self) -> usize {
        self.deaths.len() + usize::from(self.half_answered)
    }

    /// Runs through all lives. Panics if a planned death does not happen.
    pub async fn run(&self) -> ToolHistory {
        let _permit = TRIALS.acquire().await.expect("never closed");
        let folder = || tempfile::tempdir().expect("a folder of the test's own");
        let (home, workspace) = (folder(), folder());
        let file = workspace.path().join(FILE);
        std::fs::write(&file, "end\n").expect("the test's own folder");
        let network = Arc::new(Network::listen(home.path()));
        let model = Upstream::plain().await;
        model.answers_by(if self.half_answered { half_answer } else { answer });
        let counter = CountingServer::listen(network.clone(), self.shown).await;
        configure(home.path(), workspace.path(), &network, &model, &counter);

        let says = |text: &str, undisturbed| Prompt {
            event: network.says("garden", text),
            room: "garden",
            text: text.to_owned(),
            undisturbed,
        };
        let mut prompts = vec![says(PROMPTS[0], false)];
        let mut recorded = Vec::new();
        let mut look_at_records = || {
            let left = read_records(home.path());
            if left.len() > recorded.len() {
                recorded = left;
            }
        };
        if self.half_answered {
            let life = Life::begin(home.path(), &self.environment(None));
            let shows = |shown: &[Shown]| shown.iter().any(|shown| shown.body().markdown.contains(HALF));
            assert!(network.shows(PATIENCE, shows).await, "no half of an answer\n{}", log(home.path()));
            life.kill().await;
            look_at_records();
        }
        for death in &self.deaths {
            let life = Life::begin(home.path(), &self.environment(Some(death)));
            match death {
                Death::At(..) => {
                    let died = life.dies(PATIENCE).await;
                    died.unwrap_or_else(|instead| panic!("{self:?}: {instead}\n{}", log(home.path())));
                }
                Death::After(time) => {
                    tokio::time::sleep(*time).await;
                    life.kill().await;
                }
            }
            look_at_records();
        }
        if self.early {
            prompts.push(says(PROMPTS[1], true));
        }
        let _last = Life::begin(home.path(), &self.environment(None));
        settled(&network, &prompts, PATIENCE).await;
        if !self.early {
            prompts.push(says(PROMPTS[1], true));
            settled(&network, &prompts, PATIENCE).await;
        }

        let marks = std::fs::read_to_string(&file).expect("a file that no tool deletes").matches('+').count();
        let mut runs = counter.runs();
        runs.insert(CALLS[0].to_owned(), marks);
        ToolHistory {
            prompts,
            messages: network.messages(),
            requests: model.prompts().iter().map(messages).collect(),
            runs,
            recorded,
            log: log(home.path()),
        }
    }

    fn environment(&self, death: Option<&Death>) -> Vec<(&'static str, String)> {
        let mut environment = Vec::new();
        if let Some(Death::At(point, time)) = death {
            environment.push(("TALARIA_FAILPOINT", format!("{point}:{time}")));
        }
        environment.extend(self.without.map(|mechanism| ("TALARIA_BROKEN", mechanism.to_owned())));
        environment
    }
}

impl ToolHistory {
    /// How often a call ran.
    pub fn runs(&self, call: &str) -> usize {
        self.runs.get(call).copied().unwrap_or_default()
    }
}

impl fmt::Display for ToolHistory {
    /// Prints everything that a person needs to understand a failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, shown) in self.messages.iter().enumerate() {
            for body in &shown.bodies {
                writeln!(
                    f,
                    "message {index} {} {:?}",
                    if body.done { "done" } else { "    " },
                    body.markdown
                )?;
            }
        }
        for messages in &self.requests {
            writeln!(f, "request: {}", Value::from(messages.clone()))?;
        }
        writeln!(f, "runs: {:?}\non record: {:#?}\n{}", self.runs, self.recorded, self.log)
    }
}

fn configure(home: &Path, workspace: &Path, network: &Network, model: &Upstream, counter: &CountingServer) {
    let config = format!(
        "agents:\n  helper: {{kind: model, base_url: {}/v1, model: small, workspace: {}, tools: [edit_file, mcp]}}\n\
         default_agent: helper\n\
         mcp_servers:\n  counter: {{url: {}, permissions: {{add: allow}}}}\n\
         platforms:\n  test: {{socket: {}, pause_ms: 5, access: {{allow_all: true}}}}\n",
        model.url(),
        workspace.display(),
        counter.url(),
        network.socket().display(),
    );
    std::fs::write(home.join("talaria.yaml"), config).expect("the test's own folder");
}

fn log(home: &Path) -> String {
    std::fs::read_to_string(life::log(home)).unwrap_or_default()
}

/// The messages of a request, without the system message.
fn messages(request: &Request) -> Vec<Value> {
    let messages = request.json()["messages"].as_array().expect("messages").clone();
    messages.into_iter().filter(|message| message["role"] != "system").collect()
}

/// The model: the same request always gets the same answer.
fn answer(request: &Request) -> Answer {
    answer_with(request, Answer::says(WORDS[2].split_inclusive(' ')))
}

/// A model that hangs in the middle of its last answer.
fn half_answer(request: &Request) -> Answer {
    answer_with(request, Answer::stream().sends(delta(HALF)).hangs())
}

fn answer_with(request: &Request, last: Answer) -> Answer {
    let messages = messages(request);
    let asked = messages.iter().rposition(|message| message["role"] == "user").unwrap_or_default();
    let rounds = messages[asked..].iter().filter(|message| message["role"] == "assistant").count();
    let works = messages[asked]["content"].as_str().is_some_and(|text| text.contains(PROMPTS[0]));
    let count = |what: &str, after: &str| format!(r#"{{"what":"{what}","after":"{after}"}}"#);
    match (works, rounds) {
        (true, 0) => {
            let edit = format!(r#"{{"path":"{FILE}","old_text":"end","new_text":"+end"}}"#);
            let count = count(CALLS[1], WORDS[0]);
            calls(WORDS[0], &[(CALLS[0], "edit_file", &edit), (CALLS[1], "mcp_counter_add", &count)])
        }
        (true, 1) => calls(WORDS[1], &[(CALLS[2], "mcp_counter_add", &count(CALLS[2], WORDS[1]))]),
        (true, _) => last,
        (false, _) => Answer::says([LAST_WORDS]),
    }
}

/// Reads the transcript of unfinished turns from a copy of the database, so that the next life finds everything as the
/// dead one left it.
fn read_records(home: &Path) -> Vec<SessionMessage> {
    let copy = tempfile::tempdir().expect("a folder of the test's own");
    for name in ["talaria.db", "talaria.db-wal"] {
        // Before the first start is over, there may be none.
        std::fs::copy(home.join(name), copy.path().join(name)).ok();
    }
    let database = rusqlite::Connection::open(copy.path().join("talaria.db")).expect("a copied database");
    let tables = "SELECT count(*) FROM sqlite_master WHERE name = 'turn_records'";
    if database.query_row(tables, [], |row| row.get::<_, i64>(0)).expect("a readable database") == 0 {
        return Vec::new();
    }
    let mut query = database
        .prepare("SELECT role, content, tools FROM turn_records ORDER BY turn, number")
        .expect("the columns of the table");
    let rows = query.query_map([], |row| {
        let (role, content, tools): (String, String, Option<String>) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let role = if role == "tool" { MessageRole::Tool } else { MessageRole::Assistant };
        let tools = tools.map(|tools| serde_json::from_str(&tools).expect("activity of tools"));
        Ok(SessionMessage { tools, ..SessionMessage::new(role, content) })
    });
    rows.expect("a query without parameters").map(|row| row.expect("a readable row")).collect()
}
