//! Turns as runs of the agent server, where it announces them.

use serde_json::json;
use talaria_platform::MediaKind;

use super::scripted_runs::{
    self as scripted, agent, begun, completed, event, gateway, repeated, runs_begun, session, shown, state,
    text, tool_completed, tool_started, upstream, user, with_events,
};
use crate::support::binary::Talaria;
use crate::support::gateway::{Setup, TestGateway};
use crate::support::relay::{proxy, relay, relay_as};
use crate::support::room::file;
use crate::support::upstream::{Answer, Gate};

/// A whole stream of these events.
fn events(events: &[String]) -> Answer {
    Answer::events(events.concat())
}

#[tokio::test]
async fn a_turn_is_a_run_with_our_own_history() {
    let upstream = with_events(events(&[text("Hello "), text("Ann."), completed("Hello Ann.")])).await;
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "I am Ann").await;
    room.shows("bot   Hello Ann.").await;
    upstream
        .answers_at("/v1/runs", [begun("run_2")])
        .answers_at("/events", [events(&[completed("You are Ann.").replace("run_1", "run_2")])]);
    room.says("@ann", "who am I?").await;
    room.shows("bot   You are Ann.").await;

    let [first, second] = upstream.requests_to("/v1/runs").try_into().expect("two runs");
    let (first_body, second_body) = (first.json(), second.json());
    assert_eq!(first.header("authorization"), Some("Bearer a key of our own, long enough"));
    assert_eq!((&first_body["input"], &first_body["model"]), (&json!("I am Ann"), &json!("hermes-agent")));
    assert_eq!(first_body["conversation_history"], json!([]));
    assert_eq!(first_body["session_id"], second_body["session_id"]);
    assert_eq!(first_body["session_id"].as_str(), first.header("x-hermes-session-id"));
    let history = json!([
        { "role": "user", "content": "I am Ann" }, { "role": "assistant", "content": "Hello Ann." },
    ]);
    assert_eq!(
        (&second_body["input"], &second_body["conversation_history"]),
        (&json!("who am I?"), &history)
    );
    let read: Vec<_> = upstream.requests_to("/events").into_iter().map(|request| request.path).collect();
    assert_eq!(read, ["/v1/runs/run_1/events", "/v1/runs/run_2/events"]);
    // Only the second answer is compared with the session: it had no deltas, and could be a sentence about an error.
    assert_eq!((upstream.prompts().len(), upstream.requests_to("/messages").len()), (0, 1));
}

#[tokio::test]
async fn a_server_that_only_announces_runs_is_asked_for_streams() {
    let upstream = upstream().await;
    let gateway = relay(&upstream.url(), None).await;
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows("bot   ok").await;
    assert_eq!((upstream.prompts().len(), runs_begun(&upstream)), (1, 0));
}

#[tokio::test]
async fn the_operator_is_told_where_runs_could_be_chosen() {
    let upstream = upstream().await;
    for (file, says) in
        [("", true), ("gateway: {upstream: plain}\n", false), ("gateway: {upstream: runs}\n", false)]
    {
        let talaria = Talaria::new().var("GATEWAY_PROXY_URL", &upstream.url()).config(file);
        let ended = talaria.does(["check"]).await;
        assert_eq!(ended.out.contains("It could run turns in the background"), says, "{file}: {}", ended.out);
        let agent = proxy(&upstream.url(), None, file);
        agent.learn_abilities().await;
        assert_eq!(agent.operator_lines().len(), usize::from(says), "{file}");
    }
}

#[tokio::test]
async fn the_configuration_can_choose() {
    let upstream = upstream().await;
    let gateway = relay_as(&upstream.url(), None, "gateway: {upstream: plain}\n").await;
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows("bot   ok").await;
    assert_eq!((upstream.prompts().len(), runs_begun(&upstream)), (1, 0));

    let upstream = with_events(events(&[text("Hi."), completed("Hi.")])).await;
    let gateway = relay_as(&upstream.url(), None, "gateway: {upstream: runs}\n").await;
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows("bot   Hi.").await;
    assert_eq!((upstream.questions(), runs_begun(&upstream)), (0, 1), "nobody has to be asked");
}

#[tokio::test]
async fn tools_are_steps_with_their_subjects() {
    let (gate, end) = (Gate::new(), Gate::new());
    let first = [text("Let me look."), repeated("Let me look."), tool_started("terminal")].concat();
    let second = [tool_completed("terminal", false), text("\n\nIt is 42."), completed("It is 42.")].concat();
    let upstream =
        with_events(Answer::stream().sends(first).waits(&gate).sends(second).waits(&end).ends()).await;
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "how much?").await;
    room.shows("⚙️ terminal: `cargo test --key ").await;
    assert!(!room.now().contains("canary"), "{}", room.now());
    gate.open();
    room.shows(&shown("bot   Let me look.\n\nIt is 42.")).await;
    end.open();
}

