//! Programs that misbehave behind this surface: each ends in a clear answer over every path, nothing of it stays, and the
//! server goes on with bounded memory.

use std::time::Duration;

use serde_json::{Value, json};
use talaria::agents::acp::AcpTimes;
use talaria::agents::process::count_children;
use talaria::config::{AcpConfig, ForgeConfig};

use super::scene::ForgeScene;
use crate::acp::scripted_agent::{Act, Script, ScriptedAgent};
use crate::codex::bad_peers::{is_frugal, peak_memory};
use crate::support::gateway::Setup;
use crate::support::served::json;

const MEGABYTE: usize = 1024 * 1024;

/// The ways to ask an agent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskPath {
    /// `POST /sessions/{id}/turn`
    Turn,
    /// `POST /run`
    Run,
}

const PATHS: [AskPath; 2] = [AskPath::Turn, AskPath::Run];

/// What a turn keeps of the agent's own lines, at most.
const LINES: usize = 48 * MEGABYTE;

/// An answer that is too long to be kept.
#[derive(Debug)]
struct LongAnswer {
    status: u16,
    length: usize,
    /// Its first and its last bytes.
    head: String,
    end: String,
}

/// A server whose agent misbehaves.
struct BadPeer {
    scene: ForgeScene,
    agent: ScriptedAgent,
    memory: usize,
}

impl BadPeer {
    async fn playing(script: Script) -> Self {
        Self::as_set(script, Setup::default(), |_, _| {}).await
    }

    /// With a change of the agent's configuration and of its time limits.
    async fn as_set(
        script: Script,
        setup: Setup,
        change: impl Fn(&mut AcpConfig, &mut AcpTimes) + Send + Sync + 'static,
    ) -> Self {
        let (scene, agent) = ForgeScene::acp_as_set(ForgeConfig::default(), setup, script, change).await;
        Self { scene, agent, memory: peak_memory() }
    }

    /// Asks the agent; returns the status and the answer. A session is closed afterwards.
    async fn asks(&self, path: AskPath, prompt: &str) -> (u16, Value) {
        let response = match path {
            AskPath::Run => self.scene.post("/run", &json!({ "prompt": prompt })).await,
            AskPath::Turn => {
                let session = self.scene.begin().await;
                let response = self.scene.turn(&session, prompt).await;
                assert_eq!(self.scene.delete(&format!("/sessions/{session}")).await.status(), 200);
                response
            }
        };
        (response.status().as_u16(), json(response).await)
    }

    /// Asks the agent in vain: the answer is an error with a reason for people, which has these words in it.
    async fn fails(&self, path: AskPath, prompt: &str, reason: &str) -> Value {
        let (status, answer) = self.asks(path, prompt).await;
        let shown = || answer.to_string().chars().take(2_000).collect::<String>();
        assert_eq!((status, &answer["ok"]), (502, &json!(false)), "{path:?}: {}", shown());
        assert_eq!(answer["stop_reason"], "error", "{path:?}: {}", shown());
        let words = answer[if path == AskPath::Run { "error" } else { "detail" }].as_str();
        let words = words.unwrap_or_else(|| panic!("{path:?}: {}", shown()));
        assert!(!words.is_empty() && words.len() <= 200, "{path:?}: {}", shown());
        assert!(words.contains(reason), "{path:?}: {words}");
        answer
    }

