//! A whole gateway in the test's process: the real store and the real core, between a room in memory and a scripted
//! agent. Made for `#[tokio::test(start_paused = true)]`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use talaria::access::AccessLists;
use talaria::agent::{AgentKind, AgentRegistry, AgentTable, NamedAgent, RewindSupport, SharedAgent};
use talaria::agents::acp::pool::AcpPool;
use talaria::agents::codex::CodexServers;
use talaria::agents::fallback::FallbackAgent;
use talaria::agents::process::ProcessHost;
use talaria::agents::runtime_switch::{RuntimeControl, RuntimeSwitch, SwitchTable};
use talaria::agents::skills::SkillLibrary;
use talaria::agents::{AgentServices, count_agent_processes};
use talaria::config::{Config, ConfigSources};
use talaria::control::{self, ControlState};
use talaria::delivery::DisplaySettings;
use talaria::gateway::{ExitReason, Gateway, GatewayParts};
use talaria::i18n::TextCatalog;
use talaria::ids::AgentName;
use talaria::pace::EDITS;
use talaria::rules::{AccountRules, AgentPolicy, AgentRules, BudgetConfig, LiveRules, Rules};
use talaria::store::{Store, StoreThreads, Tx};
use talaria::turns::TurnSettings;
use talaria_platform::{AccountId, PlatformCapabilities, RateLimit, ShowMode};
use tempfile::TempDir;

use super::operator::Operator;
use super::room::{Chat, Room};
use super::scripted::{Script, Scripted};

/// How long the fallback takes for its first word: the room's notice about it comes before.
const FIRST_WORD: Duration = Duration::from_millis(500);

/// Builds the agents of a scene anew with every start: they hold the store.
pub type AgentBuilder = Arc<dyn Fn(&AgentServices) -> AgentTable + Send + Sync>;

/// Settings that a scene can change.
#[derive(Clone)]
pub struct Setup {
    pub show: ShowMode,
    pub max_text: usize,
    /// The rate that the platform announces.
    pub rate: Option<RateLimit>,
    /// The network's real limit.
    pub limit: Option<RateLimit>,
    /// Whether our messages can be deleted.
    pub delete: bool,
    /// Whether files can be sent and fetched.
    pub media: bool,
    /// Whether questions get reactions.
    pub reactions: bool,
    /// Whether the agent accepts files that are neither text nor pictures.
    pub files: bool,
    /// Edits of one growing answer, at most.
    pub edits: u32,
    pub retry_for: Duration,
    /// Time that people have to answer an ask.
    pub ask_for: Duration,
    /// Bytes of one turn, at most.
    pub turn_bytes: usize,
    /// Whether the agent can change its memory.
    pub rewind: RewindSupport,
    /// Whether the agent's turns can be repeated without running twice.
    pub resumable: bool,
    /// The operator's instructions to the agent.
    pub context: String,
    /// Whether the agent gets the names of the room and the person.
    pub names: bool,
    /// Whether a fallback answers while the agent is away.
    pub fallback: bool,
    /// Whether the fallback's turns can be repeated without running twice.
    pub stand_in_resumable: bool,
    /// A real agent in place of the scripted one.
    pub agent: Option<SharedAgent>,
    /// Real agents in place of all others, built from the parts that they share.
    pub build: Option<AgentBuilder>,
    /// Most processes of agents of kind `acp`.
    pub processes: usize,
    /// Who may do what, and how places behave. By default everybody may talk, without limits.
    pub rules: AccountRules,
    /// Texts of rooms.
    pub words: TextCatalog,
    /// When conversations are reviewed.
    pub review: talaria::config::ReviewConfig,
    /// Budgets of tokens.
    pub budget: BudgetConfig,
    /// How running tools are shown.
    pub steps: talaria::config::StepsSetting,
    /// Models of the agent that people may choose, the usual one first.
    pub models: &'static [&'static str],
    /// Agents whose runtime can be switched, as the configuration has them.
    pub switches: SwitchTable,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            show: ShowMode::Edit { pause: Duration::from_secs(1) },
            max_text: 4000,
            rate: None,
            limit: None,
            delete: true,
            media: true,
            reactions: false,
            files: false,
            edits: EDITS,
            retry_for: Duration::from_secs(600),
            ask_for: Duration::from_secs(300),
            turn_bytes: 16 * 1024 * 1024,
            rewind: RewindSupport::Possible,
            resumable: false,
            context: String::new(),
            names: true,
            fallback: false,
            stand_in_resumable: false,
            agent: None,
            build: None,
            processes: 8,
            rules: AccountRules {
                limits: None,
                ..AccountRules::listed(AccessLists { allow_all: true, ..AccessLists::default() })
            },
            words: TextCatalog::default(),
            review: talaria::config::ReviewConfig::default(),
            budget: BudgetConfig::default(),
            steps: talaria::config::StepsSetting::default(),
            models: &[],
            switches: SwitchTable::default(),
        }
    }
}

