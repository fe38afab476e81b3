//! What hermes-agent itself does, without our gateway. Our use of its runs and the decision in
//! `.github/decisions/0017-runs-are-chosen.md` rely on it: run these tests first with another version of hermes-agent.

use std::time::Duration;

use serde_json::{Value, json};

use crate::hermes_process::{HermesProcess, KEY};
use crate::scripted_model::{ScriptedModel, answer};

/// Longest wait for the end of a run. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(90);

struct Server {
    model: ScriptedModel,
    hermes: HermesProcess,
    client: reqwest::Client,
}

impl Server {
    async fn start() -> Self {
        let model = ScriptedModel::listen().await;
        let mut hermes = HermesProcess::with_api_server(&model);
        hermes.starts().is_healthy().await;
        Self { model, hermes, client: reqwest::Client::new() }
    }

    async fn gets(&self, path: &str) -> Value {
        let request = self.client.get(self.hermes.url() + path).bearer_auth(KEY);
        request.send().await.unwrap().json().await.unwrap()
    }

    async fn posts(&self, path: &str, session: Option<&str>, body: Value) -> String {
        let mut request = self.client.post(self.hermes.url() + path).bearer_auth(KEY);
        if let Some(session) = session {
            request = request.header("x-hermes-session-id", session);
        }
        let body = body.to_string();
        let request = request.header("content-type", "application/json").body(body);
        request.send().await.unwrap().text().await.unwrap()
    }

    /// Begins a run and returns its id.
    async fn begins(&self, session: &str, input: Value, history: Value) -> String {
        let body =
            json!({ "input": input, "conversation_history": history, "session_id": session, "model": "m" });
        let begun: Value = serde_json::from_str(&self.posts("/v1/runs", None, body).await).unwrap();
        begun["run_id"].as_str().unwrap().to_owned()
    }