    /// Text of an answer.
    fn text(path: AskPath, answer: &Value) -> String {
        if path == AskPath::Run {
            return answer["result"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        }
        let events = answer["events"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let texts = events.iter().filter(|event| event["type"] == "text");
        texts.map(|event| event["content"].as_str().unwrap()).collect()
    }

    /// Asks for a turn with a long answer, which is not kept here: it would count as memory of the server.
    async fn reads_in_pieces(&self, prompt: &str) -> LongAnswer {
        let session = self.scene.begin().await;
        let mut response = self.scene.turn(&session, prompt).await;
        let (status, mut length, mut head, mut end) =
            (response.status().as_u16(), 0, String::new(), String::new());
        while let Some(piece) = response.chunk().await.unwrap() {
            length += piece.len();
            let shown = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
            if head.is_empty() {
                head = shown(&piece[..piece.len().min(300)]);
            }
            end = shown(&piece[piece.len().saturating_sub(300)..]);
        }
        assert_eq!(self.scene.delete(&format!("/sessions/{session}")).await.status(), 200);
        LongAnswer { status, length, head, end }
    }

    async fn leaves_nothing(self, starts: usize) {
        self.leaves_nothing_beyond(0, starts).await;
    }

    /// Others are answered, and of all that was asked here no process, no folder and no memory stays, beyond what a bad peer
    /// may cost and these bytes. `starts` is the number of processes that there were.
    async fn leaves_nothing_beyond(self, bytes: usize, starts: usize) {
        let Self { scene, agent, memory } = self;
        is_frugal(memory + bytes);
        let answer = json(scene.post("/run", &json!({ "prompt": "x", "agent": "proxy" })).await).await;
        assert_eq!((&answer["ok"], &answer["result"]), (&json!(true), &json!("ok")), "{answer}");
        let health = json(scene.get("/healthz").await).await;
        assert_eq!((&health["ok"], &health["open_sessions"]), (&json!(true), &json!(0)), "{health}");
        let home = scene.served.gateway.home().to_owned();
        scene.served.until(async || count_children(&home) == 0).await;
        assert_eq!(agent.processes().len(), starts, "{}", agent.history());
        scene.sweep_after(90_000).await;
        scene.served.until(async || scene.folders().is_empty()).await;
        let open = scene.served.gateway.store().read(|tx| tx.open_app_turns()).await.unwrap();
        assert!(open.is_empty(), "{open:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_no_agent_is_said_to_be_none() {
    for (command, reason) in [
        ("cat", "did not answer when it was started"),
        ("true", "could not be started"),
        ("/nowhere/agent", "not installed"),
    ] {
        let peer = BadPeer::as_set(Script::default(), Setup::default(), move |config, times| {
            config.command = command.to_owned();
            times.initialize = Duration::from_secs(1);
        })
        .await;
        for path in PATHS {
            peer.fails(path, "x", reason).await;
        }
        peer.leaves_nothing(0).await;
    }
}

#[tokio::test]
async fn a_program_that_never_greets_is_ended_in_time() {
    for act in [Act::waits("never"), Act::EndlessLine] {
        let peer = BadPeer::as_set(Script::default().initializing([act]), Setup::default(), |_, times| {
            times.initialize = Duration::from_secs(1);
        })
        .await;
        for path in PATHS {
            peer.fails(path, "x", "").await;
        }
        peer.leaves_nothing(2).await;
    }
}

#[tokio::test]
async fn the_last_words_of_a_program_that_ends_early_are_told_without_its_secrets() {
    let words = "cannot work: no licence, key=sk-proj-0123456789abcdef0123";
    let at_start = Script::default().starting([Act::exits(7, words)]);
    let in_turn = Script::default().turn("x", [Act::says(&["half"]), Act::exits(7, words)]);
    for (script, reason) in [(at_start, "could not be started"), (in_turn, "ended unexpectedly")] {
        let peer = BadPeer::playing(script).await;
        for path in PATHS {
            let answer = peer.fails(path, "x", reason).await;
            assert!(!answer.to_string().contains("sk-proj-0123456789"), "{answer}");
            if path == AskPath::Run {
                assert!(answer["stderr"].as_str().unwrap().contains("no licence"), "{answer}");
            }
        }
        peer.leaves_nothing(2).await;
    }
}

#[tokio::test]
async fn noise_bad_bytes_and_long_lines_are_skipped_and_the_answer_is_whole() {
    let bad_bytes = |text: &[u8]| {
        let mut line =
            br#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#
                .to_vec();
        line.extend_from_slice(text);
        line.extend_from_slice(b"\"}}}}\n");
        line
    };
    let script = Script::default()
        .starting([Act::writes("Welcome!\n\n\u{1b}[2J{\"jsonrpc\": \n"), Act::LongLine(20 * MEGABYTE)])
        .turn(
            "x",
            [
                Act::says(&["Be"]),
                Act::LongLine(20 * MEGABYTE),
                Act::LongMessage(20 * MEGABYTE),
                Act::writes(vec![0xff; 100_000]),
                Act::writes("\n[]\nnull\n7\n{\"id\":77,\"result\":{}}\n{\"method\":7}\n"),
                Act::writes(bad_bytes(b"fo\xffre")),
                Act::says(&[" and after."]),
            ],
        );
    let peer = BadPeer::playing(script).await;
    for path in PATHS {
        let (status, answer) = peer.asks(path, "x").await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(BadPeer::text(path, &answer), "Befo\u{fffd}re and after.");
        assert!(answer.to_string().len() < 10_000, "nothing of the noise is passed on");
    }
    peer.leaves_nothing(2).await;
}

#[tokio::test]
async fn a_line_without_an_end_is_given_up() {
    let peer = BadPeer::playing(Script::default().turn("x", [Act::says(&["Hm"]), Act::EndlessLine])).await;
    for path in PATHS {
        let answer = peer.fails(path, "x", "").await;
        assert_eq!(path == AskPath::Turn, answer["events"][0]["content"] == "Hm", "{answer}");
    }
    peer.leaves_nothing(2).await;
}

#[tokio::test]
async fn a_flood_of_text_ends_at_the_limit_of_a_turn() {
    let script = Script::default().turn("x", [Act::Floods(200_000), Act::Hangs]);
    let setup = Setup { turn_bytes: 300_000, ..Setup::default() };
    let peer = BadPeer::as_set(script, setup, |_, _| {}).await;
    let answer = peer.reads_in_pieces("x").await;
    assert!(answer.length < 64 * MEGABYTE && answer.end.ends_with('}'), "{answer:?}");
    assert!(!answer.head.contains("end_turn"), "it does not pass for the whole: {answer:?}");
    assert_eq!(answer.status, 502, "nobody but we stopped it: {answer:?}");
    let (status, answer) = peer.asks(AskPath::Run, "x").await;
    assert_eq!((status, &answer["ok"]), (502, &json!(false)), "{answer}");
    peer.leaves_nothing_beyond(LINES, 2).await;
}

#[tokio::test]
async fn a_flood_of_large_lines_is_passed_on_as_far_as_an_answer_goes() {
    // 400 MB.
    let floods: Vec<_> = std::iter::repeat_n(Act::LongMessage(4 * MEGABYTE), 100).collect();
    let script = Script::default().turn("x", [floods, vec![Act::says(&["Done."])]].concat());
    let peer = BadPeer::playing(script).await;
    let answer = peer.reads_in_pieces("x").await;
    assert!((20 * MEGABYTE..64 * MEGABYTE).contains(&answer.length), "{answer:?}");
    assert!(answer.status == 200 && answer.end.ends_with(",\"truncated\":true}"), "{answer:?}");
    let (status, answer) = peer.asks(AskPath::Run, "x").await;
    assert_eq!((status, &answer["result"]), (200, &json!("Done.")), "{answer}");
    peer.leaves_nothing_beyond(LINES, 2).await;
}
