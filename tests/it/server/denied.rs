//! A reader who comes back is told once of each ask that a restart denied, on every stream and whatever they had
//! read.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::scripted::ask;
use crate::support::served::{Served, settings};
use crate::support::stream::{Event, Stream, text_of};

/// An endpoint at which a run is read.
#[derive(Clone, Copy, Debug)]
enum Surface {
    Chat,
    Run,
    Session,
    Response,
}

const ALL: [Surface; 4] = [Surface::Chat, Surface::Run, Surface::Session, Surface::Response];

impl Surface {
    fn asks(self) -> (&'static str, Value) {
        match self {
            Self::Chat | Self::Run => {
                let messages = json!([{ "role": "user", "content": "hi" }]);
                ("/v1/chat/completions", json!({ "messages": messages, "stream": true }))
            }
            Self::Session => ("/api/sessions/s/chat/stream", json!({ "message": "hi" })),
            Self::Response => ("/v1/responses", json!({ "input": "hi", "stream": true })),
        }
    }
}

/// One run, read on one surface.
struct Scene {
    served: Served,
    surface: Surface,
    run: String,
}

impl Scene {
    async fn start(surface: Surface, resumable: bool) -> Self {
        let served = Served::with(Setup { resumable, ..Setup::default() }, settings()).await;
        if let Surface::Session = surface {
            assert_eq!(served.post("/api/sessions", &json!({ "id": "s" })).await.status(), 201);
        }
        Self { served, surface, run: String::new() }
    }

