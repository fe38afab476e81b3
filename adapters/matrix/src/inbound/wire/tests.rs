use serde_json::{Value, json};

use super::*;

fn event(kind: &str, content: Value) -> Value {
    json!({ "type": kind, "event_id": "$1", "sender": "@ann:example.org", "content": content, "unsigned": {"age": 7} })
}

fn what(event: &Value) -> MatrixEventKind {
    read(&event.to_string()).expect("an event").what
}

fn said_in(event: &Value) -> MessageContent {
    match what(event) {
        MatrixEventKind::Said(said) => said,
        other => panic!("no message: {other:?}"),
    }
}

#[test]
fn a_message_says_who_when_and_what() {
    let happening = read(&event("m.room.message", json!({"msgtype": "m.text", "body": "hi"})).to_string());
    let happening = happening.expect("an event");

    assert_eq!(happening.id, "$1");
    assert_eq!(happening.sender, "@ann:example.org");
    assert_eq!(happening.age, Some(7));
    let MatrixEventKind::Said(said) = happening.what else { panic!("no message") };
    assert_eq!(said.message.body(), "hi");
    assert!(said.mentions.is_none() && said.thread.is_none() && said.reply_to.is_none());
}

#[test]
fn a_reply_in_a_thread_counts_only_if_somebody_chose_it() {
    let relates = |falling_back: bool| {
        json!({"msgtype": "m.text", "body": "hi", "m.relates_to": {
            "rel_type": "m.thread", "event_id": "$root", "is_falling_back": falling_back,
            "m.in_reply_to": {"event_id": "$latest"}}})
    };
    let chosen = said_in(&event("m.room.message", relates(false)));
    let fallen_back = said_in(&event("m.room.message", relates(true)));

    assert_eq!(chosen.thread.as_deref().map(EventId::as_str), Some("$root"));
    assert_eq!(chosen.reply_to.as_deref().map(EventId::as_str), Some("$latest"));
    assert_eq!(fallen_back.reply_to, None);
}

