//! Builds everything, runs it until there is a reason to end, and ends it in order.
//!
//! Start: lock → store → port → accounts → turns and outbox taken up again → platforms read, programs are served.
//! End: platforms stop reading → turns end or are left for the next start → last messages go out → the
//! store closes. Eight seconds for all of it; a second signal ends at once.

mod bind;
mod build;
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
use crate::config::{Config, ConfigSources, StepsSetting};
use crate::control::{self, ControlState, RunningGateway, ServerHandle};
use crate::delivery::{Delivery, DeliveryAccount, DisplaySettings, ReadingState, outbox};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::platforms::Platforms;
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
use build::{agents, settings};
pub use signals::harden;
use signals::{ExitSignals, has_terminal};

/// Everything that ends must have ended by then.
const GRACE: Duration = Duration::from_secs(8);

/// How long platforms may take to stop reading, so that a stuck one does not eat the others' time.
const STOP_READING: Duration = Duration::from_secs(2);

/// Why the process ends without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was asked to, or there is nothing more to read and everything is answered.
    Well,
    /// Every platform was lost for good.
    NoPlatformLeft,
    /// Prompts were piped in, and not all of them were answered to their end.
    Unanswered,
}

/// A gateway that runs. Also what tests of the whole core start.
pub struct Gateway {
    turns: Arc<Turns>,
    accounts: Vec<Arc<DeliveryAccount>>,
    /// What platforms bring things to. Kept to the last: a platform that sends may have to make a note.
    hubs: Vec<Arc<Hub>>,
    /// Fired to make platforms stop reading.
    stop_reading: CancellationToken,
    /// Fired to make the outboxes end, last of all.
    stop_sending: CancellationToken,
    /// One task per platform; each says how it ended.
    reading: JoinSet<supervise::TaskEnd>,
    sending: JoinSet<supervise::TaskEnd>,
    store: Store,
    live: Arc<LiveRules>,
    /// The agent server, if it serves.
    serving: Option<ListeningServer>,
    /// It goes on when there is nothing more to read.
    stays: bool,
}

/// What a gateway is made of.
pub struct GatewayParts {
    /// Where everything durable is.
    pub store: Store,
    /// Who answers.
    pub agents: Arc<AgentRegistry>,
    /// Where people are.
    pub platforms: Vec<(AccountId, Arc<dyn Platform>)>,
    /// About turns.
    pub settings: TurnSettings,
    /// About how answers are shown.
    pub display: DisplaySettings,
    /// Who may do what, and the words.
    pub live: Arc<LiveRules>,
}

/// Runs the gateway in a runtime of its own until it has ended.
pub fn run(config: &Config, sources: &ConfigSources, platforms: Platforms) -> Result<ExitReason, StartError> {
    let home = StateDir::take(&config.home)?;
    let (store, threads) = Store::open_keeping(&home.database(), config.store).map_err(|error| {
        let hint = Some(error.hint());
        StartError { error: error.into(), hint }
    })?;
    home.mark_used();
    let mut rules = config.rules.clone();
    for account in &platforms.owned {
        // No file says so, but that these terminals were opened; also where nobody configured one, as in a chat that
        // was asked for on the command line.
        rules.accounts.insert(account.clone(), Arc::new(AccountRules::owner()));
    }
    let (live, without_input) = (LiveRules::new(rules), platforms.without_input);
    let (pipe, screen) = (platforms.pipe, platforms.screen);
    #[cfg(feature = "matrix")]
    let matrix = platforms.matrix;
    let parts = GatewayParts {
        store: store.clone(),
        agents: AgentRegistry::new(agents(config, &live)?),
        platforms: platforms.accounts,
        settings: settings(config),
        display: DisplaySettings {
            steps: config.display.steps == StepsSetting::Line,
            edits: u32::try_from(config.display.edits).unwrap_or(u32::MAX),
            reactions: config.display.reactions,
        },
        live: live.clone(),
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
        let bound = bind::bind(config, platforms.serve).await?;
        let mut gateway = Gateway::start(parts).await?;
        if let Some(BoundServer { settings, listener, stays }) = bound {
            let address =
                gateway.serve(settings, listener).context("the agent server did not start")?.address;
            gateway.stays = stays;
            bind::tell(config, address);
        }
        let running = RunningGateway {
            without_input,
            lost_database,
            #[cfg(feature = "matrix")]
            matrix,
            ..gateway.running(config.clone(), sources.clone())
        };
        let home = home.path().to_owned();
        // Until everything has ended: what is still going on can be asked to the last.
        let control =
            ControlState { home, store, rules: control::ControlRules::Live(live), running: Some(running) };
        let control = Arc::new(control);
        let _control = control::open(control.clone());
        // A terminal that closes hangs up; where there is none, somebody asks for what other services do then.
        signals.reloads = (!has_terminal()).then_some(control);
        tracing::info!(version = env!("CARGO_PKG_VERSION"), agent = %gateway.turns.agent().name, "running");
        let ended = gateway.until_the_end(signals).await;
        // What the next start goes on with is not whole here.
        if let Some(screen) = screen {
            screen.end().await;
        }
        ended
    });
    // Whatever still runs has had its time.
    runtime.shutdown_timeout(Duration::from_millis(200));
    threads.join();
    match pipe {
        // Also when standard output was closed early (`| head -1`): that is an unanswered prompt, not a lost platform.
        Some(pipe) if pipe.is_unanswered() => ended.map(|_| ExitReason::Unanswered),
        _ => ended,
    }
}

