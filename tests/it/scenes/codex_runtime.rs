//! `/codex-runtime`: an admin shows and switches the runtime of the agent of a room. On the real clock, because a real
//! `codex --version` is run.

mod turns;

use std::fs;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::ids::AgentName;
use talaria::rules::{AccountRules, AgentRuntime, PlaceRules};

use crate::support::fake_codex::FakeCodex;
use crate::support::gateway::{Setup, TestGateway};

/// `@ann` is an admin, and everybody may talk.
fn rules() -> AccountRules {
    let lists =
        AccessLists { admins: ["@ann:test".into()].into(), allow_all: true, ..AccessLists::default() };
    AccountRules { limits: None, ..AccountRules::listed(lists) }
}

fn setup(codex: &FakeCodex) -> Setup {
    Setup { rules: rules(), switches: codex.switches(), ..Setup::default() }
}

/// The stored choice for `local`.
async fn stored(gateway: &TestGateway) -> Option<AgentRuntime> {
    let overrides = gateway.store().read(|tx| tx.runtime_overrides()).await.unwrap();
    overrides.get(&AgentName::local()).copied()
}

#[tokio::test]
async fn without_a_word_it_shows_the_runtime_and_the_version_and_changes_nothing() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    assert_snapshot!(gateway.room().is_answered("@ann", "/codex-runtime").await, @"
    The agent local runs its turns itself (runtime: auto).
    codex 0.130.0 is installed on the machine of this agent.
    `/codex-runtime on` and `/codex-runtime off` switch it.
    ");
    assert_eq!((codex.starts(), stored(&gateway).await), (vec!["--version".to_owned()], None));
    assert_eq!(codex.config(), "");

    codex.is_removed();
    let shown = gateway.room().is_answered("@ann", "/codex-runtime").await;
    assert!(
        shown.contains("codex is not installed") && shown.contains("npm install -g @openai/codex"),
        "{shown}"
    );
}

#[tokio::test]
async fn on_switches_to_codex_writes_its_configuration_and_says_what_is_different() {
    let codex = FakeCodex::new("0.130.0");
    fs::write(codex.home().join("config.toml"), "model = \"mine\"\n").unwrap();
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime on").await, @"
    From the next message on, codex app-server runs the turns of the agent local, in a new thread that gets what was said here.
    codex 0.130.0 is installed on the machine of this agent.
    Written into codex' config.toml: `default_permissions`, `mcp_servers.talaria`, `mcp_servers.time`.
    Not available on this runtime: the tools of the agent for files and commands (codex has its own), /model, and the sampling settings of apps.
    On this runtime the agent local is for admins only, because codex acts on the machine; `access` in its entry lets others in.
    codex has an account of its own: `codex login` on that machine logs it in.
    ");
    assert_eq!(codex.version_checks(), 1, "once per command");
    assert_eq!(stored(&gateway).await, Some(AgentRuntime::CodexAppServer));
    let written = codex.config();
    assert!(written.starts_with("model = \"mine\"\n") && written.contains("[mcp_servers.time]"), "{written}");

    // A codex that is on is brought up to date once more.
    fs::write(codex.home().join("config.toml"), "").unwrap();
    codex.is_logged_out();
    let again = room.is_answered("@ann", "/codex-runtime codex_app_server").await;
    assert!(again.starts_with("codex app-server runs the turns of the agent local already."), "{again}");
    assert!(again.contains("codex is not logged in, so it answers nothing yet"), "{again}");
    assert!(!again.contains("an account of its own"), "{again}");
    assert_eq!(codex.version_checks(), 2);
    assert!(codex.config().contains("[mcp_servers.time]"));
}

#[tokio::test]
async fn every_word_in_any_case_and_a_wrong_one_is_explained() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    for (word, runtime) in [
        ("ON", AgentRuntime::CodexAppServer),
        ("Off", AgentRuntime::Auto),
        ("CODEX_APP_SERVER", AgentRuntime::CodexAppServer),
        ("Auto", AgentRuntime::Auto),
    ] {
        room.is_answered("@ann", &format!("/Codex-Runtime {word}")).await;
        let shown = room.is_answered("@ann", "/codex-runtime").await;
        assert!(shown.contains(&format!("(runtime: {runtime})")), "{word}: {shown}");
    }
    let checks = codex.version_checks();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime maybe later").await, @"`maybe later` is not a runtime. `/codex-runtime on` (`codex_app_server`) and `/codex-runtime off` (`auto`) switch it.");
    assert_eq!(codex.version_checks(), checks, "nothing is looked for");
}

