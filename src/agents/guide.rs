//! The agent that answers while none is configured: it explains what to set, streamed like any answer.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use talaria_platform::{BoxFuture, CancellationToken};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, PreparedTurn, TurnEnd, TurnEvent,
};
use crate::i18n::{TextCatalog, TextKey};
use crate::rules::LiveRules;

/// The address on which Ollama usually listens.
const OLLAMA: &str = "127.0.0.1:11434";

/// Timeout of the search for Ollama. It is on this machine, so it answers at once or not at all.
const LOOK: Duration = Duration::from_millis(500);

/// Most bytes that are read of Ollama's answer.
const ANSWER: u64 = 256 * 1024;

/// The pause between two words: the text shows what a streamed answer looks like.
const WORD: Duration = Duration::from_millis(8);

/// The built-in guide.
#[derive(Debug)]
pub struct GuideAgent {
    /// Rules with the texts of rooms.
    live: Arc<LiveRules>,
}

impl GuideAgent {
    /// A guide that uses the texts in force when it is asked.
    pub fn new(live: Arc<LiveRules>) -> Self {
        Self { live }
    }
}

impl Agent for GuideAgent {
    fn about(&self) -> AgentInfo {
        AgentInfo::new(AgentKind::Guide, TextKey::AgentGuide)
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async { Ok(PreparedTurn::new(turn, "")) })
    }

    fn run_turn<'a>(
        &'a self,
        _turn: &'a AgentTurn,
        _prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            let model = tokio::time::timeout(LOOK, ollama_model(OLLAMA)).await.ok().flatten();
            let text = guide(&self.live.now().words, model.as_deref());
            for word in text.split_inclusive(' ') {
                out.emit(TurnEvent::Text(word));
                tokio::select! {
                    () = tokio::time::sleep(WORD) => {}
                    () = stop.cancelled() => return Ok(TurnEnd::Stopped),
                }
            }
            Ok(TurnEnd::Done)
        })
    }
}

/// The guide's text, in paragraphs; `model` is one that an Ollama on this machine has.
fn guide(words: &TextCatalog, model: Option<&str>) -> String {
    let ollama = model.map(|model| TextKey::GuideOllama.with("address", OLLAMA).with("model", model));
    let paragraphs = [Some(TextKey::GuideArrived.into()), ollama, Some(TextKey::GuideSettings.into())];
    let said: Vec<String> = paragraphs.iter().flatten().map(|phrase| words.say(phrase)).collect();
    said.join("\n\n")
}

/// A model of the Ollama at this address, if there is one.
async fn ollama_model(address: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct OllamaTags {
        models: Vec<OllamaModel>,
    }
    #[derive(Deserialize)]
    struct OllamaModel {
        name: String,
    }
    // One plain request to one fixed address: an HTTP client would be built for nothing else.
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(b"GET /api/tags HTTP/1.0\r\nHost: localhost\r\n\r\n").await.ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER).read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let tags: OllamaTags = serde_json::from_str(body).ok()?;
    let name = tags.models.into_iter().next()?.name;
    // The name goes into a line that people copy to a shell.
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seen(answer: &'static str) -> Option<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 64];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            drop(stream);
        };
        tokio::join!(ollama_model(&address), server).0
    }

    #[tokio::test]
    async fn an_ollama_is_seen_with_its_first_model() {
        let tags =
            "HTTP/1.0 200 OK\r\n\r\n{\"models\":[{\"name\":\"llama3:8b\",\"size\":1},{\"name\":\"b\"}]}";
        assert_eq!(seen(tags).await.as_deref(), Some("llama3:8b"));
        let hostile = "HTTP/1.0 200 OK\r\n\r\n{\"models\":[{\"name\":\"x; rm -rf ~\"}]}";
        for answer in
            [hostile, "HTTP/1.0 404 Not Found\r\n\r\n", "<html>", "HTTP/1.0 200 OK\r\n\r\n{\"models\":[]}"]
        {
            assert_eq!(seen(answer).await, None, "{answer}");
        }
    }

    #[test]
    fn the_guide_names_the_variables_and_an_ollama_it_sees() {
        let plain = guide(&TextCatalog::default(), None);
        for name in
            ["GATEWAY_PROXY_URL", "GATEWAY_PROXY_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "talaria check"]
        {
            assert!(plain.contains(name), "{name}");
        }
        assert!(!plain.contains("Ollama"));
        assert!(guide(&TextCatalog::default(), Some("llama3:8b")).contains("OPENAI_MODEL=llama3:8b"));
    }
}
