//! Attached files.

use std::fs;

use serde_json::json;

use super::scene::AskScene;

/// The first bytes of a picture are enough to be one.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n0000";

#[tokio::test]
async fn pictures_go_as_pictures_and_text_as_text() {
    let scene = AskScene::start().await;
    let home = scene.talaria.home();
    fs::write(home.join("sketch.png"), PICTURE).unwrap();
    fs::write(home.join("plan.md"), "1. dig\n```\n2. sow\n").unwrap();
    let files = ["--file", "plan.md", "--file", "sketch.png"];
    scene.asks(files.into_iter().chain(["Do they fit?"])).await.showed("ok\n");
    let text = "Do they fit?\n[attached file \"plan.md\", as it reads:]\n````\n1. dig\n```\n2. sow\n````";
    assert_eq!(
        scene.prompt().last().unwrap()["content"],
        json!([
            { "type": "text", "text": text },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgowMDAw" } },
        ])
    );
    scene.asks(["--file", "plan.md"]).await.showed("ok\n");
    assert!(scene.asked().ends_with("2. sow\n````"), "{}", scene.asked());
}

#[tokio::test]
async fn what_the_server_would_refuse_is_refused_before_it_is_sent() {
    let scene = AskScene::start().await;
    let home = scene.talaria.home();
    fs::write(home.join("paper.pdf"), b"%PDF-1.7 and so on").unwrap();
    fs::write(home.join("empty"), "").unwrap();
    fs::write(home.join("huge.txt"), "x".repeat(10_000_001)).unwrap();
    let mut picture = PICTURE.to_vec();
    picture.resize(8_000_000, 0);
    fs::write(home.join("large.png"), picture).unwrap();
    for (file, message) in [
        ("nowhere", "error: the file `nowhere` cannot be read: entity not found"),
        (".", "error: the file `.` cannot be read: is a directory"),
        ("paper.pdf", "error: the file `paper.pdf` is neither a picture nor text (application/pdf)"),
        ("empty", "error: the file `empty` is empty"),
        ("huge.txt", "error: the file `huge.txt` is too large\n\nhint: the server takes requests of 10 MB"),
        // Base64 is a third longer.
        (
            "large.png",
            "error: the question has 10.7 MB with its files\n\nhint: the server takes requests of 10 MB",
        ),
    ] {
        let ended = scene.asks(["--file", file, "hi"]).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{file}");
        ended.said(message);
    }
    assert!(scene.upstream.prompts().is_empty());
}
