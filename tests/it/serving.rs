//! The agent server as part of the real binary: when it runs, at which port, with which key, and until when.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use reqwest::{Client, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{Ended, Process, Talaria};
use crate::support::upstream::{Answer, Upstream, delta};

/// The exit code for a configuration error, named as in `sysexits.h`.
const EX_CONFIG: i32 = 78;

/// Longest wait of a test. Only a failure takes this long.
#[cfg(feature = "testing")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A talaria with any free port, so that tests can run at the same time.
fn talaria() -> Talaria {
    Talaria::new().var("API_SERVER_PORT", "0")
}

fn null() -> File {
    File::open("/dev/null").unwrap()
}

/// The status of a request with this key.
async fn status(address: &str, path: &str, key: Option<&str>) -> StatusCode {
    let client = Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("{address}{path}"));
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    request.send().await.unwrap().status()
}

fn key_file(talaria: &Talaria) -> std::path::PathBuf {
    talaria.home().join("api.key")
}

fn key(talaria: &Talaria) -> String {
    fs::read_to_string(key_file(talaria)).unwrap().trim().to_owned()
}

#[tokio::test]
async fn serve_makes_a_key_once_says_where_it_lies_and_never_what_it_is() {
    let talaria = talaria().args(["serve"]);
    let mut first = None;
    for _ in 0..2 {
        let mut process = talaria.starts_with(null());
        let address = process.serves().await;
        let key = key(&talaria);
        assert_eq!(status(&address, "/health", None).await, StatusCode::OK);
        assert_eq!(status(&address, "/v1/models", None).await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(&address, "/v1/models", Some("another key")).await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(&address, "/v1/models", Some(&key)).await, StatusCode::OK);
        assert_eq!(fs::metadata(key_file(&talaria)).unwrap().permissions().mode() & 0o777, 0o600);
        process.signal(Signal::TERM);
        let ended = process.ended().await;
        ended.showed("").said(&key_file(&talaria).display().to_string());
        assert!(!ended.err.contains(&key), "{}", ended.err);
        assert_eq!(*first.get_or_insert(key.clone()), key, "it stays the same");
    }
}

#[tokio::test]
async fn a_key_that_others_may_know_is_refused() {
    let talaria = talaria().args(["serve"]);
    fs::write(key_file(&talaria), "0123456789abcdef-and-more\n").unwrap();
    fs::set_permissions(key_file(&talaria), fs::Permissions::from_mode(0o644)).unwrap();
    let ended = talaria.starts_with(null()).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    ended.said("is open to other users, who may know it by now\n\nhint: remove the file");
    assert!(!ended.err.contains("0123456789abcdef"), "{}", ended.err);
}

/// As a service: nobody can type, so the server is the only input.
#[tokio::test]
async fn without_anything_to_read_it_serves_and_is_well() {
    // No variable asks for a port, so the default would apply, which another process may use.
    let talaria = Talaria::new().config("server: {port: 0}\n");
    let mut process = talaria.starts_with(null());
    let address = process.serves().await;
    process.logs("running").await;
    let health = talaria.does(["health"]).await;
    assert_eq!((health.code, health.out.as_str()), (0, "ok\n"));
    let shown = talaria.does(["status"]).await.out;
    assert!(shown.contains(&format!("\nagent server  {address}\n")) && !shown.contains("console"), "{shown}");
    process.signal(Signal::TERM);
    let ended = process.ended().await;
    assert!(!ended.err.contains("standard input is closed"), "{}", ended.err);
}

#[tokio::test]
async fn a_pipe_binds_no_port_unless_it_is_asked_for() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream).config("server: {port: 0}\n");
    let ended = talaria.reads("hi\n").await;
    ended.showed("ok\n");
    assert!(!ended.err.contains("serving") && !key_file(&talaria).exists(), "{}", ended.err);

    talaria.rewrites_config("server: {port: 0, enabled: true}\n");
    let mut process = talaria.starts();
    let address = process.serves().await;
    process.types("hi\n");
    process.leaves();
    process.shows("ok\n").await;
    assert_eq!(status(&address, "/health", None).await, StatusCode::OK, "it goes on when the pipe has ended");
    process.signal(Signal::TERM);
    process.ended().await.showed("ok\n");
}

#[tokio::test]
async fn a_chat_binds_no_port_at_all() {
    let upstream = Upstream::plain().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let talaria = Talaria::to(&upstream).var("API_SERVER_PORT", &port).args(["chat"]);
    talaria.reads("hi\n").await.showed("ok\n");
}

