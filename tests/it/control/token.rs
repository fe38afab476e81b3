//! `talaria token` on the real binary: through the process that runs, and without one.

use rustix::process::Signal;
use serde_json::Value;
use talaria::token::Kept;

use super::Scene;
use crate::support::binary::{Ended, Talaria};

const ANN: &str = "access: {people: ['@ann:test']}";

/// The token that was shown.
fn shown(out: &str) -> String {
    let token = out.lines().next().unwrap().to_owned();
    assert!(Kept::of(&token).is_some(), "{out}");
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

/// The same scene with and without a process that runs: each command has one implementation, and both ways lead there.
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
    let kept = Kept::of(out["token"].as_str().unwrap()).unwrap();
    let list: Value = serde_json::from_str(&well(talaria, ["token", "list", "--json"]).await).unwrap();
    assert_eq!(list["apps"][0]["token"], kept.id.as_str());
    for name in ["", "Phone", "2phone", "a/b", "../a", "a b", "@http"] {
        refused(talaria, ["token", "add", name]).await.said("hint: names are 1 to 40 of `a`–`z`");
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

/// Also before the first start: whoever sets a machine up does everything in one go.
#[tokio::test]
async fn tokens_are_given_and_taken_while_nothing_runs() {
    let talaria = Talaria::new();
    refused(&talaria, ["token", "list"]).await.said("there is nothing yet in the state folder");
    a_life_of_a_token(&talaria).await;
}

/// What is on disk does not let anybody in.
#[tokio::test]
async fn the_token_itself_is_stored_nowhere() {
    let talaria = Talaria::new();
    let token = shown(&well(&talaria, ["token", "add", "phone"]).await);
    for file in std::fs::read_dir(talaria.home()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, &token.as_bytes()[13..]).is_none());
    }
}
