//! `talaria codex` on the real binary: through the running process and without one, with a fake `codex` on the PATH.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, texts};
use crate::support::binary::{Ended, Talaria};
use crate::support::fake_codex::FakeCodex;
use crate::support::network::Network;

/// A talaria whose default agent can be switched, and whose PATH and CODEX_HOME are those of the fake.
fn talaria(codex: &FakeCodex) -> Talaria {
    Talaria::new()
        .var("PATH", &format!("{}:/usr/bin:/bin", codex.path().display()))
        .var("CODEX_HOME", codex.home().to_str().unwrap())
        .var("OPENAI_API_KEY", "sk-a-real-one-for-once")
        .var("OPENAI_MODEL", "gpt-5")
        .var("API_SERVER_PORT", "0")
        .config("mcp_servers:\n  time: {command: mcp-time}\n")
        .args(["serve"])
}

async fn well<'a>(talaria: &Talaria, args: impl IntoIterator<Item = &'a str>) -> String {
    let ended = talaria.does(args).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
    ended.out
}

async fn refused<'a>(talaria: &Talaria, args: impl IntoIterator<Item = &'a str>) -> Ended {
    let ended = talaria.does(args).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.err);
    ended
}

async fn status(talaria: &Talaria) -> Value {
    serde_json::from_str(&well(talaria, ["codex", "status", "--json"]).await).unwrap()
}

/// Runs all commands. Called with and without a running process: each command has one implementation, and both ways lead
/// there.
async fn a_switch_on_and_off(talaria: &Talaria, codex: &FakeCodex, when: &str) {
    let checks = codex.version_checks();
    let dry = well(talaria, ["codex", "on", "--dry-run"]).await;
    assert!(
        dry.starts_with("Nothing was changed. `talaria codex on` would hand the turns of local to codex.\n"),
        "{dry}"
    );
    assert!(
        dry.contains("Would be written into codex' config.toml") && dry.contains("[mcp_servers.time]"),
        "{dry}"
    );
    assert_eq!((codex.config().as_str(), codex.version_checks()), ("", checks + 1));
    assert_eq!(status(talaria).await["agents"][0]["runtime"], "auto");

    let checks = codex.version_checks();
    let on = well(talaria, ["codex", "on"]).await;
    assert!(on.starts_with(&format!("Codex runs the turns of local {when}.\n")), "{on}");
    for words in [
        "codex 0.130.0 (",
        "config.toml\n- Written into codex' config.toml: ",
        "plugins.\"calendar@openai-curated\"",
        "Installed plugins that Talaria leaves alone: `own@mine`.",
        "Not available on this runtime: ",
        "On this runtime local is for admins and the owner only",
        "`codex login` logs it in.",
    ] {
        assert!(on.contains(words), "{words}: {on}");
    }
    assert_eq!(codex.version_checks(), checks + 1, "once per command");
    assert!(codex.config().contains("[mcp_servers.time]"), "{}", codex.config());
    let again = well(talaria, ["codex", "on"]).await;
    assert!(again.starts_with("Codex runs the turns of local already.\n"), "{again}");
    assert!(again.contains("codex' config.toml already has everything: "), "{again}");
    let shown = status(talaria).await;
    assert_eq!(shown["codex"]["version"], "0.130.0", "{shown}");
    assert_eq!(shown["agents"][0]["runtime"], "codex_app_server", "{shown}");
    assert_eq!(shown["agents"][0]["configured"], "auto", "{shown}");
    let table = well(talaria, ["codex", "status"]).await;
    assert!(
        table.contains("local  codex_app_server\n")
            && table.contains("\nlocal: chosen with a command; the configuration says auto"),
        "{table}"
    );

    let (written, checks) = (codex.config(), codex.version_checks());
    let off = well(talaria, ["codex", "off", "--json"]).await;
    let off: Value = serde_json::from_str(&off).unwrap();
    assert_eq!((&off["before"], &off["runtime"]), (&"codex_app_server".into(), &"auto".into()), "{off}");
    assert_eq!((codex.config(), codex.version_checks()), (written, checks), "off looks for nothing");
    let off = well(talaria, ["codex", "off"]).await;
    assert_eq!(off, "The agent local runs its turns itself already.\n");
    fs::remove_file(codex.home().join("config.toml")).unwrap();
}

