//! The config.toml that we write, read by the real codex and edited by it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use talaria::agents::codex::migration::{
    DEFAULT_PROFILE, MigrationMode, MigrationOutcome, MigrationReport, PluginChoice, PluginListing,
    ToolsServer, WantedEntries, migrate,
};
use talaria::config::{
    BaseUrl, McpSelection, McpServerConfig, McpTransport, Secret, ToolPermission, ValueOrigin,
};

use crate::codex_home::{CodexHome, CodexOptions};
use crate::direct::{DirectCodex, requests};
use crate::it::upstream::Upstream;
use crate::mcp_server::{ARGS, READ_ONLY, SERVER, SERVES, tables_with};
use crate::responses::{calls_mcp, says, told};

/// The request for the approval of a tool.
const TOOL: &str = "mcpServer/elicitation/request";

fn server(transport: McpTransport, origins: &[(&str, ValueOrigin)]) -> McpServerConfig {
    McpServerConfig {
        transport,
        enabled: true,
        connect_timeout: Duration::from_secs(20),
        timeout: Duration::from_millis(4500),
        include: None,
        exclude: Vec::new(),
        permissions: BTreeMap::new(),
        origins: origins.iter().map(|(name, origin)| ((*name).to_owned(), origin.clone())).collect(),
    }
}

fn values(values: &[(&str, &str)]) -> BTreeMap<String, Secret> {
    values.iter().map(|(name, value)| ((*name).to_owned(), Secret::from((*value).to_owned()))).collect()
}

/// The scripted server, whose tools all say that they only read.
fn shelf() -> McpServerConfig {
    let transport = McpTransport::Stdio {
        command: std::env::current_exe().unwrap().display().to_string(),
        args: ARGS.map(str::to_owned).to_vec(),
        env: values(&[(SERVES, READ_ONLY)]),
        cwd: None,
    };
    server(transport, &[(SERVES, ValueOrigin::Literal)])
}

/// Every kind of entry with every key.
fn everything(home: &CodexHome) -> WantedEntries {
    let variable = |name: &str| ValueOrigin::Variable(name.to_owned());
    let stdio = McpTransport::Stdio {
        command: "true".to_owned(),
        args: vec!["-y".to_owned(), "odd \"\\\n\t\u{1b}\u{7f}é".to_owned()],
        env: values(&[("LEVEL", "debug"), ("API_TOKEN", "SECRET")]),
        cwd: Some(PathBuf::from("/tmp")),
    };
    let mut time = server(stdio, &[("LEVEL", ValueOrigin::Literal), ("API_TOKEN", variable("API_TOKEN"))]);
    time.include = Some(["read", "odd.tool", "write"].map(str::to_owned).to_vec());
    time.exclude = vec!["write".to_owned()];
    time.permissions.insert("odd.tool".to_owned(), ToolPermission::Allow);
    let http = McpTransport::Http {
        url: BaseUrl::parse("https://127.0.0.1:1/mcp").unwrap(),
        headers: values(&[("X-Tenant", "acme"), ("X-Api-Key", "SECRET"), ("Authorization", "Bearer SECRET")]),
    };
    let bearer = ValueOrigin::BearerVariable("WEB_TOKEN".to_owned());
    let origins =
        [("X-Tenant", ValueOrigin::Literal), ("X-Api-Key", variable("WEB_KEY")), ("Authorization", bearer)];
    let web = McpServerConfig { enabled: false, ..server(http, &origins) };
    let plugins = PluginListing { curated: vec!["calendar@openai-curated".to_owned()], others: Vec::new() };
    WantedEntries {
        servers: BTreeMap::from([("time".to_owned(), time), ("web".to_owned(), web)]),
        out_of_reach: BTreeMap::new(),
        tools_server: Some(tools_server(home)),
        offered: McpSelection::All,
        plugins: PluginChoice::Listed(plugins),
        profile: Some(DEFAULT_PROFILE.to_owned()),
    }
}

fn tools_server(home: &CodexHome) -> ToolsServer {
    ToolsServer { program: PathBuf::from("/bin/true"), home: home.path().join("state"), config: None }
}

