//! Scenes at a terminal and in a pipe: they assert what a person or a program sees.

mod scene;

use std::sync::Arc;

use talaria_platform::conformance::{ConformanceWorld as _, MemoryInbox, run_all};
use talaria_platform::{
    AnswerRemark, AuthorTrust, BodyKind, CancellationToken, EventId, MessageBody, MessageId, Place,
    PlaceLifetime, Platform, PlatformErrorKind, SendKey, ShowMode, Signal,
};

use self::scene::{Scene, Style};
use crate::{Console, ConsoleInput, ConsoleTexts};

#[tokio::test]
async fn a_terminal_keeps_the_contract() {
    run_all(async || Scene::terminal(Style::Plain)).await;
}

#[tokio::test]
async fn a_pipe_keeps_the_contract() {
    run_all(async || Scene::lines()).await;
}

#[tokio::test]
async fn an_answer_appears_as_it_is_written() {
    let scene = Scene::terminal(Style::Plain);
    let id = scene.sends("a", growing("The sky")).await;
    scene.edits(&id, growing("The sky is")).await;
    assert_eq!(scene.out(), "The sky is");
    scene.edits(&id, answer("The sky is blue.")).await;
    assert_eq!(scene.out(), "The sky is blue.\n> ");
}

#[tokio::test]
async fn an_answer_that_begins_anew_is_printed_whole() {
    let scene = Scene::terminal(Style::Plain);
    let id = scene.sends("a", growing("The sky")).await;
    scene.edits(&id, answer("No: the sea.\n")).await;
    assert_eq!(scene.out(), "The sky\nNo: the sea.\n> ");
}

#[tokio::test]
async fn a_notice_in_between_does_not_break_the_answer() {
    let scene = Scene::terminal(Style::Plain);
    let id = scene.sends("a", growing("One, ")).await;
    scene.sends("b", MessageBody::new(BodyKind::Notice, "Still here.\nReally.")).await;
    scene.edits(&id, answer("One, two.")).await;
    assert_eq!(scene.out(), "One, \n· Still here.\n  Really.\n> \ntwo.\n> ");
}

#[tokio::test]
async fn notices_are_dimmed_and_questions_marked() {
    let scene = Scene::terminal(Style::Colour);
    scene.sends("a", MessageBody::new(BodyKind::Notice, "Stopped.")).await;
    scene.sends("b", MessageBody::new(BodyKind::Ask, "Delete the file?")).await;
    let dim = |text| format!("\u{1b}[2m{text}\u{1b}[0m");
    assert_eq!(scene.out(), format!("{}{}\n> \n? Delete the file?\n> ", dim("· "), dim("Stopped.")));
}

#[tokio::test]
async fn escapes_are_stripped_and_do_not_disturb_the_growing() {
    let scene = Scene::terminal(Style::Plain);
    let id = scene.sends("a", growing("Look: \u{1b}")).await;
    scene.edits(&id, growing("Look: \u{1b}[31mred\u{202e}")).await;
    scene.edits(&id, answer("Look: \u{1b}[31mred\u{202e} \u{9b}0mend\r")).await;
    assert_eq!(scene.out(), "Look: [31mred 0mend\n> ");
}

#[tokio::test]
async fn typing_is_shown_until_text_comes() {
    let scene = Scene::terminal(Style::Plain);
    for signal in [Signal::Typing(true), Signal::Typing(true), Signal::Read(EventId::from("x"))] {
        scene.console.signal(&place(), signal).await;
    }
    scene.sends("a", growing("Well")).await;
    assert_eq!(scene.out(), "…\u{8} \u{8}Well");
    scene.console.signal(&place(), Signal::Typing(true)).await;
    scene.sends("a", growing("Well")).await;
    assert_eq!(scene.out(), "…\u{8} \u{8}Well");
}

#[tokio::test]
async fn a_chat_reads_like_a_chat() {
    let scene = Scene::terminal(Style::Plain);
    let (running, inbox) = scene.runs();
    scene.shows("> ").await;
    scene.types("\n");
    scene.shows("> \n> ").await;
    scene.types("a plan \\\n");
    scene.shows("\\\n  ").await;
    scene.types("for the week\n");
    let event = scene.hears(&inbox, "a plan \nfor the week").await;
    scene.sends("a", reply(&event, "Rest.")).await;
    scene.types_end();
    running.await.unwrap().unwrap();
    // Sent after `run` has ended: the answer is shown, but no prompt follows.
    scene.sends("b", reply(&event, "And sleep.")).await;
    assert_eq!(
        scene.out(),
        "· Welcome.\n\
         > \n\
         > a plan \\\n  for the week\n\
         Rest.\n\
         > \n\
         And sleep.\n"
    );
}

