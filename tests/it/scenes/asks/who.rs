//! Who may answer, and where: every cell of {person} × {place} × {answer}, on an open ask.

use std::time::Duration;

use talaria::access::{AccessLists, AccessPolicy};
use talaria::agent::OptionKind;
use talaria_platform::{IncomingMessage, RoomEventKind};

use super::{outcomes, people};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Asked, Room};
use crate::support::scripted::{ask, choice, option, or_text};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Admin,
    Allowed,
    Stranger,
    /// A person who is listed for direct chats only.
    Direct,
    /// An admin who has left the room.
    Left,
    /// An admin's own program.
    Bot,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Approve,
    Always,
    Deny,
    Cross,
    Tick,
    /// The option that allows once.
    Choose,
    /// The option that allows always.
    ChooseAlways,
    /// Own words.
    Write,
}

const PEOPLE: [Who; 6] = [Who::Admin, Who::Allowed, Who::Stranger, Who::Direct, Who::Left, Who::Bot];
const ANSWERS: [Answer; 8] = [
    Answer::Approve,
    Answer::Always,
    Answer::Deny,
    Answer::Cross,
    Answer::Tick,
    Answer::Choose,
    Answer::ChooseAlways,
    Answer::Write,
];

#[tokio::test(start_paused = true)]
async fn exactly_those_who_may_decide_anything() {
    for direct in [true, false] {
        for thread in [None, Some("$thread")] {
            for who in PEOPLE {
                for answer in ANSWERS {
                    let outcome = cell(direct, thread, who, answer).await;
                    let expected = expected(direct, who, answer);
                    assert_eq!(outcome, expected, "{who:?} {answer:?}, direct {direct}, {thread:?}");
                }
            }
        }
    }
}

/// The expected audit rule of a cell; written down independently of the code that decides.
fn expected(direct: bool, who: Who, answer: Answer) -> Option<&'static str> {
    let may = matches!(who, Who::Admin | Who::Allowed) || (who == Who::Direct && direct);
    match answer {
        Answer::Approve if may => Some("ask once yes"),
        Answer::Always if who == Who::Admin => Some("ask always yes"),
        Answer::Deny | Answer::Cross if may => Some("ask no"),
        Answer::Choose if may => Some("ask allow_once yes"),
        Answer::ChooseAlways if who == Who::Admin => Some("ask allow_always yes"),
        Answer::Write if may => Some("ask text yes"),
        Answer::Approve | Answer::Always | Answer::Deny | Answer::Cross | Answer::Tick => None,
        Answer::Choose | Answer::ChooseAlways | Answer::Write => None,
    }
}

async fn cell(direct: bool, thread: Option<&str>, who: Who, answer: Answer) -> Option<&'static str> {
    let mut rules = people();
    if let AccessPolicy::Listed(AccessLists { direct, .. }) = &mut rules.access {
        *direct = ["@dan:test".into()].into();
    }
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let room = if direct { gateway.room() } else { gateway.shared_room() };
    let room = thread.map_or(room.clone(), |thread| room.thread(thread));
    gateway.agent().asks_all([match answer {
        Answer::Approve | Answer::Always | Answer::Deny | Answer::Cross | Answer::Tick => {
            ask("run a command", "rm -r build")
        }
        Answer::Choose | Answer::ChooseAlways | Answer::Write => or_text(choice(
            "run a command",
            "rm -r build",
            [option("y", "Yes", OptionKind::AllowOnce), option("a", "Ever", OptionKind::AllowAlways)],
        )),
    }]);
    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    gateway.chat().is_quiet(Duration::from_secs(1)).await;
    if who == Who::Left {
        room.leaves("@ada").await;
    }
    let shown = room.ours().len();
    give(&room, &asked, who, answer).await;
    gateway.chat().is_quiet(Duration::from_secs(30)).await;

    let ran = gateway.agent_itself().ran().len();
    let outcome = match &outcomes(&gateway).await[..] {
        [] => None,
        [one] => {
            let known = [
                "ask once yes",
                "ask always yes",
                "ask no",
                "ask allow_once yes",
                "ask allow_always yes",
                "ask text yes",
            ];
            known.into_iter().find(|words| one.starts_with(words))
        }
        more => panic!("{more:?}"),
    };
    let allowed = outcome.is_some_and(|words| words.ends_with("yes"));
    assert_eq!(gateway.agent_itself().answers().len() == 1, outcome.is_some());
    // A text answers, and allows nothing by itself.
    assert_eq!(ran == 1, allowed && answer != Answer::Write);
    let talks = matches!(who, Who::Admin | Who::Allowed) || (who == Who::Direct && direct);
    assert!(talks || room.ours().len() == shown, "{who:?} was told something: {}", room.now());
    outcome
}

async fn give(room: &Room, asked: &Asked, who: Who, answer: Answer) {
    let id = match who {
        Who::Admin | Who::Left | Who::Bot => "@ada",
        Who::Allowed => "@bob",
        Who::Stranger => "@eve",
        Who::Direct => "@dan",
    };
    let said =
        |words: &str| RoomEventKind::Message(IncomingMessage::text(words.replace("CODE", &asked.code)));
    let marked = |mark: &str| RoomEventKind::Reacted { to: asked.message.clone(), mark: mark.to_owned() };
    let mut event = room.event(
        id,
        match answer {
            Answer::Approve => said("/approve CODE"),
            Answer::Always => said("/approve CODE always"),
            Answer::Deny => said("/deny CODE"),
            Answer::Cross => marked("❌"),
            Answer::Tick => marked("✅"),
            Answer::Choose => said("/answer CODE 1"),
            Answer::ChooseAlways => said("/answer CODE ever"),
            Answer::Write => said("/answer CODE only the old one"),
        },
    );
    event.author.bot = who == Who::Bot;
    room.does(event).await;
}
