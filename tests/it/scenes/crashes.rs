//! Power cuts around edits and deletions: whenever a person edits or deletes a question, and whenever the process
//! dies after that, the room finally shows the right messages, once.

use std::time::Duration;

use talaria_platform::{EventId, ShowMode};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

/// A gateway whose agent answers both questions in two pieces, each time it is asked.
async fn gateway(show: ShowMode) -> TestGateway {
    let gateway = TestGateway::with(Setup { show, resumable: true, max_text: 200, ..Setup::default() }).await;
    for _ in 0..4 {
        let pieces = |word: &str| [format!("{word} "), "answer ".repeat(40)];
        for word in ["former", "latter"] {
            let [one, two] = pieces(word);
            gateway.agent().when(word).says_slowly(Duration::from_millis(1500), [&*one, &*two]);
        }
    }
    gateway
}

/// The moments of the edit or deletion and of the crash, counted in changes of the room, on networks with edits and
/// without.
fn moments() -> impl Iterator<Item = (ShowMode, u64, u64)> {
    let shows = [ShowMode::Edit { pause: Duration::from_secs(1) }, ShowMode::Once];
    shows.into_iter().flat_map(|show| {
        let moments = [2, 3, 5, 7, 10, 14].into_iter();
        moments.flat_map(move |then| [1, 2, 3, 4, 6, 8].map(|dies| (show, then, dies)))
    })
}

/// Asks, edits or deletes after so many changes of the room, dies after so many more, and starts again.
async fn think_again(
    gateway: &mut TestGateway,
    then: u64,
    dies: u64,
    again: impl Fn(&Room, &EventId),
) -> String {
    let room = gateway.room();
    let asked = room.posts("@ann", "former", Vec::new());
    gateway.chat().has_changed(then).await;
    again(&room, &asked);
    gateway.chat().has_changed(then + dies).await;
    gateway.kill().await;
    gateway.restart().await;
    gateway.room().settled().await
}

#[tokio::test(start_paused = true)]
async fn an_edited_question_has_one_answer_whenever_the_process_dies() {
    for (show, then, dies) in moments() {
        let mut gateway = gateway(show).await;
        let shown =
            think_again(&mut gateway, then, dies, |room, asked| room.changes("@ann", asked, "latter")).await;
        let whole = gateway.room().ours().concat();
        assert_eq!(whole.matches("answer").count(), 40, "{show:?} {then} {dies}\n{shown}");
        assert!(whole.starts_with("latter") && !whole.contains("former"), "{show:?} {then} {dies}\n{shown}");
        assert!(!shown.contains("bot…"), "{show:?} {then} {dies}\n{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_question_has_no_answer_whenever_the_process_dies() {
    for (show, then, dies) in moments() {
        let mut gateway = gateway(show).await;
        let shown = think_again(&mut gateway, then, dies, |room, asked| room.takes_back("@ann", asked)).await;
        assert!(gateway.room().ours().is_empty(), "{show:?} {then} {dies}\n{shown}");
    }
}