    /// The state of a run when it has ended.
    async fn ends(&self, run: &str) -> Value {
        let ends = async {
            loop {
                let state = self.gets(&format!("/v1/runs/{run}")).await;
                if ["completed", "failed", "cancelled"].iter().any(|end| state["status"] == *end) {
                    return state;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ends).await.expect("the run should end")
    }

    async fn runs(&self, session: &str, input: Value, history: Value) -> Value {
        let run = self.begins(session, input, history).await;
        self.ends(&run).await
    }

    /// Asks by the stream of a chat completion, and reads it to its end.
    async fn streams(&self, session: &str, prompt: &str) -> String {
        let messages = json!([{ "role": "user", "content": prompt }]);
        let body = json!({ "model": "m", "stream": true, "messages": messages });
        self.posts("/v1/chat/completions", Some(session), body).await
    }

    /// Role and text of the messages of a session.
    async fn keeps(&self, session: &str) -> Vec<(String, String)> {
        let kept = self.gets(&format!("/api/sessions/{session}/messages")).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kept = kept["data"].as_array().cloned().unwrap_or_default();
        kept.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }
}

fn said(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_kept_in_its_session_and_does_not_read_it() {
    let server = Server::start().await;
    // Kept, so an answer to a request whose response was lost can be found.
    server.runs("s", json!("my name is Ann"), json!([])).await;
    let first = [said("user", "my name is Ann"), said("assistant", &answer("my name is Ann"))];
    assert_eq!(server.keeps("s").await, first);

    // Without a history a run knows nothing of its session. A stream does.
    server.runs("s", json!("what is my name?"), json!([])).await;
    assert_eq!(server.model.last_asked(), ["what is my name?"]);
    server.streams("s", "and now?").await;
    assert_eq!(server.model.last_asked().len(), 5, "{:?}", server.model.last_asked());

    // The history that a run is given is not kept once more.
    let history = json!([
        { "role": "user", "content": "my name is Ann" }, { "role": "assistant", "content": "Hello Ann." },
    ]);
    server.runs("t", json!("and now?"), history).await;
    assert_eq!(server.model.last_asked(), ["my name is Ann", "Hello Ann.", "and now?"]);
    assert_eq!(server.keeps("t").await.len(), 2);
}

/// This is what a run loses against a stream, and why `auto` does not choose it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_cannot_be_given_the_tool_calls_of_earlier_turns() {
    let server = Server::start().await;
    let calls = |message: &Value| message["tool_calls"].is_array();
    let ended = server.runs("s", json!("use a tool"), json!([])).await;
    // The output is only the last message, and the session has the others.
    assert_eq!(ended["output"], answer("use a tool"));
    let kept = server.keeps("s").await;
    assert_eq!(kept[1], said("assistant", "Let me look."), "{kept:?}");

    let call =
        json!({ "id": "call_1", "type": "function", "function": { "name": "terminal", "arguments": "{}" } });
    let history = json!([
        { "role": "user", "content": "use a tool" },
        { "role": "assistant", "content": "Let me look.", "tool_calls": [call] },
        { "role": "tool", "content": "42", "tool_call_id": "call_1" },
        { "role": "assistant", "content": "It is 42." },
    ]);
    server.runs("t", json!("and now?"), history).await;
    let asked = server.model.last_messages();
    assert!(!asked.iter().any(calls), "{asked:?}");
    server.streams("s", "and now?").await;
    let asked = server.model.last_messages();
    assert!(asked.iter().any(calls), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_reach_the_agent_and_leave_a_mark_in_the_session() {
    let server = Server::start().await;
    let url = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
    let parts = json!([
        { "type": "text", "text": "what is it?" }, { "type": "image_url", "image_url": { "url": url } },
    ]);
    server.runs("s", json!([{ "role": "user", "content": parts }]), json!([])).await;
    let asked = server.model.last_asked().pop().unwrap();
    // The scripted model does not say that it sees, so hermes-agent describes the picture to it.
    assert!(asked.starts_with("[The user attached an image.") && asked.ends_with("what is it?"), "{asked}");
    assert_eq!(server.keeps("s").await[0], said("user", "what is it?\n[screenshot]"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_can_approve_a_command_of_a_stream() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let prompt = format!("remove {}", folder.path().display());
    let stream = server.streams("s", &prompt).await;
    assert!(!stream.contains("approval"), "{stream}");
    let kept = server.keeps("s").await;
    assert!(kept.iter().any(|(role, text)| role == "tool" && text.contains("pending_approval")), "{kept:?}");
    assert!(folder.path().exists());
}

/// So its approvals hold once, and one with a mask is shown with a warning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_of_a_run_hides_what_looks_like_a_secret_and_names_no_folder() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let prompt = format!("with a token remove {}", folder.path().display());
    let run = server.begins("s", json!(prompt), json!([])).await;
    let request = server.client.get(format!("{}/v1/runs/{run}/events", server.hermes.url())).bearer_auth(KEY);
    let (mut events, mut read) = (request.send().await.unwrap(), Vec::new());
    let asked = async {
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(ask) = lines.find(|line| line.contains("approval.request")) {
                return serde_json::from_str::<Value>(ask.trim_start_matches("data:")).unwrap();
            }
            read.extend_from_slice(&events.chunk().await.unwrap().expect("the run should ask"));
        }
    };
    let ask = tokio::time::timeout(PATIENCE, asked).await.expect("the run should ask");
    let command = ask["command"].as_str().unwrap();
    assert!(command.starts_with("API_TOKEN=*** rm -rf "), "{ask}");
    let folders = ["cwd", "workdir", "folder"].map(|name| ask[name].is_null());
    assert_eq!(folders, [true; 3], "{ask}");
    server.posts(&format!("/v1/runs/{run}/approval"), None, json!({ "choice": "deny" })).await;
    server.ends(&run).await;
    assert!(folder.path().exists());
}

/// The messages between the parts of such an answer are hermes-agent's own, in the role of a person.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_a_limit_cuts_again_and_again_is_called_completed() {
    let server = Server::start().await;
    let ended = server.runs("s", json!("cut it"), json!([])).await;
    let kept = server.keeps("s").await;
    assert_eq!(
        (&ended["status"], &kept[0]),
        (&json!("completed"), &said("user", "cut it")),
        "{ended} {kept:?}"
    );
    let own = |(role, text): &(String, String)| role == "user" && text.starts_with("[System: ");
    assert!(kept.iter().any(own), "{ended} {kept:?}");
}

/// hermes-agent 0.19.0 looks for the socket in a connection pool that its client does not use. A model that goes on speaking
/// is left at its next word; see `runs::stop_ends_the_model_call_of_an_answer_that_comes`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_run_ends_at_once_and_leaves_the_connection_to_a_silent_model_open() {
    let server = Server::start().await;
    server.runs("warm-up", json!("hello"), json!([])).await;
    let prompt = "count 20, hold after 0";
    let run = server.begins("s", json!(prompt), json!([])).await;
    server.model.is_held(prompt).await;
    server.posts(&format!("/v1/runs/{run}/stop"), None, json!({})).await;
    assert_eq!(server.ends(&run).await["status"], "cancelled");
    // A run that is over is not found again.
    assert!(server.posts(&format!("/v1/runs/{run}/stop"), None, json!({})).await.contains("run_not_found"));
    server.runs("t", json!("are you there?"), json!([])).await;
    assert_eq!(
        server.model.left(),
        0,
        "a later version that leaves is better: change .github/docs/hermes.md"
    );
    server.model.goes_on();
    server.hermes.runs_nothing().await;
    assert_eq!(
        server.keeps("s").await,
        [said("user", prompt)],
        "what the model said later counts for nothing"
    );
}
