//! Builds the gateway, runs it until there is a reason to end, and ends it in order.
//!
//! Start: lock → store → port → accounts → recovery of turns and outbox → platforms read, HTTP is served. End:
//! platforms stop reading → turns end or are left for the next start → last messages are sent → the store
//! closes. All of it takes at most eight seconds; a second signal ends the process at once.

mod bind;
mod build;
pub mod plan;
mod signals;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use talaria_platform::{AccountId, CancellationToken, Platform, PlatformErrorKind};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::AgentRegistry;
use crate::agents::runtime_switch::{RuntimeControl, SwitchTable};
use crate::agents::skills::SkillLibrary;
use crate::agents::{self, AgentServices, count_agent_processes, process};
use crate::command::CommandRunner;
use crate::config::{Config, ConfigSources};
use crate::control::{self, ControlState, RunningGateway, ServerHandle};
use crate::delivery::{Delivery, DeliveryAccount, DisplaySettings, ReadingState, outbox};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::rules::{AccountRules, LiveRules};
use crate::server::listen::ListeningServer;
use crate::server::{self, Server};
use crate::state_dir::{StartError, StateDir, told_of_lost_database};
use crate::store::{self, Store};
use crate::supervise::{self, TaskRun, supervise};
use crate::testing::failpoint;
use crate::turns::{TurnSettings, Turns};

pub use bind::BINDING;
use bind::BoundServer;
use build::settings;
use plan::Platforms;
pub use signals::harden;
use signals::{ExitSignals, has_terminal};

/// Longest time for an orderly end.
const GRACE: Duration = Duration::from_secs(8);

/// Time that platforms have to stop reading, so that a stuck one does not use up the time of the others.
const STOP_READING: Duration = Duration::from_secs(2);

/// Why the process ends without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The process was asked to end, or there is nothing more to read and everything is answered.
    Well,
    /// Every platform was lost for good.
    NoPlatformLeft,
    /// Prompts were piped in, and not all of them were answered to their end.
    Unanswered,
}

/// A running gateway. Tests of the whole core start it too.
pub struct Gateway {
    turns: Arc<Turns>,
    commands: Arc<CommandRunner>,
    accounts: Vec<Arc<DeliveryAccount>>,
    /// Hubs that platforms deliver to. Dropped last: a platform that sends may still write notes.
    hubs: Vec<Arc<Hub>>,
    /// Fired to make platforms stop reading.
    stop_reading: CancellationToken,
    /// Fired last, to end the outboxes.
    stop_sending: CancellationToken,
    /// One task per platform; each returns how it ended.
    reading: JoinSet<supervise::TaskEnd>,
    sending: JoinSet<supervise::TaskEnd>,
    store: Store,
    live: Arc<LiveRules>,
    /// The skills of agents, for the agent server.
    skills: Option<Arc<SkillLibrary>>,
    /// Shows and changes the runtimes of agents.
    runtimes: Arc<RuntimeControl>,
    /// The agent server, if it runs.
    serving: Option<ListeningServer>,
    /// Whether the process continues when platforms have nothing more to read.
    stays: bool,
    /// MCP servers of agents, ended when no turn needs them any more. `None` only in tests.
    services: Option<Arc<AgentServices>>,
}

/// Components of a gateway.
pub struct GatewayParts {
    /// The database.
    pub store: Store,
    /// The agents that answer.
    pub agents: Arc<AgentRegistry>,
    /// Accounts on chat networks.
    pub platforms: Vec<(AccountId, Arc<dyn Platform>)>,
    /// Settings of the turn engine.
    pub settings: TurnSettings,
    /// Settings for the display of answers.
    pub display: DisplaySettings,
    /// Access rules and texts, replaced by a reload.
    pub live: Arc<LiveRules>,
    /// The skills of agents, if there is a folder for them.
    pub skills: Option<Arc<SkillLibrary>>,
    /// Settings of the agents whose runtime can be switched.
    pub switches: SwitchTable,
}

