//! The benchmarks: `tests/bench/run [quick | full] [gate…]`, one table, exit code 1 if a limit is missed.
//!
//! Every number is a ratio to another measurement of the same run ([`rounds`]), or a count of instructions
//! ([`count`]), because the machine is never ours alone. The gates:
//!
//! - [`reading`] P1 P2 P4 P5: the stream reader; its work is in [`sse`].
//! - [`answer`] L1: a whole answer through the whole core costs linear work.
//! - [`relay`] R1: the gateway compared with the least client that stores what it reads. [`idle`] R5: memory.
//! - [`durable`] D1 D3: the store.
//! - [`matrix`] M1 M2: the cost of showing an answer in a Matrix room, in work and in bytes.
//! - [`edits`] E1 E2 E3: how stale a growing message is, in a simulation.
//! - [`serving`] C1 R6 A1: the agent server with a crowd of readers, compared with the least that its libraries allow.
//! - [`tools`] T1 T2: one round of tools beside the bare requests, and MCP servers that nobody uses.
//! - [`codex`] K1 K2: turns by the real codex beside codex alone, and memory while it is kept warm.
//! - [`forge`] F1 F2 F3: turns of ACP agents over the forge surface, beside the agent alone and beside acpx, and many sessions
//!   on a few processes.
//!
//! CI runs `quick`, which leaves out gates that take minutes or need a quiet machine (R1 R5 D1 C1 R6 A1 T1 T2 K1 K2 F1
//! F2), and of F3 all that is timed. D1 counts, but how many syncs a turn has depends on how long it takes. A gate that needs another process starts this program again in a [`role`].
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is what people want to see")]

mod answer;
mod child;
mod codex;
mod count;
mod durable;
mod edits;
mod forge;
mod idle;
mod matrix;
mod program;
mod reading;
mod relay;
mod room;
mod rounds;
mod serving;
mod sse;
mod table;
mod tools;

/// The scripted servers of the tests, and codex' own helpers.
#[path = "../it/support"]
#[allow(dead_code, unused_imports, clippy::unwrap_used, clippy::expect_used, reason = "shared with tests")]
#[allow(clippy::disallowed_methods, reason = "shared with tests")]
mod it {
    pub mod upstream;
}
#[path = "../codex"]
#[allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "shared with tests")]
mod real {
    pub mod codex_home;
    pub mod direct;
    pub mod responses;
}
#[path = "../acp"]
#[allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "shared with tests")]
mod real_acp {
    pub mod real_agents;
}

use std::io::Write as _;
use std::process::ExitCode;

use table::Row;
use tempfile::TempDir;

/// How much to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Quick,
    Usual,
    Full,
}

/// Every gate, and whether it is part of `quick`.
const GATES: [(&str, bool); 24] = [
    ("P1", true),
    ("P2", true),
    ("P4", true),
    ("P5", true),
    ("L1", true),
    ("R1", false),
    ("R5", false),
    ("D1", false),
    ("D3", true),
    ("E1", true),
    ("E2", true),
    ("E3", true),
    ("M1", true),
    ("M2", true),
    ("C1", false),
    ("R6", false),
    ("A1", false),
    ("T1", false),
    ("T2", false),
    ("K1", false),
    ("K2", false),
    ("F1", false),
    ("F2", false),
    ("F3", true),
];

/// The first argument of a child process in a role.
const ROLE: &str = "role";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, role_words)) if first == ROLE && !role_words.is_empty() => {
            role(role_words).map(|()| true)
        }
        _ => measure(&words),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Measures the wanted gates and prints the table; `false` if a limit was missed.
fn measure(words: &[String]) -> anyhow::Result<bool> {
    let mut scale = Scale::Usual;
    let mut wanted = Vec::new();
    for word in words {
        match word.as_str() {
            "quick" => scale = Scale::Quick,
            "full" => scale = Scale::Full,
            gate if GATES.iter().any(|(name, _)| *name == gate) => wanted.push(gate),
            other => {
                anyhow::bail!("`{other}` is no gate; there are {}", GATES.map(|(name, _)| name).join(" "))
            }
        }
    }
    let mut rows = Vec::new();
    for (gate, quick) in GATES {
        let asked = if wanted.is_empty() { quick || scale != Scale::Quick } else { wanted.contains(&gate) };
        if asked {
            say(&format!("{gate} …"));
            rows.extend(run(gate, scale)?);
        }
    }
    let (table, passed) = table::render(&rows);
    print!("{table}");
    Ok(passed)
}

fn run(gate: &'static str, scale: Scale) -> anyhow::Result<Vec<Row>> {
    match gate {
        "P1" | "P2" => reading::cost(gate),
        "P4" => reading::growth(scale),
        "P5" => Ok(reading::conformance(scale)),
        "L1" => answer::growth(),
        "R1" => relay::cost(scale),
        "R5" => idle::memory(),
        "D1" => durable::syncs(scale),
        "D3" => durable::long_history(),
        "M1" => matrix::growth(),
        "M2" => matrix::size(),
        "C1" => serving::crowd(scale),
        "R6" => serving::beside_relay(),
        "A1" => serving::beside_writer(),
        "T1" => tools::iteration(),
        "T2" => tools::unused_servers(),
        "K1" => codex::overhead(),
        "K2" => codex::memory(),
        "F1" => forge::overhead(),
        "F2" => forge::beside_acpx(),
        "F3" => forge::many_sessions(scale),
        _ => Ok(edits::run(gate)),
    }
}

/// Runs a process that a gate started.
fn role(words: &[String]) -> anyhow::Result<()> {
    match words[0].as_str() {
        "answer" => answer::role_of(words),
        "matrix" => matrix::role_of(words),
        "server" => relay::server(words),
        "reader" => serving::reader(words),
        "ticking" => serving::ticking(),
        "storing" => relay::storing(words),
        "writer" => serving::writer(),
        "passing" => serving::passing(words),
        "relay" => relay::relay(words),
        "durable" => durable::role_of(words),
        forge::AGENT_ROLE => forge::agent(),
        _ => reading::role_of(words),
    }
}

/// Prints a message for the person who waits.
fn say(text: &str) {
    eprintln!("{text}");
}

/// Prints a line for the process that started this one.
fn answer(text: &str) {
    println!("{text}");
    let _ = std::io::stdout().flush();
}

/// A temporary folder on the project's disk: `/tmp` may be memory.
fn scratch() -> std::io::Result<TempDir> {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
}
