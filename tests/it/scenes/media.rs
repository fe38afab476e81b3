//! What people attach reaches the agent as a picture, or as a line that says why not.

use talaria_platform::MediaKind;

use crate::support::gateway::TestGateway;
use crate::support::room::file;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand so on";

#[tokio::test(start_paused = true)]
async fn a_picture_goes_to_the_agent_as_one() {
    let gateway = TestGateway::start().await;
    gateway.chat().keeps("cat", PNG);

    gateway.room().brings("@ann", "what is it?", vec![file("cat", MediaKind::Image, "cat.png")]).await;
    gateway.room().settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[0].prompt, "what is it?");
    let [image] = heard[0].images.as_slice() else { panic!("{heard:?}") };
    assert_eq!((image.mime, image.content.as_slice()), ("image/png", PNG));
}

#[tokio::test(start_paused = true)]
async fn a_picture_without_words_is_a_prompt() {
    let gateway = TestGateway::start().await;
    gateway.chat().keeps("cat", PNG);

    gateway.room().brings("@ann", "", vec![file("cat", MediaKind::Image, "cat.png")]).await;
    gateway.room().settled().await;

    assert_eq!(gateway.agent_itself().heard()[0].images.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn other_files_are_named_with_the_reason_why_they_stay_behind() {
    let gateway = TestGateway::start().await;
    gateway.chat().keeps("paper", b"%PDF-1.7");
    gateway.chat().keeps("huge", &[PNG, &[0; 7_000_000]].concat());
    gateway.chat().keeps("liar", b"<svg onload=alert(1)>");
    let files = vec![
        file("paper", MediaKind::File, "paper.pdf"),
        file("huge", MediaKind::Image, "huge.png"),
        file("liar", MediaKind::Image, "a\nliar.png"),
        file("lost", MediaKind::Image, "lost.png"),
    ];

    gateway.room().brings("@ann", "read this", files).await;
    gateway.room().settled().await;

    let heard = gateway.agent_itself().heard();
    insta::assert_snapshot!(heard[0].prompt, @r#"
    read this
    [attached file "paper.pdf": this kind of file is not forwarded]
    [attached file "huge.png": it is too large or could not be fetched]
    [attached file "a liar.png": it is not a picture this gateway knows]
    [attached file "lost.png": it is too large or could not be fetched]
    "#);
    assert!(heard[0].images.is_empty());
}