#[tokio::test]
async fn unknown_events_and_garbage_change_nothing() {
    let odd = [
        event("subagent.progress", json!({ "delta": "no" })),
        "data: nonsense\n\ndata: []\n\ndata: {}\n\n: a comment\n\n".to_owned(),
        "event: message\ndata: {\"event\": \"message.delta\", \"run_id\": \"run_7\", \"delta\": \"of another\"}\n\n"
            .to_owned(),
        event("message.delta", json!({ "delta": 7 })),
        event("tool.completed", json!({})),
    ];
    let all = [text("It is "), odd.concat(), text("42."), completed("It is 42.")];
    let upstream = with_events(events(&all)).await;
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;
}

#[tokio::test]
async fn the_output_of_the_run_wins_over_its_deltas() {
    // Nothing came as a delta; a delta was lost; the model was asked again after half a message.
    for deltas in [vec![], vec![text("It is ")], vec![text("It is 4"), text("It is 42.")]] {
        let all = [deltas.concat(), completed("It is 42.")];
        let upstream = with_events(events(&all)).await;
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows("bot   It is 42.").await;
    }
}

#[tokio::test]
async fn a_run_that_failed_or_was_stopped_there_says_so_and_keeps_its_text() {
    for (end, words) in [
        (
            event("run.failed", json!({ "error": "HTTP 400: canary" })),
            "the agent reported an error; /retry asks again",
        ),
        (event("run.failed", json!({ "error": "Error code: 429" })), "the model is busy; /retry asks again"),
        (
            event("run.failed", json!({ "error": { "a": 1 } })),
            "the agent reported an error; /retry asks again",
        ),
        (event("run.cancelled", json!({})), "it was stopped at the agent server; /retry asks again"),
    ] {
        let upstream = with_events(events(&[text("It is "), end])).await;
        let gateway = gateway(&upstream).await;
        let room = gateway.room();
        room.says("@ann", "how much?").await;
        room.shows(&shown(&format!("bot   It is\n\n(cut short: {words})"))).await;
        assert!(!room.now().contains("canary"));
    }
}

/// hermes-agent calls an answer that a length limit has cut completed. It does not name its last message again then.
#[tokio::test]
async fn an_answer_that_a_limit_has_cut_is_shown_as_cut() {
    for (reason, cut) in [("length", true), ("stop", false)] {
        let end = event("run.completed", json!({ "output": "It is 4" }));
        let upstream = with_events(events(&[text("It is 4"), end])).await;
        upstream.answers_at("/messages", [session(&[user("how much?"), agent("It is 4", reason)])]);
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows("bot   It is 4").await;
        gateway.idle().await;
        upstream.has_requests("/messages", 1).await;
        assert_eq!(gateway.room().now().contains("(cut"), cut, "{reason}: {}", gateway.room().now());
    }
}

/// hermes-agent calls a run completed, too, if it gave up. Its output is then a sentence about that.
#[tokio::test]
async fn a_run_that_was_given_up_keeps_what_it_said_and_is_no_whole_answer() {
    const SORRY: &str = "Response truncated due to output length limit";
    const CUT: &str = "bot   It is\n\n(cut short: the agent reported an error; /retry asks again)";
    for (output, below) in [(SORRY, format!("\n\nThe agent server added: `{SORRY}`")), ("", String::new())] {
        let upstream = with_events(events(&[text("It is "), completed(output)])).await;
        upstream.answers_at("/messages", [session(&[user("how much?")])]);
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows(&shown(&format!("{CUT}{below}"))).await;
    }
    // An empty output is no failure if the session has the end of the answer.
    let upstream = with_events(events(&[text("It is "), completed("")])).await;
    upstream.answers_at("/messages", [session(&[user("how much?"), agent("It is 42.", "stop")])]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;
}

#[tokio::test]
async fn stop_ends_a_silent_run() {
    let (gate, left) = (Gate::new(), Gate::new());
    let upstream = with_events(Answer::stream().waits(&gate).hangs_until_left(&left)).await;
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "think").await;
    gate.is_reached().await;
    room.says("@ann", "/stop").await;
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
    room.shows("(stopped)").await;
    assert_eq!(upstream.requests_to("/stop")[0].method, "POST");
    assert_eq!(runs_begun(&upstream), 1);
}

/// hermes-agent says 404 of a run that is over; anybody between us and it may say so too.
#[tokio::test]
async fn a_stop_that_does_not_find_a_running_run_is_told_again() {
    let gate = Gate::new();
    let upstream = with_events(Answer::stream().waits(&gate).hangs()).await;
    upstream
        .answers_at("/stop", [Answer::unknown(), Answer::status(401, ""), Answer::status(200, "{}")])
        .answers_at("/v1/runs/run_1", [state("running", json!({}))]);
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "think").await;
    gate.is_reached().await;
    room.says("@ann", "/stop").await;
    upstream.has_requests("/stop", 3).await;
    room.shows("(stopped)").await;
}

