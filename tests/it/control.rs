//! The operator's commands on the real binary: a second process acts on the first, or on what it left.

mod absent;
mod approvals;
mod audit;
mod check;
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

/// Nothing here takes this long unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway between a chat network and an agent server, all of them real but for their words.
struct Scene {
    talaria: Talaria,
    network: Network,
    upstream: Upstream,
}

impl Scene {
    /// With these lines below `platforms.test`, such as who may talk.
    async fn new(people: &str) -> Self {
        let upstream = Upstream::plain().await;
        let talaria = Talaria::to(&upstream);
        let network = Network::listen(talaria.home());
        let scene = Self { talaria, network, upstream };
        scene.writes(people);
        scene
    }

    /// Somebody changes the configuration.
    fn writes(&self, people: &str) {
        self.talaria.rewrites_config(self.config(people));
    }

    fn config(&self, people: &str) -> String {
        let lines: String = people.lines().map(|line| format!("    {line}\n")).collect();
        format!("platforms:\n  test:\n    socket: {}\n{lines}", self.network.socket().display())
    }

    /// Starts the gateway, and waits until it reads: that it runs is said before. It runs for as long as this is kept.
    async fn starts(&self) -> Process {
        let readers = self.network.readers();
        let mut process = self.talaria.starts();
        process.logs("running").await;
        assert!(self.network.is_read(PATIENCE, readers + 1).await, "it never read");
        process
    }

    /// Runs a command that must end well, and returns what it printed.
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

    /// Somebody asks something that is answered by a stream which never ends.
    async fn asks_without_end(&self, who: &str, room: &str) {
        let asked = self.upstream.prompts().len();
        self.upstream
            .answers(Answer::stream().sends(crate::support::upstream::delta("Let me think")).hangs());
        self.network.says_as(who, room, true, "plan my week");
        self.upstream.has_prompts(asked + 1).await;
        self.shows(|messages| texts(messages, room).iter().any(|text| text.starts_with("Let me think")))
            .await;
    }

    /// Waits until the rooms show this.
    async fn shows(&self, wanted: impl Fn(&[Shown]) -> bool) {
        assert!(self.network.shows(PATIENCE, wanted).await, "it never came: {:#?}", self.network.messages());
    }
}

/// What our messages in a room show now.
fn texts(messages: &[Shown], room: &str) -> Vec<String> {
    let here = messages.iter().filter(|shown| shown.place.room.as_str() == room);
    here.map(|shown| shown.body().markdown.clone()).collect()
}
