//! Files that the agent reads and writes through us: in the folder of the session and nowhere else.

use serde_json::{Value, json};

use super::scene::AcpScene;
use super::scripted_agent::{Act, Script};

/// The answers to these requests, in one turn.
async fn asked(scene: &AcpScene, requests: &[(&str, Value)]) -> Vec<Value> {
    let acts = requests.iter().map(|(method, params)| Act::asks(method, params.clone()));
    scene
        .agent
        .plays(&Script::default().turn("go", acts.chain([Act::says(&["I went on."])]).collect::<Vec<_>>()));
    scene.asks("go", "I went on.").await;
    scene.agent.answers()
}

#[tokio::test]
async fn the_folder_of_the_session_is_open_and_everything_else_is_not() {
    let scene = AcpScene::with(Script::default()).await;
    scene.asks("hello", "bot   hello").await;
    let folder = scene.session_folder();
    let inside = folder.join("sub/a.txt");
    std::os::unix::fs::symlink("/etc", folder.join("etc")).unwrap();
    let answers = asked(
        &scene,
        &[
            ("fs/read_text_file", json!({ "path": inside })),
            ("fs/write_text_file", json!({ "path": inside, "content": "one\ntwo\n" })),
            ("fs/read_text_file", json!({ "path": inside, "line": 2, "limit": 1 })),
            ("fs/read_text_file", json!({ "path": "/etc/passwd" })),
            ("fs/read_text_file", json!({ "path": folder.join("etc/passwd") })),
            ("fs/write_text_file", json!({ "path": folder.join("../x"), "content": "x" })),
        ],
    )
    .await;
    // Agents take a file for a new one only with these words.
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("Resource not found"), "{answers:?}");
    assert_eq!((&answers[1]["result"], &answers[2]["result"]), (&json!({}), &json!({ "content": "two\n" })));
    for refused in &answers[3..] {
        assert!(refused["error"]["message"].as_str().unwrap().contains("not allowed"), "{refused}");
    }
    assert_eq!(std::fs::read_to_string(&inside).unwrap(), "one\ntwo\n");
    scene.ends().await;
}
