//! The control socket itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use rustix::process::Signal;

use super::{Scene, texts};
use crate::support::binary::Talaria;

const ANN: &str = "access: {people: ['@ann:test']}";

/// The socket's response to these bytes.
fn answer(scene: &Scene, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(scene.talaria.home().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may answer before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn it_belongs_to_us_alone_and_goes_with_the_process() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    let path = scene.talaria.home().join("control.sock");
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    process.signal(Signal::TERM);
    process.ended().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn one_that_a_dead_process_left_is_no_sign_of_life_and_in_nobodys_way() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    process.signal(Signal::KILL);
    process.ended().await;
    assert!(scene.talaria.home().join("control.sock").exists());
    scene.is_refused(1, ["status"]).await.said("talaria is not running");
    scene.prints(["sessions"]).await;
    let _process = scene.starts().await;
    scene.prints(["status"]).await;
}

#[tokio::test]
async fn a_path_that_is_too_long_for_it_is_said_and_the_gateway_runs() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("a-very-long-name/".repeat(8));
    let talaria = Talaria::new().var("TALARIA_HOME", home.to_str().unwrap());
    let mut process = talaria.starts();
    process.logs("there is no control socket").await;
    process.logs("running").await;
    for args in [&["status"][..], &["health"], &["pairing", "list"]] {
        let ended = talaria.does(args.iter().copied()).await;
        assert_eq!(ended.code, 1, "{}", ended.out);
        ended
            .said("is too long for a control socket")
            .said("hint: set TALARIA_HOME to a folder with a shorter path");
    }
    process.leaves();
    process.ended().await.said("its path is too long for a socket");
    let ended = talaria.does(["pairing", "list"]).await;
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (0, "Nobody waits, and nobody was let in.\n"),
        "{}",
        ended.err
    );
    let out = talaria.does(["check"]).await.out;
    assert!(out.contains("is too long for a control socket"), "{out}");
}

/// The check must hold even where a file system has no permissions. Only root can run this test as another user.
#[tokio::test]
async fn another_user_is_turned_away() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new(ANN).await;
    let mut process = scene.starts().await;
    let home = scene.talaria.home();
    let open = |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    open(home);
    open(&home.join("control.sock"));
    // A copy, because other users may have no access to the build folder.
    let binary = home.join("talaria-for-all");
    fs::copy(env!("CARGO_BIN_EXE_talaria"), &binary).unwrap();
    open(&binary);
    let mut command = std::process::Command::new(&binary);
    command.arg("status").env_clear().env("TALARIA_HOME", home).uid(NOBODY).gid(NOBODY);
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();

    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0), "{err}");
    assert!(err.contains("run this as the same user as talaria"), "{err}");
    process.logs("another user tried the control socket").await;
    scene.prints(["status"]).await;
}

/// A small container may have no certificates.
#[tokio::test]
async fn a_health_check_needs_no_certificates() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_talaria"));
    command.arg("health").env_clear().env("TALARIA_HOME", scene.talaria.home());
    command.env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere");
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();

    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{err}");
}

/// Malformed requests must not disturb the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_answered_in_its_own_form_and_disturbs_nobody() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    let post = |path: &str, body: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    };
    for (bytes, words) in [
        (post("/no/such/thing", ""), "HTTP/1.1 404"),
        (post("/no/such/thing", ""), r#"{"errors":[{"message":"the talaria that runs does not know"#),
        (post("/status", ""), r#"{"errors":[{"message":"the talaria that runs does not know"#),
        (post("/turns/stop", "{"), "HTTP/1.1 400"),
        (post("/turns/stop", r#"{"id": null, "more": 1}"#), "the question is not understood"),
        (post("/turns/stop", r#"{"id": 5}"#), r#""hint":"#),
        (post("/audit", &" ".repeat(100_000)), "the question is not readable"),
        (post("/audit", "[".repeat(60_000).as_str()), "HTTP/1.1 400"),
        (b"GET /status HTTP/1.1\r\n\r\n".to_vec(), "HTTP/1.1 200"),
        (b"certainly not HTTP\r\n\r\n".to_vec(), "HTTP/1.1 400"),
        (vec![0; 100_000], "HTTP/1.1 400"),
    ] {
        let answered = answer(&scene, &bytes);
        assert!(answered.contains(words), "{words:?} should be in {answered:?}");
    }
    // Silent connections are closed in time, and nobody waits for them for ever.
    let silent: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(scene.talaria.home().join("control.sock")).unwrap()).collect();
    scene.prints(["health"]).await;
    drop(silent);
    scene.network.says_as("@ann:test", "!home", true, "hello");
    scene.shows(|messages| texts(messages, "!home") == ["ok"]).await;
}
