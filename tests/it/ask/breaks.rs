//! Connections that break, and servers that die.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::scene::AskScene;
use crate::support::binary::Talaria;
use crate::support::ports::free_port;
use crate::support::upstream::{Answer, DONE, Gate, Upstream, delta, finish};

/// Exit code for a server that is away.
const EX_UNAVAILABLE: i32 = 69;

/// A wire to a server that a test can cut.
struct Wire {
    url: String,
    connections: Arc<Mutex<JoinSet<()>>>,
    _listening: JoinSet<()>,
}

impl Wire {
    async fn to(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = address.strip_prefix("http://").unwrap().to_owned();
        let connections = Arc::<Mutex<JoinSet<()>>>::default();
        let (wires, mut listening) = (connections.clone(), JoinSet::new());
        listening.spawn(async move {
            loop {
                let (mut ours, _) = listener.accept().await.unwrap();
                let server = server.clone();
                wires.lock().spawn(async move {
                    let mut theirs = TcpStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut ours, &mut theirs).await;
                });
            }
        });
        Self { url, connections, _listening: listening }
    }

    /// Cuts every connection.
    fn cuts(&self) {
        self.connections.lock().abort_all();
    }
}

#[tokio::test]
async fn a_cut_connection_is_resumed_and_nothing_comes_twice() {
    let scene = AskScene::start().await;
    let wire = Wire::to(&scene.address).await;
    let gates = [Gate::new(), Gate::new()];
    let rest = delta("three.") + &*finish("stop") + DONE;
    let answer = Answer::stream().sends(delta("One, ")).waits(&gates[0]).sends(delta("two, "));
    scene.upstream.answers(answer.waits(&gates[1]).sends(rest).ends());
    let key = scene.talaria.home().join("api.key");
    let args = ["ask", "--url", &wire.url, "--key-file", key.to_str().unwrap(), "count"];
    let mut process = scene.talaria.starts_command(args, super::scene::null());
    process.shows("One, ").await;
    wire.cuts();
    process.logs("The connection was lost; trying again.").await;
    gates[0].open();
    process.shows("two, ").await;
    wire.cuts();
    gates[1].open();
    let ended = process.ended().await;
    ended.showed("One, two, three.\n");
    ended.said("· Connected again.\n");
    assert_eq!(scene.upstream.prompts().len(), 1);
}

#[tokio::test]
async fn a_server_that_dies_and_stays_away_leaves_a_part_that_says_so() {
    let mut scene = AskScene::start().await;
    scene.upstream.answers(Answer::stream().sends(delta("Half an ans")).hangs());
    let mut process = scene.begins(&["--retry-for", "1", "hi"]);
    process.shows("Half an ans").await;
    scene.crashes().await;
    let ended = process.ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (EX_UNAVAILABLE, "Half an ans\n"), "{}", ended.err);
    ended.said("error: the answer is cut short: the server at ").said("cannot be reached");

    let (mut scene, answer) = (AskScene::start().await, Answer::stream().sends(delta("Half an ans")).hangs());
    scene.upstream.answers(answer);
    let process = scene.begins(&["--retry-for", "0", "--json", "hi"]);
    scene.upstream.has_prompts(1).await;
    scene.crashes().await;
    let ended = process.ended().await;
    let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, &document["complete"]), (EX_UNAVAILABLE, &json!(false)), "{document}");
    assert!(document["run_id"].as_str().unwrap().starts_with("run_"));
}

#[tokio::test]
async fn a_server_that_comes_back_says_how_the_run_ended() {
    let mut scene = AskScene::at_port(free_port()).await;
    scene.upstream.answers(Answer::stream().sends(delta("Half an ans")).hangs());
    let mut process = scene.begins(&["hi"]);
    process.shows("Half an ans").await;
    scene.crashes().await;
    process.logs("The connection was lost; trying again.").await;
    scene.server = scene.talaria.starts_with(super::scene::null());
    let ended = process.ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "Half an ans\n"), "{}", ended.err);
    ended.said("error: The server ended while this ran; it is not run again unasked");
    assert_eq!(scene.upstream.prompts().len(), 1);
}

#[tokio::test]
async fn only_the_end_of_the_run_is_an_end() {
    let upstream = Upstream::plain().await;
    upstream.answers_at("/v1/runs", [Answer::status(202, r#"{"run_id":"run_1","session_id":"s"}"#)]);
    let text = |id: &str, text: &str| {
        format!("id: {id}\ndata: {}\n\n", json!({ "event": "message.delta", "delta": text }))
    };
    let end = format!("id: end\ndata: {}\n\n", json!({ "event": "run.completed" }));
    upstream.answers_at(
        "/events",
        [
            Answer::events(text("1", "One, ") + ": keepalive\n"),
            Answer::status(503, "{}"),
            Answer::events(text("2", "two.") + &*end),
        ],
    );
    let ended = Talaria::new().does(["ask", "--url", &upstream.url(), "count"]).await;
    ended.showed("One, two.\n");
    let seen: Vec<_> = upstream
        .requests_to("/events")
        .iter()
        .map(|one| one.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(seen, [None, Some("1".to_owned()), Some("1".to_owned())]);

    // Without ids nobody could tell what is new.
    let unnumbered = format!("data: {}\n\n", json!({ "event": "message.delta", "delta": "One, " }));
    upstream.answers_at("/events", [Answer::events(unnumbered)]);
    let ended = Talaria::new().does(["ask", "--url", &upstream.url(), "count"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (EX_UNAVAILABLE, "One, \n"));
    ended.said("error: the answer is cut short: the connection to the server was lost");

    // The run is gone, such as with its session.
    let gone = r#"{"error":{"message":"Run not found","code":"run_not_found"}}"#;
    upstream.answers_at("/events", [Answer::events(text("1", "One, ")), Answer::status(404, gone)]);
    let ended = Talaria::new().does(["ask", "--url", &upstream.url(), "count"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "One, \n"));
    ended.said("error: the answer is cut short: the server refused: Run not found (404)");
}
