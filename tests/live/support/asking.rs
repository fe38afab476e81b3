//! A gateway in the test's process whose agent only asks for permission, and reports the answers that it got.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use talaria::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentRegistry, AgentTable, AgentTurn, AnswerForm,
    Ask, AskChoice, PreparedTurn, TurnEnd, TurnEvent,
};
use talaria::config::{Config, ConfigSources, ReviewConfig, StepsSetting};
use talaria::delivery::DisplaySettings;
use talaria::gateway::plan::{self, RunMode};
use talaria::gateway::{Gateway, GatewayParts};
use talaria::i18n::TextKey;
use talaria::rules::LiveRules;
use talaria::store::Store;
use talaria::turns::TurnSettings;
use talaria_platform::{BoxFuture, CancellationToken};
use tempfile::TempDir;

use super::homeserver::{Account, Homeserver};

/// The exact action that the agent asks for.
pub const ACTION: &str = "rm -r build";

/// The gateway. Dropping it ends it.
pub struct Asking {
    _gateway: Gateway,
    _store: Store,
    _folder: TempDir,
    agent: Asker,
}

impl Asking {
    /// Starts it for one person, whatever their device.
    pub async fn starts(homeserver: &Homeserver, bot: &Account, person: &str, ask_for: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_owned();
        let env = |name: &str| match name {
            "TALARIA_HOME" => Some(home.display().to_string()),
            "MATRIX_HOMESERVER" => Some(homeserver.url.clone()),
            "MATRIX_USER_ID" => Some(bot.id.clone()),
            "MATRIX_PASSWORD" => Some(bot.password.clone()),
            "MATRIX_ALLOWED_USERS" => Some(person.to_owned()),
            "MATRIX_TRUST" => Some("any".to_owned()),
            _ => None,
        };
        let config =
            Config::load(&ConfigSources { config: None, folder: home.clone(), serve: false }, &env).unwrap();
        let (store, _threads) = Store::open(&home.join("talaria.db")).unwrap();
        let agent = Asker::default();
        let parts = GatewayParts {
            store: store.clone(),
            agents: AgentRegistry::new(AgentTable::new(
                config.agents.default.clone(),
                Arc::new(agent.clone()),
            )),
            platforms: plan::build(&config, RunMode::Run).unwrap().accounts,
            settings: TurnSettings {
                context: String::new(),
                names: false,
                files: false,
                history_messages: 10,
                history_bytes: 10_000,
                retry_for: Duration::ZERO,
                retry_scripts_for: Duration::ZERO,
                turn_bytes: 1024 * 1024,
                stop_grace: Duration::from_secs(4),
                ask_for,
                review: ReviewConfig::default(),
            },
            display: DisplaySettings { steps: StepsSetting::Line, edits: 100, reactions: false },
            live: LiveRules::new(config.rules.clone()),
            skills: None,
            switches: talaria::agents::runtime_switch::SwitchTable::default(),
        };
        let gateway = Gateway::start(parts).await.unwrap_or_else(|error| panic!("{}", error.error));
        Self { _gateway: gateway, _store: store, _folder: folder, agent }
    }

    /// The answers that the agent got.
    pub fn told(&self) -> Vec<AskChoice> {
        self.agent.told.lock().clone()
    }
}

/// An agent that asks before it does anything.
#[derive(Clone, Default)]
struct Asker {
    told: Arc<Mutex<Vec<AskChoice>>>,
}

impl Agent for Asker {
    fn about(&self) -> AgentInfo {
        AgentInfo::new(AgentKind::Proxy, TextKey::AgentRemote)
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async { Ok(PreparedTurn::new(turn, "")) })
    }

    fn run_turn<'a>(
        &'a self,
        _: &'a AgentTurn,
        _: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            let ask = Ask {
                title: "run a command".into(),
                detail: ACTION.to_owned(),
                cwd: None,
                is_elsewhere: false,
                reason: None,
                form: AnswerForm::default(),
                gap: None,
            };
            let choice = tokio::select! {
                choice = out.ask(ask) => choice,
                () = stop.cancelled() => return Ok(TurnEnd::Stopped),
            };
            out.emit(TurnEvent::Text(match choice {
                AskChoice::Allow(_) => "Done.",
                AskChoice::Deny(_) | AskChoice::Option(_) | AskChoice::Text(_) => "Then not.",
            }));
            self.told.lock().push(choice);
            Ok(TurnEnd::Done)
        })
    }
}
