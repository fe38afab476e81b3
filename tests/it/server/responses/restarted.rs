//! A response whose process ended during an ask, continued by sequence number.
//!
//! OpenAI's own clients do not know event ids. They send `starting_after`, or read the whole stream again and skip
//! events without a higher number; and they find an item by its index.

use serde_json::{Value, json};
use talaria::agent::StepState;

use super::asks;
use crate::support::gateway::Setup;
use crate::support::scripted::{Script, ask};
use crate::support::served::{Served, settings};
use crate::support::stream::{Event, Stream};

/// The state that a client builds from the events.
#[derive(Clone, Debug, Default)]
struct Client {
    last: Option<u64>,
    /// The ids of the items, by their indexes.
    items: Vec<String>,
    text: String,
    /// Answered asks, each with its outcome.
    answers: Vec<(String, String)>,
    ended: bool,
}

impl Client {
    fn of(events: &[Event]) -> Self {
        let mut client = Self::default();
        events.iter().for_each(|event| client.hears(event));
        client
    }

    fn hears(&mut self, event: &Event) {
        let data = event.json();
        let number = data["sequence_number"].as_u64();
        assert!(number > self.last, "{number:?} behind {:?}: {data}", self.last);
        self.last = number;
        let kind = data["type"].as_str().unwrap();
        let id = data["item_id"].as_str().or_else(|| data["item"]["id"].as_str()).unwrap_or_default();
        match data["output_index"].as_u64() {
            Some(index) if kind == "response.output_item.added" => {
                assert_eq!(index, self.items.len() as u64, "{data}");
                self.items.push(id.to_owned());
            }
            Some(index) => assert_eq!(self.items[index as usize], id, "{data}"),
            None => {}
        }
        match event.kind().as_str() {
            "response.output_text.delta" => self.text += data["delta"].as_str().unwrap(),
            "response.output_text.done" => assert_eq!(data["text"], self.text),
            "approval.responded" => {
                let reason = data["reason"].as_str().unwrap();
                assert_eq!(data["choice"], if reason == "approved" { "once" } else { "deny" });
                self.answers.push((id.to_owned(), reason.to_owned()));
            }
            "response.completed" => {
                let output = data["response"]["output"].as_array().unwrap();
                let ids: Vec<_> = output.iter().map(|item| item["id"].as_str().unwrap()).collect();
                assert_eq!(ids, self.items);
                self.ended = true;
            }
            _ => {}
        }
    }
}

struct Scene {
    served: Served,
    /// Path at which the response is read again.
    path: String,
}

impl Scene {
    /// Asks with this script, and reads until there were so many asks.
    async fn start(script: impl FnOnce(Script) -> Script, questions: usize) -> (Self, Vec<Event>) {
        let (scene, _, seen) = Self::reading(script, questions).await;
        (scene, seen)
    }

    /// Asks with this script, reads until there were so many asks, and also returns the open stream.
    async fn reading(script: impl FnOnce(Script) -> Script, questions: usize) -> (Self, Stream, Vec<Event>) {
        let served = Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await;
        script(served.agent());
        let body = asks("hi", json!({ "stream": true, "background": true }));
        let mut stream = Stream::of(served.post("/v1/responses", &body).await);
        let seen = until_asked(&mut stream, questions).await;
        let id = seen[0].json()["response"]["id"].as_str().unwrap().to_owned();
        (Self { served, path: format!("/v1/responses/{id}?stream=true") }, stream, seen)
    }

    async fn reads(&self, after: Option<u64>) -> Stream {
        let after = after.map(|number| format!("&starting_after={number}")).unwrap_or_default();
        Stream::of(self.served.get(&format!("{}{after}", self.path)).await)
    }

    /// Kills the process; the next one runs this script.
    async fn dies(&mut self, script: impl FnOnce(Script) -> Script) {
        self.served.gateway.kill().await;
        script(self.served.agent());
        self.served.restart().await;
    }

    /// A person answers an ask.
    async fn answers(&self, seen: &[Event], question: &str, choice: &str) {
        let run = seen.iter().find_map(|event| event.json()["run_id"].as_str().map(str::to_owned)).unwrap();
        let body = json!({ "choice": choice, "approval_id": question });
        let answer = self.served.post(&format!("/v1/runs/{run}/approval"), &body).await;
        assert_eq!(answer.status(), 200);
    }

