//! The operator's commands on the real binary: a second process acts on the running one, or on its state folder.

mod absent;
mod approvals;
mod audit;
mod check;
mod codex;
mod kind_commands;
mod mcp;
mod mcp_servers;
mod owner_key;
mod pairing;
mod reload;
mod socket;
mod status;
mod stop;
mod token;

use std::time::Duration;

use crate::support::binary::{Ended, Process, Talaria};
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, Upstream};

/// Longest wait of a test. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway between a chat network and an agent server; only their texts are scripted.
struct Scene {
    talaria: Talaria,
    network: Network,
    upstream: Upstream,
}

impl Scene {
    /// Makes a scene with these lines below `platforms.test`, such as who may talk.
    async fn new(people: &str) -> Self {
        let upstream = Upstream::plain().await;
        let talaria = Talaria::to(&upstream);
        let network = Network::listen(talaria.home());
        let scene = Self { talaria, network, upstream };
        scene.writes(people);
        scene
    }

    /// Changes the configuration file.
    fn writes(&self, people: &str) {
        self.talaria.rewrites_config(self.config(people));
    }

    fn config(&self, people: &str) -> String {
        let lines: String = people.lines().map(|line| format!("    {line}\n")).collect();
        format!("platforms:\n  test:\n    socket: {}\n{lines}", self.network.socket().display())
    }

    /// Starts the gateway, and waits until it reads the network, which it does only after it logs that it runs. It
    /// runs while the returned process is kept.
    async fn starts(&self) -> Process {
        let readers = self.network.readers();
        let mut process = self.talaria.starts();
        process.logs("running").await;
        assert!(self.network.is_read(PATIENCE, readers + 1).await, "it never read");
        process
    }

    /// Runs a command that must succeed, and returns its output.
    async fn prints<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let ended = self.talaria.does(args).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
        ended.out
    }

    /// Runs a command that must be refused with this exit code.
    async fn is_refused<'a>(&self, code: i32, args: impl IntoIterator<Item = &'a str>) -> Ended {
        let ended = self.talaria.does(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{}", ended.err);
        ended
    }

    /// Makes a person ask a question whose answer is a stream that never ends.
    async fn asks_without_end(&self, who: &str, room: &str) {
        let asked = self.upstream.prompts().len();
        self.upstream
            .answers(Answer::stream().sends(crate::support::upstream::delta("Let me think")).hangs());
        self.network.says_as(who, room, true, "plan my week");
        self.upstream.has_prompts(asked + 1).await;
        self.shows(|messages| texts(messages, room).iter().any(|text| text.starts_with("Let me think")))
            .await;
    }

    /// Waits until the rooms show `wanted`.
    async fn shows(&self, wanted: impl Fn(&[Shown]) -> bool) {
        assert!(self.network.shows(PATIENCE, wanted).await, "it never came: {:#?}", self.network.messages());
    }
}

/// The current texts of our messages in a room.
fn texts(messages: &[Shown], room: &str) -> Vec<String> {
    let here = messages.iter().filter(|shown| shown.place.room.as_str() == room);
    here.map(|shown| shown.body().markdown.clone()).collect()
}