/// A running gateway.
pub struct TestGateway {
    folder: TempDir,
    setup: Setup,
    chat: Chat,
    agent: Scripted,
    /// The fallback, in scenes with one.
    stand_in: Scripted,
    /// The codex that runs the turns of `local`, in scenes whose `switches` have that agent.
    codex: Scripted,
    /// The rules in force.
    live: Arc<LiveRules>,
    /// The agents that are registered.
    agents: Arc<AgentRegistry>,
    /// Codex processes of agents that were built, until the end.
    codex_servers: Option<Arc<CodexServers>>,
    acp_pool: Option<Arc<AcpPool>>,
    /// `None` only while it is restarted.
    running: Option<Running>,
}

/// A store whose writer only waits.
pub struct BusyStore {
    let_go: std::sync::mpsc::Sender<()>,
    job: tokio::task::JoinHandle<()>,
}

impl BusyStore {
    /// Waits until everybody else waits too: the clock stands still, so they come as far as they can.
    pub async fn holds_everybody_up(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Releases the store.
    pub async fn goes_on(self) {
        self.let_go.send(()).unwrap();
        self.job.await.unwrap();
    }
}

struct Running {
    gateway: Gateway,
    store: Store,
    threads: StoreThreads,
}

impl TestGateway {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let mut gateway = Self::unstarted(setup);
        gateway.begin().await;
        gateway
    }

    /// A gateway that has not started yet, for a test that first puts a database in its folder;
    /// [`restart`](Self::restart) starts it.
    pub fn unstarted(setup: Setup) -> Self {
        let about = PlatformCapabilities {
            show: setup.show,
            delete: setup.delete,
            react: true,
            threads: false,
            media: setup.media,
            max_text: setup.max_text,
            rate: setup.rate,
        };
        let agents = AgentRegistry::new(AgentTable::new(AgentName::guide(), nobody()));
        Self {
            agents,
            folder: tempfile::tempdir().unwrap(),
            chat: Chat::new(about, setup.limit),
            agent: Scripted::new(AgentKind::Proxy, "scripted", setup.rewind, setup.resumable)
                .with_models(setup.models),
            stand_in: Scripted::new(
                AgentKind::Model,
                "model small",
                RewindSupport::Possible,
                setup.stand_in_resumable,
            )
            .slowly(FIRST_WORD),
            codex: Scripted::new(
                AgentKind::Codex,
                "codex",
                RewindSupport::Impossible,
                setup.stand_in_resumable,
            ),
            live: LiveRules::new(rules(setup.rules.clone(), &setup)),
            setup,
            codex_servers: None,
            acp_pool: None,
            running: None,
        }
    }

    /// The room where one person and the bot talk.
    pub fn room(&self) -> Room {
        self.direct_room("!home")
    }

    pub fn direct_room(&self, name: &str) -> Room {
        Room { chat: self.chat.clone(), name: name.to_owned(), direct: true, thread: None }
    }

    /// A room of several people.
    pub fn shared_room(&self) -> Room {
        Room { chat: self.chat.clone(), name: "!all".to_owned(), direct: false, thread: None }
    }

    pub fn chat(&self) -> &Chat {
        &self.chat
    }