#[tokio::test]
async fn a_codex_that_is_missing_or_too_old_is_refused_with_the_way_to_install_it() {
    let codex = FakeCodex::new("0.124.3");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime on").await, @"codex 0.124.3 on the machine of this agent is too old: it must be 0.125.0 or newer. Update it there with `npm install -g @openai/codex`.");
    codex.is_removed();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime on").await, @"codex is not installed on the machine of this agent. Install version 0.125.0 or newer there with `npm install -g @openai/codex`.");
    assert_eq!((stored(&gateway).await, codex.config().as_str(), codex.version_checks()), (None, "", 1));
    codex.is_installed("9.9.9-alpha.1 (abc)");
    let taken = room.is_answered("@ann", "/codex-runtime on").await;
    assert!(taken.contains("codex 9.9.9 is installed"), "{taken}");
}

#[tokio::test]
async fn off_looks_for_no_program_and_leaves_the_configuration_of_codex() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    room.is_answered("@ann", "/codex-runtime on").await;
    let written = codex.config();
    codex.is_removed();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime off").await, @"From the next message on, the agent local runs its turns itself again, and sees what was said here. The configuration of codex stays as it is.");
    assert_eq!(codex.version_checks(), 1, "only when it was switched on");
    assert_eq!((stored(&gateway).await, codex.config()), (None, written));
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime auto").await, @"The agent local runs its turns itself already.");
}

#[tokio::test]
async fn a_choice_that_cannot_be_stored_changes_nothing() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    database
        .execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON agent_runtimes BEGIN SELECT RAISE(ABORT, 'disk full'); END",
        )
        .unwrap();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime on").await, @"The choice could not be stored, so nothing has changed. Please try again later.");
    assert_eq!((stored(&gateway).await, codex.config().as_str()), (None, ""));
    let shown = room.is_answered("@ann", "/codex-runtime").await;
    assert!(shown.contains("(runtime: auto)"), "{shown}");
    database.execute_batch("DROP TRIGGER full").unwrap();
    room.is_answered("@ann", "/codex-runtime on").await;
    assert_eq!(stored(&gateway).await, Some(AgentRuntime::CodexAppServer));
}

#[tokio::test]
async fn a_configuration_that_cannot_be_written_warns_and_blocks_nothing() {
    let codex = FakeCodex::new("0.130.0");
    fs::write(codex.home().join("config.toml"), "this is = = no toml\n").unwrap();
    let gateway = TestGateway::with(setup(&codex)).await;
    let answer = gateway.room().is_answered("@ann", "/codex-runtime on").await;
    assert!(answer.starts_with("From the next message on, codex app-server runs"), "{answer}");
    assert!(answer.contains("⚠️ codex' config.toml was left as it is: line 1 is not TOML"), "{answer}");
    assert_eq!(codex.config(), "this is = = no toml\n");
    assert_eq!(stored(&gateway).await, Some(AgentRuntime::CodexAppServer));
}

#[tokio::test]
async fn it_is_for_admins_and_only_they_find_it_in_the_help() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    for command in ["/codex-runtime", "/codex-runtime on"] {
        let refused = room.is_answered("@bob", command).await;
        assert_eq!(refused, "Only admins can use /codex-runtime here.");
    }
    assert_eq!((codex.starts().len(), stored(&gateway).await), (0, None));
    assert!(!room.is_answered("@bob", "/help").await.contains("codex"));
    let help = room.is_answered("@ann", "/help").await;
    assert!(help.contains("- `/codex-runtime` shows whether codex runs the turns of this agent"), "{help}");
}

#[tokio::test]
async fn an_agent_that_cannot_be_switched_is_refused_with_the_reason() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    room.is_answered("@ann", "/agent proxy").await;
    for command in ["/codex-runtime", "/codex-runtime on", "/codex-runtime off"] {
        assert_eq!(
            room.is_answered("@ann", command).await,
            "A remote agent server answers here. Run `talaria codex on` or `talaria codex off` on its machine."
        );
    }
    let runtimes = gateway.runtimes();
    let words = |name: &str| {
        let name = AgentName::new(name).unwrap();
        runtimes.state(&name).unwrap_err().words(&name).to_string()
    };
    assert_snapshot!(words("own"), @"The agent own cannot be switched: its model server is not OpenAI's, and codex would send what is said here elsewhere. If that is wanted, write `runtime: auto` into its entry of the configuration.");
    assert_snapshot!(words("gone"), @"No agent is configured here that could be switched.");
    assert_eq!(codex.starts().len(), 0);
}

