//! `talaria check` on a state folder that a gateway has used.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use super::{Scene, texts};
use crate::support::binary::Talaria;

const ANN: &str = "access: {people: ['@ann:test']}";

/// The lines about people who were refused.
fn refused(out: &str) -> Vec<&str> {
    out.lines().filter(|line| line.starts_with("refused:") || line.trim_start().starts_with("- ")).collect()
}

#[tokio::test]
async fn whoever_was_refused_is_named_once_with_the_line_to_add() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    for (who, room, direct) in [
        ("@operator:test", "!op", true),
        ("@operator:test", "!op", true),
        ("@operator:test", "!room", false),
        ("@evil\": x\n:test", "!evil", true),
    ] {
        scene.network.says_as(who, room, direct, "hello?");
    }
    scene.network.says_as("@ann:test", "!last", true, "hello");
    scene.shows(|messages| texts(messages, "!last") == ["ok"]).await;

    let out = scene.prints(["check"]).await;
    assert!(out.contains("running        process "), "{out}");
    let lines = refused(&out);
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].starts_with(r#"refused: "@evil\": x\n:test" wrote once"#), "{out}");
    assert_eq!(lines[1], r#"      - "@evil\": x\n:test""#);
    assert!(lines[2].starts_with("refused: \"@operator:test\" wrote 3 times (last "), "{out}");
    assert!(lines[2].ends_with("add below `platforms.test.access.people`:"), "{out}");
    assert_eq!(lines[3], "      - \"@operator:test\"");

    // The suggested line can be pasted into the configuration, and then nobody is refused any more.
    let people = format!("access:\n  people:\n{}\n{}", "      - '@ann:test'", lines[3]);
    scene.writes(&people);
    let out = scene.prints(["check"]).await;
    assert_eq!(refused(&out).len(), 2, "{out}");
    process.signal(Signal::TERM);
    process.ended().await;
    let out = scene.prints(["check"]).await;
    assert_eq!(refused(&out).len(), 2, "the same when nothing runs: {out}");
    assert!(!out.contains("running  "), "{out}");
}

/// Every file of a state folder with its content and modification time. Without the index of a write-ahead log that a
/// dead process left: reading that log changes the index, and nothing in it is durable.
fn files(talaria: &Talaria) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let all = fs::read_dir(talaria.home()).unwrap().map(Result::unwrap);
    let plain = all.filter(|entry| entry.file_type().unwrap().is_file());
    let named = plain.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let content = |(name, path): (String, std::path::PathBuf)| {
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        (name, (fs::read(&path).unwrap(), written))
    };
    named.filter(|(name, _)| name != "talaria.db-shm").map(content).collect()
}

#[tokio::test]
async fn it_changes_nothing() {
    for end in [Signal::TERM, Signal::KILL] {
        let scene = Scene::new(ANN).await;
        let process = scene.starts().await;
        scene.network.says_as("@eve:test", "!eve", true, "hello");
        scene.network.says_as("@ann:test", "!last", true, "hello");
        scene.shows(|messages| texts(messages, "!last") == ["ok"]).await;
        process.signal(end);
        process.ended().await;
        let before = files(&scene.talaria);
        assert!(before["talaria.db"].0.len() > 1000 || before["talaria.db-wal"].0.len() > 1000);

        let out = scene.prints(["check"]).await;

        assert_eq!(refused(&out).len(), 2, "{out}");
        let after = files(&scene.talaria);
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        for (name, was) in &before {
            assert!(after[name] == *was, "{name} was changed");
        }
    }
}

/// An operator may check a folder that another process is about to use.
#[tokio::test]
async fn it_needs_no_lock_of_its_own() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    scene.network.says_as("@eve:test", "!eve", true, "hello");
    scene.network.says_as("@ann:test", "!last", true, "hello");
    scene.shows(|messages| texts(messages, "!last") == ["ok"]).await;
    process.signal(Signal::TERM);
    process.ended().await;
    let looking = fs::File::open(scene.talaria.home().join("talaria.lock")).unwrap();
    looking.lock_shared().unwrap();
    let out = scene.prints(["check"]).await;
    assert_eq!(refused(&out).len(), 2, "{out}");
}

#[tokio::test]
async fn an_open_door_and_lists_without_effect_are_warned_about() {
    let scene = Scene::new("access: {allow_all: true, people: ['@ann:test']}").await;
    let out = scene.prints(["check"]).await;
    assert!(out.contains("warning: `platforms.test.access.allow_all` lets everybody"), "{out}");
    assert!(out.contains("warning: `platforms.test.access.people` has no effect"), "{out}");
}