    /// A script for the agent's next run.
    pub fn agent(&self) -> Script {
        self.agent.script()
    }

    /// The agent itself, with the turns that it got.
    pub fn agent_itself(&self) -> &Scripted {
        &self.agent
    }

    /// The fallback.
    pub fn stand_in(&self) -> &Scripted {
        &self.stand_in
    }

    /// The codex that runs the turns of `local` after a switch.
    pub fn codex(&self) -> &Scripted {
        &self.codex
    }

    /// Changes for the next start.
    pub fn setup(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Changes the models of the agent, from the next start on.
    pub fn has_models(&mut self, models: &[&str]) {
        self.agent = self.agent.clone().with_models(models);
    }

    /// Replaces the rules, as a reload does.
    pub fn reload(&self, account: AccountRules) {
        self.live.replace(rules(account, &self.setup));
    }

    /// Replaces the rules, with these lists of agents.
    pub fn reload_agents(&self, account: AccountRules, agents: AgentRules) {
        self.live.replace(Rules { agents, ..rules(account, &self.setup) });
    }

    /// Replaces the rules of every account.
    pub fn reload_all(&self, rules: Rules) {
        self.live.replace(rules);
    }

    /// Takes the second agent, `local`, away, as a reload does.
    pub fn removes_local(&self) {
        let now = self.agents.now();
        self.agents.replace(AgentTable::new(now.default_name().clone(), now.default_agent().clone()));
    }

    /// The agents that are registered.
    pub fn registered(&self) -> Arc<AgentTable> {
        self.agents.now()
    }

    /// Registers these agents in place of the ones there are, as a reload does.
    pub fn has_agents(&self, table: AgentTable) {
        self.agents.replace(table);
    }

    /// Leaves only the built-in guide, as before anything is configured; [`restart`](Self::restart) brings the agents
    /// back. Returns the guide.
    pub fn has_only_the_guide(&self) -> Scripted {
        let guide = Scripted::new(AgentKind::Guide, "the guide", RewindSupport::Possible, false);
        self.agents.replace(AgentTable::new(AgentName::guide(), Arc::new(guide.clone())));
        let mut agents = open_agents();
        agents.by_name.insert(AgentName::guide(), AgentPolicy::default());
        self.reload_agents(self.setup.rules.clone(), agents);
        guide
    }

    /// The operator at the command line.
    pub fn operator(&self) -> Operator {
        let running = self.running.as_ref().unwrap();
        let home = self.folder.path().to_owned();
        let (config, sources) = self.config();
        Operator(control::router(Arc::new(ControlState {
            home: home.clone(),
            store: running.store.clone(),
            rules: control::ControlRules::Live(self.live.clone()),
            runtimes: Some(running.gateway.runtimes().clone()),
            running: Some(running.gateway.running(config, sources)),
        })))
    }

    /// The control of the agents' runtimes.
    pub fn runtimes(&self) -> Arc<RuntimeControl> {
        self.running.as_ref().unwrap().gateway.runtimes().clone()
    }

    /// An empty configuration in this folder.
    fn config(&self) -> (Config, ConfigSources) {
        let home = self.folder.path().to_owned();
        let env = |name: &str| (name == "TALARIA_HOME").then(|| home.display().to_string());
        let sources = ConfigSources { config: None, folder: home.clone(), serve: false };
        (Config::load(&sources, &env).unwrap(), sources)
    }

    /// Every byte of the database, as a thief of the disk would find it.
    pub fn disk(&self) -> Vec<u8> {
        let file = |name: &str| std::fs::read(self.folder.path().join(name)).unwrap();
        [file("talaria.db"), file("talaria.db-wal")].concat()
    }

    /// The store, for facts that no room shows. Not to be kept: it must be dropped before the end.
    pub fn store(&self) -> &Store {
        &self.running.as_ref().unwrap().store
    }

    /// Keeps the store busy: every write waits until it is released.
    pub async fn store_is_busy(&self) -> BusyStore {
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let (store, (begun, has_begun)) = (self.store().clone(), tokio::sync::oneshot::channel());
        let job = tokio::spawn(async move {
            let job = move |_: &Tx<'_>| {
                let _ = begun.send(());
                let _ = held.recv();
                Ok(())
            };
            store.write(job).await.unwrap();
        });
        has_begun.await.unwrap();
        BusyStore { let_go, job }
    }

