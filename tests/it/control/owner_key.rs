//! The owner's key of the agent server is replaced while the server runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use reqwest::{Client, Response};
use rustix::process::Signal;
use serde_json::json;

use crate::support::binary::{Process, Talaria};
use crate::support::upstream::{Answer, Upstream, delta};

/// The exit code for a configuration error, named as in `sysexits.h`.
const EX_CONFIG: i32 = 78;

/// A server whose answers never end.
struct Scene {
    talaria: Talaria,
    process: Process,
    address: String,
    _upstream: Upstream,
}

impl Scene {
    async fn start(prepare: impl FnOnce(Talaria) -> Talaria) -> Self {
        let upstream = Upstream::plain().await;
        for _ in 0..2 {
            upstream.answers(Answer::stream().sends(delta("Let me think")).hangs());
        }
        let talaria = Talaria::to(&upstream).var("API_SERVER_PORT", "0").args(["serve"]);
        let talaria = prepare(talaria);
        let mut process = talaria.starts();
        let address = process.serves().await;
        process.logs("running").await;
        Self { talaria, process, address, _upstream: upstream }
    }

    /// Whether the server accepts a key.
    async fn takes(&self, key: &str) -> bool {
        let client = Client::builder().no_proxy().build().unwrap();
        let answer = client.get(format!("{}/v1/models", self.address)).bearer_auth(key).send().await.unwrap();
        match answer.status().as_u16() {
            200 => true,
            401 => false,
            other => panic!("{other}"),
        }
    }

    /// Opens a stream with this key.
    async fn reads(&self, key: &str) -> Response {
        let client = Client::builder().no_proxy().build().unwrap();
        let request = client.post(format!("{}/v1/chat/completions", self.address)).bearer_auth(key);
        let body = json!({ "stream": true, "messages": [{ "role": "user", "content": "plan" }] });
        let mut response = request.body(body.to_string()).send().await.unwrap();
        let first = response.chunk().await.unwrap();
        assert!(first.is_some());
        response
    }

    async fn reloads(&self) -> String {
        let ended = self.talaria.does(["reload"]).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
        ended.out
    }
}

/// Waits until a stream is cut: it must not end well.
async fn is_cut(mut stream: Response) {
    while let Ok(piece) = stream.chunk().await {
        assert!(piece.is_some(), "it must not end well");
    }
}

fn key_file(talaria: &Talaria) -> PathBuf {
    talaria.home().join("api.key")
}

fn writes(path: &PathBuf, key: &str) {
    fs::write(path, format!("{key}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_key_that_is_removed_is_made_anew_by_a_reload_and_the_old_one_opens_nothing() {
    let scene = Scene::start(|talaria| talaria).await;
    let file = key_file(&scene.talaria);
    let key = || fs::read_to_string(&file).unwrap().trim().to_owned();
    let old = key();
    let stream = scene.reads(&old).await;
    let said = scene.reloads().await;
    assert!(said.contains("Nothing changed."), "{said}");

    fs::remove_file(&file).unwrap();
    let said = scene.reloads().await;
    assert!(
        said.ends_with("In effect now: server.key.\nWhatever was read with the old key has ended.\n"),
        "{said}"
    );
    is_cut(stream).await;
    let new = key();
    assert_ne!(old, new);
    assert!(!scene.takes(&old).await && scene.takes(&new).await);
    let audit = scene.talaria.does(["audit", "--json"]).await.out;
    assert!(audit.contains(r#""actor":"(operator)""#) && audit.contains("replace server.key"), "{audit}");

    // A key file that others can read is refused; the old key stays valid and its stream continues.
    let stream = scene.reads(&new).await;
    fs::write(&file, "another-key-of-the-owner").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let refused = scene.talaria.does(["reload"]).await;
    assert_eq!((refused.code, refused.out.as_str()), (EX_CONFIG, ""));
    refused.said("is open to other users").said("error: nothing was changed");
    assert!(scene.takes(&new).await && !scene.takes("another-key-of-the-owner").await);
    drop(stream);
    scene.process.signal(Signal::TERM);
    let ended = scene.process.ended().await;
    assert!(!ended.err.contains(&old) && !ended.err.contains(&new), "{}", ended.err);
}

#[tokio::test]
async fn a_key_in_a_file_of_its_own_is_taken_up_too_and_a_hang_up_is_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    writes(&file, "the-first-key-of-the-owner");
    let named = file.display().to_string();
    let mut scene = Scene::start(|talaria| talaria.var("API_SERVER_KEY_FILE", &named)).await;
    let stream = scene.reads("the-first-key-of-the-owner").await;
    writes(&file, "the-second-key-of-the-owner");
    scene.process.signal(Signal::HUP);
    is_cut(stream).await;
    scene.process.logs("the configuration was read again").await;
    assert!(!scene.takes("the-first-key-of-the-owner").await);
    assert!(scene.takes("the-second-key-of-the-owner").await);
    fs::remove_file(&file).unwrap();
    let refused = scene.talaria.does(["reload"]).await;
    assert_eq!(refused.code, EX_CONFIG);
    refused.said(&format!("the file `{named}`, which `API_SERVER_KEY_FILE` names, is not there"));
    assert!(scene.takes("the-second-key-of-the-owner").await);
}

/// The log recognises a generated key by its prefix; it can recognise this one only by its value.
#[tokio::test]
async fn a_key_that_somebody_wrote_by_hand_is_kept_out_of_the_log() {
    let scene = Scene::start(|talaria| {
        writes(&key_file(&talaria), "correct-horse-battery");
        talaria
    })
    .await;
    assert!(scene.takes("correct-horse-battery").await);
    // An operator may mistake the key for the name of an app.
    assert_eq!(scene.talaria.does(["token", "add", "correct-horse-battery"]).await.code, 0);
    writes(&key_file(&scene.talaria), "battery-horse-correct");
    scene.reloads().await;
    assert_eq!(scene.talaria.does(["token", "add", "battery-horse-correct"]).await.code, 0);
    scene.process.signal(Signal::TERM);
    let ended = scene.process.ended().await;
    ended.said("an app was given a token").said("app=\"[redacted]\"");
    assert!(!ended.err.contains("correct-horse") && !ended.err.contains("battery-horse"), "{}", ended.err);
}