    /// Asks, or reads on after an event.
    async fn reads(&mut self, after: Option<&str>) -> Stream {
        let (path, body) = self.surface.asks();
        let events = format!("/v1/runs/{}/events", self.run);
        let request = match self.surface {
            Surface::Run if !self.run.is_empty() => self.served.request(Method::GET, &events),
            Surface::Chat | Surface::Run | Surface::Session | Surface::Response => {
                self.served.request(Method::POST, path).body(body.to_string())
            }
        };
        let request = request.header("idempotency-key", "k");
        let answer = match after {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        self.run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
        Stream::of(answer)
    }

    /// Waits until this text is stored.
    async fn has_kept(&self, text: &str) {
        let run = talaria::ids::TurnId(self.run.clone());
        let kept = || {
            let run = run.clone();
            self.served.gateway.store().read(move |tx| tx.checkpointed(&run))
        };
        while kept().await.unwrap() != text {
            tokio::task::yield_now().await;
        }
    }

    /// Reads up to the next ask.
    async fn reads_until_asked(&mut self, after: Option<&str>) -> (Stream, Vec<Event>) {
        let mut stream = self.reads(after).await;
        // A run is started first, and then read from its beginning as a stream of events.
        if let (Surface::Run, None) = (self.surface, after) {
            stream = self.reads(None).await;
        }
        let mut seen = vec![stream.next().await];
        while seen.last().unwrap().kind() != "approval.request" {
            seen.push(stream.next().await);
        }
        (stream, seen)
    }
}

/// The ids of the asks that a restart denied.
fn denied(events: &[Event]) -> Vec<String> {
    let responded = events.iter().filter(|event| event.kind() == "approval.responded").map(Event::json);
    let told = responded.map(|told| {
        assert_eq!((&told["choice"], &told["reason"]), (&json!("deny"), &json!("restart")));
        told["approval_id"].as_str().unwrap().to_owned()
    });
    told.collect()
}

fn asked(events: &[Event]) -> String {
    events.last().unwrap().json()["approval_id"].as_str().unwrap().to_owned()
}

/// The number of an event, on the surfaces that count them.
fn number(event: &Event) -> Option<u64> {
    let data: Value = serde_json::from_str(&event.data).ok()?;
    data["seq"].as_u64().or_else(|| data["sequence_number"].as_u64())
}

/// The ids of these events, and `None` for the beginning.
fn ids(events: &[Event]) -> impl Iterator<Item = Option<&str>> {
    [None].into_iter().chain(events.iter().filter_map(|event| event.id.as_deref()).map(Some))
}

/// Comes back after each of these events, and again after each event of the new stream.
async fn each_is_told_once(scene: &mut Scene, seen: &[Event], asks: &[String], text: &str) {
    let surface = scene.surface;
    for after in ids(seen) {
        let rest = scene.reads(after).await.rest().await;
        assert_eq!(denied(&rest), asks, "{surface:?} behind {after:?}: {rest:#?}");
        let known = seen.iter().take_while(|event| Some(event.id.as_deref()) != after.map(Some)).count() + 1;
        let known = if after.is_none() { 0 } else { known };
        assert_eq!(text_of(&seen[..known]) + text_of(&rest).as_str(), text, "{surface:?} behind {after:?}");
        // Numbers continue from one process to the next. After the very first event of a session everything is sent
        // again.
        let last = known.checked_sub(1).map(|last| &seen[last]).filter(|_| after != Some("0"));
        let order: Vec<_> = last.into_iter().chain(&rest).filter_map(number).collect();
        assert!(order.is_sorted_by(|one, next| one < next), "{surface:?} behind {after:?}: {order:?}");
        for (at, event) in rest.iter().enumerate().filter(|(_, event)| event.id.is_some()) {
            let again = scene.reads(event.id.as_deref()).await.rest().await;
            let all = [denied(&rest[..=at]), denied(&again)].concat();
            assert_eq!(all, asks, "{surface:?} behind {after:?} and {:?}", event.id);
        }
    }
}

#[tokio::test]
async fn a_killed_process_answers_through_the_next_one() {
    // A turn that cannot be resumed has ended by the time that its reader comes back.
    let ended = [(Surface::Run, false), (Surface::Response, false)];
    for (surface, resumable) in ALL.map(|surface| (surface, true)).into_iter().chain(ended) {
        let mut scene = Scene::start(surface, resumable).await;
        scene.served.agent().says(["Hel"]).asks("one", "first");
        let (stream, seen) = scene.reads_until_asked(None).await;
        scene.has_kept("Hel").await;
        scene.served.gateway.kill().await;
        drop(stream);
        scene.served.agent().says(["Hel", "lo"]);
        scene.served.restart().await;
        scene.served.gateway.idle().await;
        let text = if resumable { "Hello" } else { "Hel" };
        each_is_told_once(&mut scene, &seen, &[asked(&seen)], text).await;
        assert!(scene.served.gateway.agent_itself().ran().is_empty());
    }
}

#[tokio::test]
async fn a_process_that_ends_as_it_should_leaves_it_to_the_next_one() {
    for surface in ALL {
        let mut scene = Scene::start(surface, true).await;
        scene.served.agent().says(["Hel"]).asks_all([ask("one", "first"), ask("two", "second")]);
        let (mut stream, mut seen) = scene.reads_until_asked(None).await;
        let first = asked(&seen);
        while seen.last().unwrap().kind() != "approval.request" || asked(&seen) == first {
            seen.push(stream.next().await);
        }
        let asks = [first, asked(&seen)];
        scene.served.agent().says(["Hel", "lo"]);
        scene.served.restart().await;
        seen.extend(stream.until_cut().await);
        assert_eq!(denied(&seen), [""; 0], "whoever is cut off cannot have heard all of it");
        scene.served.gateway.idle().await;
        each_is_told_once(&mut scene, &seen, &asks, "Hello").await;
    }
}

#[tokio::test]
async fn over_several_restarts_each_is_said_once() {
    for surface in ALL {
        let mut scene = Scene::start(surface, true).await;
        scene.served.agent().says(["Hel"]).asks("one", "first");
        let (stream, first) = scene.reads_until_asked(None).await;
        scene.served.gateway.kill().await;
        drop(stream);
        scene.served.agent().says(["Hel", "lo"]).asks("two", "second");
        scene.served.restart().await;
        let after = first.last().unwrap().id.clone();
        let (stream, second) = scene.reads_until_asked(after.as_deref()).await;
        assert_eq!(denied(&second), [asked(&first)]);
        scene.served.gateway.kill().await;
        drop(stream);
        scene.served.agent().says(["Hel", "lo", "!"]);
        scene.served.restart().await;
        scene.served.gateway.idle().await;
        // For readers who were there in between, and for those who were not.
        each_is_told_once(&mut scene, &first, &[asked(&first), asked(&second)], "Hello!").await;
        let after = second.last().unwrap().id.clone();
        let rest = scene.reads(after.as_deref()).await.rest().await;
        assert_eq!((denied(&rest), text_of(&rest).as_str()), (vec![asked(&second)], "!"), "{surface:?}");
    }
}
