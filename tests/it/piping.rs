//! Prompts that a script pipes in: answers come as they are written, and the exit code says whether all were
//! answered.

use std::io::Read as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::binary::Talaria;

use crate::support::upstream::{Answer, DONE, Gate, Nobody, Upstream, delta, finish};

#[tokio::test]
async fn an_answer_is_written_as_it_comes() {
    let upstream = Upstream::plain().await;
    let gate = Gate::new();
    let rest = delta("two.") + &*finish("stop") + DONE;
    upstream.answers(Answer::stream().sends(delta("One, ")).waits(&gate).sends(rest).ends());
    let mut process = Talaria::to(&upstream).starts();
    process.types("count\n");
    process.leaves();
    process.shows("One,").await;
    gate.open();
    process.ended().await.showed("One, two.\n");
}

#[tokio::test]
async fn one_prompt_that_is_not_answered_fails_the_script_and_the_others_are_answered() {
    let upstream = Upstream::plain().await;
    upstream
        .answers(Answer::says(["first"]))
        .answers(Answer::stream().sends(delta("Half an ans")).closes())
        .answers(Answer::says(["third"]));
    let ended = Talaria::to(&upstream).reads("one\ntwo\nthree\n").await;
    ended.failed_with("first\nHalf an ans\nthird\n").said("(cut short: the connection was lost");
}

#[tokio::test]
async fn every_way_of_not_answering_is_seen_by_a_script() {
    let upstream = Upstream::plain().await;
    let refusal = r#"{"error":{"message":"no"}}"#;
    upstream.answers(Answer::status(400, refusal));
    Talaria::to(&upstream).reads("hi\n").await.failed_with("").said("⚠️ Proxy error (400)");

    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says([""]));
    Talaria::to(&upstream).reads("hi\n").await.failed_with("").said("(No response from remote agent)");

    let upstream = Upstream::plain().await;
    Talaria::to(&upstream).reads("/nonsense\n").await.failed_with("").said("There is no command /nonsense");
    let ended = Talaria::to(&upstream).reads("/status\n").await;
    ended.showed("").said("Nothing is running.").said("Asked just now: remote agent server answers.");
    Talaria::to(&upstream).reads("/self-check fails\n").await.failed_with("").said("failed");

    let nobody = Nobody::new();
    let talaria = Talaria::new().var("GATEWAY_PROXY_URL", &nobody.url());
    talaria
        .config("gateway:\n  retry_for: 0s\n")
        .reads("hi\n")
        .await
        .failed_with("")
        .said("connection refused");
}

#[tokio::test]
async fn an_answer_that_is_interrupted_is_not_answered() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::stream().sends(delta("Let me think")).hangs());
    let mut process = Talaria::to(&upstream).starts();
    process.types("hi\n");
    process.shows("Let me think").await;
    process.signal(Signal::INT);
    let ended = process.ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "Let me think\n"), "{}", ended.err);
}

/// Ends like the writer in `talaria | head -1`.
#[tokio::test]
async fn whoever_stops_reading_ends_it_at_once() {
    let upstream = Upstream::plain().await;
    let gate = Gate::new();
    upstream
        .answers(Answer::stream().sends(delta("first line\n")).waits(&gate).sends(delta("and more")).hangs());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut process = Talaria::to(&upstream).starts_writing_to(writer);
    process.types("hi\nagain\n");
    process.leaves();
    tokio::task::spawn_blocking(move || reader.read_exact(&mut [0; 5]).unwrap()).await.unwrap();
    gate.open();
    let ended = process.ended_within(Duration::from_secs(20)).await;
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert_eq!(upstream.prompts().len(), 1);
}

#[tokio::test]
async fn an_agent_with_tools_answers_a_script() {
    let upstream = Upstream::plain().await;
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("note.txt"), "buy milk\n").unwrap();
    upstream
        .answers(Answer::calls("I look.", &[("c1", "read_file", r#"{"path":"note.txt"}"#)]))
        .answers(Answer::says(["Buy milk."]));
    let talaria = Talaria::new().config(&format!(
        "agents: {{helper: {{kind: model, base_url: {}/v1, model: small, workspace: {}, tools: [read_file]}}}}\n",
        upstream.url(),
        workspace.path().display()
    ));
    talaria.reads("what is to do?\n").await.showed("I look.\n\nBuy milk.\n");
    let last = upstream.prompts().pop().unwrap().json();
    let result = last["messages"].as_array().unwrap().last().unwrap().clone();
    assert!(result["content"].as_str().unwrap().contains("buy milk"), "{result}");
}
