//! `talaria token` on the real binary: through the running process, and without one.

use rustix::process::Signal;
use serde_json::Value;
use talaria::token::TokenDigest;

use super::Scene;
use crate::support::binary::{Ended, Talaria};
use crate::support::upstream::Upstream;

const ANN: &str = "access: {people: ['@ann:test']}";

/// The token in the output of a command.
fn shown(out: &str) -> String {
    let token = out.lines().next().unwrap().to_owned();
    assert!(TokenDigest::of(&token).is_some(), "{out}");
    token
}

async fn well<'a>(talaria: &Talaria, args: impl IntoIterator<Item = &'a str>) -> String {
    let ended = talaria.does(args).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
    ended.out
}

async fn refused<'a>(talaria: &Talaria, args: impl IntoIterator<Item = &'a str>) -> Ended {
    let ended = talaria.does(args).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.err);
    ended
}

/// Runs a token's whole life. Called with and without a running process: each command has one implementation, and
/// both ways lead there.
async fn a_life_of_a_token(talaria: &Talaria) {
    let token = shown(&well(talaria, ["token", "add", "phone"]).await);
    let list = well(talaria, ["token", "list"]).await;
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1]), ("phone", &token[4..12]), "{list}");
    assert!(!list.contains(&token[13..]), "shown once, and never again");

    let twice = refused(talaria, ["token", "add", "phone"]).await;
    twice
        .said("there is an app called `phone`")
        .said("hint: take another name; or `talaria token add phone --again`");
    let out = well(talaria, ["token", "add", "phone", "--again"]).await;
    assert!(out.contains("The old one has ended."), "{out}");
    let second = shown(&out);
    assert_ne!(second, token);

    let out = well(talaria, ["token", "revoke", "phone"]).await;
    assert_eq!(out, "The token of phone has ended; what it had stays.\n");
    refused(talaria, ["token", "revoke", "phone"]).await.said("was revoked before");
    refused(talaria, ["token", "revoke", "nobody"])
        .await
        .said("no app is called `nobody`")
        .said("token list");
    let again = refused(talaria, ["token", "add", "phone"]).await;
    again.said("there was an app called `phone`, whose token was revoked").said("finds its sessions again");
    let list: Value = serde_json::from_str(&well(talaria, ["token", "list", "--json"]).await).unwrap();
    assert!(list["apps"][0]["revoked"].is_i64(), "{list}");

    let out = well(talaria, ["token", "add", "phone", "--again", "--json"]).await;
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&out["app"], &out["replaced"]), (&"phone".into(), &false.into()));
    let kept = TokenDigest::of(out["token"].as_str().unwrap()).unwrap();
    let list: Value = serde_json::from_str(&well(talaria, ["token", "list", "--json"]).await).unwrap();
    assert_eq!(list["apps"][0]["token"], kept.id.as_str());
    for name in ["", "Phone", "a.b", "a/b", "../a", "a b", "@http"] {
        refused(talaria, ["token", "add", name]).await.said("hint: names are 1 to 64 of `a`–`z`");
    }
    let audit = well(talaria, ["audit", "--json"]).await;
    let actions: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(actions.iter().all(|row| row["actor"] == "(operator)" && row["allowed"] == true), "{audit}");
    let actions: Vec<&str> = actions.iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        ["add token of phone", "replace token of phone", "revoke token of phone", "add token of phone"]
    );
    assert_eq!(well(talaria, ["audit", "--json", "--room", "phone"]).await, audit);
    assert!(!audit.contains(&token[13..]));
}

/// Asks a question with a system message as the app with this token; returns status and body.
async fn instructs(address: &str, token: &str) -> (u16, String) {
    let messages = r#"{"messages":[{"role":"system","content":"Obey me"},{"role":"user","content":"hi"}]}"#;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{address}/v1/chat/completions")).bearer_auth(token).body(messages);
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The flags of `token add` as the app meets them: each token is tried on the running server.
#[tokio::test]
async fn an_app_may_instruct_the_agent_or_not_as_its_token_was_made() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream).args(["serve"]).var("API_SERVER_PORT", "0");
    // One token is made before the first start.
    let early = shown(&well(&talaria, ["token", "add", "early", "--no-instructions"]).await);
    let mut process = talaria.starts_with(std::fs::File::open("/dev/null").unwrap());
    let address = process.serves().await;
    let may = async |token: &str| match instructs(&address, token).await {
        (200, _) => true,
        (403, told) if told.contains("system_not_allowed") => false,
        other => panic!("{other:?}"),
    };
    let add = async |flags: &[&str]| {
        let out = well(&talaria, [&["token", "add", "forge"], flags].concat()).await;
        assert_eq!(out.contains("may not send system messages"), !may(&shown(&out)).await, "{out}");
        shown(&out)
    };
    assert!(!may(&early).await);
    let usual = add(&[]).await;
    assert!(may(&usual).await);
    let bound = add(&["--again", "--no-instructions"]).await;
    assert!(!may(&bound).await);
    assert_eq!(instructs(&address, &usual).await.0, 401, "the old one has ended");
    // Another token of the same app keeps the setting, and the list shows it.
    let bound = add(&["--again"]).await;
    assert!(!may(&bound).await);
    let list = well(&talaria, ["token", "list"]).await;
    assert_eq!(list.matches("may ask, not instruct").count(), 2, "{list}");
    let free = add(&["--again", "--instructions"]).await;
    assert!(may(&free).await);
    let json = well(&talaria, ["token", "add", "forge", "--again", "--no-instructions", "--json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["instructions"], &json["replaced"]), (&false.into(), &true.into()), "{json}");
    assert!(!may(json["token"].as_str().unwrap()).await);
    let both =
        talaria.does(["token", "add", "forge", "--again", "--instructions", "--no-instructions"]).await;
    assert_eq!(both.code, 2, "{}", both.err);
    both.said("cannot be used with");
}

#[tokio::test]
async fn tokens_are_given_and_taken_through_the_process_that_runs() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    a_life_of_a_token(&scene.talaria).await;
    process.signal(Signal::TERM);
    let ended = process.ended().await;
    ended.said("an app was given a token").said("app=\"phone\"");
    assert!(!ended.err.contains("tlr_"), "{}", ended.err);
}

/// Also before the first start: an operator who sets up a machine does everything in one go.
#[tokio::test]
async fn tokens_are_given_and_taken_while_nothing_runs() {
    let talaria = Talaria::new();
    refused(&talaria, ["token", "list"]).await.said("there is nothing yet in the state folder");
    a_life_of_a_token(&talaria).await;
}

/// A copy of the disk lets nobody in.
#[tokio::test]
async fn the_token_itself_is_stored_nowhere() {
    let talaria = Talaria::new();
    let token = shown(&well(&talaria, ["token", "add", "phone"]).await);
    for file in std::fs::read_dir(talaria.home()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, &token.as_bytes()[13..]).is_none());
    }
}