impl Gateway {
    /// Takes up what an earlier process left, and lets the platforms read.
    pub async fn start(parts: GatewayParts) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new(&parts.store));
        let mut delivery = Delivery::new(metrics.clone());
        let mut accounts = Vec::new();
        for (id, platform) in &parts.platforms {
            let account = delivery
                .add(id.clone(), platform.clone(), parts.store.clone(), parts.display, parts.live.clone())
                .await?;
            accounts.push(account);
        }
        let turns = Turns::new(
            parts.store.clone(),
            parts.agents,
            Arc::new(delivery),
            parts.settings,
            parts.live.clone(),
            metrics,
        );
        let mut gateway = Self {
            turns,
            accounts,
            hubs: Vec::new(),
            stop_reading: CancellationToken::new(),
            stop_sending: CancellationToken::new(),
            reading: JoinSet::new(),
            sending: JoinSet::new(),
            store: parts.store.clone(),
            live: parts.live.clone(),
            serving: None,
            stays: false,
        };
        gateway.start_outboxes();
        parts.store.write(|tx| tx.prune_audit()).await?;
        let recovered = gateway.turns.recover().await?;
        if recovered > 0 {
            tracing::info!(turns = recovered, "turns of the last run are taken up again");
        }
        failpoint("gateway.recovered");
        gateway.start_platforms(&parts.store, &parts.live);
        Ok(gateway)
    }

    /// Serves HTTP too, on a socket that is bound already.
    pub fn serve(
        &mut self,
        settings: server::ServerSettings,
        listener: TcpListener,
    ) -> io::Result<&ListeningServer> {
        let server = Server::new(self.store.clone(), self.turns.clone(), self.live.clone(), settings);
        let serving = server::listen::serve(server, listener)?;
        Ok(self.serving.insert(serving))
    }

    /// The agent server, if it serves.
    pub fn serving(&self) -> Option<&ListeningServer> {
        self.serving.as_ref()
    }

    /// This gateway as its owner sees it; `config` is what it was made of.
    pub fn running(&self, config: Config, sources: ConfigSources) -> RunningGateway {
        let (turns, accounts) = (self.turns.clone(), self.accounts.clone());
        let (started, reloading) = (Instant::now(), Mutex::default());
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
            #[cfg(feature = "matrix")]
            matrix: Vec::new(),
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
            let hub = Hub::new(account.clone(), store.clone(), self.turns.clone(), live.clone());
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
            // A server has never done all it could.
            std::future::pending::<()>().await;
        }
        // Whoever left the chat does not wait for what other programs still think of.
        if let Some(serving) = &self.serving {
            serving.stop_taking();
        }
        if lost == self.accounts.len() {
            return Ok(ExitReason::NoPlatformLeft);
        }
        self.turns.idle().await;
        for account in &self.accounts {
            account.flushed().await?;
        }
        Ok(ExitReason::Well)
    }

    /// Ends in order. What does not end in time is cut off: the next start goes on from the store.
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
            self.turns.drain().await;
            if let Some(serving) = &self.serving {
                serving.close_connections();
            }
            for account in &self.accounts {
                if let Err(error) = account.flushed().await {
                    tracing::error!(%error, "the store failed at the end");
                }
            }
            // Last: what somebody else takes his time with must not cost a room its answer.
            if let Some(serving) = &self.serving {
                serving.ended().await;
            }
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

/// Says that a platform reads for as long as it runs, and afterwards what it does then: also after a panic.
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