#[tokio::test]
async fn a_model_server_without_v1_is_warned_about() {
    for (url, warned) in [
        ("http://localhost:11434", true),
        ("http://v1.localhost:11434/", true),
        ("http://localhost:11434/v1", false),
        ("https://example.org/v1beta/openai/", false),
    ] {
        let talaria = Talaria::new().var("OPENAI_BASE_URL", url).var("OPENAI_MODEL", "m");
        let out = talaria.does(["check"]).await.out;
        assert_eq!(out.contains("warning: `OPENAI_BASE_URL` has no `/v1` at its end"), warned, "{out}");
    }
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_used_is_an_error() {
    let talaria = Talaria::new();
    fs::write(talaria.home().join("talaria.db"), "certainly not a database, but quite some text").unwrap();
    let ended = talaria.does(["check"]).await;
    assert_eq!(ended.code, 1);
    ended.said("is damaged").said("hint: restore it from a backup");

    let file = talaria.home().join("file");
    fs::write(&file, "").unwrap();
    let talaria = Talaria::new().var("TALARIA_HOME", file.to_str().unwrap());
    let ended = talaria.does(["check"]).await;
    assert_eq!(ended.code, 1);
    ended.said("is not a folder").said("hint: set TALARIA_HOME");
}

#[tokio::test]
async fn a_state_folder_that_is_closed_to_us_is_an_error() {
    if rustix::process::geteuid().is_root() {
        return; // Root can read everything.
    }
    let talaria = Talaria::new();
    fs::set_permissions(talaria.home(), fs::Permissions::from_mode(0o500)).unwrap();
    let ended = talaria.does(["check"]).await;
    fs::set_permissions(talaria.home(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(ended.code, 1);
    ended.said("cannot be written to");
}

/// An older talaria may still need the database as it is.
#[tokio::test]
async fn a_database_of_an_earlier_version_is_not_brought_up_to_date() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    process.signal(Signal::TERM);
    process.ended().await;
    scene.talaria.stored().execute_batch("PRAGMA user_version = 1; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    scene.prints(["check"]).await;
    let version: i64 = scene.talaria.stored().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}

#[tokio::test]
async fn where_strangers_may_pair_the_code_is_offered_too() {
    let scene = Scene::new("access: {people: [], pairing: true}").await;
    let mut process = scene.starts().await;
    scene.network.says_as("@eve:test", "!eve", true, "hello?");
    scene.shows(|messages| texts(messages, "!eve").len() == 1).await;
    process.logs("somebody is on no list and was given a code").await;
    process.logs("talaria pairing approve CODE").await;
    let out = scene.prints(["check"]).await;
    let offer =
        "To let them in, run `talaria pairing approve CODE` with the code they were shown, or add below";
    assert!(out.contains(offer), "{out}");
}

#[tokio::test]
async fn a_model_without_a_server_is_warned_about_and_one_beside_an_agent_server_is_listed() {
    let check = async |talaria: Talaria| talaria.does(["check"]).await.out;
    let alone = check(Talaria::new().var("OPENAI_MODEL", "m")).await;
    assert!(alone.contains("warning: a model is named but no server for it"), "{alone}");
    let both = || {
        Talaria::new()
            .var("GATEWAY_PROXY_URL", "http://127.0.0.1:9")
            .var("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
            .var("OPENAI_MODEL", "m")
    };
    let listed = check(both()).await;
    assert!(listed.contains("proxy (default): remote agent server at http://127.0.0.1:9"), "{listed}");
    assert!(listed.contains("local: model server at http://127.0.0.1:9/v1, model m"), "{listed}");
    let other = check(both().config("agents: {far: {kind: proxy, url: 'http://127.0.0.1:9'}}\n")).await;
    assert!(other.contains("warning: agent `far`: "), "{other}");
}

/// Without a key there is nothing to steal, but everybody on the way can read the prompts.
#[tokio::test]
async fn prompts_in_the_clear_are_warned_about() {
    for (url, warned) in [
        ("http://agent.example.com", true),
        ("https://agent.example.com", false),
        ("http://192.168.1.10:8642", false),
    ] {
        let out = Talaria::new().var("GATEWAY_PROXY_URL", url).does(["check"]).await.out;
        let warning = "warning: `GATEWAY_PROXY_URL` is a public `http://` address, so everybody on the way can read what is said";
        assert_eq!(out.contains(warning), warned, "{out}");
    }
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_made_is_an_error() {
    let talaria = Talaria::new();
    let file = talaria.home().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("state").display().to_string();
    let ended = Talaria::new().var("TALARIA_HOME", &below).does(["check"]).await;
    assert_eq!(ended.code, 1, "{}", ended.out);
    ended.said("cannot be made").said("hint: set TALARIA_HOME");
    let fine = talaria.home().join("a/b/c").display().to_string();
    let ended = Talaria::new().var("TALARIA_HOME", &fine).does(["check"]).await;
    assert!(ended.code == 0 && ended.out.contains("it will be made"), "{}", ended.out);
}

/// Missing credentials are known before anything starts.
#[cfg(feature = "matrix")]
#[tokio::test]
async fn an_account_that_cannot_log_in_fails_the_check() {
    let talaria = Talaria::new()
        .var("MATRIX_HOMESERVER", "http://127.0.0.1:9")
        .var("MATRIX_USER_ID", "@bot:example.org")
        .var("MATRIX_ALLOWED_USERS", "@ann:example.org");
    let ended = talaria.does(["check"]).await;
    assert_eq!(ended.code, 1);
    ended
        .said("error: `platforms.matrix` has neither a password nor an access token")
        .said("MATRIX_PASSWORD_FILE");

    let session = talaria.home().join("matrix/matrix/session.json");
    fs::create_dir_all(session.parent().unwrap()).unwrap();
    fs::write(session, "{}").unwrap();
    assert_eq!(talaria.does(["check"]).await.code, 0, "whether it is still good is seen when it is used");
}