#[tokio::test]
async fn in_a_room_of_an_agent_of_kind_codex_on_brings_its_configuration_up_to_date() {
    let codex = FakeCodex::new("0.130.0");
    let coder = PlaceRules { agent: AgentName::new("coder"), ..PlaceRules::default() };
    let rules = AccountRules { places: [("!home".into(), coder)].into(), ..rules() };
    let gateway = TestGateway::with(Setup { rules, ..setup(&codex) }).await;
    let room = gateway.room();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime").await, @"
    codex app-server runs the turns of the agent coder (runtime: codex_app_server).
    codex 0.130.0 is installed on the machine of this agent.
    `/codex-runtime on` brings the configuration of codex up to date.
    ");
    assert_eq!(codex.config(), "");
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime on").await, @"
    codex app-server runs the turns of the agent coder already.
    codex 0.130.0 is installed on the machine of this agent.
    Written into codex' config.toml: `default_permissions`, `mcp_servers.talaria`, `mcp_servers.time`.
    codex has an account of its own: `codex login` on that machine logs it in.
    ");
    assert!(codex.config().contains("[mcp_servers.time]"), "{}", codex.config());
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime off").await, @"The agent coder is codex itself, so there is nothing to switch.");
    assert_eq!(stored(&gateway).await, None);
}

#[tokio::test]
async fn if_the_agent_of_a_room_cannot_be_read_no_other_one_is_switched() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    gateway.answers(&gateway.room(), "@ann", "one").await;
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    // Once the command is taken.
    database
        .execute_batch(
            "CREATE TRIGGER odd AFTER UPDATE ON commands BEGIN UPDATE sessions SET agent = x'ff'; END",
        )
        .unwrap();
    assert_snapshot!(gateway.room().is_answered("@ann", "/codex-runtime on").await, @"The agent of this conversation cannot be found out right now, so nothing has changed. Please try again later.");
    assert_eq!((stored(&gateway).await, codex.starts().len()), (None, 0));
}

#[tokio::test]
async fn a_running_turn_of_this_session_keeps_its_runtime_and_refuses_the_switch() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let (room, other) = (gateway.room(), gateway.direct_room("!other"));
    let running = gateway.stand_in().script().says(["Let me think"]).then_hangs();
    room.says("@ann", "plan my week").await;
    running.is_hanging().await;
    for command in ["/codex-runtime on", "/codex-runtime off"] {
        room.says("@ann", command).await;
        room.shows("An answer is still running. /stop ends it; then try again.").await;
    }
    assert_eq!((stored(&gateway).await, codex.config().as_str()), (None, ""), "nothing is written");
    // Turns of other sessions end as they began.
    other.is_answered("@ann", "/codex-runtime on").await;
    assert_eq!(stored(&gateway).await, Some(AgentRuntime::CodexAppServer));
    room.says("@ann", "/stop").await;
    room.shows("(stopped)").await;
    assert_eq!((gateway.stand_in().heard().len(), gateway.codex().heard().len()), (1, 0));
}

#[tokio::test]
async fn a_choice_against_the_configuration_is_an_override_too() {
    let codex = FakeCodex::new("0.130.0");
    let mut setup = setup(&codex);
    for settings in setup.switches.agents.values_mut() {
        if let talaria::config::AgentSettings::Model(model) = settings
            && let Some(switch) = &mut model.switch
        {
            switch.runtime = AgentRuntime::CodexAppServer;
        }
    }
    let mut gateway = TestGateway::with(setup).await;
    let room = gateway.room();
    assert_snapshot!(room.is_answered("@ann", "/codex-runtime off").await, @"
    From the next message on, the agent local runs its turns itself again, and sees what was said here. The configuration of codex stays as it is.
    This was chosen with a command; the configuration says `codex_app_server`.
    ");
    assert_eq!(stored(&gateway).await, Some(AgentRuntime::Auto));
    gateway.restart().await;
    let shown = room.is_answered("@ann", "/codex-runtime").await;
    assert!(
        shown.starts_with("The agent local runs its turns itself (runtime: auto).\nThis was chosen"),
        "{shown}"
    );
    room.is_answered("@ann", "/codex-runtime on").await;
    assert_eq!(stored(&gateway).await, None, "the configuration says it already");
}
