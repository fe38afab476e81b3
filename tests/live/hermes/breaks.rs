//! Breaks in the middle of an answer. A run goes on without a reader, so if only the gateway dies or the wire is cut, the
//! room shows the whole answer. If hermes-agent itself dies, the room shows the whole answer or marks it as cut, never a
//! part as the whole; `/retry` then brings the whole answer.
//!
//! Twenty breaks of the first kinds; a hundred with `TALARIA_TESTS=full`.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scene::{AUTO, RUNS, Scene, Way};
use crate::scripted_model::answer;

/// Within this time after hermes-agent is back, a room must show the outcome.
const CLEAR: Duration = Duration::from_secs(10);

/// The mark at the end of an answer that is not whole.
const MARKS: [&str; 2] = [
    "\n\n(interrupted — /retry runs it again)",
    "\n\n(cut short: the connection was lost — /retry runs it again)",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    GatewayKilled,
    GatewayStopped,
    HermesKilled,
    WireCut,
}

/// Pieces of the answer before the break.
const MOMENTS: [usize; 10] = [4, 1, BEFORE_TOOL, 25, 0, 50, 2, 59, 12, 37];

/// The moment between the words before a tool call and the call.
const BEFORE_TOOL: usize = usize::MAX;

/// Pieces of the answer before the break, when hermes-agent has stored the question, which it does before its first
/// words. Where no connection is refused, only that tells a restart from a slow agent; without it the room waits for
/// up to two minutes.
const STORED_MOMENTS: [usize; 5] = [4, 1, 25, 50, BEFORE_TOOL];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_gateway_dies_the_whole_answer_comes() {
    breaks(RUNS, Way::Direct, &[Break::GatewayKilled, Break::GatewayStopped], &MOMENTS, 12, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_wire_is_cut_the_whole_answer_comes() {
    breaks(RUNS, Way::Wire, &[Break::WireCut], &MOMENTS, 8, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_hermes_dies_no_part_is_shown_as_the_whole_and_the_room_is_free_within_seconds() {
    breaks(RUNS, Way::Direct, &[Break::HermesKilled], &MOMENTS, 1, 5).await;
}

/// The wire accepts connections even while hermes-agent is away, so no connection is ever refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_hermes_dies_behind_a_relay_the_room_is_free_within_seconds_too() {
    breaks(RUNS, Way::Wire, &[Break::HermesKilled], &STORED_MOMENTS, 1, 5).await;
}

/// The default. No break may pass for a whole answer here either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_streams_no_part_is_shown_as_the_whole() {
    let kinds = [Break::GatewayKilled, Break::GatewayStopped, Break::WireCut, Break::HermesKilled];
    breaks(AUTO, Way::Wire, &kinds, &STORED_MOMENTS, 4, 20).await;
}

async fn breaks(upstream: &str, way: Way, kinds: &[Break], moments: &[usize], few: usize, many: usize) {
    let began = Instant::now();
    let mut scene = Scene::start_with(way, upstream).await;
    scene.is_answered("warm-up", "hello").await;
    let (mut whole, mut cut) = (0, 0);
    let breaks = if full() { many } else { few };
    for number in 0..breaks {
        let kind = kinds[number % kinds.len()];
        let moment = moments[number / kinds.len() % moments.len()];
        let uses_tool = moment == BEFORE_TOOL || number % 3 == 2;
        let hold = match moment {
            BEFORE_TOOL => "hold before the tool".to_owned(),
            pieces => format!("hold after {pieces}"),
        };
        let tool = if uses_tool { "use a tool and " } else { "" };
        let prompt = format!("{tool}count 60, {hold} (number {number})");
        let room = format!("room-{number}");
        scene.model.holds();
        let question = scene.asks(&room, &prompt);
        scene.model.is_held(&prompt).await;
        match moment {
            0 => {}
            1 => scene.shows(&question, "My answer").await,
            BEFORE_TOOL => scene.shows(&question, "Let me look").await,
            _ => scene.shows(&question, "part").await,
        }
        let back = kind.happens(&mut scene, number % 2 == 0).await;
        let shown = scene.ends(&question).await;
        if let Some(back) = back {
            assert!(back.elapsed() < CLEAR, "the room is blocked for {:?}\n{scene}", back.elapsed());
        }
        let text = if uses_tool { format!("Let me look.\n\n{}", answer(&prompt)) } else { answer(&prompt) };
        // While it is streamed, hermes-agent has a space in front of the empty line.
        let shown = shown.replace("look. \n", "look.\n");
        let part = MARKS.iter().find_map(|mark| shown.strip_suffix(mark));
        match part {
            _ if shown == text => whole += 1,
            // The reader of a run may leave. hermes-agent interrupts a stream that loses its reader.
            _ if kind != Break::HermesKilled && upstream == RUNS => {
                panic!("{kind:?} after {moment}: {shown:?}\n{scene}")
            }
            // hermes-agent itself stores this text when it is interrupted.
            Some(part) if text.starts_with(part.trim_end()) || part.starts_with("Operation interrupted") => {
                cut += 1
            }
            None if shown.starts_with('⚠') && shown.contains("/retry runs it again") => cut += 1,
            None if MARKS.contains(&format!("\n\n{shown}").as_str()) => cut += 1,
            Some(_) | None => panic!("{kind:?} after {moment}: {shown:?}\n{scene}"),
        }
        if shown != text {
            let again = scene.asks(&room, "/retry");
            let shown = scene.ends(&again).await;
            assert!(shown.ends_with(&answer(&prompt)), "{kind:?} after {moment}, /retry: {shown:?}\n{scene}");
        }
    }
    let seconds = began.elapsed().as_secs();
    // Not with `println!`, whose output the test harness would capture.
    writeln!(
        std::io::stdout(),
        "breaks {kinds:?} ({way:?}): {breaks}, {whole} whole, {cut} cut, {seconds} s"
    )
    .ok();
}

impl Break {
    /// Breaks the chain, and mends it. The model continues before or after that. Returns since when hermes-agent is
    /// back, if it was away.
    async fn happens(self, scene: &mut Scene, late: bool) -> Option<Instant> {
        if self == Self::HermesKilled {
            scene.hermes.dies().await;
            scene.model.goes_on();
            scene.hermes.starts().is_healthy().await;
            return Some(Instant::now());
        }
        match self {
            Self::GatewayKilled => scene.gateway_ends_by(Signal::KILL).await,
            Self::GatewayStopped => scene.gateway_ends_by(Signal::TERM).await,
            Self::WireCut | Self::HermesKilled => scene.wire.is_cut(),
        }
        if !late {
            scene.model.goes_on();
        }
        match self {
            Self::GatewayKilled | Self::GatewayStopped => scene.gateway_starts(),
            Self::WireCut | Self::HermesKilled => {}
        }
        scene.model.goes_on();
        None
    }
}

fn full() -> bool {
    std::env::var_os("TALARIA_TESTS").is_some_and(|tests| tests == "full")
}
