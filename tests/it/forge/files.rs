//! Uploaded files: their bounds, their owner, and what an agent gets of them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;

use futures_util::{StreamExt as _, stream};
use reqwest::{Body, Method, Response};
use serde_json::{Value, json};

use talaria::agent::AgentErrorKind;
use talaria::store::{FileUse, ForgeFile};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::scene::{ForgeScene, error};
use crate::support::served::json;

const BOUNDARY: &str = "----boundary-of-the-test";

/// A form with a file and other fields.
fn form(name: &str, content: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, value) in fields {
        let part =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: text/plain\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(content);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    body
}

async fn send(scene: &ForgeScene, key: &str, body: impl Into<Body>) -> Response {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    scene.request(key, Method::POST, "/files").header("content-type", kind).body(body).send().await.unwrap()
}

async fn token_of(scene: &ForgeScene, name: &str, content: &str) -> String {
    let sent = send(scene, &scene.app, form(name, content.as_bytes(), &[])).await;
    assert_eq!(sent.status(), 200);
    json(sent).await["file_token"].as_str().unwrap().to_owned()
}

fn uploads(scene: &ForgeScene) -> usize {
    std::fs::read_dir(scene.served.gateway.home().join("forge/uploads")).map_or(0, Iterator::count)
}

/// More than any app has.
const ANY: FileUse = FileUse { files: u64::MAX, bytes: u64::MAX };

/// Stores rows of files of the app.
async fn fill(scene: &ForgeScene, count: u64) {
    let filled = scene.served.gateway.store().write(move |tx| {
        for number in 0..count {
            let (digest, app, name) = (number.to_string(), "forge".to_owned(), "x".to_owned());
            tx.add_forge_file(&ForgeFile { digest, app, name, size: 1, expires: i64::MAX }, ANY, u64::MAX)?;
        }
        Ok(())
    });
    filled.await.unwrap();
}

/// An upload whose end comes when the gate opens.
fn send_half(scene: &ForgeScene, key: &str, gate: &watch::Receiver<bool>) -> JoinHandle<Response> {
    let body = form("x.txt", b"one", &[]);
    let (begin, end) = body.split_at(body.len() - 10);
    let (begin, end) = (begin.to_owned(), end.to_owned());
    let mut gate = gate.clone();
    let end = async move {
        gate.wait_for(|is_open| *is_open).await.unwrap();
        end
    };
    let pieces = stream::once(async { begin }).chain(stream::once(end)).map(Ok::<_, Infallible>);
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let request = scene.request(key, Method::POST, "/files").header("content-type", kind);
    let sending = request.body(Body::wrap_stream(pieces)).send();
    tokio::spawn(async { sending.await.unwrap() })
}

#[tokio::test]
async fn uploads_at_the_same_time_do_not_pass_the_limit_together() {
    let scene = ForgeScene::start().await;
    fill(&scene, 199).await;
    let (open, gate) = watch::channel(false);
    let sent = [send_half(&scene, &scene.app, &gate), send_half(&scene, &scene.app, &gate)];
    scene.served.until(async || uploads(&scene) == 2).await;
    open.send(true).unwrap();
    let mut answers = Vec::new();
    for sent in sent {
        answers.push(sent.await.unwrap().status().as_u16());
    }
    answers.sort_unstable();
    assert_eq!(answers, [200, 429]);
    assert_eq!(uploads(&scene), 1, "the refused one leaves nothing");
}

#[tokio::test]
async fn a_file_is_there_for_the_agent_and_its_path_stands_before_the_prompt() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let tokens = [token_of(&scene, "x.txt", "one").await, token_of(&scene, "../x.txt", "two").await];
    let body = json!({ "prompt": "hello", "files": tokens });
    assert_eq!(scene.post(&format!("/sessions/{id}/turn"), &body).await.status(), 200);
    let heard = &scene.agent.heard()[0];
    assert!(heard.prompt.ends_with("hello"), "{}", heard.prompt);
    let folder = heard.folder.clone().unwrap();
    let paths: Vec<_> = heard.prompt.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    assert_eq!(paths.len(), 2);
    for (path, content) in paths.iter().zip(["one", "two"]) {
        assert!(path.starts_with(folder.to_str().unwrap()), "{path}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), content);
    }
    // Also for a run, whose folder goes with it.
    let answer = scene.post("/run", &json!({ "prompt": "run", "files": [tokens[0]] })).await;
    assert_eq!(answer.status(), 200);
    assert!(scene.agent.heard()[1].prompt.contains("x.txt"));
}