#[tokio::test]
async fn a_stop_outlives_a_crash() {
    let gate = Gate::new();
    let upstream = with_events(Answer::stream().sends(text("Well, ")).waits(&gate).hangs()).await;
    upstream.answers_at("/stop", [Answer::status(503, "")]);
    let mut gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "think").await;
    gateway.room().shows("Well,").await;
    gateway.room().says("@ann", "/stop").await;
    upstream.has_requests("/stop", 1).await;
    gateway.kill().await;
    let before = upstream.requests_to("/stop").len();
    upstream.answers_at("/stop", [Answer::status(200, "{}")]);
    gateway.restart().await;
    gateway.room().shows("(stopped)").await;
    assert_eq!(upstream.requests_to("/stop").len(), before + 1);
    assert_eq!(upstream.requests_to("/stop")[before].path, "/v1/runs/run_1/stop");
    assert_eq!((runs_begun(&upstream), upstream.requests_to("/events").len()), (1, 1), "nobody reads on");
}

#[tokio::test]
async fn files_go_by_a_stream_with_our_own_history() {
    let upstream = with_events(events(&[completed("Hello Ann.")])).await;
    let agent = proxy(&upstream.url(), None, "gateway: {upstream: runs}\n");
    let gateway = TestGateway::with(Setup { agent: Some(agent), files: true, ..Setup::default() }).await;
    gateway.chat().keeps("map", b"%PDF-1.7 and so on");
    let room = gateway.room();
    room.says("@ann", "I am Ann").await;
    room.shows("bot   Hello Ann.").await;
    room.brings("@ann", "where am I?", vec![file("map", MediaKind::File, "map.pdf")]).await;
    room.shows("bot   ok").await;
    let prompt = upstream.prompt();
    let messages = &prompt.json()["messages"];
    assert_eq!(
        (&messages[1]["content"], &messages[2]["content"]),
        (&json!("I am Ann"), &json!("Hello Ann."))
    );
    // With the session the server would read its own history, and that has nothing of a conversation that `/undo` changed.
    assert_eq!(prompt.header("x-hermes-session-id"), None);
}

#[tokio::test]
async fn stop_waits_for_the_id_of_a_run_that_begins_and_is_told_until_it_arrives() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream
        .answers_at("/v1/runs", [Answer::bytes("").waits(&gate).then(begun(scripted::RUN))])
        .answers_at("/stop", [Answer::status(503, ""), Answer::status(200, "{}")]);
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "think").await;
    gate.is_reached().await;
    room.says("@ann", "/stop").await;
    room.shows("(stopped)").await;
    gate.open();
    upstream.has_requests("/v1/runs/run_1/stop", 2).await;
    assert_eq!(upstream.requests_to("/events").len(), 0);
}

#[tokio::test]
async fn a_busy_server_is_asked_again_and_one_that_refuses_is_not() {
    let upstream = with_events(events(&[text("Now."), completed("Now.")])).await;
    let busy = Answer::reply(429, &[("retry-after", "1")], r#"{"error":{"code":"rate_limit_exceeded"}}"#);
    upstream.answers_at("/v1/runs", [busy, begun(scripted::RUN)]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "now?").await;
    gateway.room().shows("bot   Now.").await;
    assert_eq!(runs_begun(&upstream), 2);

    let upstream = scripted::upstream().await;
    upstream.answers_at("/v1/runs", [Answer::status(400, r#"{"error":{"message":"canary"}}"#)]);
    let gateway = scripted::gateway(&upstream).await;
    gateway.room().says("@ann", "now?").await;
    gateway.room().shows("Proxy error (400)").await;
    assert_eq!(runs_begun(&upstream), 1);
}

#[tokio::test]
async fn retry_and_undo_change_what_the_server_is_told() {
    let upstream = upstream().await;
    let whole = |run: &str, text: &str| events(&[completed(text).replace("run_1", run)]);
    upstream.answers_at("/v1/runs", ["run_1", "run_2", "run_3"].map(begun)).answers_at(
        "/events",
        [whole("run_1", "Heads."), whole("run_2", "Tails."), whole("run_3", "Nothing.")],
    );
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "Toss a coin").await;
    room.shows("bot   Heads.").await;
    room.says("@ann", "/retry").await;
    room.shows("bot   Tails.").await;
    room.is_answered("@ann", "/undo").await;
    room.says("@ann", "What was it?").await;
    room.shows("bot   Nothing.").await;
    let bodies: Vec<_> = upstream.requests_to("/v1/runs").iter().map(|request| request.json()).collect();
    let inputs: Vec<_> = bodies.iter().map(|body| (&body["input"], &body["conversation_history"])).collect();
    let (toss, none) = (json!("Toss a coin"), json!([]));
    assert_eq!(inputs, [(&toss, &none), (&toss, &none), (&json!("What was it?"), &none)]);
    let ids: Vec<_> = bodies.iter().map(|body| body["session_id"].as_str().unwrap()).collect();
    assert_eq!(ids[1..], [format!("{}.1", ids[0]), format!("{}.2", ids[0])]);
}

#[tokio::test]
async fn a_run_without_a_stream_is_asked_how_it_goes() {
    let upstream = upstream().await;
    upstream
        .answers_at("/v1/runs/run_1", [state("running", json!({})), scripted::has_completed("It is 42.")]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;
    assert_eq!((runs_begun(&upstream), upstream.requests_to("/v1/runs/run_1").len()), (1, 2));
}
