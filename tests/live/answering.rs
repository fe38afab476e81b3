//! A person asks in an encrypted chat, and reads the answer while it grows.

use crate::it::upstream::{Answer, DONE, Gate, delta, finish};
use crate::support::person::With;
use crate::support::scene::Scene;
use crate::support::shown::Shown;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_grows_by_edits_for_a_client_on_an_olm_of_its_own() {
    an_answer_grows_by_edits(With::Nio).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_grows_by_edits_for_a_client_on_libolm() {
    an_answer_grows_by_edits(With::Mautrix).await;
}

async fn an_answer_grows_by_edits(with: With) {
    let scene = Scene::with(with).await;
    let room = scene.direct().await;
    let (first, second) = (Gate::new(), Gate::new());
    scene.upstream.answers(
        Answer::stream()
            .sends(delta("The moon is far away. "))
            .waits(&first)
            .sends(delta("Getting there "))
            .waits(&second)
            .sends(delta("takes **three days**.") + finish("stop").as_str() + DONE)
            .ends(),
    );

    let question = scene.ann.says(&room, "how far is the moon?").await;
    grows_to(&scene, &room, "The moon is far away.").await;
    first.open();
    grows_to(&scene, &room, "The moon is far away. Getting there").await;
    second.open();
    let answer = scene.reads(&room, "The moon is far away. Getting there takes **three days**.").await;

    assert!(answer.encrypted && answer.readable && answer.edits() >= 2, "{answer:?}");
    assert_eq!(answer.reply_to, Some(question));
    assert_eq!(answer.kind, "m.text");
    assert_eq!(answer.content["m.mentions"], serde_json::json!({}));
    let html = answer.content["formatted_body"].as_str().unwrap_or_default();
    assert!(html.contains("<strong>three days</strong>"), "{html}");
    let prompt = scene.upstream.messages().remove(0).pop().unwrap();
    assert_eq!(prompt, ("user".to_owned(), "how far is the moon?".to_owned()));
    assert_eq!(scene.said(&room).len(), 1);
    // The person sees a read receipt.
    let read = "SELECT count(*) FROM receipts_linearized WHERE user_id = ?1 AND room_id = ?2
        AND receipt_type = 'm.read' AND event_id = ?3";
    let asked = answer.reply_to.as_ref().unwrap();
    let read: usize =
        scene.homeserver.stored().query_row(read, [&scene.bot.id, &room, asked], |row| row.get(0)).unwrap();
    assert_eq!(read, 1, "a receipt");
    scene.ends();
}

async fn grows_to(scene: &Scene, room: &str, text: &str) {
    let look = |shown: &[Shown]| {
        let mut said = shown.iter().filter(|message| message.sender == scene.bot.id);
        said.any(|message| message.text().trim_end() == text).then_some(())
    };
    scene.ann.sees(room, text, look).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_gives_the_agent_what_is_replied_to() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Apples, pears and plums."])).answers(Answer::says(["Plums."]));

    scene.ann.says(&room, "name some fruit").await;
    let answer = scene.reads(&room, "Apples, pears and plums.").await;
    let question = scene.ann.replies(&room, &answer.id, "which of these are blue?").await;
    let second = scene.reads(&room, "Plums.").await;

    assert_eq!(second.reply_to, Some(question));
    let (_, prompt) = scene.upstream.messages().remove(1).pop().unwrap();
    assert!(
        prompt.contains("Apples, pears and plums.") && prompt.contains("which of these are blue?"),
        "{prompt}"
    );
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_in_a_thread_is_answered_in_it() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Hello."])).answers(Answer::says(["In here."]));

    let root = scene.ann.says(&room, "hello").await;
    scene.reads(&room, "Hello.").await;
    scene.ann.says_in_thread(&room, &root, "where do you answer?").await;
    let answer = scene.reads(&room, "In here.").await;

    assert_eq!(answer.thread, Some(root));
    assert!(answer.encrypted);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_question_is_answered_anew_in_the_same_message() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Two."])).answers(Answer::says(["Four."]));

    let question = scene.ann.says(&room, "what is 1 + 1?").await;
    let before = scene.reads(&room, "Two.").await;
    scene.ann.edits(&room, &question, "what is 2 + 2?").await;
    let after = scene.reads(&room, "Four.").await;

    assert_eq!(before.id, after.id);
    assert_eq!(scene.said(&room).len(), 1);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_question_takes_its_answer_with_it() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Never mind."]));

    let question = scene.ann.says(&room, "something embarrassing").await;
    scene.reads(&room, "Never mind.").await;
    scene.ann.deletes(&room, &question).await;

    let gone = |shown: &[Shown]| {
        shown.iter().any(|message| message.sender == scene.bot.id && message.deleted).then_some(())
    };
    scene.ann.sees(&room, "the answer's end", gone).await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_an_answer_and_keeps_what_was_read() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::stream().sends(delta("Once upon a time there was")).hangs());

    scene.ann.says(&room, "tell me a long story").await;
    grows_to(&scene, &room, "Once upon a time there was").await;
    scene.ann.says(&room, "/stop").await;

    let stopped = |shown: &[Shown]| {
        let text = shown.iter().find(|message| message.sender == scene.bot.id)?.text().to_owned();
        text.contains("(stopped)").then_some(text)
    };
    let text = scene.ann.sees(&room, "the stop", stopped).await;
    assert!(text.starts_with("Once upon a time there was"), "{text}");
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_comes_whole_in_several_messages() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    let lines: Vec<String> =
        (0..900).map(|number| format!("Line {number:04} of a long **answer**.\n\n")).collect();
    scene.upstream.answers(Answer::says(lines.iter().map(String::as_str)));

    scene.ann.says(&room, "write a lot").await;
    let whole = |shown: &[Shown]| {
        let said: Vec<_> = shown.iter().filter(|message| message.sender == scene.bot.id).collect();
        said.last()?.text().contains("Line 0899").then(|| said.into_iter().cloned().collect::<Vec<_>>())
    };
    let parts = scene.ann.sees(&room, "the last line", whole).await;
    assert!(parts.len() > 2 && parts.iter().all(|part| part.encrypted && part.readable), "{}", parts.len());
    let text: String = parts.iter().map(|part| part.text().to_owned() + "\n").collect();
    let found: Vec<_> = text.lines().filter(|line| line.starts_with("Line ")).map(str::to_owned).collect();
    let sent: Vec<_> = lines.iter().map(|line| line.trim_end().to_owned()).collect();
    assert_eq!(found, sent);
    scene.ends();
}
