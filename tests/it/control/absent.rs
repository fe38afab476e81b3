//! Commands while no gateway runs.

use std::fs;

use rustix::process::Signal;

use super::Scene;
use crate::support::binary::Talaria;

const ANN: &str = "access: {people: ['@ann:test']}";

#[tokio::test]
async fn what_needs_a_running_process_says_plainly_that_there_is_none() {
    let talaria = Talaria::new();
    for args in [&["status"][..], &["health"], &["reload"], &["stop-turn", "--all"], &["stop-turn", "abc"]] {
        let ended = talaria.does(args.iter().copied()).await;
        assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{args:?}");
        let message = format!("error: talaria is not running (state folder {})\n", talaria.home().display());
        ended.said(&message).said("\nhint: start it with `talaria`");
    }
    assert_eq!(fs::read_dir(talaria.home()).unwrap().count(), 0, "and nothing was made");
}

#[tokio::test]
async fn what_needs_the_store_says_that_there_is_none_and_makes_none() {
    let talaria = Talaria::new();
    for args in [
        &["sessions"][..],
        &["audit"],
        &["pairing", "list"],
        &["pairing", "approve", "ABCD-2345"],
        &["approvals"],
    ] {
        let ended = talaria.does(args.iter().copied()).await;
        assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{args:?}");
        ended.said("error: there is nothing yet in the state folder").said("\nhint: start talaria once");
    }
    assert_eq!(fs::read_dir(talaria.home()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_is_stored_can_be_looked_at_after_the_end() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    scene.network.says_as("@ann:test", "!home", true, "hello");
    scene.shows(|messages| super::texts(messages, "!home") == ["ok"]).await;
    let running = [scene.prints(["sessions"]).await, scene.prints(["audit"]).await];
    process.signal(Signal::TERM);
    process.ended().await;

    let ended = [scene.prints(["sessions"]).await, scene.prints(["audit"]).await];

    assert_eq!(running, ended, "the same commands, the same answers");
    let session: Vec<&str> = ended[0].lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(session[1..6], ["test", "!home", "1", "yes", "2"], "{}", ended[0]);
    assert_eq!(session.last(), Some(&"hello"), "the first words stand for a title: {}", ended[0]);
    assert!(ended[1].contains("@ann:test") && ended[1].contains("listed"), "{}", ended[1]);
    assert_eq!(scene.prints(["pairing", "list"]).await, "Nobody waits, and nobody was let in.\n");
    assert_eq!(scene.prints(["approvals"]).await, "Agents ask each time; nothing was allowed for longer.\n");
}

/// A command that reads the store for a moment must not make a start fail.
#[tokio::test]
async fn a_start_waits_for_a_command_that_holds_the_state_folder_for_a_moment() {
    let scene = Scene::new(ANN).await;
    let process = scene.starts().await;
    process.signal(Signal::TERM);
    process.ended().await;
    let lock = fs::File::open(scene.talaria.home().join("talaria.lock")).unwrap();
    lock.lock().unwrap();

    let mut process = scene.talaria.starts();
    // By now the other process has found the lock taken; then the lock is released.
    let settled = scene.talaria.does(["health"]).await;
    assert_eq!(settled.code, 1);
    drop(lock);
    process.logs("running").await;
}
