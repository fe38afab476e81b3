//! `talaria status` and `talaria health`.

use rustix::process::Signal;
use serde_json::Value;

use super::Scene;
use crate::support::binary::Talaria;
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, Nobody, Upstream};

const ANN: &str = "access: {people: ['@ann:test']}";

#[tokio::test]
async fn status_says_what_runs_and_what_waits() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    let idle = scene.prints(["status"]).await;
    assert!(idle.contains("Nothing runs and nothing waits."), "{idle}");
    assert!(idle.lines().any(|line| line == "test      reads  nothing"), "{idle}");
    assert!(idle.lines().any(|line| line == "health        ok"), "{idle}");

    scene.asks_without_end("@ann:test", "!home").await;
    scene.network.says_as("@ann:test", "!home", true, "and the next one");
    scene.shows(|messages| super::texts(messages, "!home").len() == 2).await;
    let busy = scene.prints(["status"]).await;
    let lines: Vec<&str> = busy.lines().collect();

    assert!(lines[0].starts_with(&format!("talaria {}, process ", env!("CARGO_PKG_VERSION"))), "{busy}");
    assert_eq!(lines[1], format!("state folder  {}", scene.talaria.home().display()));
    assert!(lines[6].starts_with("test      reads  "), "{busy}");
    let turns: Vec<Vec<&str>> = lines[9..].iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(turns.len(), 2, "{busy}");
    assert_eq!((turns[0][1], turns[1][1]), ("runs", "waits"), "{busy}");
    assert!(turns.iter().all(|turn| turn[0].len() == 6 && turn.contains(&"@ann:test")), "{busy}");

    let json: Value = serde_json::from_str(&scene.prints(["status", "--json"]).await).unwrap();
    assert_eq!(json["platforms"][0]["state"], "reads");
    assert_eq!(json["turns"].as_array().unwrap().len(), 2);
    assert!(json["turns"][0]["id"].as_str().unwrap().starts_with(turns[0][0]));
}

#[tokio::test]
async fn status_lists_the_mcp_servers_and_starts_none() {
    let scene = Scene::new(ANN).await;
    let servers = "mcp_servers:\n  files: {command: no-such-program}\n  web: {url: 'https://mcp.example.org/mcp', enabled: false}\n";
    scene.talaria.rewrites_config(scene.config(ANN) + servers);
    let _process = scene.starts().await;
    let said = scene.prints(["status"]).await;
    let lines: Vec<&str> =
        said.lines().filter(|line| line.starts_with("files") || line.starts_with("web")).collect();
    assert_eq!(lines, ["files       0      not started", "web         0      switched off"], "{said}");
    let json: Value = serde_json::from_str(&scene.prints(["status", "--json"]).await).unwrap();
    let listed = serde_json::json!([
        { "name": "files", "state": "not_started", "tools": 0 }, { "name": "web", "state": "disabled", "tools": 0 },
    ]);
    assert_eq!(json["mcp_servers"], listed);
}

#[tokio::test]
async fn status_counts_what_has_not_arrived() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    scene.network.falls_silent();
    for _ in 0..3 {
        scene.network.says_as("@ann:test", "!home", true, "/help");
    }
    let not_arrived = async || {
        let status: Value = serde_json::from_str(&scene.prints(["status", "--json"]).await).unwrap();
        status["platforms"][0]["outbox"].as_u64().unwrap()
    };
    let all = async { while not_arrived().await < 3 {} };
    tokio::time::timeout(super::PATIENCE, all).await.expect("all three wait in the outbox");
    assert_eq!(not_arrived().await, 3);
}

/// A wrong file must not keep the operator from inspecting the running gateway.
#[tokio::test]
async fn status_works_whatever_the_configuration_file_says_by_now() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    scene.talaria.rewrites_config("no_such_key: 1\n");
    scene.prints(["status"]).await;
    scene.prints(["health"]).await;
}

#[tokio::test]
async fn health_is_good_while_a_platform_reads() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    assert_eq!(scene.prints(["health"]).await, "ok\n");
}

#[tokio::test]
async fn health_names_the_platform_that_does_not_read() {
    let scene = Scene::new(ANN).await;
    let config = scene.config(ANN);
    let more =
        "  second:\n    kind: test\n    socket: /nobody/listens\n    access: {people: ['@ann:test']}\n";
    scene.talaria.rewrites_config(config + more);
    let mut process = scene.starts().await;
    process.logs("a platform stopped reading").await;
    assert_eq!(scene.prints(["health"]).await, "ok, but second failed and is tried again\n");
    let status = scene.prints(["status"]).await;
    assert!(status.lines().any(|line| line.starts_with("second    failed and is tried again")), "{status}");
}