#[tokio::test]
async fn a_port_that_is_taken_ends_it_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for args in [&["serve"][..], &["run"], &[]] {
        let talaria = Talaria::new().var("API_SERVER_PORT", &port).args(args.iter().copied());
        let ended = talaria.starts_with(null()).ended().await;
        assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{args:?}");
        ended.said(&format!("error: port {port} of 127.0.0.1 is taken by another process"));
        ended.said("hint: end that process, or set API_SERVER_PORT");
    }
    let ended = Talaria::new().var("API_SERVER_PORT", &port).does(["check"]).await;
    assert_eq!(ended.code, 1, "{}", ended.out);
    ended.said(&format!(
        "error: port {port} of 127.0.0.1 is taken by another process\n\nhint: end that process"
    ));
    // A console that reads lines does not need the server; without input, and for `talaria serve`, there is nothing
    // else.
    let talaria = Talaria::new().config(&format!("server: {{port: {port}}}\n"));
    let ended = Talaria::new().config(&format!("server: {{port: {port}}}\n")).args(["check"]).reads("").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(ended.out.contains(&format!("warning: port {port} of 127.0.0.1 is taken")), "{}", ended.out);
    let ended = talaria.does(["check"]).await;
    assert_eq!(ended.code, 1, "{}", ended.out);
    let ended = talaria.does(["check", "--serve"]).await;
    assert_eq!(ended.code, 1, "{}", ended.out);
    assert!(
        ended.out.contains("platforms      left alone: `talaria serve` is the agent server"),
        "{}",
        ended.out
    );
    ended.said("is taken by another process");
}

/// The running gateway itself uses its port.
#[tokio::test]
async fn check_of_what_runs_finds_nothing_wrong_with_its_port() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let talaria = Talaria::new().var("API_SERVER_PORT", &port).args(["serve"]);
    let mut process = talaria.starts_with(null());
    process.serves().await;
    process.logs("running").await;
    let ended = talaria.does(["check", "--serve"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
}

#[tokio::test]
async fn serve_is_refused_where_the_file_says_no_and_where_it_would_let_strangers_in() {
    for (yaml, said) in [
        ("server: {enabled: false}\n", "`server.enabled` is `false`"),
        ("server: {host: 0.0.0.0, auth: none}\n", "would let everybody in"),
        ("server: {host: '::', key: changeme}\n", "has fewer than 16 characters"),
    ] {
        let ended = talaria().config(yaml).args(["serve"]).starts_with(null()).ended().await;
        assert_eq!((ended.code, ended.out.as_str()), (EX_CONFIG, ""), "{yaml}");
        ended.said(said).said("hint: ");
    }
}

/// `talaria serve` runs only the server; beside platforms the server runs when it is configured.
#[cfg(feature = "testing")]
#[tokio::test]
async fn beside_a_platform_it_serves_when_asked_for_and_serve_leaves_the_platform_alone() {
    let talaria = talaria();
    let network = crate::support::network::Network::listen(talaria.home());
    let socket = network.socket().display();
    let talaria =
        talaria.config(&format!("platforms:\n  test:\n    socket: {socket}\n    access: {{people: []}}\n"));
    let mut process = talaria.starts_with(null());
    process.serves().await;
    assert!(network.is_read(PATIENCE, 1).await, "the platform is there too");
    process.signal(Signal::TERM);
    process.ended().await;

    let talaria = talaria.args(["serve"]);
    let mut process = talaria.starts_with(null());
    process.serves().await;
    process.logs("running").await;
    process.signal(Signal::TERM);
    process.ended().await;
    assert_eq!(network.readers(), 1, "nobody read a second time");
}

/// An app that reads an answer which never ends.
struct Reading {
    talaria: Talaria,
    address: String,
    token: String,
    response: reqwest::Response,
    /// Kept, because dropping it kills the process.
    _process: Process,
    _upstream: Upstream,
}

impl Reading {
    async fn start() -> Self {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::stream().sends(delta("Let me think")).hangs());
        let talaria = Talaria::to(&upstream).var("API_SERVER_PORT", "0").args(["serve"]);
        let mut process = talaria.starts_with(null());
        let address = process.serves().await;
        let made = talaria.does(["token", "add", "phone", "--json"]).await.out;
        let made: Value = serde_json::from_str(&made).unwrap();
        let token = made["token"].as_str().unwrap().to_owned();
        let client = Client::builder().no_proxy().build().unwrap();
        let body =
            json!({"model": "talaria", "stream": true, "messages": [{"role": "user", "content": "plan"}]});
        let request = client.post(format!("{address}/v1/chat/completions")).bearer_auth(&token);
        let mut response = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut read = String::new();
        while !read.contains("Let me think") {
            let piece = response.chunk().await.unwrap().expect("the stream goes on");
            read.push_str(&String::from_utf8_lossy(&piece));
        }
        Self { talaria, address, token, response, _process: process, _upstream: upstream }
    }

    /// Waits for the end of the stream, whether clean or cut.
    async fn ends(&mut self) {
        while matches!(self.response.chunk().await, Ok(Some(_))) {}
    }
}

