//! Which server is asked, and with which key.

use std::fs;

use super::scene::AskScene;
use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Nobody, Upstream};

/// Exit codes of `sysexits.h`.
const EX_UNAVAILABLE: i32 = 69;
const EX_NOPERM: i32 = 77;
const EX_CONFIG: i32 = 78;

#[tokio::test]
async fn another_machine_needs_an_address_and_a_key() {
    let scene = AskScene::start().await;
    let key_file = scene.talaria.home().join("api.key");
    let key = fs::read_to_string(&key_file).unwrap();
    let file = key_file.to_str().unwrap();
    let there = || Talaria::new().var("TALARIA_URL", &scene.address);
    there().var("TALARIA_API_KEY", key.trim()).does(["ask", "hi"]).await.showed("ok\n");
    there().var("TALARIA_API_KEY_FILE", file).does(["ask", "hi"]).await.showed("ok\n");
    there().does(["ask", "--key-file", file, "hi"]).await.showed("ok\n");
    let url = format!("{}/v1/", scene.address);
    Talaria::new().does(["ask", "--url", &url, "--key-file", file, "hi"]).await.showed("ok\n");

    for ended in [
        there().does(["ask", "hi"]).await,
        // The key in the state folder goes to the talaria of that folder alone.
        scene.asks(["--url", &scene.address, "hi"]).await,
    ] {
        assert_eq!((ended.code, ended.out.as_str()), (EX_NOPERM, ""));
        ended.said(
            "error: the server asks for a key\n\nhint: set TALARIA_API_KEY, or name a file with --key-file",
        );
    }
    let ended = there().var("TALARIA_API_KEY", "tlk_0123456789abcdef").does(["ask", "hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (EX_NOPERM, ""));
    ended.said("error: the server does not accept the key");
    assert!(!ended.err.contains("tlk_"), "{}", ended.err);
    let ended = Talaria::new().does(["ask", "--url", "http://8.8.8.8", "--key-file", file, "hi"]).await;
    assert_eq!(ended.code, 2);
    ended
        .said("error: `--url` would carry the key unencrypted over a public network\n\nhint: use `https://`");
    assert_eq!(scene.upstream.prompts().len(), 4);
}

#[tokio::test]
async fn an_app_asks_with_a_token_of_its_own() {
    let scene = AskScene::start().await;
    let added = scene.talaria.does(["token", "add", "phone", "--json"]).await;
    let added: serde_json::Value = serde_json::from_str(&added.out).unwrap();
    let token = added["token"].as_str().unwrap();
    let app = Talaria::new().var("TALARIA_URL", &scene.address).var("TALARIA_API_KEY", token);
    app.does(["ask", "--session", "mine", "hi"]).await.showed("ok\n");
    scene.talaria.does(["token", "revoke", "phone"]).await;
    assert_eq!(app.does(["ask", "hi"]).await.code, EX_NOPERM);
}

#[tokio::test]
async fn a_server_that_is_away_has_an_exit_code_of_its_own() {
    let nobody = Nobody::new();
    let ended = Talaria::new().does(["ask", "--url", &nobody.url(), "hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (EX_UNAVAILABLE, ""));
    ended.said(&format!("error: the server at {} cannot be reached: connection refused", nobody.url()));
    ended.said("\n\nhint: start it with `talaria serve`, or correct --url or TALARIA_URL\n");
    let ended = Talaria::new().does(["ask", "--json", "--url", &nobody.url(), "hi"]).await;
    let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (ended.code, &document["error"]["exit_code"]),
        (EX_UNAVAILABLE, &serde_json::json!(EX_UNAVAILABLE))
    );

    let ended = Talaria::new().does(["ask", "hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (EX_UNAVAILABLE, ""));
    ended.said("error: talaria is not running (state folder ").said("; or name another server with --url");
}

#[tokio::test]
async fn a_wrong_configuration_of_this_machine_has_an_exit_code_of_its_own() {
    let scene = AskScene::start().await;
    scene.talaria.rewrites_config("serverr: {}");
    // The key that was made is there while the file is under work.
    scene.asks(["hi"]).await.showed("ok\n");
    fs::remove_file(scene.talaria.home().join("api.key")).unwrap();
    let ended = scene.asks(["hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (EX_CONFIG, ""), "{}", ended.err);
    ended.said("error: unknown key `serverr`");
    let (code, document) = scene.asks_for_json(&["hi"]).await;
    assert_eq!((code, &document["error"]["exit_code"]), (EX_CONFIG, &serde_json::json!(EX_CONFIG)));
    assert_eq!(scene.upstream.prompts().len(), 1);
}

#[tokio::test]
async fn a_server_of_another_kind_is_told_from_one_that_is_away() {
    let upstream = Upstream::plain().await;
    let elsewhere = [("location", "http://127.0.0.1:9/"), ("content-type", "text/html")];
    for (answer, message) in [
        (Answer::unknown(), "it has no runs"),
        (Answer::reply(302, &elsewhere, ""), "it sends us elsewhere, where Talaria does not follow"),
        (Answer::reply(200, &[("content-type", "text/html")], "<html>"), "its answer names no run"),
        (Answer::status(202, r#"{"run_id":"../x","session_id":"s"}"#), "its answer names no run"),
    ] {
        upstream.answers_at("/v1/runs", [answer]);
        let ended = Talaria::new().does(["ask", "--url", &upstream.url(), "hi"]).await;
        assert_eq!((ended.code, ended.out.as_str()), (EX_UNAVAILABLE, ""), "{message}");
        ended.said(&format!("error: there is no Talaria server at {}: {message}", upstream.url()));
    }
    assert!(upstream.requests_to("/v1/runs").iter().all(|request| request.header("authorization").is_none()));
}

#[tokio::test]
async fn a_busy_server_is_asked_again_with_the_same_key() {
    let upstream = Upstream::plain().await;
    let busy = Answer::reply(429, &[("retry-after", "0"), ("content-type", "application/json")], "{}");
    let begun = Answer::status(202, r#"{"run_id":"run_1","session_id":"s"}"#);
    upstream.answers_at("/v1/runs", [busy.clone(), busy, begun]);
    let end = "id: end\ndata: {\"event\":\"run.completed\",\"output\":\"Here.\"}\n\n";
    upstream.answers_at("/events", [Answer::events(end)]);
    Talaria::new().does(["ask", "--url", &upstream.url(), "hi"]).await.showed("Here.\n");
    let keys: Vec<_> = upstream
        .requests_to("/v1/runs")
        .iter()
        .map(|one| one.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0] && key.len() >= 32), "{keys:?}");

    upstream.answers_at(
        "/v1/runs",
        [Answer::status(503, r#"{"error":{"message":"The server is about to end"}}"#)],
    );
    let ended = Talaria::new().does(["ask", "--retry-for", "0", "--url", &upstream.url(), "hi"]).await;
    assert_eq!(ended.code, EX_UNAVAILABLE);
    ended.said("error: the server is busy or away: The server is about to end (503)");
}