    /// A client that has read some of these events comes back, and again after each event of the new stream.
    async fn all_is_told_once(&self, seen: &[Event], text: &str, answers: &[(String, String)]) {
        self.served.gateway.idle().await;
        let whole = self.reads(None).await.rest().await;
        for known in 1..=seen.len() {
            let client = Client::of(&seen[..known]);
            let rest = self.reads(client.last).await.rest().await;
            let above = |event: &&Event| event.json()["sequence_number"].as_u64() > client.last;
            let left_out: Vec<Event> = whole.iter().filter(above).cloned().collect();
            assert_eq!(kinds(&left_out), kinds(&rest), "who reads it all and leaves some out hears the same");
            for heard in 0..=rest.len() {
                let mut client = client.clone();
                rest[..heard].iter().for_each(|event| client.hears(event));
                if !client.ended {
                    let rest = self.reads(client.last).await.rest().await;
                    rest.iter().for_each(|event| client.hears(event));
                }
                let Client { text: read, answers: heard_of, ended, .. } = client;
                let heard_of = (read.as_str(), &*heard_of, ended);
                assert_eq!(heard_of, (text, answers, true), "behind {known} and {heard}");
            }
        }
        assert_eq!(Client::of(&whole).answers, answers);
    }
}

async fn until_asked(stream: &mut Stream, questions: usize) -> Vec<Event> {
    let mut seen = Vec::new();
    while asked(&seen).len() < questions {
        seen.push(stream.next().await);
    }
    seen
}

/// The ids of the asks.
fn asked(events: &[Event]) -> Vec<String> {
    let asked = events.iter().filter(|event| event.kind() == "approval.request");
    asked.map(|event| event.json()["item"]["id"].as_str().unwrap().to_owned()).collect()
}

/// The outcomes for asks that a restart denied.
fn denied(questions: &[String]) -> Vec<(String, String)> {
    questions.iter().map(|id| (id.clone(), "restart".to_owned())).collect()
}