#[tokio::test]
async fn revoking_a_token_ends_what_its_app_reads_and_stops_what_it_asked() {
    let mut reading = Reading::start().await;
    let (address, token) = (reading.address.clone(), reading.token.clone());
    assert_eq!(status(&address, "/v1/models", Some(&token)).await, StatusCode::OK);
    let out = reading.talaria.does(["token", "revoke", "phone"]).await.out;
    assert_eq!(out, "The token of phone has ended; what it had stays. Answers that were stopped: 1.\n");
    reading.ends().await;
    assert_eq!(status(&address, "/v1/models", Some(&token)).await, StatusCode::UNAUTHORIZED);
    let list = reading.talaria.does(["token", "list", "--json"]).await.out;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert!(list["apps"][0]["revoked"].is_i64() && list["apps"][0]["used"].is_i64(), "{list}");
}

#[tokio::test]
async fn what_a_program_asked_is_shown_and_can_be_stopped_as_any_turn() {
    let mut reading = Reading::start().await;
    let shown = reading.talaria.does(["status"]).await.out;
    assert!(
        shown.contains(&format!("\nagent server  {}, read by one program\n", reading.address)),
        "{shown}"
    );
    let row = shown.lines().find(|line| line.contains(" @http ")).unwrap_or_else(|| panic!("{shown}"));
    let id = row.split_whitespace().next().unwrap();
    assert!(
        id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && row.contains(" phone "),
        "{shown}"
    );
    let out = reading.talaria.does(["stop-turn", id]).await.out;
    assert_eq!(out, format!("Asked to stop: {id}. Whoever asked sees it.\n"));
    reading.ends().await;
}

/// In a network namespace of its own, where the host has a name and nothing listens at the port: like a container
/// whose host listens on 127.0.0.1.
#[test]
fn check_in_a_container_whose_host_refuses_says_what_to_bind_there() {
    let home = tempfile::tempdir().unwrap();
    let hosts = home.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n172.17.0.1 host.docker.internal\n").unwrap();
    let script = format!(
        "ip link set lo up && ip addr add 172.17.0.1/32 dev lo && mount --bind {} /etc/hosts && echo inside && exec {} check",
        hosts.display(),
        env!("CARGO_BIN_EXE_talaria")
    );
    let ran = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", &script])
        .env("TALARIA_HOME", home.path())
        .env("GATEWAY_PROXY_URL", "http://host.docker.internal:8642")
        .stdin(null())
        .output();
    let out = ran.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default();
    if !out.starts_with("inside") {
        // Unit tests check the words; this checks that the real binary prints them.
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "this system gives no network of one's own");
        eprintln!("not tried: this system gives no network of one's own");
        return;
    }
    let words = "\nwarning: remote agent server: nothing listens on 172.17.0.1:8642 (host.docker.internal). An agent \
                 server listens on 127.0.0.1 by default, which cannot be reached from a container: over there set \
                 API_SERVER_HOST=172.17.0.1, the address of Docker's bridge (or 0.0.0.0, every address), and ";
    assert!(out.contains(words), "{out}");
}

/// A gateway and its agent server, each a process: `talaria check` of the gateway checks the server.
#[tokio::test]
async fn check_of_a_gateway_says_whether_its_agent_server_is_there_and_takes_the_key() {
    let server = talaria().args(["serve"]);
    let mut process = server.starts_with(null());
    let address = process.serves().await;
    let check = async |code: i32, url: &str, key: Option<&str>| {
        let mut gateway = talaria().var("GATEWAY_PROXY_URL", url);
        gateway.sets("GATEWAY_PROXY_KEY", key);
        let Ended { code: ended, out, err } = gateway.does(["check"]).await;
        assert_eq!((ended, err.is_empty()), (code, code == 0), "{out}{err}");
        assert!(key.is_none_or(|key| !out.contains(key) && !err.contains(key)), "{out}{err}");
        out + err.as_str()
    };
    let key = key(&server);
    for url in [address.clone(), format!("{address}/v1")] {
        let out = check(0, &url, Some(&key)).await;
        assert!(out.contains("\nremote agent server: it answers, and accepts the key\n"), "{out}");
    }
    let out = check(1, &address, Some("tlk_some-other-key")).await;
    assert!(
        out.contains("error: remote agent server: it answers but does not accept the key (401)"),
        "{out}"
    );
    let out = check(1, &address, None).await;
    assert!(out.contains("error: remote agent server: it answers but wants a key (401)"), "{out}");
    let called = address.replace("127.0.0.1", "127.0.0.2");
    process.signal(Signal::TERM);
    process.ended().await;
    for (url, at) in [(&address, "127.0.0.1"), (&called, "127.0.0.2")] {
        let out = check(0, url, Some(&key)).await;
        assert!(out.contains(&format!("warning: remote agent server: nothing listens on {at}:")), "{out}");
    }
    // An impossible name: no network is needed to know that.
    let out = check(0, "http://no-such-host..invalid:8642", None).await;
    assert!(out.contains("the name no-such-host..invalid is not known here"), "{out}");
}
