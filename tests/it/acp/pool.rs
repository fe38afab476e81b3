//! The pool: a process for each session, kept warm, bounded, and never left behind.

use std::time::Duration;

use super::scene::AcpScene;
use super::scripted_agent::{Act, Script};
use crate::support::gateway::Setup;
use crate::support::served::json as body;

fn with_places(processes: usize) -> Setup {
    Setup { processes, ..Setup::default() }
}

#[tokio::test]
async fn a_warm_process_takes_the_next_prompt_and_an_idle_one_ends() {
    let scene =
        AcpScene::as_set(Script::default(), |config, _| config.idle = Duration::from_millis(300)).await;
    scene.asks("one", "bot   one").await;
    scene.comes_to("the idle process ends", || scene.children() == 0).await;
    scene.asks("two", "bot   two").await;
    assert_eq!((scene.agent.processes().len(), scene.agent.received("session/load").len()), (2, 1));
    scene.ends().await;

    let scene = AcpScene::with(Script::default()).await;
    for question in ["one", "two", "three"] {
        scene.asks(question, &format!("bot   {question}")).await;
    }
    assert_eq!(scene.agent.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn the_longest_idle_process_makes_room_for_a_newcomer() {
    let scene = AcpScene::of(Script::default(), with_places(2), |_, _| {}).await;
    let rooms: Vec<_> = ["!one", "!two", "!three"].map(|name| scene.gateway.direct_room(name)).into();
    for room in &rooms {
        room.says("@ann", "hello").await;
        scene.shows_in(room, "bot   hello").await;
    }
    assert_eq!(scene.agent.processes().len(), 3);
    // Two of them and their shims.
    assert_eq!(scene.children(), 4);
    // The second one is still there, and the first one is opened again.
    rooms[1].says("@ann", "still here").await;
    scene.shows_in(&rooms[1], "bot   still here").await;
    assert_eq!(scene.agent.received("session/load").len(), 0);
    rooms[0].says("@ann", "again").await;
    scene.shows_in(&rooms[0], "bot   again").await;
    assert_eq!(scene.agent.received("session/load").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_newcomer_waits_while_every_place_is_in_use_or_cannot_be_given_up() {
    let script = Script::default().turn("wait", [Act::waits("gate"), Act::says(&["Done."])]);
    let scene = AcpScene::of(script, with_places(1), |_, _| {}).await;
    scene.room().says("@ann", "wait").await;
    scene.agent.reached("gate").await;
    let other = scene.gateway.direct_room("!other");
    other.says("@ann", "hello").await;
    other.shows("too many agents work at once").await;
    assert_eq!(scene.agent.processes().len(), 1);
    scene.agent.opens("gate");
    scene.shows("Done.").await;
    scene.shows_in(&other, "bot   hello").await;
    scene.ends().await;

    // A conversation that could not be opened again keeps its process.
    let scene = AcpScene::of(Script::default().without_load(), with_places(1), |_, _| {}).await;
    scene.asks("one", "bot   one").await;
    let other = scene.gateway.direct_room("!other");
    other.says("@ann", "hello").await;
    other.shows("too many agents work at once").await;
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.agent.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn processes_and_their_memory_are_counted() {
    let scene = AcpScene::with(Script::default()).await;
    scene.asks("one", "bot   one").await;
    let (mut served, _agent, _workspace) = scene.served().await;
    let metrics = served.get("/metrics").await.text().await.unwrap();
    let value = |name: &str| {
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{metrics}"));
        line.trim().parse::<i64>().unwrap()
    };
    assert_eq!(value("talaria_agent_processes "), 1);
    assert!(value("talaria_agent_process_memory_bytes ") > 1024 * 1024, "{metrics}");
    let asked = serde_json::json!({ "messages": [{ "role": "user", "content": "two" }] });
    let answer = body(served.post("/v1/chat/completions", &asked).await).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "two");
    served.gateway.drain().await;
}

#[tokio::test]
async fn many_sessions_leave_neither_a_process_nor_a_file_open() {
    let scene = AcpScene::of(Script::default(), with_places(2), |_, _| {}).await;
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let use_rooms = async |from: usize, to: usize| {
        for number in from..to {
            let room = scene.gateway.direct_room(&format!("!room{number}"));
            room.says("@ann", "hello").await;
            scene.shows_in(&room, "bot   hello").await;
            assert!(scene.children() <= 4, "at most two of them and their shims");
        }
    };
    use_rooms(0, 4).await;
    let before = open();
    use_rooms(4, 12).await;
    scene.comes_to("the files are closed", || open() <= before + 4).await;
    scene.ends().await;
}