async fn home_with(tables: &str) -> (Upstream, CodexHome) {
    let model = Upstream::plain().await;
    let options = CodexOptions { tables: tables.to_owned(), ..CodexOptions::default() };
    let home = CodexHome::new(&model.url(), &options);
    (model, home)
}

async fn migrates(home: &CodexHome, wanted: WantedEntries) -> MigrationReport {
    let migration = migrate(home.codex_home(), wanted, MigrationMode::Write).await;
    assert_eq!(migration.report.errors, []);
    migration.report
}

fn text(home: &CodexHome) -> String {
    fs::read_to_string(home.codex_home().join("config.toml")).unwrap()
}

/// codex' effective configuration.
async fn configuration(codex: &mut DirectCodex) -> Value {
    codex.calls("config/read", json!({ "includeLayers": false })).await.unwrap()
}

/// Ends codex, and fails if it has warned about its configuration before its last answer.
async fn is_content(mut codex: DirectCodex) {
    while let Some(message) = codex.next_seen() {
        assert_ne!(message["method"], "configWarning", "{message}");
    }
    codex.ends().await;
}

#[tokio::test]
async fn codex_reads_every_entry_that_we_write() {
    let (_model, home) = home_with("").await;
    let report = migrates(&home, everything(&home)).await;
    assert_eq!((report.outcome, report.migrated.len()), (MigrationOutcome::Written, 5), "{report:?}");
    assert!(!text(&home).contains("SECRET"));

    let mut codex = DirectCodex::start(&home).await;
    let answer = configuration(&mut codex).await;
    let config = &answer["config"];
    assert_eq!(config["default_permissions"], ":workspace");
    assert_eq!(config["plugins"]["calendar@openai-curated"], json!({ "enabled": true }));
    assert_eq!(
        config["mcp_servers"]["time"],
        json!({
            "command": "true", "args": ["-y", "odd \"\\\n\t\u{1b}\u{7f}é"], "env": { "LEVEL": "debug" },
            "env_vars": ["API_TOKEN"], "cwd": "/tmp", "environment_id": "local", "enabled": true,
            "startup_timeout_sec": 20.0, "tool_timeout_sec": 4.5, "default_tools_approval_mode": "prompt",
            "enabled_tools": ["odd.tool", "read"], "disabled_tools": ["write"],
            "tools": { "odd.tool": { "approval_mode": "approve" } },
        })
    );
    assert_eq!(
        config["mcp_servers"]["web"],
        json!({
            "url": "https://127.0.0.1:1/mcp", "bearer_token_env_var": "WEB_TOKEN",
            "http_headers": { "X-Tenant": "acme" }, "env_http_headers": { "X-Api-Key": "WEB_KEY" },
            "environment_id": "local", "enabled": false, "startup_timeout_sec": 20.0, "tool_timeout_sec": 4.5,
            "default_tools_approval_mode": "prompt",
        })
    );
    let ours = tools_server(&home);
    let args = ours.written_args(&home.codex_home()).expect("our part has it");
    assert!(ours.is_effective(&answer, &args), "{answer}");
    let started =
        codex.calls("thread/start", json!({ "cwd": home.workspace().display().to_string() })).await.unwrap();
    assert_eq!(started["activePermissionProfile"]["id"], ":workspace");
    is_content(codex).await;
}

