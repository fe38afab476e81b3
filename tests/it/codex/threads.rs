//! Threads: one for each session, resumed after a restart, and never replaced silently.

use std::time::Duration;

use serde_json::json;
use talaria::rules::{AccountRules, PlaceRules};

use super::scene::CodexScene;
use super::scripted_peer::{Act, Scenario, ScriptedAnswer};
use crate::support::gateway::Setup;

#[tokio::test]
async fn a_session_has_one_thread_and_its_id_is_stored_at_once() {
    let scenario = Scenario::default().turn("wait", [Act::waits("gate"), Act::says(&["Done."])]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "wait").await;
    scene.codex.reached("gate").await;
    scene.codex.opens("gate");
    scene.room().shows("Done.").await;
    let folder = scene.session_folder().display().to_string();
    assert_eq!(scene.report().await, Some(json!({ "thread": "thread-1", "cwd": folder, "begun": true })));
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    assert_eq!(scene.codex.received("thread/resume").len(), 0);
    scene.ends().await;
}

#[tokio::test]
async fn a_room_works_in_the_folder_that_the_configuration_gives_it() {
    let garden = tempfile::tempdir().unwrap();
    let folder = garden.path().join("made");
    let place = PlaceRules { folder: Some(folder.clone()), ..PlaceRules::default() };
    let everybody = Setup::default();
    let rules = AccountRules { places: [("!home".into(), place)].into(), ..everybody.rules.clone() };
    let scene = CodexScene::of(Scenario::default(), Setup { rules, ..everybody }, |_| {}).await;
    scene.asks("hello", "bot   hello").await;
    let other = scene.gateway.direct_room("!other");
    other.says("@bob", "hello").await;
    other.shows("bot   hello").await;
    let started = scene.codex.received("thread/start");
    assert_eq!(started[0]["cwd"], folder.to_str().unwrap());
    assert_eq!(started[1]["cwd"], scene.session_folder().to_str().unwrap());
    assert!(folder.is_dir());
    scene.ends().await;
}

#[tokio::test]
async fn four_rooms_share_one_process_and_have_threads_of_their_own() {
    let scenario = Scenario::default().turn("wait", [Act::waits("gate"), Act::says(&["Done."])]);
    let scene = CodexScene::with(scenario).await;
    let rooms: Vec<_> = (1..=4).map(|n| scene.gateway.direct_room(&format!("!room{n}"))).collect();
    for room in &rooms {
        room.says("@ann", "wait").await;
    }
    scene.receives("turn/start", 4).await;
    scene.codex.opens("gate");
    for room in &rooms {
        room.shows("Done.").await;
    }
    assert_eq!(scene.codex.processes().len(), 1);
    let threads: std::collections::BTreeSet<_> =
        scene.codex.received("turn/start").iter().map(|turn| turn["threadId"].to_string()).collect();
    assert_eq!(threads.len(), 4);
    scene.ends().await;
}

#[tokio::test]
async fn the_thread_is_resumed_after_a_restart() {
    let mut scene = CodexScene::with(Scenario::default()).await;
    scene.asks("one", "bot   one").await;
    scene.gateway.restart().await;
    scene.asks("two", "bot   two").await;
    let resumed = scene.codex.received("thread/resume").remove(0);
    assert_eq!((&resumed["threadId"], &resumed["excludeTurns"]), (&json!("thread-1"), &json!(true)));
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    assert!(!scene.room().now().contains("no longer"));
    scene.ends().await;
}

#[tokio::test]
async fn a_turn_that_our_death_cut_is_not_repeated_and_the_next_one_resumes_its_thread() {
    let scenario = Scenario::default()
        .turn("work", [Act::says(&["I begin."]), Act::runs("make", "ok"), Act::waits("gate")]);
    let mut scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "work").await;
    scene.room().shows("I begin.").await;
    scene.codex.reached("gate").await;
    scene.gateway.kill().await;
    scene.gateway.restart().await;
    scene.room().shows("(interrupted").await;
    scene.asks("what happened?", "bot   what happened?").await;
    assert_eq!(scene.codex.ran(), ["make"]);
    assert_eq!(scene.codex.received("turn/start").len(), 2);
    assert_eq!(scene.codex.received("thread/resume")[0]["threadId"], "thread-1");
    scene.ends().await;
}