    /// The state folder.
    pub fn home(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Path of the folder of skills, which need not exist.
    pub fn skills_folder(&self) -> PathBuf {
        self.folder.path().join("skills")
    }

    /// Path of the database, for reading it while nothing runs.
    pub fn database(&self) -> PathBuf {
        self.folder.path().join("talaria.db")
    }

    /// Ends as after SIGTERM, and closes the store.
    pub async fn drain(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.gateway.drain().await;
        if let Some(codex) = self.codex_servers.take() {
            codex.end().await;
        }
        if let Some(pool) = self.acp_pool.take() {
            pool.end().await;
        }
        if self.setup.build.is_some() {
            // They hold the store.
            self.agents = AgentRegistry::new(AgentTable::new(AgentName::guide(), nobody()));
        }
        drop(running.store);
        // Also proves that nothing holds on to the store for ever. Not a blocking task of the runtime, which would
        // hold the clock: a request that was cut off still waits for its timeout.
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            running.threads.join();
            let _ = ended.send(());
        });
        end.await.unwrap();
    }

    /// Ends and starts again on the same store and the same network.
    pub async fn restart(&mut self) {
        self.drain().await;
        self.begin().await;
    }

    /// Ends as after a power cut: only the current state of the disk is left, and requests under way have no effect.
    /// [`restart`](Self::restart) begins the next life. Returns the moment, as it was counted.
    pub async fn kill(&mut self) -> u64 {
        let left = tempfile::tempdir().unwrap();
        let (from, to) = (self.folder.path().to_owned(), left.path().to_owned());
        let (agent, chat) = (self.agent.clone(), self.chat.clone());
        // In a job of the writer, so that it is one moment: a request that began after it would show people what the
        // disk that is left knows nothing of.
        let killed = self.store().write(move |_| {
            for file in ["talaria.db", "talaria.db-wal"] {
                std::fs::copy(from.join(file), to.join(file)).unwrap();
            }
            Ok((agent.dies(), chat.next_life()))
        });
        let (moment, next_chat) = killed.await.unwrap();
        self.stand_in.dies();
        self.codex.dies();
        self.chat = next_chat;
        self.drain().await;
        self.folder = left;
        moment
    }

    /// Also serves HTTP. For scenes on the real clock: sockets do not see the paused one.
    pub async fn serve(&mut self, mut settings: talaria::server::ServerSettings) -> std::net::SocketAddr {
        settings.forge.folder = self.folder.path().join("forge");
        let gateway = &mut self.running.as_mut().unwrap().gateway;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        gateway.serve(settings, listener).unwrap().address
    }

    /// Waits until every session is idle. For scenes on the real clock.
    pub async fn idle(&self) {
        self.running.as_ref().unwrap().gateway.turns().idle().await;
    }

    /// A person asks, and the turn runs to its end. For scenes on the real clock.
    pub async fn answers(&self, room: &Room, who: &str, prompt: &str) {
        let count = room.ours().len();
        room.says(who, prompt).await;
        room.has_messages(count + 1).await;
        self.idle().await;
    }

    /// The agent server, if it serves: to inspect its state, and for scenes on a paused clock.
    pub fn server(&self) -> Arc<talaria::server::Server> {
        self.running.as_ref().unwrap().gateway.serving().unwrap().server().clone()
    }

    /// Waits until every platform has ended by itself.
    pub async fn finished(&mut self) -> ExitReason {
        self.running.as_mut().unwrap().gateway.finished().await.unwrap()
    }

    async fn begin(&mut self) {
        self.chat.starts_anew();
        let (store, threads) = Store::open(&self.database()).unwrap();
        let first = self.setup.agent.clone().unwrap_or_else(|| Arc::new(self.agent.clone()));
        let agent = match self.setup.fallback {
            true => Arc::new(FallbackAgent::new(
                NamedAgent { name: AgentName::proxy(), agent: first },
                NamedAgent { name: AgentName::local(), agent: Arc::new(self.stand_in.clone()) },
            )),
            false => first,
        };
        // Only rooms that choose the second agent use it, and the first while it is away.
        let table = AgentTable::new(AgentName::proxy(), agent)
            .with(AgentName::local(), Arc::new(self.stand_in.clone()));
        let table = match self.setup.switches.agents.contains_key(&AgentName::local()) {
            // The agent that can be switched is the default one then.
            true => {
                let own = NamedAgent { name: AgentName::local(), agent: Arc::new(self.stand_in.clone()) };
                let switch = RuntimeSwitch::new(own, Arc::new(self.codex.clone()), self.live.clone());
                AgentTable::new(AgentName::local(), Arc::new(switch))
                    .with(AgentName::proxy(), table.default_agent().clone())
            }
            false => table,
        };
        let skills = SkillLibrary::new(self.skills_folder());
        let table = match &self.setup.build {
            Some(build) => {
                let services = AgentServices::new(&self.config().0, store.clone());
                let home = self.folder.path();
                let host = Arc::new(ProcessHost::new(home).with_shim(env!("CARGO_BIN_EXE_talaria")));
                let codex = CodexServers::new(host.clone(), home, None);
                self.codex_servers = Some(codex.clone());
                if let Some(before) = self.acp_pool.take() {
                    before.end().await;
                }
                let acp = AcpPool::new(host.clone(), self.setup.processes);
                self.acp_pool = Some(acp.clone());
                build(&AgentServices { skills: skills.clone(), host, codex, acp, ..services })
            }
            None => table,
        };
        self.agents = AgentRegistry::new(table);
        let parts = GatewayParts {
            switches: self.setup.switches.clone(),
            store: store.clone(),
            agents: self.agents.clone(),
            platforms: vec![(AccountId::from("test"), Arc::new(self.chat.clone()))],
            settings: TurnSettings {
                context: self.setup.context.clone(),
                names: self.setup.names,
                files: self.setup.files,
                history_messages: 100,
                history_bytes: 100_000,
                retry_for: self.setup.retry_for,
                retry_scripts_for: Duration::from_secs(30),
                turn_bytes: self.setup.turn_bytes,
                stop_grace: Duration::from_secs(4),
                ask_for: self.setup.ask_for,
                review: self.setup.review.clone(),
            },
            display: DisplaySettings {
                steps: self.setup.steps,
                edits: self.setup.edits,
                reactions: self.setup.reactions,
            },
            live: self.live.clone(),
            skills: Some(skills),
        };
        let gateway = Gateway::start(parts).await.unwrap_or_else(|error| panic!("{}", error.error));
        if let (Some(acp), Some(codex)) = (self.acp_pool.clone(), self.codex_servers.clone()) {
            gateway.turns().metrics().count_agents(move || count_agent_processes(&acp, &codex));
        }
        self.running = Some(Running { gateway, store, threads });
    }
}

/// An agent that is never asked.
fn nobody() -> SharedAgent {
    Arc::new(Scripted::new(AgentKind::Guide, "nobody", RewindSupport::Possible, false))
}

fn rules(account: AccountRules, setup: &Setup) -> Rules {
    let accounts = HashMap::from([(AccountId::from("test"), Arc::new(account))]);
    let mut agents = open_agents();
    for (name, settings) in &setup.switches.agents {
        let policy = agents.by_name.entry(name.clone()).or_default();
        policy.runtime = settings.switch().map(|switch| switch.runtime);
    }
    Rules { accounts, words: setup.words.clone(), agents, budget: setup.budget }
}

/// Rules by which everybody may talk to both agents.
pub fn open_agents() -> AgentRules {
    let by_name = [AgentName::proxy(), AgentName::local()].map(|name| (name, AgentPolicy::default()));
    AgentRules { by_name: by_name.into(), ..AgentRules::default() }
}
