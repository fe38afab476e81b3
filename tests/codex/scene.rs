//! Rooms and HTTP clients before our gateway, the real codex behind it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use talaria_platform::EventId;

use crate::codex_home::{CodexHome, CodexOptions, KEY, KEY_VARIABLE};
use crate::direct::DirectCodex;
use crate::it::binary::{Process, Talaria};
use crate::it::network::{Network, Shown};
use crate::it::stream::Stream;
use crate::it::upstream::Upstream;
use crate::processes;

/// Longest wait. Only a failure takes this long; the first turn starts codex.
const PATIENCE: Duration = Duration::from_secs(90);

/// The owner's key of the agent server.
const OWNER: &str = "a-key-of-the-owner-that-is-long-enough";

/// Words below an answer that is not whole.
pub const CUT_SHORT: &str = "(cut short: ";

/// The room of most scenes.
pub const ROOM: &str = "garden";

/// Settings that a scene can change.
#[derive(Clone, Default)]
pub struct SceneSetup {
    pub codex: CodexOptions,
    /// Further lines of the agent's entry, each with four spaces before it.
    pub entry: String,
    /// Whether codex gets no key for its provider.
    pub without_key: bool,
    /// Whether codex has used its home before. A codex that is killed while it makes its databases leaves them locked
    /// for minutes.
    pub used_home: bool,
    /// Whether the agent is a model, at the same server, that can be switched to codex.
    pub is_switchable: bool,
    /// `mcp_servers` of ours, as JSON.
    pub servers: Value,
    /// Milliseconds that people have to answer an ask; `None` for the usual time.
    pub answer_millis: Option<u64>,
}

pub struct Scene {
    pub model: Upstream,
    pub home: CodexHome,
    pub network: Network,
    setup: SceneSetup,
    talaria: Talaria,
    gateway: Option<Process>,
    address: String,
    client: reqwest::Client,
}

/// A question of the agent in a room.
pub struct Asked {
    pub code: String,
    pub text: String,
}

impl Scene {
    pub async fn start() -> Self {
        Self::with(SceneSetup::default()).await
    }

    pub async fn with(setup: SceneSetup) -> Self {
        let model = Upstream::plain().await;
        let home = CodexHome::new(&model.url(), &setup.codex);
        if setup.used_home {
            DirectCodex::start(&home).await.ends().await;
        }
        let mut talaria = Talaria::new()
            .var("HOME", &home.path().display().to_string())
            .var("API_SERVER_PORT", "0")
            .var("API_SERVER_KEY", OWNER);
        talaria.sets("TALARIA_ANSWER_MS", setup.answer_millis.map(|millis| millis.to_string()).as_deref());
        let network = Network::listen(talaria.home());
        if setup.is_switchable {
            let folder = home.program_on_path();
            let path = format!("{}:/usr/bin:/bin", folder.parent().unwrap().display());
            for (name, value) in
                [("PATH", &*path), ("CODEX_HOME", home.codex_home().to_str().unwrap()), (KEY_VARIABLE, KEY)]
            {
                talaria.sets(name, Some(value));
            }
        }
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut scene =
            Self { model, home, network, setup, talaria, gateway: None, address: String::new(), client };
        scene.is_configured();
        scene.gateway_starts().await;
        scene
    }

    /// Writes the configuration.
    fn is_configured(&self) {
        let Self { home, setup, .. } = self;
        let key =
            if setup.without_key { String::new() } else { format!("    env: {{{KEY_VARIABLE}: {KEY}}}\n") };
        let agent = match setup.is_switchable {
            true => format!(
                "kind: model\n    model: m\n    base_url: {}/v1\n    runtime: auto\n",
                self.model.url()
            ),
            false => format!(
                "kind: codex\n    command: {}\n    codex_home: {}\n    workspace: {}\n{key}",
                home.program().display(),
                home.codex_home().display(),
                home.workspace().display(),
            ),
        };
        let servers = if setup.servers.is_null() { json!({}) } else { setup.servers.clone() };
        self.talaria.rewrites_config(format!(
            "mcp_servers: {servers}\nagents:\n  coder:\n    {agent}    access: {{allow_all: true}}\n{}\
             platforms:\n  test:\n    socket: {}\n    pause_ms: 5\n    max_text: 60000\n    access: {{allow_all: true}}\n    \
             limits: {{per_minute: 10000, per_hour: 100000}}\n",
            setup.entry,
            self.network.socket().display(),
        ));
    }

