//! Seeded secrets with the real binary: a model that tries every tool gets none of them, and the log has none.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::calls;
use crate::mcp::scripted_server::SCRIPT;
use crate::processes::sandbox;
use crate::support::binary::Talaria;
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, Upstream};

/// Part of every seeded secret. No call of the model contains it in this form.
const SEED: &str = "s3cr3t";

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The commands of the model, with `$R` for the folder that everything lies in and `$H` for the state folder.
const COMMANDS: &[&str] = &[
    "env; export -p; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done",
    "cat $H/talaria.yaml $H/talaria.db $H/talaria.db-wal; ls -la $H; cat $H/* ../*/*; grep -r s3cr3[t] $R",
    "cat config-link; ln -s $H home; cat home/talaria.db; cat /proc/*/root$H/talaria.yaml; cat seen.txt",
];

/// The code of the ask with this number, counted from 0.
fn code(shown: &[Shown], number: usize) -> Option<String> {
    let asked = |shown: &Shown| {
        let text = shown.bodies.iter().find_map(|body| body.markdown.split_once("`/deny "));
        text.and_then(|(_, rest)| rest.get(..4)).map(str::to_owned)
    };
    shown.iter().filter_map(asked).nth(number)
}

fn call(id: &str, name: &str, arguments: &Value) -> Answer {
    calls("", &[(id, name, &arguments.to_string())])
}

#[tokio::test]
async fn no_tool_and_no_log_shows_a_secret_of_ours() {
    if sandbox().is_none() {
        return;
    }
    // Not in /tmp, which is another one in the sandbox.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = folder.path();
    let work = root.join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("seen.txt"), "everybody may see this\n").unwrap();
    let upstream = Upstream::plain().await;
    // The path of a socket must be short.
    let sockets = tempfile::tempdir().unwrap();
    let network = Network::listen(sockets.path());
    let program = std::env::current_exe().unwrap().display().to_string();
    let config = json!({
        "agents": { "local": {
            "workspace": work,
            "tools": ["read_file", "write_file", "search_files", "terminal", "memory", "skills", "mcp"],
            "access": { "allow_all": true },
            "instructions": "Be kind.",
        } },
        "mcp_servers": {
            "s": {
                "command": program,
                "args": ["mcp::scripted_server::serves_if_told_to", "--exact", "--nocapture", "--test-threads=1"],
                "env": { SCRIPT: "plain", "API_KEY": format!("{SEED}-of-the-mcp-server") },
                "permissions": { "environment": "allow" },
            },
        },
        "terminal": { "env_passthrough": ["LISTED", "MATRIX_PASSWORD", "MATRIX_ACCESS_TOKEN"] },
        "gateway": { "proxy_key": format!("{SEED}-in-the-file") },
        "platforms": { "test": { "socket": network.socket(), "pause_ms": 5, "access": { "allow_all": true } } },
    });
    let talaria = Talaria::in_folder(root)
        .config(&config.to_string())
        .var("OPENAI_BASE_URL", &format!("{}/v1", upstream.url()))
        .var("OPENAI_MODEL", "small")
        .var("OPENAI_API_KEY", &format!("{SEED}-of-the-model"))
        .var("API_SERVER_KEY", &format!("{SEED}-of-the-server-long-enough-for-a-key"))
        .var("UNLISTED", &format!("{SEED}-unlisted"))
        .var("LISTED", "listed-value")
        .var("TALARIA_LOG", "debug")
        .args(["run"]);
    // With Matrix built in these variables would be an account. `processes::secrets` has them in every build.
    let talaria = match talaria::platforms::find("matrix") {
        Some(_) => talaria,
        None => talaria
            .var("MATRIX_PASSWORD", &format!("{SEED}-of-matrix"))
            .var("MATRIX_ACCESS_TOKEN", &format!("{SEED}-token-of-matrix")),
    };
    let home = talaria.home().to_owned();
    symlink(home.join("talaria.yaml"), work.join("config-link")).unwrap();

    let file = |id: &str, path: &str| call(id, "read_file", &json!({ "path": path }));
    let outside = format!("../{}/talaria.yaml", home.file_name().unwrap().to_str().unwrap());
    upstream
        .answers(file("a", &outside))
        .answers(file("b", &home.join("talaria.yaml").display().to_string()))
        .answers(file("c", "config-link"))
        .answers(file("d", "/proc/self/environ"))
        .answers(call("e", "search_files", &json!({ "pattern": "s3cr3[t]", "path": ".." })))
        .answers(call("f", "search_files", &json!({ "pattern": "s3cr3[t]" })))
        .answers(call("g", "memory", &json!({ "action": "list" })))
        .answers(call("h", "skills", &json!({ "action": "view", "name": "../talaria" })))
        .answers(call("i", "mcp_s_environment", &json!({})))
        .answers(file("j", "seen.txt"));
    for command in COMMANDS {
        let places = format!("R={}; H={}; ", root.display(), home.display());
        upstream.answers(call("t", "terminal", &json!({ "command": format!("{places}{command}") })));
    }
    upstream.answers(Answer::says(["I found nothing."]));

    let mut process = talaria.starts_with(fs::File::open("/dev/null").unwrap());
    // In the store, and of somebody else.
    network.says_as("@bob:test", "bob", true, &format!("/memory add {SEED}-of-bob"));
    assert!(network.shows(PATIENCE, |shown| !shown.is_empty()).await, "{}", process.so_far());
    network.says_as("@ann:test", "ann", true, "look around");
    for number in 0..COMMANDS.len() {
        let asked = network.shows(PATIENCE, |shown| code(shown, number).is_some()).await;
        assert!(asked, "{:?}\n{}", network.messages(), process.so_far());
        let code = code(&network.messages(), number).unwrap();
        network.says_as("@ann:test", "ann", true, &format!("/approve {code}"));
    }
    let said = |shown: &[Shown]| {
        shown.iter().any(|one| one.body().done && one.body().markdown.contains("I found nothing."))
    };
    assert!(network.shows(PATIENCE, said).await, "{:?}\n{}", network.messages(), process.so_far());
    process.signal(Signal::TERM);
    process.dies().await;

    // The very last one may be that of a review.
    let told =
        upstream.prompts().iter().map(|prompt| prompt.json()["messages"].to_string()).collect::<String>();
    // The tools did work.
    for words in ["everybody may see this", "LISTED=listed-value", "TALARIA_MCP_SCRIPT=plain"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    for request in upstream.requests_to("") {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains(SEED), "{body}");
        for (name, value) in &request.headers {
            assert!(name == "authorization" || !value.contains(SEED), "{name}: {value}");
        }
    }
    for shown in network.messages().iter().filter(|shown| shown.place.room.as_str() == "ann") {
        assert!(shown.bodies.iter().all(|body| !body.markdown.contains(SEED)), "{shown:?}");
    }
    let log = process.so_far();
    assert!(log.contains("DEBUG") && !log.contains(SEED), "{log}");
    let dropped = log.lines().find(|line| line.contains("variables that a child process does not get"));
    assert!(dropped.is_some_and(|line| line.contains("UNLISTED")), "{log}");
    // It was really there to be found.
    assert!(fs::read_to_string(home.join("talaria.yaml")).unwrap().contains(SEED));
    let stored = fs::read(home.join("talaria.db")).unwrap();
    assert!(memchr::memmem::find(&stored, format!("{SEED}-of-bob").as_bytes()).is_some());
}
