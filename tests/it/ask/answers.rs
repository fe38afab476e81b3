//! What is asked, and what is printed.

use std::fs::File;
use std::io::{Read as _, Write as _};

use serde_json::json;

use super::scene::AskScene;
use crate::support::upstream::{Answer, DONE, Gate, delta, finish};

/// A file with this content, to be standard input.
fn input(text: &str) -> File {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(text.as_bytes()).unwrap();
    File::from(std::os::fd::OwnedFd::from(reader))
}

#[tokio::test]
async fn an_answer_is_printed_as_it_grows() {
    let scene = AskScene::start().await;
    let gate = Gate::new();
    let rest = delta("two.") + &*finish("stop") + DONE;
    scene.upstream.answers(Answer::stream().sends(delta("One, ")).waits(&gate).sends(rest).ends());
    let mut process = scene.begins(&["count"]);
    process.shows("One,").await;
    gate.open();
    let ended = process.ended().await;
    ended.showed("One, two.\n");
    assert_eq!(ended.err, "");
}

#[tokio::test]
async fn the_question_is_the_arguments_and_standard_input() {
    let scene = AskScene::start().await;
    for (args, piped, asked) in [
        (&["What", "is", "a relay?"][..], "", "What is a relay?"),
        (&[], "from a pipe\nof two lines\n", "from a pipe\nof two lines"),
        (&["-"], "from a pipe\n", "from a pipe"),
        (&["Anything wrong here?"], "+ a line\n", "Anything wrong here?\n\n+ a line"),
        (&["--", "--json"], "", "--json"),
    ] {
        let args = ["ask"].into_iter().chain(args.iter().copied());
        let ended = scene.talaria.starts_command(args, input(piped)).ended().await;
        ended.showed("ok\n");
        assert_eq!(scene.asked(), asked);
    }
    let before = scene.upstream.prompts().len();
    for piped in ["", " \n"] {
        let ended = scene.talaria.starts_command(["ask"], input(piped)).ended().await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""));
        ended.said("error: there is nothing to ask\n\nhint: write the question: talaria ask '…'");
    }
    assert_eq!(scene.upstream.prompts().len(), before);
}

#[tokio::test]
async fn steps_are_calm_lines_beside_the_answer() {
    let scene = AskScene::start().await;
    let call = json!({ "command": "cat /nowhere" }).to_string();
    scene
        .upstream
        .answers(Answer::calls("I look.\n", &[("c1", "terminal", &call)]))
        .answers(Answer::says(["It is clean."]));
    let ended = scene.asks(["--deny", "look"]).await;
    assert_eq!(ended.out, "I look.\n\n\nIt is clean.\n");
    ended.said("⚙ terminal: cat /nowhere\n");
    scene
        .upstream
        .answers(Answer::calls("", &[("c1", "terminal", &call)]))
        .answers(Answer::says(["It is clean."]));
    let ended = scene.asks(["--deny", "--quiet", "look"]).await;
    assert!(!ended.err.contains('⚙') && ended.err.contains("? denied: --deny says so\n"), "{}", ended.err);
}

#[tokio::test]
async fn a_script_gets_one_document() {
    let scene = AskScene::start().await;
    let usage =
        r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#.to_owned() + "\n\n";
    scene.upstream.answers(Answer::events(delta("Hel") + &*delta("lo") + &*finish("stop") + &*usage + DONE));
    let (code, document) = scene.asks_for_json(&["--session", "talk", "--agent", "helper", "hi"]).await;
    assert_eq!(code, 0, "{document}");
    assert!(document["run_id"].as_str().unwrap().starts_with("run_"));
    assert_eq!(
        document,
        json!({
            "answer": "Hello", "complete": true, "agent": "helper", "session": "talk", "run_id": document["run_id"],
            "stop_reason": "stop", "denied": 0, "remarks": [], "error": null,
            "usage": { "input_tokens": 7, "output_tokens": 2, "total_tokens": 9 },
        })
    );

    scene.upstream.answers(Answer::status(400, r#"{"error":{"message":"no"}}"#));
    let (code, document) = scene.asks_for_json(&["hi"]).await;
    assert_eq!((code, &document["answer"], &document["complete"]), (1, &json!(""), &json!(false)));
    assert_eq!((&document["stop_reason"], &document["error"]["code"]), (&json!("error"), &json!("failed")));
    assert_eq!(document["error"]["exit_code"], 1);
    assert!(document["error"]["message"].as_str().unwrap().contains("(400)"), "{document}");
}

#[tokio::test]
async fn a_session_goes_on_and_without_one_each_question_stands_alone() {
    let scene = AskScene::start().await;
    scene.asks(["--session", "talk", "first"]).await.showed("ok\n");
    scene.asks(["--session", "talk", "second"]).await.showed("ok\n");
    let said: Vec<_> = scene.prompt().iter().map(|message| message["content"].clone()).collect();
    assert_eq!(said, [json!("first"), json!("ok"), json!("second")]);
    let (_, document) = scene.asks_for_json(&["alone"]).await;
    assert_eq!(scene.prompt().len(), 1);
    // The conversation of a question without a session can be continued by the name that it got.
    let session = document["session"].as_str().unwrap();
    scene.asks(["--session", session, "and now?"]).await.showed("ok\n");
    assert_eq!(scene.prompt().len(), 3);
    let ended = scene.asks(["--session", "../x", "hi"]).await;
    assert_eq!(ended.code, 2);
    ended.said("`--session` cannot be \"../x\"");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_not_replaced_by_another_one() {
    let scene = AskScene::start().await;
    scene.asks(["--agent", "helper", "hi"]).await.showed("ok\n");
    let ended = scene.asks(["--agent", "hepler", "hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    ended.said("error: the server has no agent hepler, or this key may not ask it\n\nhint: it has talaria");
    assert_eq!(scene.upstream.prompts().len(), 1);
}

#[tokio::test]
async fn a_part_never_passes_for_a_whole_answer() {
    let scene = AskScene::start().await;
    scene.upstream.answers(Answer::events(delta("Half an ans") + &*finish("length") + DONE));
    let ended = scene.asks(["hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "Half an ans\n"));
    ended.said("error: the answer is cut short: the agent reached its length limit");
    scene.upstream.answers(Answer::stream().sends(delta("Half an ans")).closes());
    let ended = scene.asks(["hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "Half an ans\n"));
    ended.said("error: The answer was cut short: the connection was lost");
    scene.upstream.answers(Answer::says([""]));
    let ended = scene.asks(["hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    ended.said("error: the agent gave no answer");
}

/// Ends like the writer in `talaria ask … | head -1`.
#[tokio::test]
async fn whoever_stops_reading_ends_the_run() {
    let scene = AskScene::start().await;
    let (gate, left) = (Gate::new(), Gate::new());
    let answer = Answer::stream().sends(delta("first line\n")).waits(&gate).sends(delta("and more"));
    scene.upstream.answers(answer.hangs_until_left(&left));
    let (mut reader, writer) = std::io::pipe().unwrap();
    let talaria = crate::support::binary::Talaria::new()
        .var("TALARIA_URL", &scene.address)
        .var("TALARIA_API_KEY_FILE", scene.talaria.home().join("api.key").to_str().unwrap())
        .args(["ask"]);
    let mut process = talaria.starts_writing_to(writer);
    process.types("hi");
    process.leaves();
    tokio::task::spawn_blocking(move || reader.read_exact(&mut [0; 5]).unwrap()).await.unwrap();
    gate.open();
    let ended = process.ended().await;
    assert_eq!(ended.code, 1, "{}", ended.err);
    left.is_reached().await;
}