/// All paths below the folders of sessions.
fn in_sessions(scene: &ForgeScene) -> BTreeSet<PathBuf> {
    let mut waiting = vec![scene.served.gateway.home().join("forge/sessions")];
    let mut found = BTreeSet::new();
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

#[tokio::test]
async fn a_refused_turn_leaves_no_files() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let file = token_of(&scene, "x.txt", "one").await;
    let path = format!("/sessions/{id}/turn");
    let ask = |path: &str, body: &Value| {
        let request = scene.request(&scene.app, Method::POST, path).header("idempotency-key", "k");
        request.body(body.to_string()).send()
    };
    let first = json!({ "prompt": "slow", "files": [file] });
    let script = scene.says().says(["a"]).then_hangs();
    let running = tokio::spawn(ask(&path, &first));
    script.is_hanging().await;
    let before = in_sessions(&scene);
    assert!(before.iter().any(|path| path.ends_with("x.txt")));
    let busy = scene.post(&path, &first).await;
    assert_eq!(error(busy, 409).await, "turn_in_progress");
    assert_eq!(ask(&path, &json!({ "prompt": "other", "files": [file] })).await.unwrap().status(), 422);
    assert_eq!(in_sessions(&scene), before);
    // An equal request gets the answer of the turn that runs, and copies nothing either.
    let again = tokio::spawn(ask(&path, &first));
    script.goes_on();
    let (one, two) = (running.await.unwrap().unwrap(), again.await.unwrap().unwrap());
    assert_eq!(json(one).await["turn_index"], json(two).await["turn_index"]);
    assert_eq!(in_sessions(&scene), before);
    assert_eq!(scene.agent.heard().len(), 1);
}

#[tokio::test]
async fn a_turn_that_is_one_too_many_leaves_no_files() {
    let scene = ForgeScene::one_turn_at_a_time().await;
    let (id, other) = (scene.begin().await, scene.begin().await);
    let file = token_of(&scene, "x.txt", "one").await;
    let script = scene.says().says(["a"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{other}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "slow" }).to_string()).send());
    script.is_hanging().await;
    let with_file = json!({ "prompt": "x", "files": [file] });
    let path = format!("/sessions/{id}/turn");
    error(scene.post(&path, &with_file).await, 429).await;
    error(scene.post("/run", &with_file).await, 429).await;
    scene.served.until(async || in_sessions(&scene).iter().all(|path| !path.ends_with("x.txt"))).await;
    script.goes_on();
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    assert_eq!(scene.post(&path, &with_file).await.status(), 200);
    assert!(in_sessions(&scene).iter().any(|path| path.ends_with("x.txt")));
}

#[tokio::test]
async fn a_turn_that_no_agent_could_take_leaves_no_files() {
    let scene = ForgeScene::start().await;
    let path = format!("/sessions/{}/turn", scene.begin().await);
    let with_file = json!({ "prompt": "x", "files": [token_of(&scene, "x.txt", "one").await] });
    let has_file = || in_sessions(&scene).iter().any(|path| path.ends_with("x.txt"));
    let kind = AgentErrorKind::Busy { after: None, rate_limited: false };
    scene.says().then_fails(kind, "All processes are in use.");
    assert_eq!(scene.post(&path, &with_file).await.status(), 503);
    scene.served.until(async || !has_file()).await;
    assert_eq!(scene.post(&path, &with_file).await.status(), 200);
    assert!(has_file());
}

#[tokio::test]
async fn a_turn_names_each_file_once_and_has_a_bound_for_all_of_them() {
    let scene = ForgeScene::start().await;
    let path = format!("/sessions/{}/turn", scene.begin().await);
    let file = token_of(&scene, "x.txt", "one").await;
    error(scene.post(&path, &json!({ "prompt": "x", "files": [file, file] })).await, 400).await;
    let large: Vec<_> = (0..3).map(|_| talaria::token::make_for_file().unwrap()).collect();
    for token in &large {
        let row = ForgeFile {
            digest: talaria::token::file_name(token).unwrap(),
            app: "forge".to_owned(),
            name: "large".to_owned(),
            size: 70 * 1024 * 1024,
            expires: i64::MAX,
        };
        scene.served.gateway.store().write(move |tx| tx.add_forge_file(&row, ANY, u64::MAX)).await.unwrap();
    }
    let refused = scene.post(&path, &json!({ "prompt": "x", "files": large })).await;
    assert_eq!(error(refused, 413).await, "files_too_large");
    assert_eq!(
        error(scene.post("/run", &json!({ "prompt": "x", "files": large })).await, 413).await,
        "files_too_large"
    );
    // The session's own folder at most; that of the run goes.
    scene.served.until(async || in_sessions(&scene).len() <= 1).await;
    assert!(scene.agent.heard().is_empty());
}

