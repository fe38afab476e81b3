//! While the agent is away the fallback answers: who answers when, what the room shows, and what never happens.

mod restarting;

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{AgentErrorKind, RewindSupport, SessionMessage};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::scripted::{Heard, Scripted};

const NOTHING_RAN: AgentErrorKind = AgentErrorKind::NothingRan { after: None };
const UNKNOWN: AgentErrorKind = AgentErrorKind::Unknown { after: None };

/// Longer than the first pause of the breaker.
const PAUSE: Duration = Duration::from_secs(31);

async fn with_a_stand_in() -> TestGateway {
    with(Setup::default()).await
}

async fn with(setup: Setup) -> TestGateway {
    TestGateway::with(Setup { fallback: true, ..setup }).await
}

fn prompts(agent: &Scripted) -> Vec<String> {
    agent.heard().into_iter().map(|turn| turn.prompt).collect()
}

/// The history of a turn, as the agent got it.
fn told(heard: &Heard) -> Vec<String> {
    heard.history.iter().map(|SessionMessage { role, content, .. }| format!("{role:?}: {content}")).collect()
}

#[tokio::test(start_paused = true)]
async fn where_nothing_ran_the_stand_in_answers_at_once_and_the_room_is_told() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    gateway.stand_in().script().says(["I stand in."]);

    room.says("@ann", "hello?").await;
    let asked = tokio::time::Instant::now();
    room.shows("I stand in.").await;
    assert!(asked.elapsed() < Duration::from_secs(3), "nobody waits for a retry: {:?}", asked.elapsed());

    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    note  The agent is away. Until it is back, model small is asked instead.
    bot   I stand in.
    ");
    assert!(room.history_of_first().iter().all(|text| !text.contains("Trying again")));
    assert_eq!((gateway.agent_itself().heard().len(), gateway.stand_in().heard().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_agent_comes_back_by_itself_and_knows_what_was_said_meanwhile() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();

    room.says("@ann", "one").await;
    room.settled().await;
    gateway.agent_itself().goes_away();
    gateway.stand_in().script().says(["two, said the stand-in"]);
    for text in ["two", "three"] {
        room.says("@ann", text).await;
        room.settled().await;
    }
    gateway.agent_itself().comes_back();
    for text in ["four", "five"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  one
    bot   ok
    @ann  two
    note  The agent is away. Until it is back, model small is asked instead.
    bot   two, said the stand-in
    @ann  three
    bot   ok
    @ann  four
    bot   ok
    note  The agent is back and answers again.
    @ann  five
    bot   ok
    ");
    assert_eq!(prompts(gateway.agent_itself()), ["one", "four", "five"]);
    assert_eq!(prompts(gateway.stand_in()), ["two", "three"]);
    let (first, second) = (gateway.agent_itself().heard(), gateway.stand_in().heard());
    assert_eq!(told(&second[0]), ["User: one", "Assistant: ok"], "the stand-in knows the conversation");
    assert_eq!(
        told(&first[1]),
        [
            "User: one",
            "Assistant: ok",
            "User: two",
            "Assistant: two, said the stand-in",
            "User: three",
            "Assistant: ok"
        ]
    );
    assert_eq!(second[1].session, second[0].session, "the stand-in knows what it said itself");
    assert_ne!(first[1].session, first[0].session, "the history is another one to the upstream");
    assert_eq!(first[2].session, first[1].session, "an ordinary turn changes nothing");
}

/// Each of the two could be an agent that remembers a session by its id.
#[tokio::test(start_paused = true)]
async fn nobody_is_asked_under_an_id_of_which_they_remember_something_else() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    for (number, away) in [false, true, false, true, true, false, false].into_iter().enumerate() {
        match away {
            true => gateway.agent_itself().goes_away(),
            false => gateway.agent_itself().comes_back(),
        }
        room.says("@ann", &number.to_string()).await;
        room.settled().await;
        tokio::time::sleep(PAUSE).await;
    }

    let (first, second) = (gateway.agent_itself().heard(), gateway.stand_in().heard());
    assert_eq!(prompts(gateway.agent_itself()), ["0", "2", "5", "6"]);
    assert_eq!(prompts(gateway.stand_in()), ["1", "3", "4"]);
    for heard in [first, second] {
        for pair in heard.windows(2) {
            // Whoever answered the turn before has the same session as long as nobody else spoke between.
            let went_on = pair[1].history.len() == pair[0].history.len() + 2;
            assert_eq!(pair[1].session == pair[0].session, went_on, "{}", pair[1].prompt);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_told_keeps_its_memory_and_the_room_is_warned() {
    let gateway = with(Setup { rewind: RewindSupport::Impossible, ..Setup::default() }).await;
    let room = gateway.room();

    room.says("@ann", "one").await;
    room.settled().await;
    gateway.agent_itself().goes_away();
    room.says("@ann", "two").await;
    room.settled().await;
    gateway.agent_itself().comes_back();
    room.says("@ann", "three").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   ok
    @ann  two
    note  The agent is away. Until it is back, model small is asked instead.
    bot   ok
    @ann  three
    bot   ok
    note  The agent is back and answers again. It does not know what was said meanwhile.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, heard[0].session);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_went_away_before_it_said_what_it_can_do_keeps_its_memory_too() {
    let gateway = with(Setup { rewind: RewindSupport::Unknown, ..Setup::default() }).await;
    let room = gateway.room();

    room.says("@ann", "one").await;
    room.settled().await;
    gateway.agent_itself().goes_away();
    room.says("@ann", "two").await;
    room.settled().await;
    gateway.agent_itself().comes_back();
    room.says("@ann", "three").await;

    let shown = room.settled().await;
    assert!(shown.ends_with("It does not know what was said meanwhile.\n"), "{shown}");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, heard[0].session);
}

#[tokio::test(start_paused = true)]
async fn each_place_is_told_for_itself() {
    let gateway = with_a_stand_in().await;
    let (here, there) = (gateway.room(), gateway.direct_room("!there"));

    gateway.agent_itself().goes_away();
    here.says("@ann", "one").await;
    here.settled().await;
    gateway.agent_itself().comes_back();
    there.says("@bob", "two").await;
    there.settled().await;
    here.says("@ann", "three").await;

    assert_snapshot!(here.settled().await, @r"
    @ann  one
    note  The agent is away. Until it is back, model small is asked instead.
    bot   ok
    @ann  three
    bot   ok
    note  The agent is back and answers again.
    ");
    assert_snapshot!(there.now(), @r"
    @bob  two
    bot   ok
    ");
}

#[tokio::test(start_paused = true)]
async fn what_may_have_run_is_never_given_to_the_stand_in() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent().then_fails(UNKNOWN, "the connection was lost");
    gateway.agent().says(["Half an ans"]).then_fails(UNKNOWN, "the connection was lost");

    for text in ["one", "two", "three"] {
        room.says("@ann", text).await;
        room.shows(&format!("@ann  {text}")).await;
        gateway.chat().is_quiet(Duration::from_secs(5)).await;
    }

    // Neither before the first byte nor in the middle is a prompt given to the fallback; but two failures in a row
    // show that the agent is away.
    assert_snapshot!(room.now(), @r"
    @ann  one
    note  ⚠️ the connection was lost. It may have run all the same; /retry runs it again.
    @ann  two
    bot   Half an ans
          (cut short: the connection was lost — /retry runs it again)
    @ann  three
    note  The agent is away. Until it is back, model small is asked instead.
    bot   ok
    ");
    assert_eq!(prompts(gateway.agent_itself()), ["one", "two"]);
    assert_eq!(prompts(gateway.stand_in()), ["three"]);
}

#[tokio::test(start_paused = true)]
async fn a_resumable_turn_that_may_have_run_waits_for_its_own_agent() {
    let gateway = with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says(["Once upon "]).then_fails(UNKNOWN, "The connection was lost.");
    for _ in 0..5 {
        gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    }
    gateway.agent().says(["Once upon ", "a time."]);

    room.says("@ann", "tell me a story").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time.
    ");
    assert_eq!(gateway.stand_in().heard().len(), 0);
    let heard = gateway.agent_itself().heard();
    assert!(heard.iter().all(|turn| turn.key == heard[0].key && turn.request == heard[0].request));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_only_busy_is_waited_for() {
    for (seconds, answers) in [(10, "agent"), (11, "stand-in")] {
        let gateway = with_a_stand_in().await;
        let room = gateway.room();
        let busy = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(seconds)) };
        gateway.agent().then_fails(busy, "The agent is busy.");
        gateway.agent().says(["agent"]);
        gateway.stand_in().script().says(["stand-in"]);

        room.says("@ann", "hello?").await;

        let shown = room.settled().await;
        assert!(shown.ends_with(&format!("bot   {answers}\n")), "{seconds} s: {shown}");
        assert_eq!(shown.contains("is away"), answers == "stand-in", "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_reason_to_ask_somebody_else() {
    let gateway = with_a_stand_in().await;
    gateway.agent().then_fails(AgentErrorKind::Refused, "The agent does not know this key.");

    gateway.room().says("@ann", "hello?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  hello?
    note  ⚠️ The agent does not know this key.
    ");
    assert_eq!(gateway.stand_in().heard().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn while_it_is_away_nobody_waits_for_it_and_one_turn_finds_out() {
    let gateway = with_a_stand_in().await;
    let rooms = ["!1", "!2", "!3", "!4"].map(|name| gateway.direct_room(name));
    gateway.agent_itself().goes_away();
    for room in &rooms {
        room.says("@ann", "hello?").await;
        room.shows("bot   ok").await;
    }
    assert_eq!(gateway.agent_itself().questions(), 0, "within the pause it is not even asked");

    tokio::time::sleep(PAUSE).await;
    gateway.agent_itself().comes_back();
    let hanging = gateway.agent().then_hangs().says(["Let me think"]).then_hangs();
    rooms[0].says("@ann", "probe").await;
    hanging.is_hanging().await;
    for room in &rooms[1..] {
        room.says("@ann", "meanwhile").await;
        gateway.chat().is_quiet(Duration::from_secs(5)).await;
    }
    assert_eq!(gateway.agent_itself().questions(), 1);
    assert_eq!(prompts(gateway.agent_itself()), ["probe"], "the others use the stand-in");

    hanging.goes_on();
    rooms[0].shows("Let me think").await;
    rooms[1].says("@ann", "now").await;
    rooms[1].settled().await;
    assert_eq!(prompts(gateway.agent_itself()), ["probe", "now"], "nobody waits for the end of its answer");
    assert_eq!(gateway.agent_itself().questions(), 1, "once it is back nobody asks");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_not_answered_costs_no_turn() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent_itself().goes_away();
    for text in ["one", "two", "three"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_eq!(gateway.agent_itself().questions(), 1);
    assert_eq!(prompts(gateway.stand_in()), ["one", "two", "three"]);
    assert_eq!(room.now().matches("is away").count(), 1, "it is said once:\n{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn when_both_are_away_whoever_is_back_first_answers() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent_itself().goes_away();
    gateway.stand_in().goes_away();

    room.says("@ann", "anybody?").await;
    room.shows("Trying again").await;
    tokio::time::sleep(PAUSE).await;
    gateway.agent_itself().comes_back();

    let shown = room.settled().await;
    assert!(shown.ends_with("bot   ok\n"), "{shown}");
    assert_eq!((gateway.agent_itself().heard().len(), gateway.stand_in().heard().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn it_is_not_said_to_be_back_before_it_has_answered() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    gateway.agent().says(["Let me"]).then_fails(UNKNOWN, "the connection was lost");
    gateway.agent().says(["Here I am."]);
    for text in ["one", "two", "three"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  one
    note  The agent is away. Until it is back, model small is asked instead.
    bot   ok
    @ann  two
    bot   Let me
          (cut short: the connection was lost — /retry runs it again)
    @ann  three
    bot   Here I am.
    note  The agent is back and answers again.
    ");
}

#[tokio::test(start_paused = true)]
async fn status_says_who_answers_now() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    let status = async || {
        room.says("@ann", "/status").await;
        room.settled().await;
        let last = room.ours().pop().unwrap_or_default();
        let mut lines = last.lines().skip(1).map(str::to_owned);
        let agent = lines.next().unwrap_or_default();
        let agent = agent.split(". Session").next().unwrap_or_default().to_owned();
        (agent, lines.next().unwrap_or_default())
    };
    let is = |agent: &str, now: &str| (agent.to_owned(), format!("Asked just now: {now}."));
    let as_ever = is("Agent: scripted", "scripted answers");
    assert_eq!(status().await, as_ever);
    gateway.agent_itself().goes_away();
    for text in ["one", "two"] {
        room.says("@ann", text).await;
        room.shows(&format!("@ann  {text}")).await;
        gateway.chat().is_quiet(Duration::from_secs(5)).await;
    }
    let stands_in = "Agent: model small (fallback, because scripted is away)";
    let away = "scripted is away, and model small answers in its place";
    assert_eq!(status().await, is(stands_in, away));
    gateway.agent_itself().comes_back();
    assert_eq!(status().await, is(stands_in, "scripted answers"));
    room.says("@ann", "three").await;
    room.settled().await;
    assert_eq!(status().await, as_ever);
}

#[tokio::test(start_paused = true)]
async fn stop_ends_the_stand_in_too() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent_itself().goes_away();
    let hanging = gateway.stand_in().script().says(["I stand "]).then_hangs();

    room.says("@ann", "hello?").await;
    hanging.is_hanging().await;
    room.says("@ann", "/stop").await;
    room.settled().await;

    assert!(hanging.was_told_to_stop());
    assert!(room.now().contains("(stopped)"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn when_both_are_down_the_room_is_told_what_was_tried_and_nothing_that_is_untrue() {
    let gateway = with(Setup { retry_for: Duration::ZERO, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    gateway.stand_in().script().then_fails(NOTHING_RAN, "The model cannot be reached.");

    room.says("@ann", "anybody?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  anybody?
    note  The agent is away. Until it is back, model small is asked instead.
    note  ⚠️ The model cannot be reached.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_of_the_stand_in_is_not_called_the_remote_agents() {
    let gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent_itself().goes_away();
    gateway.stand_in().script();
    room.says("@ann", "one").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    note  The agent is away. Until it is back, model small is asked instead.
    bot   (The model said nothing; /retry asks again.)
    ");
}