/// The waiting prompt has got its notice and thus its final message for now, but the answer before it still runs.
#[tokio::test]
async fn leaving_while_one_answer_runs_and_one_waits_is_explained() {
    let scene = Scene::terminal(Style::Plain);
    let (running, inbox) = scene.runs();
    scene.shows("> ").await;
    scene.types("one\n");
    scene.hears(&inbox, "one").await;
    scene.console.signal(&place(), Signal::Typing(true)).await;
    scene.types("two\n");
    let waiting = scene.hears(&inbox, "two").await;
    let noted = MessageBody { reply_to: Some(waiting), ..MessageBody::new(BodyKind::Notice, "Noted.") };
    scene.sends("a", noted).await;
    scene.types_end();
    running.await.unwrap().unwrap();
    assert!(
        scene.out().contains("· Noted.\n> ") && scene.out().contains("· Leaving soon.\n"),
        "{}",
        scene.out()
    );
}

#[tokio::test]
async fn a_word_that_leaves_elsewhere_is_answered_with_what_leaves_here() {
    let scene = Scene::terminal(Style::Plain);
    let (running, inbox) = scene.runs();
    scene.shows("> ").await;
    scene.types("/quit\n");
    scene.shows("· Ctrl-D leaves.\n> ").await;
    scene.types(" /exit \n");
    scene.shows("exit \n· Ctrl-D leaves.\n> ").await;
    scene.types("/quit smoking?\n");
    scene.hears(&inbox, "/quit smoking?").await;
    assert!(inbox.messages("/quit").is_empty() && inbox.messages(" /exit ").is_empty());
    running.abort();

    let pipe = Scene::lines();
    let (running, inbox) = pipe.runs();
    pipe.types("/quit\n");
    pipe.hears(&inbox, "/quit").await;
    running.abort();
}

#[tokio::test]
async fn leaving_early_is_explained() {
    let scene = Scene::terminal(Style::Plain);
    let (running, inbox) = scene.runs();
    scene.shows("> ").await;
    scene.types("hi\n");
    scene.hears(&inbox, "hi").await;
    scene.types_end();
    running.await.unwrap().unwrap();
    assert_eq!(scene.out(), "· Welcome.\n> hi\n· Leaving soon.\n> \n");
}

#[tokio::test]
async fn what_is_silenced_is_not_said() {
    let scene = Scene::quiet();
    let (running, inbox) = scene.runs();
    scene.shows("> ").await;
    scene.types("hi\n");
    scene.hears(&inbox, "hi").await;
    scene.types_end();
    running.await.unwrap().unwrap();
    assert_eq!(scene.out(), "> hi\n");
}

/// As after SIGTERM: reading ends first, and the answer may go on for a while.
#[tokio::test]
async fn an_answer_that_is_not_whole_at_the_end_says_so() {
    let scene = Scene::terminal(Style::Plain);
    let stop = CancellationToken::new();
    let running = scene.console.run(Arc::new(MemoryInbox::new()), stop.clone());
    let id = scene.sends("a", growing("One, ")).await;
    stop.cancel();
    running.await.unwrap();
    scene.edits(&id, growing("One, two")).await;
    scene.sends("b", MessageBody::new(BodyKind::Notice, "Leaving.")).await;
    scene.console.end().await;
    assert_eq!(scene.out(), "One, two\n· Leaving.\n\n(interrupted)\n");

    let colour = Scene::terminal(Style::Colour);
    colour.sends("a", growing("One,\n")).await;
    colour.console.end().await;
    assert_eq!(colour.out(), "One,\n\n\u{1b}[2m(interrupted)\u{1b}[0m\n");
}

#[tokio::test]
async fn nothing_is_said_at_the_end_where_every_answer_is_whole() {
    let scene = Scene::terminal(Style::Plain);
    scene.sends("a", MessageBody { done: false, ..MessageBody::new(BodyKind::Notice, "Working.") }).await;
    let id = scene.sends("b", growing("One, ")).await;
    scene.edits(&id, answer("One, two.")).await;
    let before = scene.out();
    scene.console.end().await;
    assert_eq!(scene.out(), before);

    // In a pipe the core ends the answers that it began.
    let pipe = Scene::lines();
    pipe.sends("a", growing("One, ")).await;
    pipe.console.end().await;
    assert_eq!((pipe.out().as_str(), pipe.err().as_str()), ("One, ", ""));
}

