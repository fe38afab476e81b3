//! A gateway between rooms and a real hermes-agent.

use std::time::Duration;

use rustix::process::Signal;
use talaria_platform::EventId;

use crate::hermes_process::{HermesProcess, KEY};
use crate::it::binary::{Process, Talaria};
use crate::it::network::{Network, Shown};
use crate::scripted_model::{ScriptedModel, answer};
use crate::wire::CuttableWire;

/// Longest wait of a scene. The first turn of a hermes-agent takes seven seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The setting of `gateway.upstream` with which turns are runs.
pub const RUNS: &str = "runs";

/// The default, with which turns are streams.
pub const AUTO: &str = "auto";

pub struct Scene {
    pub model: ScriptedModel,
    pub hermes: HermesProcess,
    pub wire: CuttableWire,
    pub network: Network,
    talaria: Talaria,
    way: Way,
    gateway: Option<Process>,
}

/// How the gateway reaches hermes-agent.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Directly at its own address: connections are refused while it does not run.
    Direct,
    /// Through the wire that can be cut.
    Wire,
}

impl Scene {
    /// Starts everything but hermes-agent.
    pub async fn without_hermes(upstream: &str) -> Self {
        let mut scene = Self::make(upstream).await;
        scene.gateway_starts();
        scene
    }

    /// Starts everything.
    pub async fn start() -> Self {
        Self::start_by(Way::Direct).await
    }

    /// Starts everything; the gateway reaches hermes-agent in this way.
    pub async fn start_by(way: Way) -> Self {
        Self::start_with(way, RUNS).await
    }

    /// Starts everything with this setting of `gateway.upstream`.
    pub async fn start_with(way: Way, upstream: &str) -> Self {
        let mut scene = Self { way, ..Self::make(upstream).await };
        scene.hermes.starts().is_healthy().await;
        scene.gateway_starts();
        scene
    }

    async fn make(upstream: &str) -> Self {
        let model = ScriptedModel::listen().await;
        let hermes = HermesProcess::with_api_server(&model);
        let wire = CuttableWire::to(hermes.address()).await;
        let talaria = Talaria::new().var("GATEWAY_PROXY_KEY", KEY);
        let network = Network::listen(talaria.home());
        let config = format!(
            "gateway: {{upstream: {upstream}}}\nplatforms:\n  test:\n    socket: {}\n    pause_ms: 5\n    max_text: 60000\n    access: {{allow_all: true}}\n    \
             limits: {{per_minute: 10000, per_hour: 100000}}\n",
            network.socket().display(),
        );
        let talaria = talaria.config(&config);
        Self { model, hermes, wire, network, talaria, way: Way::Direct, gateway: None }
    }

    /// Gives the gateway another key from its next start on.
    pub fn has_key(&mut self, key: &str) {
        self.talaria.sets("GATEWAY_PROXY_KEY", Some(key));
    }

    /// Starts the gateway.
    pub fn gateway_starts(&mut self) {
        let url = match self.way {
            Way::Direct => self.hermes.url(),
            Way::Wire => self.wire.url(),
        };
        self.talaria.sets("GATEWAY_PROXY_URL", Some(&url));
        self.gateway = Some(self.talaria.starts());
    }

    /// Ends the gateway by a signal.
    pub async fn gateway_ends_by(&mut self, signal: Signal) {
        let mut gateway = self.gateway.take().expect("it runs");
        gateway.signal(signal);
        gateway.dies().await;
    }

    /// Ann asks something in a room of her own.
    pub fn asks(&self, room: &str, text: &str) -> EventId {
        self.network.says(room, text)
    }

    /// Waits until the answer to a question contains this, whether or not it still grows.
    pub async fn shows(&self, question: &EventId, text: &str) {
        let shows = |shown: &[Shown]| {
            shown.iter().any(|shown| shown.replies_to(question) && shown.body().markdown.contains(text))
        };
        assert!(self.network.shows(PATIENCE, shows).await, "{text:?} should be shown\n{self}");
    }

    /// Waits until the room asks about this, and returns the code of the ask.
    pub async fn is_asked(&self, text: &str) -> String {
        let asks = |shown: &[Shown]| {
            let mut texts = shown.iter().map(|shown| &shown.body().markdown);
            texts.any(|shown| shown.contains(text) && shown.contains("/approve"))
        };
        assert!(self.network.shows(PATIENCE, asks).await, "{text:?} should be asked\n{self}");
        let messages = self.network.messages();
        let mut texts = messages.iter().map(|shown| &shown.body().markdown);
        let asked = texts.rfind(|shown| shown.contains(text) && shown.contains("/approve")).unwrap();
        let (_, code) = asked.split_once("`/approve ").expect("it names its code");
        code.split_once('`').expect("it names its code").0.to_owned()
    }

    /// The final text of the answer to a question.
    pub async fn ends(&self, question: &EventId) -> String {
        let ended = |shown: &Shown| shown.replies_to(question) && shown.body().done;
        let came = self.network.shows(PATIENCE, |shown| shown.iter().any(ended)).await;
        assert!(came, "the question should have been answered\n{self}");
        let messages = self.network.messages();
        let texts: Vec<_> = messages.iter().filter(|shown| ended(shown)).collect();
        assert_eq!(texts.len(), 1, "there is one final message\n{self}");
        texts[0].body().markdown.clone()
    }

    /// Asks a question and checks that the answer is the model's whole text.
    pub async fn is_answered(&self, room: &str, prompt: &str) {
        let question = self.asks(room, prompt);
        assert_eq!(self.ends(&question).await, answer(prompt), "{self}");
    }
}

impl std::fmt::Display for Scene {
    /// Prints everything that a person needs to understand a failure.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for shown in self.network.messages() {
            let about = shown.body().reply_to.as_ref().map_or("nothing", EventId::as_str);
            writeln!(f, "in {}, to {about}, done: {}", shown.place.room, shown.body().done)?;
            writeln!(f, "  {:?}", shown.body().markdown)?;
        }
        let gateway = self.gateway.as_ref().map(Process::so_far).unwrap_or_default();
        writeln!(f, "gateway:\n{gateway}\nhermes-agent:\n{}", self.hermes.so_far())
    }
}
