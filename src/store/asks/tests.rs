use super::*;
use crate::access::PlaceKind;
use crate::agent::{AskOption, OptionKind};
use crate::store::tests::temporary;

fn ask(n: i64) -> AskRow {
    AskRow {
        id: AskId(format!("ask {n}")),
        code: format!("{n}"),
        turn: TurnId("turn".to_owned()),
        session: SessionId("session".to_owned()),
        account: "a".into(),
        place: Place::room("!room"),
        title: "run a command".to_owned(),
        digest: "digest".to_owned(),
        form: AnswerForm::default(),
    }
}

#[tokio::test]
async fn what_is_long_over_goes_while_the_process_runs() {
    let (_folder, store) = temporary();
    let left = store.write(|tx| {
        for n in 1..PRUNE_EACH {
            tx.add_ask(&ask(n), AskPosition::default(), unix_now() + 300)?;
            tx.answer_ask(&ask(n), "@ann", &AskChoice::Deny(DenyReason::Person))?;
        }
        tx.add_grant_in(&ask(1), PlaceKind::Room, GrantScope::Always, "@ann")?;
        // A month passes.
        tx.conn.execute("UPDATE asks SET asked = asked - ?1", [KEPT + 1])?;
        tx.conn.execute("UPDATE grants SET expires = expires - ?1", [KEPT + 1])?;
        tx.add_ask(&ask(PRUNE_EACH), AskPosition::default(), unix_now() + 300)?;
        tx.add_grant_in(&ask(1), PlaceKind::Room, GrantScope::Session, "@ann")?;
        let count = "SELECT (SELECT count(*) FROM asks), (SELECT count(*) FROM grants)";
        Ok(tx.conn.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    });
    assert_eq!(left.await.unwrap(), (1, 1));
}

/// A turn that runs, so that its asks may be answered.
fn add_turn(tx: &Tx<'_>) -> Result<()> {
    tx.conn.execute("INSERT INTO sessions (id, key, created) VALUES ('session', 'key', 0)", [])?;
    tx.conn.execute(
        "INSERT INTO turns (id, session, account, room, event, author, direct, prompt, media, attempt, key, state,
             created)
         VALUES ('turn', 'session', 'a', '!room', '$event', '@ann', 0, 'hi', '[]', 0, 'key', 'streaming', 0)",
        [],
    )?;
    Ok(())
}

/// Every answer but a denial, and an ask that it fits.
fn answers() -> [(AskRow, AskChoice); 3] {
    let option = AskOption { id: "yes".to_owned(), label: "Yes".to_owned(), kind: OptionKind::AllowOnce };
    let options = AnswerForm { options: vec![option], takes_text: false };
    let text = AnswerForm { options: Vec::new(), takes_text: true };
    [
        (ask(1), AskChoice::Allow(GrantScope::Session)),
        (AskRow { form: options, ..ask(2) }, AskChoice::Option("yes".to_owned())),
        (AskRow { form: text, ..ask(3) }, AskChoice::Text("blue".to_owned())),
    ]
}