#[tokio::test]
async fn the_person_is_the_verified_owner_of_a_direct_room() {
    let scene = Scene::lines();
    let (_running, inbox) = scene.runs();
    scene.types("hello\n");
    scene.hears(&inbox, "hello").await;
    let event = inbox.messages("hello").remove(0);
    assert_eq!((event.place, event.author.id.as_str()), (scene.place(), "owner"));
    assert!(event.room.direct && event.secure && event.author.trust == AuthorTrust::Verified);
    assert_eq!(event.author.name, None);
}

#[tokio::test]
async fn lines_are_answered_one_after_the_other() {
    let scene = Scene::lines();
    scene.types("one\n\ntwo \\\nthree");
    scene.types_end();
    let (running, inbox) = scene.runs();
    for text in ["one", "two \\", "three"] {
        let event = scene.hears(&inbox, text).await;
        let notice = MessageBody { kind: BodyKind::Notice, done: false, ..reply(&event, "Working.") };
        scene.sends(&format!("notice.{text}"), notice).await;
        assert_eq!(inbox.events().last().unwrap().id, event, "the next line was read too early");
        scene.sends(text, reply(&event, &format!("re: {text}\n\n"))).await;
    }
    running.await.unwrap().unwrap();
    assert_eq!(inbox.events().len(), 3);
    assert_eq!(scene.out(), "re: one\nre: two \\\nre: three\n");
    assert_eq!(scene.err(), "Working.\nWorking.\nWorking.\n");
}

#[tokio::test]
async fn a_refusal_is_a_last_word_too() {
    let scene = Scene::lines();
    scene.types("one\ntwo\n");
    let (_running, inbox) = scene.runs();
    let event = scene.hears(&inbox, "one").await;
    let refusal =
        MessageBody { kind: BodyKind::Notice, ..reply(&event, "The agent is not there. Try again later.") };
    scene.sends("a", refusal).await;
    scene.hears(&inbox, "two").await;
    assert_eq!(
        (scene.out(), scene.err()),
        (String::new(), "The agent is not there. Try again later.\n".into())
    );
}

#[tokio::test]
async fn a_program_gets_an_answer_as_it_is_written() {
    let scene = Scene::lines();
    let id = scene.sends("a", growing("One, ")).await;
    assert_eq!(scene.out(), "One, ");
    scene.sends("b", MessageBody::new(BodyKind::Notice, "Still here.")).await;
    scene.edits(&id, growing("One, two")).await;
    assert_eq!(scene.out(), "One, two");
    scene.edits(&id, answer("One, two, three.\n\n")).await;
    assert_eq!((scene.out().as_str(), scene.err().as_str()), ("One, two, three.\n", "Still here.\n"));
    assert!(!scene.console.is_unanswered());
}

#[tokio::test]
async fn what_the_gateway_says_of_an_answer_is_no_part_of_it() {
    let scene = Scene::lines();
    let id = scene.sends("a", growing("```\nls")).await;
    let remark = Some(AnswerRemark { after: 6, words: "(cut short: it broke off)".into() });
    let whole = "```\nls\n```\n\n(cut short: it broke off)";
    scene.edits(&id, MessageBody { failed: true, remark, ..answer(whole) }).await;
    assert_eq!((scene.out().as_str(), scene.err().as_str()), ("```\nls\n", "(cut short: it broke off)\n"));
    assert!(scene.console.is_unanswered());
}

#[tokio::test]
async fn an_answer_that_turns_out_differently_follows_whole() {
    let scene = Scene::lines();
    let id = scene.sends("a", growing("The sky")).await;
    scene.edits(&id, answer("No: the sea.")).await;
    assert_eq!(
        (scene.out().as_str(), scene.err().as_str()),
        ("The sky\nNo: the sea.\n", "Another answer follows.\n")
    );
}

#[tokio::test]
async fn what_is_refused_or_not_yet_answered_is_unanswered() {
    let scene = Scene::lines();
    scene.types("one\n");
    let (_running, inbox) = scene.runs();
    let event = scene.hears(&inbox, "one").await;
    assert!(scene.console.is_unanswered(), "it is not answered yet");
    scene.sends("a", reply(&event, "Yes.")).await;
    assert!(!scene.console.is_unanswered());
    let refusal =
        MessageBody { failed: true, ..MessageBody::new(BodyKind::Notice, "There is no such command.") };
    scene.sends("b", refusal).await;
    assert!(scene.console.is_unanswered());

    let long = Scene::lines();
    long.types(&format!("{}\nnext\n", "a".repeat(2 * 1024 * 1024)));
    let (_running, inbox) = long.runs();
    let event = long.hears(&inbox, "next").await;
    long.sends("a", reply(&event, "Yes.")).await;
    assert!(long.console.is_unanswered());
}

