//! The contract of all adapters, on a real homeserver: the suite that the console and the rooms in memory pass too.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use talaria::config::{Config, ConfigSources};
use talaria::gateway::plan::RunMode;
use talaria_platform::conformance::{ConformanceWorld, MemoryInbox, run_all};
use talaria_platform::{BoxFuture, CancellationToken, Place, Platform, RoomEvent, RoomEventKind};
use tempfile::TempDir;

use crate::support::homeserver::{Account, Homeserver};
use crate::support::person::{DIRECT, Person, With, escaped};

/// One account and a person who talks to it, for all checks: a login for each would take longer than the checks.
struct Pair {
    ann: Person,
    bot: Account,
    config: Config,
    _folder: TempDir,
}

impl Pair {
    async fn new() -> Self {
        let homeserver = Homeserver::shared().await;
        let (bot, ann) =
            tokio::join!(homeserver.registers("bot"), Person::new(&homeserver, "ann", With::Nio));
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_owned();
        let env = |name: &str| match name {
            "TALARIA_HOME" => Some(home.display().to_string()),
            "MATRIX_HOMESERVER" => Some(homeserver.url.clone()),
            "MATRIX_USER_ID" => Some(bot.id.clone()),
            "MATRIX_PASSWORD" => Some(bot.password.clone()),
            "MATRIX_ALLOWED_USERS" => Some(ann.id.clone()),
            "MATRIX_TRUST" => Some("any".to_owned()),
            _ => None,
        };
        let sources = ConfigSources { config: None, folder: home.clone(), serve: false };
        let config = Config::load(&sources, &env).unwrap();
        Self { ann, bot, config, _folder: folder }
    }

    fn platform(&self) -> Arc<dyn Platform> {
        let platforms = talaria::gateway::plan::build(&self.config, RunMode::Run).unwrap();
        platforms.accounts.into_iter().next().unwrap().1
    }

    /// Makes a direct chat that the account has joined; nothing runs.
    async fn chat(self: Arc<Self>) -> Chat {
        let platform = self.platform();
        let inbox = Arc::new(MemoryInbox::new());
        let arrives = async {
            let room = self.ann.makes_room(DIRECT, &[&self.bot.id]).await;
            let is_here =
                |event: &RoomEvent| event.place.room.as_str() == room && event.kind == RoomEventKind::Joined;
            inbox.until(|inbox| inbox.events().iter().any(is_here).then_some(())).await;
            room
        };
        let room = tokio::select! {
            ended = platform.run(inbox.clone(), CancellationToken::new()) => panic!("{ended:?}"),
            room = arrives => room,
        };
        Chat { pair: self, room }
    }
}

/// One chat of the two.
struct Chat {
    pair: Arc<Pair>,
    room: String,
}

impl ConformanceWorld for Chat {
    fn platform(&self) -> Arc<dyn Platform> {
        self.pair.platform()
    }

    fn place(&self) -> Place {
        Place::room(self.room.as_str())
    }

    fn person_says<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.pair.ann.says(&self.room, text).await;
        })
    }

    fn shown(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            // Rooms have one order: a client that sees this event has seen everything sent before.
            let ann = &self.pair.ann;
            let path = format!("/v3/rooms/{}/state/test.mark/now", escaped(&self.room));
            let mark = crate::support::fresh("mark");
            ann.asks(Method::PUT, &path, json!({ "mark": mark })).await;
            ann.sees_event(&self.room, &mark, |event| event["content"]["mark"] == mark.as_str()).await;
            let ours = ann.shows(&self.room).into_iter();
            let ours = ours.filter(|message| message.sender == self.pair.bot.id && !message.deleted);
            ours.inspect(|message| assert!(message.encrypted && message.readable, "{message:?}"))
                .map(|message| message.text().to_owned())
                .collect()
        })
    }

    fn opens(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_adapter_keeps_the_contract() {
    let pair = Arc::new(Pair::new().await);
    run_all(async || pair.clone().chat().await).await;
}