/// Runs the gateway in a runtime of its own until it has ended.
pub fn run(config: &Config, sources: &ConfigSources, platforms: Platforms) -> Result<ExitReason, StartError> {
    let home = StateDir::take(&config.home)?;
    let (store, threads) = Store::open_keeping(&home.database(), config.store).map_err(|error| {
        let hint = Some(error.hint());
        StartError { error: error.into(), hint }
    })?;
    home.mark_used();
    // Only the holder of the lock may: the children of a living gateway are none of ours.
    process::sweep(home.path());
    let mut rules = config.rules.clone();
    for account in &platforms.owned {
        // The person at one of these terminals is the owner. No file says so; also for a chat that was started
        // on the command line without any configuration.
        rules.accounts.insert(account.clone(), Arc::new(AccountRules::owner()));
    }
    let (live, without_input) = (LiveRules::new(rules), platforms.without_input);
    let (pipe, screen) = (platforms.pipe, platforms.screen);
    let services = Arc::new(AgentServices::new(config, store.clone()));
    let parts = GatewayParts {
        store: store.clone(),
        agents: AgentRegistry::new(
            agents::build(&config.agents, &live, &services, None).context("an agent cannot be built")?,
        ),
        platforms: platforms.accounts,
        settings: settings(config),
        display: DisplaySettings {
            steps: config.display.steps,
            edits: u32::try_from(config.display.edits).unwrap_or(u32::MAX),
            reactions: config.display.reactions,
        },
        live: live.clone(),
        skills: Some(services.skills.clone()),
        switches: SwitchTable::new(config, Some(services.host.clone()))
            .reloading(Some(services.codex.clone())),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, |cores| cores.get().min(4)))
        .enable_all()
        .build()
        .context("no runtime could be started")?;
    let ended = runtime.block_on(async {
        // Before anything runs that would have to be drained.
        let mut signals = ExitSignals::watch().context("signals cannot be watched")?;
        let lost_database = told_of_lost_database(&store, home.lost_database()).await?;
        let bound = bind::bind(config, platforms.serve, &mut std::io::stderr()).await?;
        let mut gateway = Gateway::start(parts).await?;
        let (acp, codex) = (services.acp.clone(), services.codex.clone());
        gateway.turns.metrics().count_agents(move || count_agent_processes(&acp, &codex));
        gateway.services = Some(services);
        if let Some(BoundServer { settings, listener, stays }) = bound {
            let address =
                gateway.serve(settings, listener).context("the agent server did not start")?.address;
            gateway.stays = stays;
            bind::tell(config, address);
        }
        let running = RunningGateway {
            without_input,
            lost_database,
            ..gateway.running(config.clone(), sources.clone())
        };
        let home = home.path().to_owned();
        // Kept until everything has ended, so that commands work to the last.
        let control = ControlState {
            home,
            store,
            rules: control::ControlRules::Live(live),
            runtimes: Some(gateway.runtimes.clone()),
            running: Some(running),
        };
        let control = Arc::new(control);
        let _control = control::open(control.clone());
        // With a terminal, SIGHUP means that it was closed; without one it means a reload, as for other
        // services.
        signals.reloads = (!has_terminal()).then_some(control);
        tracing::info!(version = env!("CARGO_PKG_VERSION"), agent = %gateway.turns.agent().name, "running");
        let ended = gateway.until_the_end(signals).await;
        // An answer that the next start continues is marked as incomplete on the screen.
        if let Some(screen) = screen {
            screen.end().await;
        }
        ended
    });
    // Remaining tasks have had their time.
    runtime.shutdown_timeout(Duration::from_millis(200));
    threads.join();
    match pipe {
        // Also if standard output was closed early (`| head -1`): that is an unanswered prompt, not a lost
        // platform.
        Some(pipe) if pipe.is_unanswered() => ended.map(|_| ExitReason::Unanswered),
        _ => ended,
    }
}