/// The kinds of events and their indexes, however the text is cut into deltas.
fn kinds(events: &[Event]) -> Vec<(String, Value)> {
    let mut kinds: Vec<_> =
        events.iter().map(|event| (event.kind(), event.json()["output_index"].clone())).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn a_denial_is_heard_once_and_every_item_keeps_its_index() {
    let begins = |script: Script| script.thinks("Hm. ").says(["Grü"]).step("1", "search", StepState::Done);
    let (mut scene, seen) = Scene::start(|script| begins(script).thinks("So.").asks("one", "first"), 1).await;
    scene.dies(|script| begins(script).thinks("So.").says(["ße"])).await;
    scene.all_is_told_once(&seen, "Grüße", &denied(&asked(&seen))).await;
}

#[tokio::test]
async fn several_questions_are_denied_and_one_that_nothing_came_before() {
    let two = [ask("one", "first"), ask("two", "second")];
    let (mut scene, seen) = Scene::start(|script| script.asks_all(two), 2).await;
    scene.dies(|script| script.thinks("Well.").says(["Hello"])).await;
    scene.all_is_told_once(&seen, "Hello", &denied(&asked(&seen))).await;
}

#[tokio::test]
async fn over_several_restarts_each_denial_is_heard_once() {
    let (mut scene, first) = Scene::start(|script| script.says(["Hel"]).asks("one", "first"), 1).await;
    scene.dies(|script| script.says(["Hel", "lo"]).asks("one", "again")).await;
    let mut client = Client::of(&first);
    let mut stream = scene.reads(client.last).await;
    let second = until_asked(&mut stream, 1).await;
    second.iter().for_each(|event| client.hears(event));
    assert_eq!((client.answers, client.text), (denied(&asked(&first)), "Hello".to_owned()));
    drop(stream);
    scene.dies(|script| script.says(["Hel", "lo", "!"])).await;
    let (seen, all) = ([&*first, &second].concat(), [asked(&first), asked(&second)].concat());
    scene.all_is_told_once(&seen, "Hello!", &denied(&all)).await;
}

/// The agent may be away for long, and a reader should not take the ask for an open one.
#[tokio::test]
async fn a_denial_does_not_wait_for_the_agent_where_nothing_was_told_before() {
    let (mut scene, seen) = Scene::start(|script| script.asks("one", "first"), 1).await;
    scene.dies(|script| script.then_hangs()).await;
    let mut client = Client::of(&seen);
    client.hears(&scene.reads(client.last).await.until("approval.responded").await);
    assert_eq!(client.answers, denied(&asked(&seen)));
}

#[tokio::test]
async fn what_was_answered_before_the_restart_keeps_its_index_too() {
    let begins = |script: Script| script.thinks("Hm. ").says(["Hel"]).asks("one", "first");
    let goes_on = |script: Script| begins(script).thinks("So.").asks("two", "second");
    let (mut scene, mut stream, mut seen) = Scene::reading(goes_on, 1).await;
    let first = asked(&seen).remove(0);
    scene.answers(&seen, &first, "once").await;
    seen.extend(until_asked(&mut stream, 1).await);
    let second = asked(&seen).remove(1);
    // The next run knows the answer, and does not ask again.
    scene.dies(|script| script.thinks("Hm. ").says(["Hel"]).thinks("So.").says(["lo"])).await;
    let answers = [(first, "approved".to_owned()), (second, "restart".to_owned())];
    scene.all_is_told_once(&seen, "Hello", &answers).await;
}

#[tokio::test]
async fn answers_are_told_in_their_order_and_not_in_that_of_the_questions() {
    let two = [ask("one", "first"), ask("two", "second")];
    let script = |script: Script| script.says(["Hel"]).asks_all(two).asks("three", "third");
    let (mut scene, mut stream, mut seen) = Scene::reading(script, 2).await;
    let mut questions = asked(&seen);
    for (question, choice) in [(&questions[1], "deny"), (&questions[0], "once")] {
        let before = seen.len();
        scene.answers(&seen, question, choice).await;
        while !seen[before..].iter().any(|event| event.kind() == "approval.responded") {
            seen.push(stream.next().await);
        }
    }
    seen.extend(until_asked(&mut stream, 1).await);
    questions.extend(asked(&seen).pop());
    scene.dies(|script| script.says(["Hel", "lo"])).await;
    let answers: Vec<_> = [(1, "denied"), (0, "approved"), (2, "restart")]
        .map(|(question, reason)| (questions[question].clone(), reason.to_owned()))
        .into();
    scene.all_is_told_once(&seen, "Hello", &answers).await;
}

/// Only this reader can answer: an ask that they do not see stays unanswered.
#[tokio::test]
async fn who_has_read_further_than_the_next_process_hears_what_that_one_asks() {
    let (mut scene, seen) = Scene::start(|script| script.says(["Hello, you"]).asks("one", "first"), 1).await;
    scene.dies(|script| script.says(["Hello"]).asks("two", "second").asks("three", "third")).await;
    let mut client = Client::of(&seen);
    let mut stream = scene.reads(client.last).await;
    let more = until_asked(&mut stream, 1).await;
    more.iter().for_each(|event| client.hears(event));
    assert_eq!(client.answers, denied(&asked(&seen)));
    let second = asked(&more).remove(0);
    scene.answers(&more, &second, "once").await;
    // Also a client that comes back once more.
    let mut stream = scene.reads(client.last).await;
    let more = until_asked(&mut stream, 1).await;
    more.iter().for_each(|event| client.hears(event));
    assert_eq!((client.items.len(), &client.answers[1].0), (4, &second));
}

#[tokio::test]
async fn as_many_questions_as_a_turn_may_ask_are_told_apart() {
    const MOST: usize = 100;
    // The last ask is one too many: it is refused at once, and so it is no item.
    let questions = |script: Script| (0..=MOST).fold(script, |script, _| script.asks("one", "first"));
    let (mut scene, mut stream, mut seen) = Scene::reading(questions, 1).await;
    for _ in 1..MOST {
        let question = asked(&seen).pop().unwrap();
        scene.answers(&seen, &question, "deny").await;
        seen.extend(until_asked(&mut stream, 1).await);
    }
    scene.dies(|script| script.asks("one", "first").says(["Hello"])).await;
    scene.served.gateway.idle().await;
    let questions = asked(&seen);
    for known in 1..=seen.len() {
        let mut client = Client::of(&seen[..known]);
        scene.reads(client.last).await.rest().await.iter().for_each(|event| client.hears(event));
        let heard_of: Vec<_> = client.answers.iter().map(|(id, _)| id).collect();
        assert_eq!((heard_of, client.text.as_str()), (questions.iter().collect(), "Hello"), "behind {known}");
    }
}
