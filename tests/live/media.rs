//! Pictures and files, encrypted both ways.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::it::upstream::Answer;
use crate::support::person::With;
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// A picture of one pixel.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_reaches_the_agent_with_its_caption() {
    a_picture_reaches_the_agent(With::Nio).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_of_another_client_reaches_the_agent_too() {
    a_picture_reaches_the_agent(With::Mautrix).await;
}

async fn a_picture_reaches_the_agent(with: With) {
    let scene = Scene::with(with).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["A dot."]));

    let dot = BASE64_STANDARD.decode(DOT).unwrap();
    scene.ann.sends_file(&room, "m.image", "dot.png", "what is this?", &dot).await;
    scene.reads(&room, "A dot.").await;

    let asked = scene.upstream.prompt().json().to_string();
    assert!(asked.contains(&format!("data:image/png;base64,{DOT}")), "{asked}");
    assert!(asked.contains("what is this?"), "{asked}");
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_file_is_read_and_anything_else_is_named() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Milk."])).answers(Answer::says(["I cannot hear it."]));

    scene.ann.sends_file(&room, "m.file", "../../list.txt", "", b"buy milk\n").await;
    scene.reads(&room, "Milk.").await;
    scene.ann.sends_file(&room, "m.audio", "voice.ogg", "", b"OggS\0\x02nothing to hear").await;
    scene.reads(&room, "I cannot hear it.").await;

    let prompts = scene.upstream.prompts();
    let (file, voice) = (prompts[0].json().to_string(), prompts[1].json().to_string());
    assert!(file.contains("buy milk") && file.contains("list.txt") && !file.contains("../"), "{file}");
    assert!(voice.contains("voice.ogg"), "{voice}");
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_and_files_of_the_agent_arrive_encrypted() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    let (picture, list) = (format!("![dot](data:image/png;base64,{DOT})"), BASE64_STANDARD.encode("a,b"));
    let list = format!("[list.csv](data:text/csv;base64,{list})");
    scene.upstream.answers(Answer::says([
        "Here it is:\n\n",
        &picture,
        "\n\nAnd ",
        &list,
        ", anything else?",
    ]));

    scene.ann.says(&room, "draw a dot and list it").await;
    for (kind, wanted) in [("m.image", BASE64_STANDARD.decode(DOT).unwrap()), ("m.file", b"a,b".to_vec())] {
        let sent = |shown: &[Shown]| {
            shown.iter().find(|message| message.sender == scene.bot.id && message.kind == kind).cloned()
        };
        let sent = scene.ann.sees(&room, kind, sent).await;
        assert!(sent.encrypted && sent.readable, "{kind}");
        assert_eq!(scene.ann.opens_file(&sent).await, wanted, "{kind}");
    }
    assert!(
        scene.said(&room).iter().all(|message| message.texts.iter().all(|text| !text.contains("base64")))
    );
    scene.ends();
}
