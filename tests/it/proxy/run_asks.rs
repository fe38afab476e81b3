//! Asks of a run: the server gives them no ids, and an answer to its oldest one.

use serde_json::{Value, json};

use super::scripted_runs::{
    asks, completed, gateway, has_completed, responded, runs_begun, shown, state, text, told, tool_completed,
    tool_started, waits_for_approval, with_events,
};
use crate::support::gateway::TestGateway;
use crate::support::upstream::{Answer, Gate, Upstream};

/// Time of the first ask, on the server's clock.
const AT: f64 = 1_795_032_936.507_835;

/// Words of an ask that the server no longer waits for.
const GONE: &str = "Denied, because the agent no longer waits for it";

/// A run that asks for one command, and ends when the gate opens.
async fn asking(gate: &Gate, rest: &str) -> Upstream {
    let asking = [text("Let me clean up."), tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    let upstream = with_events(Answer::stream().sends(asking).waits(gate).sends(rest).ends()).await;
    upstream.answers_at("/v1/runs/run_1", [waits_for_approval(AT)]);
    upstream
}

async fn is_asked(gateway: &TestGateway) {
    gateway.room().says("@ann", "clean up").await;
    let ask = gateway.room().is_asked("terminal").await;
    assert!(ask.text.contains("rm -rf /tmp/x") && ask.text.contains("delete in root path"), "{}", ask.text);
}

fn choice(choice: &str) -> Vec<Value> {
    vec![json!({ "choice": choice })]
}

#[tokio::test]
async fn an_ask_is_granted_or_denied_in_the_room() {
    for (answer, told_there, error) in
        [("/approve", "once", false), ("/approve once", "once", false), ("/deny", "deny", true)]
    {
        let gate = Gate::new();
        let rest = [
            responded(told_there),
            tool_completed("terminal", error),
            text("\n\nSo be it."),
            completed("So be it."),
        ];
        let upstream = asking(&gate, &rest.concat()).await;
        let gateway = gateway(&upstream).await;
        is_asked(&gateway).await;
        assert_eq!(told(&upstream), [] as [Value; 0], "nothing was decided");
        gateway.room().says("@ann", answer).await;
        upstream.has_requests("/v1/runs/run_1/approval", 1).await;
        gate.open();
        gateway.room().shows("So be it.").await;
        assert_eq!(told(&upstream), choice(told_there), "{answer}");
        assert!(!gateway.room().now().contains(GONE), "{}", gateway.room().now());
    }
}

/// The server does not say in which folder a command runs: the same words may do something else the next time.
#[tokio::test]
async fn nothing_is_allowed_for_longer_than_once() {
    let (first, second) = (Gate::new(), Gate::new());
    let again = [
        responded("once"),
        tool_completed("terminal", false),
        tool_started("terminal"),
        asks("rm -rf /tmp/x", AT + 9.0),
    ];
    let upstream = asking(&first, "").await;
    let stream = [tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    let stream = Answer::stream().sends(stream).waits(&first).sends(again.concat()).waits(&second);
    upstream
        .answers_at("/events", [stream.sends(responded("once") + &*completed("Twice.")).ends()])
        .answers_at("/v1/runs/run_1", [waits_for_approval(AT), waits_for_approval(AT + 9.0)]);
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    is_asked(&gateway).await;
    let ask = room.asked().pop().unwrap();
    assert!(
        ask.text.contains("does not say in which folder") && !ask.text.contains("session"),
        "{}",
        ask.text
    );
    for word in ["session", "always"] {
        room.says("@ann", &format!("/approve {} {word}", ask.code)).await;
    }
    room.shows("This can be allowed only once at a time").await;
    assert_eq!(told(&upstream), [] as [Value; 0], "nothing was decided");
    room.says("@ann", &format!("/approve {}", ask.code)).await;
    room.shows("Allowed, this once: `terminal`").await;
    upstream.has_requests("/approval", 1).await;
    first.open();
    let asked_twice = || (room.asked().len() == 2).then(|| room.asked().pop().unwrap());
    let second_ask = gateway.chat().until("it is asked again", asked_twice).await;
    room.says("@ann", &format!("/approve {}", second_ask.code)).await;
    upstream.has_requests("/approval", 2).await;
    second.open();
    room.shows("bot   Twice.").await;
    assert_eq!(told(&upstream), [choice("once"), choice("once")].concat());
}

/// hermes-agent hides what looks like a secret, and a command can look like one.
#[tokio::test]
async fn a_command_with_a_hidden_part_is_asked_with_a_warning() {
    let gate = Gate::new();
    let upstream = with_events(
        Answer::stream()
            .sends([tool_started("terminal"), asks("API_TOKEN=*** true", AT)].concat())
            .waits(&gate)
            .sends([responded("deny"), text("Then not."), completed("Then not.")].concat())
            .ends(),
    )
    .await;
    upstream.answers_at("/v1/runs/run_1", [waits_for_approval(AT)]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "clean up").await;
    let ask = gateway.room().is_asked("terminal").await;
    assert!(ask.text.contains("hides a part of this, so more may run than is shown here"), "{}", ask.text);
    gateway.room().says("@ann", &format!("/answer {} deny", ask.code)).await;
    gateway.room().shows("Denied: `terminal`").await;
    upstream.has_requests("/approval", 1).await;
    gate.open();
    gateway.room().shows("bot   Then not.").await;
    assert_eq!(told(&upstream), choice("deny"));
}

/// hermes-agent waits for a minute and does not say that it has stopped, but the tool call ends.
#[tokio::test]
async fn an_ask_that_timed_out_there_is_taken_back_here() {
    let (gate, end) = (Gate::new(), Gate::new());
    let asking = [tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    let stream =
        Answer::stream().sends(asking).waits(&gate).sends(tool_completed("terminal", true)).waits(&end);
    let upstream = with_events(stream.sends(text("Then not.") + &*completed("Then not.")).ends()).await;
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gate.open();
    gateway.room().shows(GONE).await;
    gateway.room().says("@ann", "/approve").await;
    gateway.room().shows("Nothing is waiting for an answer here.").await;
    end.open();
    gateway.room().shows("bot   Then not.").await;
    assert_eq!(told(&upstream), [] as [Value; 0]);
}

/// The answer to an ask that is over there would decide about the next one, which nobody has seen. Where another ask may
/// be open, everything is denied.
#[tokio::test]
async fn an_answer_that_comes_too_late_reaches_no_other_ask() {
    let later = json!({ "last_event": "tool.completed", "updated_at": AT + 60.0 });
    for (now, told_there) in [
        (waits_for_approval(AT + 60.5), vec![deny_all()]),
        (state("waiting_for_approval", later), vec![deny_all()]),
        // Without a time nobody knows which ask it is.
        (state("waiting_for_approval", json!({ "last_event": "approval.request" })), vec![deny_all()]),
        (state("running", json!({})), vec![]),
        (Answer::unknown(), vec![]),
    ] {
        let gate = Gate::new();
        let upstream = asking(&gate, &(text(" No.") + &*completed("Let me clean up. No."))).await;
        upstream.answers_at("/v1/runs/run_1", [now]);
        let gateway = gateway(&upstream).await;
        is_asked(&gateway).await;
        gateway.room().says("@ann", "/approve").await;
        gateway
            .room()
            .shows("The approval did not reach the agent server, which therefore denies this")
            .await;
        upstream.has_requests("/approval", told_there.len()).await;
        gate.open();
        gateway.room().shows("bot   Let me clean up. No.").await;
        assert_eq!(told(&upstream), told_there);
    }
}

/// The command may have run although nobody here was told so.
#[tokio::test]
async fn an_approval_whose_response_was_lost_is_not_called_denied() {
    let gate = Gate::new();
    let upstream = asking(&gate, &(text(" Done.") + &*completed("Let me clean up. Done."))).await;
    upstream
        .answers_at("/approval", [Answer::bytes("").resets(), Answer::status(409, "{}")])
        .answers_at("/v1/runs/run_1", [waits_for_approval(AT), state("running", json!({}))]);
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gateway.room().says("@ann", "/approve").await;
    gateway.room().shows("so it is not known whether this ran").await;
    assert!(!gateway.room().now().contains("therefore denies"), "{}", gateway.room().now());
    upstream.has_requests("/approval", 2).await;
    gate.open();
    gateway.room().shows("Done.").await;
    assert_eq!(told(&upstream), [json!({ "choice": "once" }), deny_all()]);
}

/// The approval may have been taken, and what waits there now is another command.
#[tokio::test]
async fn an_approval_that_may_have_arrived_is_never_sent_again() {
    let gate = Gate::new();
    let upstream = asking(&gate, &(text(" Done.") + &*completed("Let me clean up. Done."))).await;
    upstream.answers_at("/approval", [Answer::bytes("").resets(), Answer::status(200, "{}")]);
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gateway.room().says("@ann", "/approve").await;
    gateway.room().shows("so it is not known whether this ran").await;
    upstream.has_requests("/approval", 2).await;
    gate.open();
    gateway.room().shows("Done.").await;
    assert_eq!(told(&upstream), [json!({ "choice": "once" }), deny_all()]);
}

/// hermes-agent would take the next approval for its oldest ask, which was denied here.
#[tokio::test]
async fn a_denial_that_did_not_arrive_is_repeated_before_anything_else_is_asked() {
    let (gate, denied, end) = (Gate::new(), Gate::new(), Gate::new());
    let upstream = asking(&gate, "").await;
    let asking = [tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    let again = [tool_started("terminal"), asks("rm -rf /tmp/z", AT + 9.0), text("Hm. ")].concat();
    let rest = text("Then not.") + &*completed("Hm. Then not.");
    let stream = Answer::stream().sends(asking).waits(&gate).sends(again).waits(&end).sends(rest).ends();
    let late = Answer::bytes("").waits(&denied).then(Answer::status(200, "{}"));
    upstream
        .answers_at("/events", [stream])
        .answers_at("/v1/runs/run_1", [waits_for_approval(AT), waits_for_approval(AT + 9.0)])
        .answers_at("/approval", [Answer::status(400, "{}"), late, Answer::status(409, "{}")]);
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gateway.room().says("@ann", "/deny").await;
    denied.is_reached().await;
    gate.open();
    gateway.room().shows("Hm.").await;
    gateway.room().says("@ann", "/approve").await;
    gateway.room().shows("Nothing is waiting for an answer here.").await;
    denied.open();
    upstream.has_requests("/approval", 3).await;
    end.open();
    gateway.room().shows("Then not.").await;
    gateway.room().shows("Denied: the agent server asked for several permissions at once").await;
    assert_eq!(told(&upstream), [json!({ "choice": "deny" }), deny_all(), deny_all()]);
    assert!(!gateway.room().now().contains("/tmp/z"), "{}", gateway.room().now());
}

fn deny_all() -> Value {
    json!({ "choice": "deny", "all": true })
}

#[tokio::test]
async fn of_two_asks_at_once_both_are_denied_and_the_room_is_told() {
    let gate = Gate::new();
    let both =
        [tool_started("delegate_task"), asks("rm -rf /tmp/x", AT), asks("rm -rf /tmp/y", AT + 0.01)].concat();
    let stream = Answer::stream().sends(both).waits(&gate);
    let upstream = with_events(stream.sends(text("Then not.") + &*completed("Then not.")).ends()).await;
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "clean up").await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    gate.open();
    gateway.room().shows("bot   Then not.").await;
    gateway.room().shows("Denied: the agent server asked for several permissions at once").await;
    assert_eq!(told(&upstream), [deny_all()]);
    gateway.room().says("@ann", "/approve").await;
    gateway.room().shows("Nothing is waiting for an answer here.").await;
}

/// As long as the server has not said that nothing is open there, an approval could be for a command that was denied.
#[tokio::test]
async fn until_it_is_known_that_everything_is_denied_nothing_more_is_asked() {
    let (third, denied, end) = (Gate::new(), Gate::new(), Gate::new());
    let both =
        [tool_started("delegate_task"), asks("rm -rf /tmp/x", AT), asks("rm -rf /tmp/y", AT + 0.01)].concat();
    let more = asks("rm -rf /tmp/z", AT + 9.0) + &*text("Hm. ");
    let rest = text("Then not.") + &*completed("Hm. Then not.");
    let stream = Answer::stream().sends(both).waits(&third).sends(more).waits(&end).sends(rest).ends();
    let upstream = with_events(stream).await;
    upstream.answers_at("/v1/runs/run_1", [waits_for_approval(AT + 9.0)]).answers_at(
        "/approval",
        [
            Answer::status(503, ""),
            Answer::bytes("").resets(),
            Answer::status(401, ""),
            Answer::bytes("").waits(&denied).then(Answer::status(200, "{}")),
            Answer::status(409, "{}"),
        ],
    );
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "clean up").await;
    denied.is_reached().await;
    third.open();
    gateway.room().shows("Hm.").await;
    gateway.room().says("@ann", "/approve").await;
    gateway.room().shows("Nothing is waiting for an answer here.").await;
    denied.open();
    upstream.has_requests("/approval", 5).await;
    end.open();
    gateway.room().shows("Then not.").await;
    assert_eq!(told(&upstream), vec![deny_all(); 5]);
    assert!(!gateway.room().now().contains("/tmp/z"), "{}", gateway.room().now());
}

#[tokio::test]
async fn an_ask_without_a_command_is_denied() {
    let gate = Gate::new();
    let upstream = with_events(
        Answer::stream().sends(asks("", AT)).waits(&gate).sends(text("No.") + &*completed("No.")).ends(),
    )
    .await;
    upstream.answers_at("/v1/runs/run_1", [waits_for_approval(AT)]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "clean up").await;
    upstream.has_requests("/approval", 1).await;
    gate.open();
    gateway.room().shows("bot   No.").await;
    assert_eq!((told(&upstream), gateway.room().asked().len()), (choice("deny"), 0));
}

#[tokio::test]
async fn stop_withdraws_the_ask_and_ends_the_run() {
    let gate = Gate::new();
    let upstream = asking(&gate, "").await;
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gateway.room().says("@ann", "/stop").await;
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
    gateway.room().shows("Denied, because it was stopped").await;
    gate.open();
}

#[tokio::test]
async fn an_ask_outlives_the_stream_that_brought_it() {
    let gate = Gate::new();
    let upstream = asking(&gate, "").await;
    let stream = [text("Let me clean up."), tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    upstream.answers_at("/events", [Answer::stream().sends(stream).waits(&gate).closes(), Answer::unknown()]);
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gate.open();
    upstream.has_requests("/v1/runs/run_1", 2).await;
    gateway.room().says("@ann", "/approve").await;
    upstream.has_requests("/approval", 1).await;
    upstream.answers_at("/v1/runs/run_1", [has_completed("All clean.")]);
    gateway.room().shows("bot   All clean.").await;
    assert_eq!((told(&upstream), runs_begun(&upstream)), (choice("once"), 1));
    assert_eq!(gateway.room().asked().len(), 1);
}

/// The next process knows that the run waits, and cannot know for what.
#[tokio::test]
async fn an_ask_that_nobody_could_see_is_denied_and_the_room_is_told() {
    let gate = Gate::new();
    let upstream = asking(&gate, "").await;
    let mut gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gateway.kill().await;
    upstream.answers_at("/events", [Answer::unknown()]);
    gateway.restart().await;
    upstream.has_requests("/approval", 1).await;
    upstream.answers_at("/v1/runs/run_1", [has_completed("Then not.")]);
    let room = gateway.room();
    room.shows(&shown(
        "bot   Then not.\n\nDenied: the agent server asked for permission while the connection",
    ))
    .await;
    assert_eq!(told(&upstream), [deny_all()]);
    assert_eq!(runs_begun(&upstream), 1);
}

/// The ask that people see has timed out there, and the server waits for the answer to another one.
#[tokio::test]
async fn an_unseen_ask_is_denied_although_an_older_one_is_open_here() {
    let gate = Gate::new();
    let upstream = asking(&gate, "").await;
    let stream = [text("Let me clean up."), tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    upstream
        .answers_at("/events", [Answer::stream().sends(stream).waits(&gate).closes(), Answer::unknown()])
        .answers_at("/v1/runs/run_1", [waits_for_approval(AT), waits_for_approval(AT + 70.0)]);
    let gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gate.open();
    upstream.has_requests("/approval", 1).await;
    gateway.room().shows(GONE).await;
    upstream.answers_at("/v1/runs/run_1", [has_completed("Then not.")]);
    gateway.room().shows("Denied: the agent server asked for permission while the connection").await;
    assert_eq!(told(&upstream), [deny_all()]);
}

/// The process that read its events died, and since then something else has happened there.
#[tokio::test]
async fn an_ask_that_may_be_open_after_a_restart_is_denied() {
    let gate = Gate::new();
    let upstream = asking(&gate, "").await;
    let mut gateway = gateway(&upstream).await;
    is_asked(&gateway).await;
    gateway.kill().await;
    let later = json!({ "last_event": "tool.completed", "updated_at": AT + 2.0 });
    upstream
        .answers_at("/events", [Answer::unknown()])
        .answers_at("/v1/runs/run_1", [state("waiting_for_approval", later)]);
    gateway.restart().await;
    upstream.has_requests("/approval", 1).await;
    upstream.answers_at("/v1/runs/run_1", [has_completed("Then not.")]);
    gateway.room().shows("Then not.").await;
    assert_eq!(told(&upstream), [deny_all()]);
}

/// hermes-agent keeps the events of a run that nobody has read yet.
#[tokio::test]
async fn an_ask_that_comes_after_the_break_is_asked() {
    let (gate, second) = (Gate::new(), Gate::new());
    let upstream = with_events(Answer::stream().sends(text("Let me see.")).waits(&gate).closes()).await;
    let rejoined = [tool_started("terminal"), asks("rm -rf /tmp/x", AT)].concat();
    upstream
        .answers_at(
            "/events",
            [
                Answer::stream().sends(text("Let me see.")).waits(&gate).closes(),
                Answer::stream().sends(rejoined).waits(&second).hangs(),
            ],
        )
        .answers_at("/v1/runs/run_1", [waits_for_approval(AT)]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "clean up").await;
    gateway.room().shows("Let me see.").await;
    gate.open();
    gateway.room().is_asked("terminal").await;
    gateway.room().says("@ann", "/approve").await;
    upstream.has_requests("/approval", 1).await;
    upstream.answers_at("/v1/runs/run_1", [has_completed("All clean.")]);
    gateway.room().shows("bot   All clean.").await;
    assert_eq!(told(&upstream), choice("once"));
}