#[tokio::test]
async fn codex_is_switched_through_the_running_process_and_without_one() {
    let codex = FakeCodex::new("0.130.0");
    let talaria = talaria(&codex);
    a_switch_on_and_off(&talaria, &codex, "from the next start on").await;
    let mut process = talaria.starts();
    process.logs("running").await;
    a_switch_on_and_off(&talaria, &codex, "from its next message on").await;
    well(&talaria, ["codex", "on"]).await;
    let status = well(&talaria, ["status"]).await;
    assert!(status.contains("codex app-server in place of model gpt-5"), "{status}");
    let audit = well(&talaria, ["audit", "--csv"]).await;
    assert!(
        audit.contains("switch local to codex_app_server") && audit.contains("switch local to auto"),
        "{audit}"
    );
    process.signal(Signal::TERM);
    assert_eq!(process.ended().await.code, 0);
    assert_eq!(self::status(&talaria).await["agents"][0]["runtime"], "codex_app_server", "it is stored");

    // The banner of the next start names it.
    let mut process = talaria.starts();
    process.logs("codex app-server in place of model gpt-5").await;
}

#[tokio::test]
async fn a_codex_that_cannot_be_used_is_refused_with_a_hint() {
    let codex = FakeCodex::new("0.99.0");
    let talaria = talaria(&codex);
    refused(&talaria, ["codex", "on"])
        .await
        .said("codex 0.99.0 is too old; 0.125.0 or newer is needed")
        .said("hint: install it with `npm install -g @openai/codex`");
    codex.is_removed();
    for args in [&["codex", "on"][..], &["codex", "on", "--dry-run"]] {
        refused(&talaria, args.iter().copied())
            .await
            .said("is not found")
            .said("npm install -g @openai/codex");
    }
    let shown = status(&talaria).await;
    assert_eq!((&shown["codex"], &shown["agents"][0]["runtime"]), (&Value::Null, &"auto".into()), "{shown}");
    assert!(shown["problem"]["hint"].as_str().unwrap().contains("npm install"), "{shown}");
    well(&talaria, ["codex", "off"]).await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_switched_is_refused_with_the_reason() {
    let codex = FakeCodex::new("0.130.0");
    let mut talaria = talaria(&codex).config(
        "agents:\n  own: {kind: model, model: m, base_url: 'http://127.0.0.1:1/v1'}\n  coder: {kind: codex}\n  far: {kind: \
         proxy, url: 'http://127.0.0.1:1'}\n  small: {kind: model, model: m, base_url: 'http://127.0.0.1:1/v1', runtime: \
         AUTO}\ndefault_agent: far\n",
    );
    for (agent, said) in [
        ("own", "the model server of the agent `own` is not OpenAI's"),
        ("far", "the agent `far` is a remote agent server"),
        ("nobody", "no agent is called `nobody`"),
    ] {
        refused(&talaria, ["codex", "on", "--agent", agent]).await.said(said).said("hint: ");
        refused(&talaria, ["codex", "off", "--agent", agent]).await.said(said);
    }
    refused(&talaria, ["codex", "off", "--agent", "coder"]).await.said("the agent `coder` is codex itself");
    // Codex can run several, and none of them is the default.
    refused(&talaria, ["codex", "on"]).await.said("several agents can be meant: `coder`, `local` …");
    refused(&talaria, ["codex", "off"]).await.said("several agents can be meant: `local`, `small` …");
    let out = well(&talaria, ["codex", "on", "--agent", "small"]).await;
    assert!(out.starts_with("Codex runs the turns of small from the next start on."), "{out}");
    talaria.sets("OPENAI_MODEL", None);
    talaria.sets("OPENAI_API_KEY", None);
    // Now it is the only one.
    let out = well(&talaria, ["codex", "off"]).await;
    assert!(out.starts_with("The agent small runs its turns itself again"), "{out}");
    assert_eq!(codex.version_checks(), 1);

    talaria.rewrites_config("agents: {far: {kind: proxy, url: 'http://127.0.0.1:1'}}\n");
    refused(&talaria, ["codex", "on"]).await.said("the agent `far` is a remote agent server");
    talaria.rewrites_config("");
    refused(&talaria, ["codex", "on"]).await.said("no agent is configured that could be switched");
    talaria.rewrites_config("agents: {far: {kind: proxi}}\n");
    let wrong = talaria.does(["codex", "on"]).await;
    assert_eq!(wrong.code, 78, "{}", wrong.err);
}

/// The keys of the migrated entries in codex' configuration.
fn entries(codex: &FakeCodex) -> String {
    let config = codex.config();
    let line = config.lines().find_map(|line| line.strip_prefix("# entries: "));
    line.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_agent_of_kind_codex_is_brought_up_to_date_and_its_entry_opts_out() {
    let codex = FakeCodex::new("0.130.0");
    let mut talaria = talaria(&codex);
    talaria.sets("OPENAI_MODEL", None);
    talaria.sets("OPENAI_API_KEY", None);
    let configure = |keys: &str| {
        let servers = "mcp_servers:\n  time: {command: mcp-time}\n";
        talaria.rewrites_config(format!("{servers}agents:\n  coder: {{kind: codex{keys}}}\n"));
    };
    configure("");
    let dry = well(&talaria, ["codex", "on", "--dry-run"]).await;
    assert!(
        dry.starts_with(
            "Nothing was changed. `talaria codex on` would bring codex' configuration up to date for coder.\n"
        ) && dry.contains("[mcp_servers.talaria]"),
        "{dry}"
    );
    let hint = "not migrated yet; run `talaria codex on --agent coder`";
    let table = well(&talaria, ["codex", "status"]).await;
    assert!(table.contains(&format!("\ncoder: {hint}")), "{table}");
    assert!(checked(&talaria).await.contains(hint));

    let on = well(&talaria, ["codex", "on"]).await;
    assert!(on.starts_with("Codex runs the turns of coder already.\n") && !on.contains("Not avail"), "{on}");
    let table = well(&talaria, ["codex", "status"]).await;
    assert!(table.contains("\ncoder: cannot be switched: "), "{table}");
    assert_eq!(
        entries(&codex),
        "default_permissions, mcp_servers.talaria, mcp_servers.time, plugins.\"calendar@openai-curated\""
    );
    let shown = status(&talaria).await;
    assert_eq!(shown["agents"][0]["unmigrated"], false, "{shown}");
    assert!(!checked(&talaria).await.contains(hint));
    for (keys, left) in [
        (", profile: none", "mcp_servers.talaria, mcp_servers.time, plugins.\"calendar@openai-curated\""),
        (", profile: none, plugins: false", "mcp_servers.talaria, mcp_servers.time"),
        (", profile: none, plugins: false, tools_server: false", "mcp_servers.time"),
    ] {
        configure(keys);
        well(&talaria, ["codex", "on", "--agent", "coder"]).await;
        assert_eq!(entries(&codex), left, "{keys}");
    }
    refused(&talaria, ["codex", "off"]).await.said("the agent `coder` is codex itself");
}

#[tokio::test]
async fn codex_gets_the_servers_of_the_agents_that_it_runs() {
    let codex = FakeCodex::new("0.130.0");
    let talaria = talaria(&codex);
    talaria.rewrites_config(
        "mcp_servers:\n  time: {command: a}\n  web: {command: b}\n  later: {command: c}\nagents:\n  local: {tools: \
         [mcp.time]}\n  small: {kind: model, model: m, tools: [mcp.web]}\n",
    );
    let servers = || {
        let config = codex.config();
        let tables = config.lines().filter_map(|line| line.strip_prefix("[mcp_servers.")?.strip_suffix(']'));
        tables.map(str::to_owned).collect::<Vec<_>>()
    };
    well(&talaria, ["codex", "on", "--agent", "local"]).await;
    assert_eq!(servers(), ["talaria", "time"]);
    assert!(codex.config().contains("args = [\"mcp\", \"--servers=\"]"), "{}", codex.config());
    // The other one is not on codex yet, and then is.
    well(&talaria, ["codex", "on", "--agent", "small"]).await;
    assert_eq!(servers(), ["talaria", "time", "web"]);
    well(&talaria, ["codex", "off", "--agent", "local"]).await;
    well(&talaria, ["codex", "on", "--agent", "small"]).await;
    assert_eq!(servers(), ["talaria", "web"]);
}

#[tokio::test]
async fn a_choice_ends_with_the_possibility_to_switch() {
    let codex = FakeCodex::new("0.130.0");
    let mut talaria = talaria(&codex);
    let private = Some("http://127.0.0.1:1/v1");
    // A start ends it.
    well(&talaria, ["codex", "on"]).await;
    talaria.sets("OPENAI_BASE_URL", private);
    let mut process = talaria.starts();
    process.logs("running").await;
    process.signal(Signal::TERM);
    process.ended().await;
    talaria.sets("OPENAI_BASE_URL", None);
    assert_eq!(status(&talaria).await["agents"][0]["runtime"], "auto");
    // `off` does, although it is refused.
    well(&talaria, ["codex", "on"]).await;
    talaria.sets("OPENAI_BASE_URL", private);
    refused(&talaria, ["codex", "off", "--agent", "local"]).await.said("is not OpenAI's");
    talaria.sets("OPENAI_BASE_URL", None);
    assert_eq!(status(&talaria).await["agents"][0]["runtime"], "auto");
    // And a reload does.
    talaria.sets("OPENAI_BASE_URL", private);
    talaria.rewrites_config("agent: {runtime: auto}\n");
    well(&talaria, ["codex", "on"]).await;
    let mut process = talaria.starts();
    process.logs("running").await;
    assert_eq!(status(&talaria).await["agents"][0]["runtime"], "codex_app_server");
    for config in ["", "agent: {runtime: auto}\n"] {
        talaria.rewrites_config(config);
        well(&talaria, ["reload"]).await;
    }
    assert_eq!(status(&talaria).await["agents"][0]["runtime"], "auto");
    process.signal(Signal::TERM);
    process.ended().await;
    assert_eq!(status(&talaria).await["agents"][0]["runtime"], "auto", "not in the store either");
}

#[tokio::test]
async fn a_death_during_a_switch_leaves_no_agent_on_codex_without_its_servers() {
    let codex = FakeCodex::new("0.130.0");
    let mut talaria = talaria(&codex);
    for (point, runtime) in [("runtime.migrated", "auto"), ("runtime.stored", "codex_app_server")] {
        talaria.sets("TALARIA_FAILPOINT", Some(point));
        let died = talaria.does(["codex", "on"]).await;
        assert_ne!(died.code, 0, "{}", died.out);
        assert!(codex.config().contains("[mcp_servers.time]"), "{point}");
        talaria.sets("TALARIA_FAILPOINT", None);
        let shown = status(&talaria).await;
        assert_eq!(shown["agents"][0]["runtime"], runtime, "{point}");
        assert_eq!(shown["agents"][0]["unmigrated"], false, "{point}");
        fs::remove_file(codex.home().join("config.toml")).unwrap();
    }
    // As an earlier version left it, or if somebody has removed our part.
    let hint = "not migrated yet; run `talaria codex on --agent local`";
    assert!(well(&talaria, ["codex", "status"]).await.contains(hint));
    assert!(checked(&talaria).await.contains(hint));
    well(&talaria, ["codex", "off"]).await;
    assert!(!checked(&talaria).await.contains(hint));
    talaria.rewrites_config("agent: {runtime: codex_app_server}\n");
    assert!(checked(&talaria).await.contains(hint), "nobody has run a command");
}

#[tokio::test]
async fn a_reload_may_make_an_agent_switchable() {
    let codex = FakeCodex::new("0.130.0");
    let mut talaria = talaria(&codex);
    talaria.sets("OPENAI_BASE_URL", Some("http://127.0.0.1:1/v1"));
    let mut process = talaria.starts();
    process.logs("running").await;
    refused(&talaria, ["codex", "on"]).await.said("is not OpenAI's");
    talaria.rewrites_config("agent: {runtime: auto}\n");
    well(&talaria, ["reload"]).await;
    let out = well(&talaria, ["codex", "on"]).await;
    assert!(out.starts_with("Codex runs the turns of local from its next message on."), "{out}");
    talaria.rewrites_config("agent: {runtime: codex_app_server}\n");
    well(&talaria, ["reload"]).await;
    let shown = status(&talaria).await;
    assert_eq!(shown["agents"][0]["configured"], "codex_app_server", "{shown}");
}

#[tokio::test]
async fn the_help_teaches() {
    let talaria = Talaria::new();
    let help = well(&talaria, ["codex", "--help"]).await;
    for command in ["status", "on", "off"] {
        assert!(help.contains(&format!("  {command} ")), "{help}");
        let own = well(&talaria, ["codex", command, "--help"]).await;
        assert!(own.contains("Examples:") && own.contains(&format!("talaria codex {command}")), "{own}");
    }
    let on = well(&talaria, ["codex", "on", "--help"]).await;
    for words in ["npm install -g @openai/codex", "`codex login`", "$CODEX_HOME/config.toml", "--dry-run"] {
        assert!(on.contains(words), "{words}: {on}");
    }
}

#[tokio::test]
async fn a_room_switches_it_with_the_codex_on_the_path() {
    let codex = FakeCodex::new("0.130.0");
    let talaria = talaria(&codex).args([]);
    let network = Network::listen(talaria.home());
    talaria.rewrites_config(format!(
        "platforms:\n  test:\n    socket: {}\n    access: {{admins: ['@ann:test']}}\n",
        network.socket().display()
    ));
    let readers = network.readers();
    let mut process = talaria.starts();
    process.logs("running").await;
    assert!(network.is_read(PATIENCE, readers + 1).await, "it never read");
    network.says_as("@ann:test", "!home", true, "/codex-runtime on");
    let shown = network.shows(PATIENCE, |messages| !texts(messages, "!home").is_empty()).await;
    let texts = texts(&network.messages(), "!home");
    assert!(shown && texts[0].starts_with("From the next message on, codex app-server runs"), "{texts:?}");
    assert!(texts[0].contains("codex 0.130.0 is installed"), "{texts:?}");
    assert_eq!(codex.starts(), ["--version", "app-server", "login"]);
}

#[tokio::test]
async fn a_codex_without_a_login_is_said_when_it_is_switched_on() {
    let codex = FakeCodex::new("0.130.0");
    codex.is_logged_out();
    let talaria = talaria(&codex);
    let on = well(&talaria, ["codex", "on"]).await;
    assert!(on.contains("Codex is not logged in, so it answers nothing yet: run `codex login`"), "{on}");
    assert!(!on.contains("an account of its own"), "{on}");
    let json: Value = serde_json::from_str(&well(&talaria, ["codex", "on", "--json"]).await).unwrap();
    assert_eq!(json["logged_out"], true);

    // A provider of somebody else needs no login of codex.
    fs::write(codex.home().join("config.toml"), "model_provider = 'mine'\n").unwrap();
    let on = well(&talaria, ["codex", "on"]).await;
    assert!(on.contains("Codex has an account of its own"), "{on}");
}

/// The lines of `talaria check` about codex.
async fn checked(talaria: &Talaria) -> String {
    let ended = talaria.does(["check"]).await;
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    ended.out.lines().filter(|line| line.contains("codex")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn check_looks_at_the_codex_of_agents_that_use_it() {
    let codex = FakeCodex::new("0.130.0");
    let mut talaria = talaria(&codex);
    assert_eq!(checked(&talaria).await, "", "nobody uses it");
    well(&talaria, ["codex", "on"]).await;
    let starts = codex.version_checks();
    let shown = checked(&talaria).await;
    assert!(
        shown.contains("agent `local`: codex 0.130.0 runs its turns (runtime: codex app-server)"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("the folder of codex (CODEX_HOME) is {}", codex.home().display())),
        "{shown}"
    );
    assert!(!shown.contains("warning"), "{shown}");
    assert_eq!(codex.version_checks(), starts + 1);

    talaria.rewrites_config("agents:\n  coder: {kind: codex}\n");
    fs::write(
        codex.home().join("config.toml"),
        "model_provider = 'mine'\n[model_providers.mine]\nenv_key = 'MINE_KEY'\n",
    )
    .unwrap();
    talaria.sets("MINE_KEY", Some("a key"));
    let shown = checked(&talaria).await;
    assert!(
        shown.contains(
            "agent `coder`: codex' configuration wants the variable MINE_KEY for its provider `mine`"
        ),
        "{shown}"
    );
    assert!(shown.contains("add it to `agents.coder.env_passthrough`"), "{shown}");
    assert!(!shown.contains("a key"), "{shown}");
    talaria.rewrites_config("agents:\n  coder: {kind: codex, env_passthrough: [MINE_KEY]}\n");
    assert!(!checked(&talaria).await.contains("agent `coder`: codex' configuration wants"));

    codex.is_removed();
    let shown = checked(&talaria).await;
    assert!(shown.contains("warning: agent `coder`: codex runs its turns and cannot be used"), "{shown}");
    assert!(
        shown.contains("npm install -g @openai/codex") && shown.contains("the image of Talaria has no codex"),
        "{shown}"
    );
}