#[tokio::test]
async fn a_thread_that_codex_forgot_is_told_and_the_new_one_knows_what_was_said() {
    let mut scene = CodexScene::with(Scenario::default()).await;
    scene.asks("my name is Ann", "bot   my name is Ann").await;
    std::fs::remove_file(scene.codex.folder().join("threads/thread-1")).unwrap();
    scene.gateway.restart().await;
    scene.asks("who am I?", "Codex no longer had this conversation").await;
    let told = scene.codex.received("thread/inject_items").remove(0);
    let texts: Vec<_> =
        told["items"].as_array().unwrap().iter().map(|item| item["content"][0]["text"].clone()).collect();
    assert_eq!(texts, ["my name is Ann", "my name is Ann"]);
    let room = scene.room().now();
    assert_eq!(room.matches("no longer").count(), 1, "{room}");
    scene.asks("and now?", "bot   and now?").await;
    assert_eq!(scene.room().now().matches("no longer").count(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_takes_no_history_is_said_to_begin_without_it() {
    let refused = ScriptedAnswer::error(-32_600, "Invalid request: unknown variant `thread/inject_items`");
    let mut scene = CodexScene::with(Scenario::default().always("thread/inject_items", refused)).await;
    scene.asks("my name is Ann", "bot   my name is Ann").await;
    std::fs::remove_file(scene.codex.folder().join("threads/thread-1")).unwrap();
    scene.gateway.restart().await;
    scene.asks("who am I?", "It does not know what was said before").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_stop_while_a_new_thread_is_told_the_conversation_leaves_no_thread_without_it() {
    let mut scene = CodexScene::with(Scenario::default()).await;
    scene.asks("my name is Ann", "bot   my name is Ann").await;
    std::fs::remove_file(scene.codex.folder().join("threads/thread-1")).unwrap();
    scene.gateway.restart().await;
    scene.codex.plays(&Scenario::default().once("thread/inject_items", ScriptedAnswer::Silence));
    scene.room().says("@ann", "who am I?").await;
    scene.receives("thread/inject_items", 1).await;
    let untold = scene.codex.received("thread/inject_items")[0]["threadId"].clone();
    scene.asks("/stop", "(stopped)").await;
    assert_eq!(
        scene.codex.receives("thread/unsubscribe").await["threadId"],
        untold,
        "codex does not keep it open"
    );
    scene.asks("and now?", "Codex no longer had this conversation").await;
    let told = scene.codex.received("thread/inject_items");
    assert_eq!(told.len(), 2, "{}", scene.codex.history());
    assert_eq!(told[1]["threadId"], scene.codex.received("turn/start").pop().unwrap()["threadId"]);
    assert!(told[1].to_string().contains("my name is Ann"), "{told:?}");
    scene.ends().await;
}

#[tokio::test]
async fn a_thread_that_another_process_is_about_to_leave_is_waited_for() {
    let busy = || ScriptedAnswer::error(-32_600, "thread thread-1 already has an active writer");
    let scenario = Scenario::default().once("thread/resume", busy()).once("thread/resume", busy());
    let mut scene = CodexScene::with(scenario).await;
    scene.asks("one", "bot   one").await;
    scene.gateway.restart().await;
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.codex.received("thread/resume").len(), 3);
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_thread_that_stays_open_elsewhere_is_said_and_never_replaced() {
    let busy = ScriptedAnswer::error(-32_600, "thread thread-1 already has an active writer");
    let mut scene = CodexScene::with(Scenario::default().always("thread/resume", busy)).await;
    scene.asks("one", "bot   one").await;
    scene.gateway.restart().await;
    scene.room().says("@ann", "two").await;
    scene.room().shows("This conversation is open in another codex").await;
    scene.codex.plays(&Scenario::default());
    scene.shows("bot   two").await;
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_thread_that_our_death_left_in_the_archive_is_taken_out() {
    let mut scene = CodexScene::with(Scenario::default()).await;
    scene.asks("one", "bot   one").await;
    let folder = scene.codex.folder();
    std::fs::rename(folder.join("threads/thread-1"), folder.join("archived/thread-1")).unwrap();
    scene.gateway.restart().await;
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.codex.received("thread/unarchive").len(), 1);
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_thread_that_codex_unloaded_is_resumed_before_the_turn() {
    let gone = ScriptedAnswer::error(-32_600, "thread not found: thread-1");
    let scene = CodexScene::with(Scenario::default()).await;
    scene.asks("one", "bot   one").await;
    let first = ScriptedAnswer::Silence;
    scene.codex.plays(&Scenario::default().once("turn/start", first).once("turn/start", gone));
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.codex.received("thread/resume").len(), 1);
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_history_that_changed_gets_a_thread_of_its_own_in_the_same_folder() {
    let scene = CodexScene::with(Scenario::default()).await;
    scene.asks("one", "bot   one").await;
    scene.asks("two", "bot   two").await;
    let folder = scene.session_folder();
    scene.asks("/undo", "/undo").await;
    scene.asks("three", "bot   three").await;
    assert_eq!(scene.codex.received("thread/start").len(), 2);
    let told = scene.codex.received("thread/inject_items").remove(0).to_string();
    assert!(told.contains("one") && !told.contains("two"), "{told}");
    assert_eq!(scene.session_folder(), folder);
    assert_eq!(scene.codex.receives("thread/archive").await["threadId"], "thread-1");
    scene.ends().await;
}

#[tokio::test]
async fn a_process_that_nobody_uses_is_ended_and_the_next_turn_starts_another() {
    let scene =
        CodexScene::as_set(Scenario::default(), |config| config.idle = Duration::from_millis(100)).await;
    scene.asks("one", "bot   one").await;
    scene.comes_to("codex ends", || scene.children() == 0).await;
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.codex.processes().len(), 2);
    assert_eq!(scene.codex.received("thread/resume").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_process_whose_commands_still_run_is_kept() {
    let running = ScriptedAnswer::Result(json!({ "data": [{ "processId": "1" }] }));
    let scenario = Scenario::default().always("thread/backgroundTerminals/list", running);
    let scene = CodexScene::as_set(scenario, |config| config.idle = Duration::from_millis(50)).await;
    scene.asks("one", "bot   one").await;
    scene.receives("thread/backgroundTerminals/list", 3).await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_revoked_approval_makes_codex_ask_again() {
    let scenario =
        Scenario::default().turn("make", [Act::runs_if_allowed("make", "ok"), Act::says(&["Built."])]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "make 1").await;
    let asked = scene.room().is_asked("make").await;
    scene.asks(&format!("/approve {} session", asked.code), "Built.").await;
    scene.room().says("@ann", "make 2").await;
    scene.comes_to("a second run", || scene.codex.ran().len() == 2).await;
    assert_eq!(scene.room().asked().len(), 1);
    assert_eq!(scene.codex.received("thread/archive").len(), 0);

    let grants = scene.gateway.store().read(|tx| tx.grants()).await.unwrap();
    let id = grants[0].id.clone();
    scene.gateway.store().write(move |tx| tx.revoke_grant(&id)).await.unwrap();
    scene.room().says("@ann", "make 3").await;
    scene.comes_to("it asks again", || scene.room().asked().len() == 2).await;
    let again = scene.room().asked();
    assert_eq!(scene.codex.ran().len(), 2);
    scene.room().says("@ann", &format!("/deny {}", again[1].code)).await;
    scene.receives("thread/archive", 1).await;
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn an_approval_that_has_expired_makes_codex_ask_again() {
    let scenario =
        Scenario::default().turn("make", [Act::runs_if_allowed("make", "ok"), Act::says(&["Built."])]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "make 1").await;
    let asked = scene.room().is_asked("make").await;
    scene.asks(&format!("/approve {} session", asked.code), "Built.").await;
    let database = rusqlite::Connection::open(scene.gateway.database()).unwrap();
    assert_eq!(database.execute("UPDATE grants SET expires = 1", []).unwrap(), 1);

    scene.room().says("@ann", "make 2").await;
    scene.comes_to("it asks again", || scene.room().asked().len() == 2).await;
    assert_eq!(scene.codex.ran().len(), 1);
    let again = scene.room().asked();
    scene.room().says("@ann", &format!("/deny {}", again[1].code)).await;
    scene.receives("thread/archive", 1).await;
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn an_agent_that_a_reload_replaces_leaves_its_idle_threads_to_the_next_one() {
    let scenario = Scenario::default().turn("wait", [Act::waits("gate"), Act::says(&["Done."])]);
    let scene = CodexScene::reloadable(scenario).await;
    scene.asks("hello", "bot   hello").await;
    let other = scene.gateway.direct_room("!other");
    other.says("@bob", "wait").await;
    scene.codex.reached("gate").await;

    scene.reloads();
    assert_eq!(
        scene.codex.receives("thread/unarchive").await["threadId"],
        "thread-1",
        "a long turn still runs"
    );
    assert_eq!(scene.codex.received("thread/archive").len(), 1, "its own thread stays open");
    scene.asks("and now?", "bot   and now?").await;
    assert_eq!(scene.codex.processes().len(), 2);
    scene.codex.opens("gate");
    other.shows("Done.").await;
    // The process of the agent that was replaced ends with its last turn.
    scene.comes_to("one codex is left", || scene.servers().markers().len() == 1).await;
    other.says("@bob", "hello again").await;
    other.shows("bot   hello again").await;
    assert_eq!(scene.codex.received("thread/start").len(), 2, "no conversation was lost");
    scene.ends().await;
}

#[tokio::test]
async fn a_revoked_approval_stays_revoked_if_codex_cannot_forget_it_at_once() {
    let busy = ScriptedAnswer::error(-32_001, "Server overloaded; retry later.");
    let scenario = Scenario::default()
        .turn("make", [Act::runs_if_allowed("make", "ok"), Act::says(&["Built."])])
        .once("thread/archive", busy);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "make 1").await;
    let asked = scene.room().is_asked("make").await;
    scene.asks(&format!("/approve {} session", asked.code), "Built.").await;
    let grants = scene.gateway.store().read(|tx| tx.grants()).await.unwrap();
    let id = grants[0].id.clone();
    scene.gateway.store().write(move |tx| tx.revoke_grant(&id)).await.unwrap();

    // The engine tries again by itself.
    scene.room().says("@ann", "make 2").await;
    scene.comes_to("it asks again", || scene.room().asked().len() == 2).await;
    assert_eq!(scene.codex.ran().len(), 1);
    assert_eq!(scene.codex.received("thread/archive").len(), 2);
    let again = scene.room().asked();
    scene.room().says("@ann", &format!("/deny {}", again[1].code)).await;
    scene.shows("Built.").await;
    scene.ends().await;
}

#[tokio::test]
async fn the_thread_is_on_disk_before_its_first_turn_begins() {
    let scene = CodexScene::with(Scenario::default().once("turn/start", ScriptedAnswer::Silence)).await;
    scene.room().says("@ann", "work").await;
    scene.receives("turn/start", 1).await;
    let report = scene.report().await.expect("it is stored");
    assert_eq!((&report["thread"], &report["begun"]), (&json!("thread-1"), &json!(false)));
    scene.ends().await;
}

#[tokio::test]
async fn rooms_that_wait_for_a_codex_that_does_not_start_share_its_failure() {
    let scenario = Scenario::default().initializing([Act::waits("gate"), Act::exits(3, "no")]);
    let scene = CodexScene::with(scenario).await;
    let others = ["!a", "!b", "!c", "!d"].map(|room| scene.gateway.direct_room(room));
    scene.room().says("@ann", "hello").await;
    scene.codex.reached("gate").await;
    for room in &others {
        room.says("@ann", "hello").await;
    }
    scene.codex.opens("gate");
    for room in others.iter().chain([&scene.room()]) {
        room.shows("codex could not be started").await;
    }
    assert!(scene.codex.processes().len() <= 2, "{:?}", scene.codex.processes());
    scene.ends().await;
}

#[tokio::test]
async fn threads_that_were_not_used_for_long_are_closed_and_opened_again_when_they_are_needed() {
    let scene = CodexScene::with(Scenario::default()).await;
    scene.asks("one", "bot   one").await;
    for number in 0..8 {
        let room = scene.gateway.direct_room(&format!("!room{number}"));
        room.says("@bob", "hello").await;
        room.shows("bot   hello").await;
    }
    let closed = scene.codex.receives("thread/unarchive").await;
    assert_eq!(closed["threadId"], "thread-1");
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.codex.received("thread/resume")[0]["threadId"], "thread-1");
    assert_eq!(scene.codex.received("thread/start").len(), 9);
    assert!(!scene.room().now().contains("no longer"), "{}", scene.room().now());
    scene.ends().await;
}

#[tokio::test]
async fn a_thread_that_no_turn_comes_to_use_is_closed_again() {
    let open = Scenario::default().with_thread("sandbox", json!({ "type": "dangerFullAccess" }));
    let mut scene = CodexScene::with(open.clone()).await;
    scene.asks("new", "without a sandbox").await;
    assert_eq!(scene.codex.receives("thread/unsubscribe").await["threadId"], "thread-1");
    // Codex may keep it without the conversation if it is archived.
    assert_eq!(scene.codex.received("thread/archive").len(), 0);

    scene.codex.plays(&Scenario::default());
    scene.asks("hello", "bot   hello").await;
    let used = scene.codex.received("turn/start")[0]["threadId"].clone();
    scene.codex.plays(&open);
    scene.gateway.restart().await;
    scene.room().says("@ann", "again").await;
    scene.comes_to("it is refused", || scene.room().now().matches("without a sandbox").count() == 2).await;
    assert_eq!(scene.codex.receives("thread/archive").await["threadId"], used);
    assert_eq!(scene.codex.receives("thread/unarchive").await["threadId"], used);

    // The conversation goes on in it.
    scene.codex.plays(&Scenario::default());
    scene.asks("and now?", "bot   and now?").await;
    assert_eq!(scene.codex.received("turn/start")[1]["threadId"], used);
    scene.ends().await;
}