#[tokio::test]
async fn a_program_gets_every_byte_of_an_answer() {
    let scene = Scene::lines();
    scene.sends("a", answer("\u{1b}[31mred\r\n")).await;
    scene.sends("b", MessageBody::new(BodyKind::Notice, "\u{1b}[31mred")).await;
    assert_eq!((scene.out(), scene.err()), ("\u{1b}[31mred\r\n".into(), "[31mred\n".into()));
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_and_reading_goes_on() {
    let scene = Scene::lines();
    scene.types(&format!("{}\nnext\n", "a".repeat(2 * 1024 * 1024)));
    let (_running, inbox) = scene.runs();
    scene.hears(&inbox, "next").await;
    assert_eq!(scene.err(), "Too long.\n");
    assert_eq!((inbox.events().len(), scene.out().as_str()), (1, ""));
}

#[tokio::test]
async fn a_closed_output_ends_the_platform() {
    let scene = Scene::lines();
    scene.types("one\ntwo\n");
    let (running, inbox) = scene.runs();
    let event = scene.hears(&inbox, "one").await;
    scene.closes_output();
    let sent =
        scene.console.send(&scene.place(), &SendKey::from("a"), &reply(&event, "Nobody reads this.")).await;
    assert_eq!(sent.unwrap_err().kind(), PlatformErrorKind::Fatal);
    assert_eq!(running.await.unwrap().unwrap_err().kind(), PlatformErrorKind::Fatal);
    assert_eq!(inbox.messages("two"), []);
}

#[tokio::test]
async fn without_input_the_console_waits_for_its_end() {
    let console =
        Console::new(ConsoleInput::Nothing, Scene::lines().output(), ConsoleTexts::default()).unwrap();
    let stop = CancellationToken::new();
    let mut running = console.run(Arc::new(MemoryInbox::new()), stop.clone());
    tokio::select! {
        biased;
        _ = &mut running => panic!("ended without being asked"),
        () = tokio::task::yield_now() => stop.cancel(),
    }
    running.await.unwrap();
}

#[tokio::test]
async fn a_message_from_before_a_restart_is_shown_again_rather_than_lost() {
    let scene = Scene::terminal(Style::Plain);
    let old = MessageId::from("from another process");
    scene.edits(&old, growing("Where")).await;
    scene.edits(&old, answer("Where were we?")).await;
    assert_eq!(scene.out(), "Where were we?\n> ");
}

#[tokio::test]
async fn what_ended_at_a_terminal_is_shown_apart_from_the_answers_of_a_pipe() {
    let scene = Scene::lines();
    let terminal = Place::room("console");
    scene.console.send(&terminal, &SendKey::from("a"), &answer("(interrupted)")).await.unwrap();
    assert_eq!((scene.out().as_str(), scene.err().as_str()), ("", "(interrupted)\n"));
}

#[tokio::test]
async fn what_ended_in_another_pipe_is_shown_to_nobody() {
    let old = Place::room("pipe-of-an-earlier-process");
    let (pipe, terminal) = (Scene::lines(), Scene::terminal(Style::Plain));
    for scene in [&pipe, &terminal] {
        assert_eq!(scene.console.lasts(&old), PlaceLifetime::Gone);
        let sent = scene.console.send(&old, &SendKey::from("a"), &answer("(interrupted)")).await.unwrap();
        let edited = scene.console.edit(&old, &sent, &SendKey::from("b"), &answer("(stopped)")).await;
        assert_eq!(edited.is_ok(), scene.console.about().show == ShowMode::Append);
        scene.console.signal(&old, Signal::Typing(true)).await;
        // Sent last, so that anything printed before it has been written.
        scene.console.send(&place(), &SendKey::from("c"), &answer("Hello")).await.unwrap();
        assert!(!(scene.out() + scene.err().as_str()).contains('('), "{}", scene.out());
    }
}

fn place() -> Place {
    Place::room("console")
}

fn answer(text: &str) -> MessageBody {
    MessageBody::new(BodyKind::Answer, text)
}

fn growing(text: &str) -> MessageBody {
    MessageBody { done: false, ..answer(text) }
}

fn reply(to: &EventId, text: &str) -> MessageBody {
    MessageBody { reply_to: Some(to.clone()), ..answer(text) }
}