    /// Runs a command of the operator that succeeds, and returns what it prints.
    pub async fn operates(&self, args: &[&str]) -> String {
        let ended = self.talaria.does(args.iter().copied()).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}\n{self}", ended.out);
        ended.out
    }

    /// The running gateway reads its configuration with these MCP servers.
    pub async fn has_servers(&mut self, servers: Value) {
        self.setup.servers = servers;
        self.is_configured();
        self.operates(&["reload"]).await;
    }

    /// A person adds a skill.
    pub fn has_skill(&self, name: &str, text: &str) {
        let folder = self.talaria.home().join("skills");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.md")), text).unwrap();
    }

    /// Starts the gateway.
    pub async fn gateway_starts(&mut self) {
        let gateway = self.gateway.insert(self.talaria.starts());
        self.address = gateway.serves().await;
    }

    /// Ends the gateway by a signal, and waits until it is gone.
    pub async fn gateway_ends_by(&mut self, signal: Signal) {
        let mut gateway = self.gateway.take().expect("it runs");
        gateway.signal(signal);
        gateway.dies().await;
    }

    /// Starts the gateway, which dies by itself at this failpoint, and a next life that does not.
    pub async fn gateway_dies_at(&mut self, point: &str, prompt: &str) -> EventId {
        self.gateway_ends_by(Signal::KILL).await;
        self.talaria.sets("TALARIA_FAILPOINT", Some(&format!("{point}:1")));
        self.gateway_starts().await;
        let question = self.says(prompt);
        self.gateway.take().expect("it runs").dies().await;
        self.talaria.sets("TALARIA_FAILPOINT", None);
        self.gateway_starts().await;
        question
    }

    /// Waits until the gateway's log contains this.
    pub async fn logs(&mut self, words: &str) {
        self.gateway.as_mut().expect("it runs").logs(words).await;
    }

    /// Ids of the codex processes.
    pub fn codex_processes(&self) -> Vec<i32> {
        processes::called(&self.home.program())
    }

    /// Kills codex at once, as the system does when memory is short.
    pub fn codex_is_killed(&self) {
        let processes = self.codex_processes();
        assert!(!processes.is_empty(), "codex should run\n{self}");
        processes.into_iter().for_each(processes::kill);
    }

    /// Kills codex at once, if there is one.
    pub fn codex_dies_if_it_runs(&self) {
        self.codex_processes().into_iter().for_each(processes::kill);
    }

    /// Waits until one codex is left. While it starts another program, that has codex' name for a moment.
    pub async fn one_codex_is_left(&self) {
        let alone = async {
            while self.codex_processes().len() != 1 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_alone = tokio::time::timeout(PATIENCE, alone).await.is_ok();
        assert!(is_alone, "one codex should run, not {:?}\n{self}", self.codex_processes());
    }

    /// Waits until neither codex nor anything that it started is left.
    pub async fn nothing_is_left(&self) {
        self.only_these_are_left(&[]).await;
    }

    /// Everything that runs for this scene.
    pub fn processes(&self) -> Vec<i32> {
        processes::mentioning(self.home.path())
    }

    /// Waits until nothing but these processes runs for this scene.
    pub async fn only_these_are_left(&self, known: &[i32]) {
        let gone = async {
            // Processes that are not ours cannot be waited for.
            while self.processes().iter().any(|process| !known.contains(process)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let gone = tokio::time::timeout(PATIENCE, gone).await.is_ok();
        assert!(gone, "processes are left: {:?}\n{self}", self.processes());
    }

    /// Waits until a command has made this file.
    pub async fn exists(&self, file: &Path) {
        let made = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let made = tokio::time::timeout(PATIENCE, made).await.is_ok();
        assert!(made, "{} should be there\n{self}", file.display());
    }

    /// Ann writes in the usual room.
    pub fn says(&self, text: &str) -> EventId {
        self.says_in(ROOM, text)
    }

    /// Ann writes in a room of her own.
    pub fn says_in(&self, room: &str, text: &str) -> EventId {
        self.network.says(room, text)
    }

    /// Waits until some message shows this.
    pub async fn shows(&self, text: &str) {
        let shows = |shown: &[Shown]| shown.iter().any(|shown| shown.body().markdown.contains(text));
        assert!(self.network.shows(PATIENCE, shows).await, "{text:?} should be shown\n{self}");
    }

    /// Waits until the answer to a question shows this, whether or not it still grows.
    pub async fn answers_with(&self, question: &EventId, text: &str) {
        let shows = |shown: &[Shown]| {
            shown.iter().any(|shown| shown.replies_to(question) && shown.body().markdown.contains(text))
        };
        assert!(self.network.shows(PATIENCE, shows).await, "{text:?} should be answered\n{self}");
    }

    /// The final text of the answer to a question.
    pub async fn ends(&self, question: &EventId) -> String {
        let came = self.network.shows(PATIENCE, |shown| final_of(shown, question).is_some()).await;
        assert!(came, "the question should have been answered\n{self}");
        let text = final_of(&self.network.messages(), question);
        text.unwrap_or_else(|| panic!("the answer should stay\n{self}"))
    }

    /// Ann asks something, and reads the final answer.
    pub async fn turn(&self, text: &str) -> String {
        let question = self.says(text);
        self.ends(&question).await
    }

    /// Asks of the agent so far, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        asks_of(&self.network.messages())
    }

    /// Waits for an ask beyond so many, or for the end of the answer to a question, which is `None`.
    pub async fn is_asked_or_ends(&self, question: &EventId, seen: usize) -> Option<Asked> {
        let is_over = |shown: &[Shown]| final_of(shown, question).is_some();
        let came = self.network.shows(PATIENCE, |shown| is_over(shown) || asks_of(shown).len() > seen).await;
        assert!(came, "the agent should ask or end\n{self}");
        let messages = self.network.messages();
        if is_over(&messages) { None } else { asks_of(&messages).into_iter().nth(seen) }
    }

    /// Waits until the agent has asked so many times, and returns the last ask.
    pub async fn is_asked(&self, count: usize) -> Asked {
        let came = self.network.shows(PATIENCE, |shown| asks_of(shown).len() >= count).await;
        assert!(came, "the agent should ask\n{self}");
        let mut asked = self.asked();
        assert_eq!(asked.len(), count, "{self}");
        asked.remove(count - 1)
    }

    /// Ann answers an ask.
    pub fn approves(&self, asked: &Asked) {
        self.says(&format!("/approve {}", asked.code));
    }

    pub fn denies(&self, asked: &Asked) {
        self.says(&format!("/deny {}", asked.code));
    }

    /// A request to the agent server, as JSON, with the owner's key.
    pub async fn posts(&self, path: &str, body: &Value) -> (u16, Value) {
        let request =
            self.client.post(format!("{}{path}", self.address)).bearer_auth(OWNER).body(body.to_string());
        let response = request.timeout(PATIENCE).send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
    }

    /// Runs with this input over HTTP to its end, and returns its record. Every ask gets this choice.
    pub async fn runs(&self, input: &Value, choice: &str) -> Value {
        let (status, run) = self.posts("/v1/runs", input).await;
        assert_eq!(status, 202, "{run}");
        let path = format!("/v1/runs/{}", run["run_id"].as_str().unwrap());
        let mut events = Stream::of(self.asks_for(&format!("{path}/events")).await);
        while let Some(event) = events.try_next().await.unwrap() {
            if event.kind() == "approval.request" {
                let answer = json!({ "choice": choice, "approval_id": event.json()["approval_id"] });
                let (status, said) = self.posts(&format!("{path}/approval"), &answer).await;
                assert_eq!(status, 200, "{said}");
            }
        }
        self.gets(&path).await
    }

    /// The state of something at the agent server.
    pub async fn gets(&self, path: &str) -> Value {
        serde_json::from_str(&self.asks_for(path).await.text().await.unwrap()).unwrap()
    }

    async fn asks_for(&self, path: &str) -> reqwest::Response {
        let request = self.client.get(format!("{}{path}", self.address)).bearer_auth(OWNER);
        request.timeout(PATIENCE).send().await.unwrap()
    }

    /// The report of `talaria check`, whatever it finds.
    pub async fn checks(&self) -> String {
        let ended = self.talaria.does(["check"]).await;
        ended.out + &*ended.err
    }

    /// Nothing has asked the model in the protocol of chat completions.
    pub fn assert_only_responses(&self) {
        assert!(self.model.requests_to("/chat/completions").is_empty(), "{self}");
    }
}

impl fmt::Display for Scene {
    /// Prints everything that a person needs to understand a failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for shown in self.network.messages() {
            let about = shown.body().reply_to.as_ref().map_or("nothing", EventId::as_str);
            writeln!(f, "in {}, to {about}, done: {}", shown.place.room, shown.body().done)?;
            writeln!(f, "  {:?}", shown.body().markdown)?;
        }
        for (number, prompt) in self.model.prompts().iter().enumerate() {
            let told = crate::responses::told(prompt);
            writeln!(f, "prompt {number}: {:?}", told.last())?;
        }
        let gateway = self.gateway.as_ref().map(Process::so_far).unwrap_or_default();
        writeln!(f, "gateway:\n{gateway}")
    }
}

/// The finished answer to a question. Asks reply to it too, and the notices that nobody answered them.
fn final_of(shown: &[Shown], question: &EventId) -> Option<String> {
    let is_about_ask = |text: &str| code_of(text).is_some() || text.starts_with("Denied, because ");
    let is_final = |shown: &&Shown| {
        shown.replies_to(question) && shown.body().done && !is_about_ask(&shown.bodies[0].markdown)
    };
    shown.iter().rfind(is_final).map(|shown| shown.body().markdown.clone())
}

fn asks_of(shown: &[Shown]) -> Vec<Asked> {
    let texts = shown.iter().map(|shown| shown.bodies[0].markdown.clone());
    texts.filter_map(|text| Some(Asked { code: code_of(&text)?, text })).collect()
}

/// The code of an ask; `None` for other messages.
fn code_of(text: &str) -> Option<String> {
    Some(text.split_once("`/deny ")?.1.get(..4)?.to_owned())
}

/// The text of a chat completion.
pub fn text_of(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

/// A request for a chat completion with this message.
pub fn completion(content: Value) -> Value {
    json!({ "model": "talaria", "messages": [{ "role": "user", "content": content }] })
}
