//! Forms of an answer on the wire, and what the room shows for each.

use serde_json::json;

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Upstream, delta, event, finish};

/// The text that is shown for an answer, if the turn ended well.
async fn shown(answer: Answer) -> String {
    let upstream = Upstream::plain().await;
    upstream.answers(answer);
    let talaria = Talaria::to(&upstream);
    let ended = talaria.reads("hi\n").await;
    assert_eq!((ended.code, state(&talaria).as_str()), (0, "done"), "{}", ended.err);
    ended.out
}

fn state(talaria: &Talaria) -> String {
    talaria.stored().query_row("SELECT state FROM turns", [], |row| row.get(0)).unwrap()
}

/// Defect 1.
#[tokio::test]
async fn an_answer_is_shown_once() {
    assert_eq!(shown(Answer::says(["The ", "only ", "answer."])).await, "The only answer.\n");
}

/// Defect 3.
#[tokio::test]
async fn a_character_that_is_cut_in_two_arrives_whole() {
    let bytes = delta("Zürich 😀 東京") + DONE;
    let cut = bytes.as_bytes().iter().fold(Answer::stream(), |answer, byte| answer.sends([*byte]));
    assert_eq!(shown(cut.ends()).await, "Zürich 😀 東京\n");
}

/// Defect 4.
#[tokio::test]
async fn data_needs_no_space_and_a_missing_delta_no_end() {
    let stream = [
        delta("One").replace("data: ", "data:"),
        event(&json!({ "choices": [{ "delta": null }] })),
        event(&json!({ "choices": [] })),
        event(&json!({ "choices": [{ "delta": { "content": null, "role": "assistant" } }], "unknown": 1 })),
        delta(" two"),
        "data:[DONE]\n\n".to_owned(),
    ];
    assert_eq!(shown(Answer::events(stream.concat())).await, "One two\n");
}

/// Defect 5. The default idle timeout is longer than this test may take.
#[tokio::test]
async fn done_ends_the_turn_while_the_connection_stays_open() {
    assert_eq!(shown(Answer::stream().sends(delta("At once.") + DONE).hangs()).await, "At once.\n");
}

/// Defect 6, first half.
#[tokio::test]
async fn an_error_in_the_stream_is_no_success() {
    let finish_error = event(&json!({
        "choices": [{ "delta": {}, "finish_reason": "error" }],
        "error": { "message": "Traceback in /srv/secret.py", "type": "server_error" }
    }));
    let finish_unknown = event(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": null }] }));
    for end in [
        finish_error.clone() + DONE,
        finish_error,
        finish("error") + DONE,
        // In the two formats of our own server: today's, and the earlier one with the error as an event after the
        // last chunk.
        finish_unknown
            + &*event(&json!({ "error": { "message": "Traceback in /srv/secret.py", "code": 502 } }))
            + DONE,
        finish("error") + &*event(&json!({ "error": { "message": "Traceback in /srv/secret.py" } })) + DONE,
        finish("stop") + &*event(&json!({ "error": { "message": "Traceback in /srv/secret.py" } })) + DONE,
        event(&json!({ "error": { "message": "Traceback in /srv/secret.py" } })) + DONE,
    ] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::events(delta("Half") + &*end));
        let talaria = Talaria::to(&upstream);
        let ended = talaria.reads("hi\n").await;
        ended.failed_with("Half\n").said("(cut short: the agent reported an error; /retry asks again)\n");
        assert_eq!(state(&talaria), "failed", "{end}");
        assert!(!ended.err.contains("Traceback"), "the server's words are not for people: {}", ended.err);
    }
}

/// The error's code counts wherever it stands in the stream.
#[tokio::test]
async fn an_error_behind_the_last_chunk_explains_it() {
    let error = json!({ "type": "server_error", "code": "context_length_exceeded" });
    let last = json!({ "choices": [{ "delta": {}, "finish_reason": "error" }], "error": error });
    for end in [event(&last), finish("error") + &*event(&json!({ "error": error }))] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::events(delta("Half") + &*end + DONE));
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        let cut = "(cut short: the conversation is too long for the model; /new begins another one)\n";
        ended.failed_with("Half\n").said(cut);
    }
}

/// Defect 6, second half.
#[tokio::test]
async fn a_stream_without_its_end_is_no_success() {
    for answer in
        [Answer::stream().sends(delta("Half")).ends(), Answer::stream().sends(delta("Half")).closes()]
    {
        let upstream = Upstream::plain().await;
        upstream.answers(answer);
        let talaria = Talaria::to(&upstream);
        let ended = talaria.reads("hi\n").await;
        ended.failed_with("Half\n").said("(cut short: ").said(" — /retry runs it again)\n");
        assert_eq!(state(&talaria), "interrupted");
    }
}

#[tokio::test]
async fn a_length_limit_is_said() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::events(delta("Long") + &*finish("length") + DONE));
    let ended = Talaria::to(&upstream).reads("hi\n").await;
    ended.showed("Long\n").said("(cut short: the length limit was reached)\n");
}

/// Defect 7.
#[tokio::test]
async fn thoughts_are_neither_shown_nor_remembered() {
    let upstream = Upstream::plain().await;
    let reasoning = event(&json!({ "choices": [{ "delta": { "reasoning_content": "secret one" } }] }));
    let stream =
        reasoning + &*delta("<th") + &*delta("ink>secret two</thi") + &*delta("nk>\n\nAnswer.") + DONE;
    upstream.answers(Answer::events(stream));
    let ended = Talaria::to(&upstream).reads("hi\nand?\n").await;
    ended.showed("Answer.\nok\n");
    let again = String::from_utf8(upstream.prompts()[1].body.clone()).unwrap();
    assert!(again.contains("Answer.") && !again.contains("secret"), "{again}");
}

#[tokio::test]
async fn an_empty_answer_is_said_to_be_one() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::events(finish("stop") + DONE));
    Talaria::to(&upstream).reads("hi\n").await.failed_with("").said("(No response from remote agent)\n");
    let model = Upstream::plain().await;
    model.answers(Answer::events(finish("stop") + DONE));
    let talaria = Talaria::new().var("OPENAI_BASE_URL", &(model.url() + "/v1")).var("OPENAI_MODEL", "m");
    talaria.reads("hi\n").await.failed_with("").said("(The model said nothing; /retry asks again.)\n");
}

#[tokio::test]
async fn what_a_turn_cost_is_recorded() {
    let upstream = Upstream::idempotent().await;
    let usage = event(&json!({ "choices": [], "usage": { "prompt_tokens": 31, "completion_tokens": 7 } }));
    upstream.answers(Answer::events(delta("Dear.") + &*finish("stop") + &*usage + DONE));
    let talaria = Talaria::to(&upstream);
    talaria.reads("hi\n").await.showed("Dear.\n");
    let cost = talaria.stored().query_row("SELECT input_tokens, output_tokens FROM turns", [], |row| {
        Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))
    });
    assert_eq!(cost.unwrap(), (31, 7));
}