impl Gateway {
    /// Recovers turns and messages that an earlier process left, and starts the platforms.
    pub async fn start(parts: GatewayParts) -> Result<Self, StartError> {
        // Before any turn is prepared.
        let switchable = parts.live.now().agents.switchable();
        let chosen = parts.store.write(move |tx| tx.keep_runtime_overrides(&switchable));
        parts.live.load_overrides(chosen.await?);
        let runtimes = RuntimeControl::new(parts.store.clone(), parts.live.clone(), parts.switches);
        let metrics = Arc::new(Metrics::new(&parts.store));
        let mut delivery = Delivery::new(metrics.clone());
        let mut accounts = Vec::new();
        for (id, platform) in &parts.platforms {
            let account = delivery
                .add(id.clone(), platform.clone(), parts.store.clone(), parts.display, parts.live.clone())
                .await?;
            accounts.push(account);
        }
        let delivery = Arc::new(delivery);
        let turns = Turns::new(
            parts.store.clone(),
            parts.agents,
            delivery.clone(),
            parts.settings,
            parts.live.clone(),
            metrics,
        );
        let commands = CommandRunner::new(
            parts.store.clone(),
            turns.clone(),
            delivery,
            parts.live.clone(),
            parts.skills.clone(),
            runtimes.clone(),
        );
        let mut gateway = Self {
            turns,
            commands,
            accounts,
            hubs: Vec::new(),
            stop_reading: CancellationToken::new(),
            stop_sending: CancellationToken::new(),
            reading: JoinSet::new(),
            sending: JoinSet::new(),
            store: parts.store.clone(),
            live: parts.live.clone(),
            skills: parts.skills,
            runtimes,
            serving: None,
            stays: false,
            services: None,
        };
        gateway.start_outboxes();
        parts.store.write(|tx| tx.prune_audit()).await?;
        let recovered = gateway.turns.recover().await?;
        if recovered > 0 {
            tracing::info!(turns = recovered, "turns of the last run are taken up again");
        }
        let recovered = gateway.commands.recover().await?;
        if recovered > 0 {
            tracing::info!(commands = recovered, "commands of the last run are taken up again");
        }
        failpoint("gateway.recovered");
        gateway.start_platforms(&parts.store, &parts.live);
        Ok(gateway)
    }

    /// Also serves HTTP, on a bound socket.
    pub fn serve(
        &mut self,
        settings: server::ServerSettings,
        listener: TcpListener,
    ) -> io::Result<&ListeningServer> {
        let skills = self.skills.clone();
        let server = Server::new(self.store.clone(), self.turns.clone(), self.live.clone(), skills, settings);
        server::sweep_regularly(&server);
        let serving = server::listen::serve(server, listener)?;
        Ok(self.serving.insert(serving))
    }

    /// The engine that runs turns.
    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// The control of the agents' runtimes.
    pub fn runtimes(&self) -> &Arc<RuntimeControl> {
        &self.runtimes
    }

    /// The agent server, if it runs.
    pub fn serving(&self) -> Option<&ListeningServer> {
        self.serving.as_ref()
    }

    /// View of this gateway for the control socket; `config` is the configuration that it was built from.
    pub fn running(&self, config: Config, sources: ConfigSources) -> RunningGateway {
        let (turns, accounts) = (self.turns.clone(), self.accounts.clone());
        let (started, reloading) = (Instant::now(), Mutex::new(config.agents.clone()));
        RunningGateway {
            turns,
            accounts,
            started,
            config,
            sources,
            reloading,
            served: self.serving.as_ref().map(|serving| {
                let (server, address) = (serving.server().clone(), serving.address);
                ServerHandle { server, address }
            }),
            without_input: Vec::new(),
            lost_database: false,
            services: self.services.clone(),
        }
    }

    fn start_outboxes(&mut self) {
        for account in &self.accounts {
            let (account, stop) = (account.clone(), self.stop_sending.clone());
            self.sending.spawn(async move {
                supervise("outbox", &stop, || async {
                    match outbox::run(account.clone(), stop.clone()).await {
                        Ok(()) => TaskRun::Finished,
                        Err(error) => {
                            tracing::error!(%error, "the outbox cannot reach the store");
                            TaskRun::Again
                        }
                    }
                })
                .await
            });
        }
    }