#[tokio::test]
async fn a_token_says_nothing_and_is_the_apps_own() {
    let scene = ForgeScene::start().await;
    let sent = send(&scene, &scene.app, form("x.txt", b"one", &[("ttl_secs", "60")])).await;
    let sent = json(sent).await;
    assert_eq!((&sent["ttl_secs"], &sent["size"]), (&json!(60), &json!(3)));
    let token = sent["file_token"].as_str().unwrap();
    assert!(token.starts_with("ff_") && token.len() > 40);
    let theirs = scene.begin_as(&scene.other).await;
    let ask = async |file: &str| {
        let request = scene.request(&scene.other, Method::POST, &format!("/sessions/{theirs}/turn"));
        let body = json!({ "prompt": "x", "files": [file] });
        request.body(body.to_string()).send().await.unwrap().text().await.unwrap()
    };
    let absent = format!("ff_{}", "0".repeat(64));
    assert_eq!(ask(token).await, ask(&absent).await, "another app's file is like one that never was");
    assert!(scene.agent.heard().is_empty());
    // When its time is over it is gone, with its bytes.
    assert_eq!(uploads(&scene), 1);
    let own = scene.begin().await;
    scene.sweep_after(61).await;
    assert_eq!(uploads(&scene), 0);
    let body = json!({ "prompt": "x", "files": [token] });
    assert_eq!(error(scene.post(&format!("/sessions/{own}/turn"), &body).await, 400).await, "unknown_file");
}

#[tokio::test]
async fn a_form_that_is_wrong_is_refused_and_leaves_nothing() {
    let scene = ForgeScene::start().await;
    let without =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--{BOUNDARY}--");
    let two = [form("a", b"1", &[]), form("b", b"2", &[])].concat();
    let mut broken = form("a", b"1", &[]);
    broken.truncate(broken.len() - 10);
    for body in [
        form("a", b"1", &[("ttl_secs", "59")]),
        form("a", b"1", &[("ttl_secs", "soon")]),
        without.into_bytes(),
        broken,
        b"garbage".to_vec(),
        Vec::new(),
    ] {
        error(send(&scene, &scene.app, body).await, 400).await;
    }
    // What follows the end of a form does not count.
    assert_eq!(send(&scene, &scene.app, two).await.status(), 200);
    let json_body = scene.post("/files", &json!({ "file": "x" })).await;
    error(json_body, 400).await;
    assert_eq!(scene.served.bare(Method::POST, "/files").body("x").send().await.unwrap().status(), 401);
    scene.served.until(async || uploads(&scene) == 1).await;
}

#[tokio::test]
async fn a_large_file_goes_past_the_limit_of_other_bodies_and_one_that_is_too_large_does_not() {
    let scene = ForgeScene::start().await;
    let mib = 1024 * 1024;
    let sent = send(&scene, &scene.app, form("large", &vec![b'x'; 30 * mib], &[])).await;
    assert_eq!(sent.status(), 200);
    assert_eq!(json(sent).await["size"], 30 * mib);
    // Refused by its announced length, before it is sent.
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let request = scene.request(&scene.app, Method::POST, "/files").header("content-type", kind);
    let refused = request.body(form("larger", &vec![b'x'; 101 * mib], &[])).send().await;
    if let Ok(refused) = refused {
        assert_eq!(error(refused, 413).await, "file_too_large");
    }
    scene.served.until(async || uploads(&scene) == 1).await;
}

#[tokio::test]
async fn an_app_cannot_fill_the_disk() {
    let scene = ForgeScene::start().await;
    fill(&scene, 200).await;
    let refused = send(&scene, &scene.app, form("a", b"1", &[])).await;
    assert!(refused.headers().contains_key("retry-after"));
    error(refused, 429).await;
    let other: Value = json(send(&scene, &scene.other, form("a", b"1", &[])).await).await;
    assert_eq!(other["ok"], true, "another app is not affected");
}

#[tokio::test]
async fn an_app_that_sends_slowly_leaves_slots_to_others() {
    let scene = ForgeScene::start().await;
    let (open, gate) = watch::channel(false);
    let sent: Vec<_> = (0..4).map(|_| send_half(&scene, &scene.app, &gate)).collect();
    scene.served.until(async || uploads(&scene) == 4).await;
    let refused = send(&scene, &scene.app, form("a", b"1", &[])).await;
    assert!(refused.headers().contains_key("retry-after"));
    error(refused, 429).await;
    assert_eq!(send(&scene, &scene.other, form("a", b"1", &[])).await.status(), 200);
    open.send(true).unwrap();
    for sent in sent {
        assert_eq!(sent.await.unwrap().status(), 200);
    }
    assert_eq!(send(&scene, &scene.app, form("a", b"1", &[])).await.status(), 200);
}