#[tokio::test]
async fn an_answer_counts_once_and_only_in_time_and_before_a_stop() {
    let (_folder, store) = temporary();
    let checked = store.write(|tx| {
        add_turn(tx)?;
        for (ask, choice) in answers() {
            let place = Place::room("!room");
            assert!(tx.add_ask(&ask, AskPosition::default(), unix_now() + 300)?);
            let open: Vec<_> = tx.open_asks(&ask.account, &place)?.into_iter().map(|open| open.ask).collect();
            assert_eq!(open, std::slice::from_ref(&ask), "the form is read back");
            let expires = |shift: i64| tx.conn.execute("UPDATE asks SET expires = expires + ?1", [shift]);
            expires(-300)?;
            assert!(!tx.answer_ask(&ask, "@ann", &choice)? && tx.open_asks(&ask.account, &place)?.is_empty());
            expires(300)?;
            let stop = |on: bool| tx.conn.execute("UPDATE turns SET stop = ?1", [on]);
            stop(true)?;
            assert!(!tx.answer_ask(&ask, "@ann", &choice)? && tx.open_asks(&ask.account, &place)?.is_empty());
            stop(false)?;
            assert!(tx.answer_ask(&ask, "@ann", &choice)?);
            assert!(!tx.answer_ask(&ask, "@bob", &choice)?, "the second answer");
            assert!(!tx.answer_ask(&ask, "@bob", &AskChoice::Deny(DenyReason::Person))?);
            let answered = AskState::Answered { choice: choice.clone(), by: "@ann".to_owned() };
            assert_eq!(tx.ask_state(&ask.id)?, answered);
            assert!(
                tx.is_answered_so(&ask.id, "@ann", &choice)?
                    && !tx.is_answered_so(&ask.id, "@bob", &choice)?
            );
            for (_, other) in answers().into_iter().filter(|(_, other)| *other != choice) {
                assert!(!tx.is_answered_so(&ask.id, "@ann", &other)?, "{other:?}");
            }
            stop(true)?;
            assert!(!tx.take_ask(&ask.id, &choice)?, "after a stop the agent gets nothing");
            stop(false)?;
            assert!(tx.take_ask(&ask.id, &choice)? && !tx.take_ask(&ask.id, &choice)?);
            assert!(!tx.withdraw_ask(&ask.id, DenyReason::Timeout)?);
            assert_eq!(tx.ask_state(&ask.id)?, AskState::Over);
        }
        let so_far = tx.asks_so_far()?;
        let told = so_far.values().flatten().filter_map(|prior| prior.answered.clone());
        let told: Vec<_> = told.map(|answered| answered.choice).collect();
        assert_eq!(told, answers().map(|(_, choice)| choice), "the next process repeats the answers");
        Ok(())
    });
    checked.await.unwrap();
}

#[tokio::test]
async fn an_ask_is_open_in_its_own_room_and_thread_only() {
    let (_folder, store) = temporary();
    let checked = store.write(|tx| {
        add_turn(tx)?;
        let thread =
            |room: &str, thread: &str| Place { thread: Some(ThreadId::new(thread)), ..Place::room(room) };
        let places =
            [Place::room("!room"), Place::room("!other"), thread("!room", "$1"), thread("!room", "$2")];
        for (n, place) in (1..).zip(&places) {
            tx.add_ask(&AskRow { place: place.clone(), ..ask(n) }, AskPosition::default(), unix_now() + 300)?;
        }
        for (n, place) in (1..).zip(&places) {
            let open: Vec<_> =
                tx.open_asks(&"a".into(), place)?.into_iter().map(|open| open.ask.id).collect();
            assert_eq!(open, [ask(n).id], "{place:?}");
            assert_eq!(tx.open_asks(&"b".into(), place)?, []);
        }
        Ok(())
    });
    checked.await.unwrap();
}

#[tokio::test]
async fn the_next_process_finds_every_ask_that_the_agent_has_no_answer_to() {
    let (_folder, store) = temporary();
    let checked = store.write(|tx| {
        add_turn(tx)?;
        for n in 1..=4 {
            tx.add_ask(&ask(n), AskPosition::default(), unix_now() + 300)?;
        }
        let once = AskChoice::Allow(GrantScope::Once);
        tx.answer_ask(&ask(2), "@ann", &once)?;
        tx.answer_ask(&ask(3), "@ann", &AskChoice::Deny(DenyReason::Person))?;
        tx.answer_ask(&ask(4), "@ann", &once)?;
        tx.take_ask(&ask(4).id, &once)?;
        let left: Vec<_> = tx.left_asks()?.into_iter().map(|ask| ask.id).collect();
        assert_eq!(left, [ask(1).id, ask(2).id]);
        for id in &left {
            assert!(tx.withdraw_ask(id, DenyReason::Restart)?);
        }
        assert_eq!(tx.left_asks()?, []);
        Ok(())
    });
    checked.await.unwrap();
}