#[tokio::test]
async fn health_is_bad_when_no_platform_reads() {
    let talaria = Talaria::new()
        .config("platforms:\n  test:\n    socket: /nobody/listens\n    access: {people: ['@ann:test']}\n");
    let mut process = talaria.starts();
    process.logs("a platform stopped reading").await;
    // The control socket may open after that.
    process.logs("running").await;
    let ended = talaria.does(["health"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (1, ""));
    assert_eq!(ended.out, "no platform reads: test failed and is tried again\n");
    let status = talaria.does(["status"]).await.out;
    let line = "health        people are not served: no platform reads: test failed and is tried again";
    assert!(status.lines().any(|shown| shown == line), "{status}");
}

#[tokio::test]
async fn a_process_that_hangs_is_not_healthy() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    process.signal(Signal::STOP);
    let ended = scene.is_refused(1, ["health"]).await;
    process.signal(Signal::CONT);
    ended.said("error: talaria runs but has not answered for");
}

#[tokio::test]
async fn status_and_health_say_that_somebody_stands_in() {
    let (nobody, model) = (Nobody::new(), Upstream::plain().await);
    let talaria = Talaria::new()
        .var("GATEWAY_PROXY_URL", &nobody.url())
        .var("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
        .var("OPENAI_MODEL", "small");
    let network = Network::listen(talaria.home());
    let socket = network.socket().display();
    talaria.rewrites_config(format!(
        "gateway: {{fallback: local}}\nplatforms:\n  test:\n    socket: {socket}\n    {ANN}\n"
    ));
    let scene = Scene { talaria, network, upstream: model };
    let _process = scene.starts().await;
    let json = async |command: &str| -> Value {
        serde_json::from_str(&scene.prints([command, "--json"]).await).unwrap()
    };
    let standing_in = |answers: bool| serde_json::json!({"name": "model small", "answers": answers});
    // No person has asked anything yet.
    assert_eq!(json("status").await["stand_in"], standing_in(true));
    assert_eq!(scene.prints(["health"]).await, "ok, but the agent is away and model small answers\n");

    // Two failures in a row show that the agent is away.
    for prompt in ["one", "two"] {
        let asked = scene.network.says_as("@ann:test", "!home", true, prompt);
        let answered = |shown: &Shown| shown.body().done && shown.replies_to(&asked);
        scene.shows(|messages| messages.iter().any(answered)).await;
    }

    let status = scene.prints(["status"]).await;
    let agent = "agent         model small (fallback, because remote agent server is away)";
    assert!(status.lines().any(|line| line == agent), "{status}");
    assert_eq!(json("status").await["stand_in"], standing_in(true));
    assert_eq!(scene.prints(["health"]).await, "ok, but the agent is away and model small answers\n");
    assert_eq!(json("health").await["stand_in"], standing_in(true));
}

/// A service that was only ever tried in a terminal: nothing can come in.
#[tokio::test]
async fn health_is_bad_when_the_only_console_has_nothing_to_read() {
    let talaria = Talaria::new().config("server: {enabled: false}\n");
    let mut process = talaria.starts_with(std::fs::File::open("/dev/null").unwrap());
    process.logs("running").await;
    let ended = talaria.does(["health"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (1, ""));
    assert_eq!(ended.out, "no platform reads: console has no input (standard input is closed)\n");
}

#[tokio::test]
async fn health_is_bad_when_the_agent_refused_the_last_turns_until_it_answers_again() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    for _ in 0..3 {
        scene.upstream.answers(Answer::status(401, "no"));
    }
    for asked in 1..=3 {
        assert_eq!(scene.prints(["health"]).await, "ok\n", "one refusal may be about one question");
        scene.network.says_as("@ann:test", "!home", true, "hello?");
        scene.shows(|messages| super::texts(messages, "!home").len() == asked).await;
    }
    let ended = scene.talaria.does(["health"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (1, ""));
    assert_eq!(
        ended.out,
        "the agent failed the last 3 times: Proxy error (401): it does not accept the key, or wants one; set the \
         same key at both ends\n"
    );
    scene.network.says_as("@ann:test", "!home", true, "and now?");
    scene.shows(|messages| super::texts(messages, "!home").last().is_some_and(|text| text == "ok")).await;
    assert_eq!(scene.prints(["health"]).await, "ok\n");
}

/// Waits until `talaria health` returns this; its knowledge of the agent may be a few seconds old.
async fn becomes(scene: &Scene, code: i32, words: &str) {
    let becomes = async {
        loop {
            let ended = scene.talaria.does(["health"]).await;
            if ended.code == code && ended.out.starts_with(words) {
                return;
            }
        }
    };
    if tokio::time::timeout(super::PATIENCE, becomes).await.is_err() {
        panic!("health never said {words:?} but {:?}", scene.talaria.does(["health"]).await.out);
    }
}

#[tokio::test]
async fn health_says_that_the_agent_is_away_or_refuses_the_key_before_anybody_asks_it() {
    let (nobody, unused) = (Nobody::new(), Upstream::plain().await);
    let talaria = Talaria::new().var("GATEWAY_PROXY_URL", &nobody.url());
    let network = Network::listen(talaria.home());
    let mut scene = Scene { talaria, network, upstream: unused };
    scene.writes(ANN);
    let _process = scene.starts().await;
    let ended = scene.talaria.does(["health"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (1, ""));
    assert!(ended.out.starts_with("the agent is away: Proxy connection error"), "{}", ended.out);
    let status = scene.prints(["status"]).await;
    assert!(status.contains("health        people are not served: the agent is away: "), "{status}");
    assert_eq!(scene.prints(["health", "--live"]).await, "alive\n", "the process is well");
    let live: Value = serde_json::from_str(&scene.prints(["health", "--live", "--json"]).await).unwrap();
    assert_eq!(live["alive"], true);

    scene.upstream = nobody.becomes_an_upstream();
    becomes(&scene, 0, "ok\n").await;
    scene.upstream.now_says_of_itself(Answer::status(401, "no"));
    becomes(&scene, 1, "the agent refuses requests: Proxy error (401): it does not accept the key").await;
    assert_eq!(scene.prints(["health", "--live"]).await, "alive\n");
    scene.upstream.now_says_of_itself(Answer::status(200, "{}"));
    becomes(&scene, 0, "ok\n").await;
    assert_eq!(scene.upstream.prompts().len(), 0, "nothing was asked of it but whether it is there");
}

#[tokio::test]
async fn a_database_that_is_gone_is_said_once_and_not_taken_for_a_first_start() {
    let scene = Scene::new(ANN).await;
    let mut process = scene.starts().await;
    assert_eq!(scene.prints(["health"]).await, "ok\n");
    process.signal(Signal::TERM);
    process.dies().await;
    for file in ["talaria.db", "talaria.db-wal", "talaria.db-shm"] {
        let _ = std::fs::remove_file(scene.talaria.home().join(file));
    }
    // A command, too, may be the first to make a new database.
    for by_command in [false, true] {
        if by_command {
            std::fs::remove_file(scene.talaria.home().join("talaria.db")).unwrap();
            scene.prints(["token", "add", "phone"]).await;
        }
        let mut process = scene.starts().await;
        process
            .logs("the database was empty at the last start although this state folder had been used")
            .await;
        let health = scene.prints(["health"]).await;
        assert!(health.starts_with("ok, but the database was empty at the last start"), "{health}");
        assert!(scene.prints(["status"]).await.contains("the database was empty at the last start"));
        process.signal(Signal::TERM);
        process.dies().await;
    }
    let _process = scene.starts().await;
    assert_eq!(scene.prints(["health"]).await, "ok\n");
}

#[tokio::test]
async fn a_state_folder_that_others_can_look_into_is_closed_and_that_is_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new(ANN).await;
    let home = scene.talaria.home();
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut process = scene.starts().await;
    process.logs("other users could look into the state folder; it is closed to them now (0700)").await;
    assert_eq!(std::fs::metadata(home).unwrap().permissions().mode() & 0o777, 0o700);
}

/// An app with unanswerable questions must not make a health monitor restart the gateway.
#[tokio::test]
async fn wrong_questions_of_one_room_do_not_make_health_bad() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    let asks = async |answered: usize| {
        scene.network.says_as("@ann:test", "!home", true, "hello?");
        scene.shows(|messages| super::texts(messages, "!home").len() == answered).await;
    };
    asks(1).await;
    for (status, answered) in [400, 413, 422, 400].into_iter().zip(2..) {
        scene.upstream.answers(Answer::status(status, "no"));
        asks(answered).await;
        assert_eq!(scene.prints(["health"]).await, "ok\n", "{status}");
    }
}
