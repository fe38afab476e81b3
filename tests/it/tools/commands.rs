//! Commands of the real binary: the variables that they get, and the files that they cannot see.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::calls;
use crate::processes::sandbox;
use crate::support::binary::{Process, Talaria};
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, Upstream};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway whose agent has a terminal, and a person who approves each command.
struct CommandScene {
    talaria: Talaria,
    network: Network,
    upstream: Upstream,
    /// The short path that a socket needs.
    _sockets: tempfile::TempDir,
}

impl CommandScene {
    /// With its state folder and its workspace in this folder.
    async fn new(root: &Path) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let scene = Self {
            talaria: Talaria::in_folder(root).args(["run"]),
            network: Network::listen(sockets.path()),
            upstream: Upstream::plain().await,
            _sockets: sockets,
        };
        scene.writes(root, &json!({}));
        scene
    }

    /// Writes the configuration, with these agents beside the one with the terminal.
    fn writes(&self, root: &Path, others: &Value) {
        let mut agents = others.clone();
        agents["helper"] = json!({
            "kind": "model", "base_url": format!("{}/v1", self.upstream.url()), "model": "small",
            "workspace": root.join("work"), "tools": ["terminal", "skills"], "access": { "allow_all": true },
        });
        let socket = self.network.socket();
        let config = json!({
            "agents": agents, "default_agent": "helper",
            "platforms": { "test": { "socket": socket, "pause_ms": 5, "access": { "allow_all": true } } },
        });
        self.talaria.rewrites_config(config.to_string());
    }

    /// Runs a command, and returns the result that the model gets. `number` counts the commands of the scene from 0.
    async fn runs(&self, process: &Process, number: usize, command: &str) -> String {
        let answer = format!("Number {number} is done.");
        self.upstream
            .answers(calls("", &[("t", "terminal", &json!({ "command": command }).to_string())]))
            .answers(Answer::says([answer.as_str()]));
        self.network.says_as("@ann:test", "ann", true, "run it");
        let code = |shown: &[Shown]| {
            let texts = shown.iter().map(|shown| shown.bodies[0].markdown.clone());
            let codes = texts.filter_map(|text| Some(text.split_once("`/deny ")?.1.get(..4)?.to_owned()));
            codes.collect::<Vec<_>>().get(number).cloned()
        };
        let asked = self.network.shows(PATIENCE, |shown| code(shown).is_some()).await;
        assert!(asked, "{:?}\n{}", self.network.messages(), process.so_far());
        let code = code(&self.network.messages()).unwrap();
        self.network.says_as("@ann:test", "ann", true, &format!("/approve {code}"));
        let said = |shown: &[Shown]| shown.iter().any(|one| one.body().markdown.contains(&answer));
        assert!(
            self.network.shows(PATIENCE, said).await,
            "{:?}\n{}",
            self.network.messages(),
            process.so_far()
        );
        let prompts = self.upstream.prompts();
        let messages = prompts.last().unwrap().json()["messages"].as_array().unwrap().clone();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn only_a_skill_of_the_operator_lets_a_variable_through() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = CommandScene::new(folder.path()).await;
    scene.talaria.sets("OF_OPERATOR", Some("value-of-the-operator"));
    scene.talaria.sets("OF_AGENT", Some("value-of-the-agent"));
    let skills = scene.talaria.home().join("skills");
    fs::create_dir_all(skills.join("learned")).unwrap();
    let skill = |name: &str, variable: &str| {
        let head =
            format!("---\ndescription: How to deploy\nrequired_environment_variables: [{variable}]\n---\n");
        fs::write(skills.join(name), head + "Deploy it.\n").unwrap();
    };
    skill("deploy.md", "OF_OPERATOR");
    skill("learned/publish.md", "OF_AGENT");
    let mut process = scene.talaria.starts_with(fs::File::open("/dev/null").unwrap());
    process.logs("running").await;
    let variables = scene.runs(&process, 0, "env").await;
    assert!(variables.contains("OF_OPERATOR=value-of-the-operator\n"), "{variables}");
    assert!(!variables.contains("OF_AGENT"), "{variables}");
    // Without its skill the variable does not pass any more, without a restart.
    fs::remove_file(skills.join("deploy.md")).unwrap();
    let variables = scene.runs(&process, 1, "env | sort").await;
    assert!(variables.contains("PATH=") && !variables.contains("OF_OPERATOR"), "{variables}");
}

#[tokio::test]
async fn a_key_file_that_a_reload_names_is_hidden_from_the_commands_of_every_agent() {
    if sandbox().is_none() {
        return;
    }
    // Not in /tmp, which is another one in the sandbox.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = folder.path();
    let key = root.join("new.key");
    fs::write(&key, "hunter2-is-the-key\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let scene = CommandScene::new(root).await;
    let mut process = scene.talaria.starts_with(fs::File::open("/dev/null").unwrap());
    process.logs("running").await;
    let read = format!("cat {}", key.display());
    let before = scene.runs(&process, 0, &read).await;
    assert!(before.contains("hunter2"), "a file like any other: {before}");

    let model = json!({
        "kind": "model", "base_url": format!("{}/v1", scene.upstream.url()), "model": "big", "api_key_file": key,
    });
    scene.writes(root, &json!({ "other": model }));
    let reloaded = scene.talaria.does(["reload"]).await;
    assert_eq!(reloaded.code, 0, "{}{}", reloaded.out, reloaded.err);
    let after = scene.runs(&process, 1, &format!("{read}; echo read")).await;
    assert!(!after.contains("hunter2") && after.contains("read\n[exit status 0]"), "{after}");
}