#[tokio::test]
async fn edits_of_codex_between_our_markers_survive_the_next_migration() {
    let (_model, home) = home_with("[mcp_servers.mine]\ncommand = \"true\"\n").await;
    migrates(&home, everything(&home)).await;
    let mut codex = DirectCodex::start(&home).await;
    let writes =
        |key: &str, value: &str| json!({ "keyPath": key, "value": value, "mergeStrategy": "upsert" });
    for (key, value) in [
        ("model_reasoning_effort", "high"),
        ("projects.\"/somewhere\".trust_level", "trusted"),
        // A person who uses codex alone has allowed a tool for good.
        ("mcp_servers.time.tools.read.approval_mode", "approve"),
    ] {
        codex.calls("config/value/write", writes(key, value)).await.unwrap();
    }
    codex.ends().await;
    let added = Command::new(home.program())
        .args(["mcp", "add", "added", "--", "echo", "hi"])
        .env_clear()
        .env("HOME", home.path())
        .env("CODEX_HOME", home.codex_home())
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let edited = text(&home);
    let (begin, end) = (edited.find("# >>> talaria").unwrap(), edited.find("# <<< talaria").unwrap());
    for inside in ["model_reasoning_effort", "[mcp_servers.added]", "[mcp_servers.mine]"] {
        assert!((begin..end).contains(&edited.find(inside).unwrap()), "{inside}: {edited}");
    }

    let report = migrates(&home, everything(&home)).await;
    assert_eq!(report.moved, ["model_reasoning_effort", "mcp_servers.mine", "mcp_servers.added"], "{edited}");
    assert_eq!(report.migrated.len(), 5, "{report:?}");
    let mut codex = DirectCodex::start(&home).await;
    let config = configuration(&mut codex).await["config"].take();
    assert_eq!(config["model_reasoning_effort"], "high");
    assert_eq!(config["projects"]["/somewhere"]["trust_level"], "trusted");
    for (server, command) in [("added", "echo"), ("mine", "true"), ("time", "true")] {
        assert_eq!(config["mcp_servers"][server]["command"], command);
    }
    // Our part says again what our configuration says.
    assert!(config["mcp_servers"]["time"]["tools"]["read"].is_null());
    is_content(codex).await;

    // Without our entries, codex still has all that is the user's.
    migrates(&home, WantedEntries::default()).await;
    let left = text(&home);
    let is_ours = left.contains("talaria >>>") || left.contains("mcp_servers.talaria");
    assert!(!is_ours && left.contains("[mcp_servers.added]"), "{left}");
}

#[tokio::test]
async fn a_tool_that_we_ask_about_is_asked_about_by_codex() {
    // Alone, codex runs a tool that says it only reads.
    let (model, home) = home_with(&tables_with(READ_ONLY)).await;
    let (asked, told) = called(&model, &home, "echo").await;
    assert!(asked.is_empty() && told.contains("from the shelf"), "{asked:?} {told}");

    let wanted = |config| WantedEntries {
        servers: BTreeMap::from([(SERVER.to_owned(), config)]),
        ..WantedEntries::default()
    };
    let (model, home) = home_with("").await;
    migrates(&home, wanted(shelf())).await;
    let (asked, told) = called(&model, &home, "echo").await;
    assert!(asked == [TOOL] && told.contains("from the shelf"), "{asked:?} {told}");

    let mut allowed = shelf();
    allowed.permissions.insert("echo".to_owned(), ToolPermission::Allow);
    migrates(&home, wanted(allowed)).await;
    let (asked, told) = called(&model, &home, "echo").await;
    assert!(asked.is_empty() && told.contains("from the shelf"), "{asked:?} {told}");

    let mut denied = shelf();
    denied.permissions.insert("fail".to_owned(), ToolPermission::Deny);
    denied.include = Some(["echo", "fail"].map(str::to_owned).to_vec());
    migrates(&home, wanted(denied)).await;
    for tool in ["fail", "form"] {
        let (asked, told) = called(&model, &home, tool).await;
        assert!(asked.is_empty() && told.contains("unsupported call"), "{tool}: {asked:?} {told}");
    }
    let (asked, told) = called(&model, &home, "echo").await;
    assert!(asked == [TOOL] && told.contains("from the shelf"), "{asked:?} {told}");
}

/// Has the model call a tool and accepts everything. Returns the methods of the questions, and the result for the model.
async fn called(model: &Upstream, home: &CodexHome, tool: &str) -> (Vec<String>, String) {
    let mut codex = DirectCodex::start(home).await;
    let thread = codex.starts_thread(json!({})).await;
    model.answers(calls_mcp(SERVER, tool, &json!({ "text": "from the shelf" }))).answers(says(["done"]));
    let reply = json!({ "action": "accept", "content": {}, "_meta": null });
    let messages = codex.turn(&thread, "go", &reply).await;
    let asked = requests(&messages).into_iter().map(str::to_owned).collect();
    codex.ends().await;
    (asked, told(model.prompts().last().unwrap()).pop().unwrap())
}
