//! `talaria stop-turn`.

use std::collections::HashMap;

use talaria::ids::TurnId;

use super::{Scene, texts};

const ANN: &str = "access: {people: ['@ann:test']}\nlimits: {per_minute: 1000, per_hour: 1000}";

fn id(room: &str, event: usize) -> String {
    TurnId::new(&"test".into(), &room.into(), &format!("${event}").as_str().into(), 0).0
}

#[tokio::test]
async fn a_turn_is_stopped_by_the_beginning_of_its_id_and_its_room_shows_it() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    scene.asks_without_end("@ann:test", "!home").await;
    scene.asks_without_end("@ann:test", "!other").await;
    let id = id("!home", 0);

    let said = scene.prints(["stop-turn", &id[..6].to_uppercase()]).await;

    assert_eq!(said, format!("Asked to stop: {}. Whoever asked sees it.\n", &id[..6]));
    scene.shows(|messages| texts(messages, "!home") == ["Let me think\n\n(stopped)"]).await;
    assert!(!texts(&scene.network.messages(), "!other")[0].contains("stopped"));
    let audit = scene.prints(["audit", "--json"]).await;
    assert!(audit.lines().any(|line| line.contains(r#""action":"stop turn","allowed":true"#)), "{audit}");
}

#[tokio::test]
async fn all_turns_are_stopped_with_all() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    scene.asks_without_end("@ann:test", "!home").await;
    scene.asks_without_end("@ann:test", "!other").await;

    scene.prints(["stop-turn", "--all"]).await;

    for room in ["!home", "!other"] {
        scene.shows(|messages| texts(messages, room) == ["Let me think\n\n(stopped)"]).await;
    }
    assert_eq!(scene.prints(["stop-turn", "--all"]).await, "Nothing ran and nothing waited.\n");
}

#[tokio::test]
async fn an_id_that_fits_none_or_several_stops_nothing() {
    let scene = Scene::new(ANN).await;
    let _process = scene.starts().await;
    // Of seventeen hexadecimal ids at least two begin with the same digit. The test knows which two, because ids are
    // derived.
    let mut first: HashMap<char, usize> = HashMap::new();
    let digit = |n: usize| id(&format!("!{n}"), n).chars().next().unwrap();
    let mut both = None;
    for n in 0..17 {
        scene.asks_without_end("@ann:test", &format!("!{n}")).await;
        if first.insert(digit(n), n).is_some() {
            both = Some(digit(n));
            break;
        }
    }
    let both = both.unwrap().to_string();

    scene
        .is_refused(1, ["stop-turn", &both])
        .await
        .said("several turns begin with")
        .said("write more of the id");
    for nothing in ["zz", "", " ", "0123456789abcdef0"] {
        let ended = scene.is_refused(1, ["stop-turn", nothing]).await;
        ended.said("no turn that runs or waits begins with").said("`talaria status` lists them");
    }
    assert!(scene.network.messages().iter().all(|shown| !shown.body().markdown.contains("stopped")));
    assert_eq!(scene.is_refused(2, ["stop-turn"]).await.code, 2);
}