#[test]
fn a_replacement_brings_its_new_content() {
    let edit = json!({"msgtype": "m.text", "body": "* new", "m.new_content": {"msgtype": "m.text", "body": "new"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": "$old"}});
    let MatrixEventKind::Edited { of, said } = what(&event("m.room.message", edit)) else {
        panic!("no edit")
    };

    assert_eq!(of, "$old");
    assert_eq!(said.message.body(), "new");
}

#[test]
fn a_redaction_names_its_target_in_either_place() {
    let mut old = event("m.room.redaction", json!({"reason": "oops"}));
    old["redacts"] = json!("$gone");
    let new = event("m.room.redaction", json!({"redacts": "$gone"}));

    let mut both = new.clone();
    both["redacts"] = json!("$gone");
    for event in [old, new.clone(), both] {
        assert!(matches!(what(&event), MatrixEventKind::Deleted { of } if of == "$gone"));
    }
    let mut differ = new;
    differ["redacts"] = json!("$other");
    assert!(matches!(what(&differ), MatrixEventKind::Nothing));
}

#[test]
fn memberships_count_when_somebody_moves() {
    let table = [
        (json!("join"), json!(null), MemberChange::Came),
        (json!("join"), json!("invite"), MemberChange::Came),
        (json!("join"), json!("leave"), MemberChange::Came),
        (json!("join"), json!("join"), MemberChange::Other),
        (json!("leave"), json!("join"), MemberChange::Went),
        (json!("ban"), json!("join"), MemberChange::Went),
        (json!("leave"), json!(null), MemberChange::Went),
        (json!("leave"), json!("invite"), MemberChange::Other),
        (json!("leave"), json!("ban"), MemberChange::Other),
        (json!("invite"), json!(null), MemberChange::Other),
        (json!("knock"), json!(17), MemberChange::Other),
    ];
    for (now, before, expected) in table {
        let mut event = event("m.room.member", json!({"membership": now}));
        event["state_key"] = json!("@bob:example.org");
        event["unsigned"] = json!({"prev_content": {"membership": before}});
        match what(&event) {
            MatrixEventKind::Member { who, change } => {
                assert_eq!((who.as_str(), change), ("@bob:example.org", expected), "{now} after {before}");
            }
            other => panic!("no membership: {other:?}"),
        }
    }
}

#[test]
fn a_ciphertext_says_its_session_and_whether_it_replaces() {
    let sealed = event("m.room.encrypted", json!({"session_id": "S", "ciphertext": "…"}));
    let edit = event(
        "m.room.encrypted",
        json!({"session_id": "S", "m.relates_to": {"rel_type": "m.replace", "event_id": "$1"}}),
    );

    assert!(
        matches!(what(&sealed), MatrixEventKind::Sealed { session: Some(session), edit: false, thread: None } if session == "S")
    );
    assert!(matches!(what(&edit), MatrixEventKind::Sealed { edit: true, .. }));
}

#[test]
fn what_has_the_wrong_shape_says_nothing() {
    let text = |relates: Value| json!({"msgtype": "m.text", "body": "x", "m.relates_to": relates});
    let nothing = [
        event("m.room.message", json!({})),
        event("m.room.message", json!({"msgtype": "m.text"})),
        event("m.room.message", json!({"msgtype": "m.text", "body": 7})),
        event("m.room.message", json!(["m.text"])),
        event(
            "m.room.message",
            json!({"msgtype": "m.text", "body": "x",
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$1"}}),
        ),
        event(
            "m.room.message",
            json!({"m.new_content": {"msgtype": "m.text", "body": "x"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": 9}}),
        ),
        event("m.room.redaction", json!({"redacts": 5})),
        event("m.room.redaction", json!({})),
        event("m.reaction", json!({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$1"}})),
        event(
            "m.reaction",
            json!({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$1",
            "key": "x".repeat(65)}}),
        ),
        event("m.reaction", json!({"m.relates_to": "m.annotation"})),
        event("m.room.member", json!({"membership": "join"})),
        event("m.room.tombstone", json!({"replacement_room": "!new:example.org"})),
        event("org.example.unknown", json!({"body": "x"})),
    ];
    for event in nothing {
        assert!(matches!(what(&event), MatrixEventKind::Nothing), "{event}");
    }
    // Relations that make no sense are ignored; the message stays.
    for relates in [
        json!(null),
        json!("m.thread"),
        json!([1]),
        json!({"rel_type": 1, "event_id": "$1"}),
        json!({"rel_type": "m.thread"}),
        json!({"m.in_reply_to": "$1"}),
        json!({"m.in_reply_to": {"event_id": ""}}),
    ] {
        let said = said_in(&event("m.room.message", text(relates)));
        assert!(said.thread.is_none() && said.reply_to.is_none());
    }
}

#[test]
fn what_is_no_event_is_not_read() {
    for json in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"type": "m.room.message"}"#,
        r#"{"type": "m.room.message", "event_id": "1", "sender": "@ann:example.org"}"#,
        r#"{"type": "m.room.message", "event_id": "$1", "sender": "ann"}"#,
    ] {
        assert!(read(json).is_none(), "{json}");
    }
}

#[test]
fn messages_as_state_and_states_as_messages_say_nothing() {
    let mut state = event("m.room.message", json!({"msgtype": "m.text", "body": "x"}));
    state["state_key"] = json!("");

    assert!(matches!(what(&state), MatrixEventKind::Nothing));
}

#[test]
fn what_was_encrypted_cannot_claim_that_the_room_changed() {
    let mut arrival = event("m.room.member", json!({"membership": "join"}));
    arrival["state_key"] = json!("@bot:example.org");
    let mut upgrade = event("m.room.tombstone", json!({"replacement_room": "!new:example.org"}));
    upgrade["state_key"] = json!("");
    let redaction = event("m.room.redaction", json!({"redacts": "$1"}));
    let message = event("m.room.message", json!({"msgtype": "m.text", "body": "hi"}));

    for forged in [arrival, upgrade, redaction] {
        assert!(!matches!(what(&forged), MatrixEventKind::Nothing), "believed in the clear: {forged}");
        assert!(
            matches!(of(&decrypted(&forged)).expect("an event").what, MatrixEventKind::Nothing),
            "{forged}"
        );
    }
    assert!(matches!(of(&decrypted(&message)).expect("an event").what, MatrixEventKind::Said(_)));
}

fn decrypted(event: &Value) -> TimelineEvent {
    use matrix_sdk::deserialized_responses::{
        AlgorithmInfo, DecryptedRoomEvent, EncryptionInfo, VerificationState,
    };
    use matrix_sdk::ruma::serde::Raw;
    let encryption_info = EncryptionInfo {
        sender: UserId::parse("@ann:example.org").expect("an id"),
        sender_device: None,
        forwarder: None,
        algorithm_info: AlgorithmInfo::MegolmV1AesSha2 {
            curve25519_key: String::new(),
            sender_claimed_keys: std::collections::BTreeMap::new(),
            session_id: None,
        },
        verification_state: VerificationState::Verified,
    };
    let event = Raw::from_json_string(event.to_string()).expect("JSON");
    let encryption_info = std::sync::Arc::new(encryption_info);
    TimelineEvent::from_decrypted(
        DecryptedRoomEvent { event, encryption_info, unsigned_encryption_info: None },
        None,
    )
}