    fn start_platforms(&mut self, store: &Store, live: &Arc<LiveRules>) {
        for account in &self.accounts {
            let (turns, commands) = (self.turns.clone(), self.commands.clone());
            let hub = Hub::new(account.clone(), store.clone(), turns, commands, live.clone());
            let inbox = hub.inbox();
            self.hubs.push(hub);
            let (account, stop) = (account.clone(), self.stop_reading.clone());
            self.reading.spawn(async move {
                supervise("platform", &stop, || async {
                    let mut reads = ReadingGuard::begin(&account);
                    let run = account.platform().run(inbox.clone(), stop.clone());
                    let ended = tokio::select! {
                        ended = run => ended,
                        () = account.lost().cancelled() => Err(PlatformErrorKind::Fatal.into()),
                    };
                    let Err(error) = ended else {
                        reads.then = ReadingState::Ended;
                        return TaskRun::Finished;
                    };
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(account = %account.id(), error = %error, source, "a platform stopped reading");
                    match error.kind() {
                        PlatformErrorKind::Fatal => {
                            account.lost().cancel();
                            TaskRun::Hopeless
                        }
                        PlatformErrorKind::Retry { .. }
                        | PlatformErrorKind::Gone
                        | PlatformErrorKind::Rejected
                        | PlatformErrorKind::Unsupported => TaskRun::Again,
                    }
                })
                .await
            });
        }
    }

    /// Waits until every platform has ended by itself and everything is answered and shown.
    pub async fn finished(&mut self) -> store::Result<ExitReason> {
        let mut lost = 0;
        while let Some(ended) = self.reading.join_next().await {
            lost += usize::from(!matches!(ended, Ok(supervise::TaskEnd::Well)));
        }
        if self.serving.is_some() && (self.stays || self.accounts.is_empty()) {
            if lost > 0 {
                tracing::error!("every platform has ended or is lost; only the agent server goes on");
            }
            // A server always has more to do.
            std::future::pending::<()>().await;
        }
        // When the person has left the chat, we do not wait for turns of other programs.
        if let Some(serving) = &self.serving {
            serving.stop_taking();
        }
        if lost == self.accounts.len() {
            return Ok(ExitReason::NoPlatformLeft);
        }
        self.commands.idle().await;
        self.turns.idle().await;
        for account in &self.accounts {
            account.flushed().await?;
        }
        Ok(ExitReason::Well)
    }

    /// Ends in order. Work that does not end in time is cut off: the next start continues from the store.
    pub async fn drain(mut self) {
        self.stop_reading.cancel();
        if let Some(serving) = &self.serving {
            serving.stop_taking();
        }
        let orderly = async {
            let read = async { while self.reading.join_next().await.is_some() {} };
            if tokio::time::timeout(STOP_READING, read).await.is_err() {
                tracing::warn!("a platform does not stop reading");
            }
            tokio::join!(self.turns.drain(), self.commands.drain());
            let tools = async {
                if let Some(services) = &self.services {
                    tokio::join!(services.mcp.end(), services.codex.end(), services.acp.end());
                }
            };
            let answers = async {
                if let Some(serving) = &self.serving {
                    serving.close_connections();
                }
                for account in &self.accounts {
                    if let Err(error) = account.flushed().await {
                        tracing::error!(%error, "the store failed at the end");
                    }
                }
                // Last: a slow HTTP client must not cost a room its answer.
                if let Some(serving) = &self.serving {
                    serving.ended().await;
                }
            };
            tokio::join!(tools, answers);
        };
        if tokio::time::timeout(GRACE, orderly).await.is_err() {
            tracing::warn!("not everything ended in time; the next start goes on from here");
        }
        self.stop_sending.cancel();
        while self.sending.join_next().await.is_some() {}
    }

    /// Runs until a signal or until there is nothing more to do, then drains.
    async fn until_the_end(mut self, mut signals: ExitSignals) -> Result<ExitReason, StartError> {
        let ended = tokio::select! {
            ended = self.finished() => ended?,
            () = signals.next() => ExitReason::Well,
        };
        tracing::info!("ending");
        tokio::select! {
            () = self.drain() => {}
            () = signals.next() => tracing::warn!("ended at once"),
        }
        Ok(ended)
    }
}

/// Reports that a platform reads while this exists, and `then` afterwards, also after a panic.
struct ReadingGuard<'a> {
    account: &'a DeliveryAccount,
    then: ReadingState,
}

impl<'a> ReadingGuard<'a> {
    fn begin(account: &'a DeliveryAccount) -> Self {
        account.set_reading(ReadingState::Reads);
        Self { account, then: ReadingState::Pausing }
    }
}

impl Drop for ReadingGuard<'_> {
    fn drop(&mut self) {
        self.account.set_reading(self.then);
    }
}
