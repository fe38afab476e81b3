//! All failpoints at which the gateway can be made to die, in the order in which a prompt meets them.

use super::trial::Death;

/// One failpoint.
pub struct Point {
    /// Its name in the source.
    pub name: &'static str,
    /// How often three prompts, one of them with a long answer, certainly reach it.
    reached: u32,
    /// For a point of the start that matters only after another life: the failpoint where that life ended.
    after: Option<&'static str>,
}

const fn point(name: &'static str, reached: u32) -> Point {
    Point { name, reached, after: None }
}

/// The points. A test compares this table with the source.
pub const POINTS: &[Point] = &[
    point("accept.received", 3),
    point("sync.before_inbox", 3),
    point("accept.committed", 3),
    point("turn.taken", 3),
    point("turn.prepared", 3),
    point("turn.dispatched", 3),
    point("proxy.answered", 3),
    point("stream.text", 30),
    point("checkpoint.committed", 6),
    point("anchor.sent", 3),
    point("anchor.committed", 3),
    point("edit.sent", 3),
    point("turn.ended", 3),
    point("turn.finished", 3),
    point("outbox.taken", 4),
    point("outbox.sent", 4),
    point("outbox.committed", 4),
    Point { name: "gateway.recovered", reached: 30, after: Some("stream.text") },
];

/// Points that only a run of the upstream comes by.
pub const RUN_POINTS: &[Point] = &[point("run.begun", 3), point("run.events", 3)];

/// Points that only a command comes by that runs after its commit.
pub const COMMAND_POINTS: [&str; 3] = ["command.begun", "command.ran", "command.answered"];

/// Points that only a turn with tools comes by.
pub const TOOL_POINTS: [&str; 4] = ["model.answered", "turn.recorded", "tools.called", "tool.ended"];

/// Points that only a command of the terminal comes by. `tools/terminal.rs` dies there.
#[cfg(test)]
const TERMINAL_POINTS: [&str; 2] = ["terminal.approved", "terminal.ended"];

/// Points that only the switch of an agent to codex comes by. `control/codex.rs` dies there.
#[cfg(test)]
const SWITCH_POINTS: [&str; 2] = ["runtime.migrated", "runtime.stored"];

/// The point that only a new thread of codex comes by. `tests/codex/deaths.rs` dies there.
#[cfg(test)]
const THREAD_POINT: &str = "codex.thread_stored";

/// Points that no prompt comes by. The live tests die there.
#[cfg(test)]
const LIVE: [&str; 1] = ["deletion.more"];

impl Point {
    /// The deaths of one of `kills` trials. They are spread over the times the point is reached, so that they hit
    /// different prompts and different amounts of text.
    pub fn deaths(&self, kill: u32, kills: u32) -> Vec<Death> {
        let time = 1 + if kills < self.reached { kill * self.reached / kills } else { kill % self.reached };
        match self.after {
            None => vec![Death::At(self.name, time)],
            Some(first) => vec![Death::At(first, time), Death::At(self.name, 1)],
        }
    }
}

#[test]
fn the_table_has_every_failpoint_of_the_source() {
    let mut found = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "testing.rs") {
                let source = std::fs::read_to_string(path).unwrap();
                let names = source.split("failpoint(\"").skip(1).filter_map(|rest| rest.split_once('"'));
                found.extend(names.map(|(name, _)| name.to_owned()));
            }
        }
    }
    let mut known: Vec<_> = POINTS.iter().map(|point| point.name.to_owned()).collect();
    known.extend(RUN_POINTS.iter().map(|point| point.name.to_owned()));
    known.extend(LIVE.map(str::to_owned));
    known.extend(COMMAND_POINTS.map(str::to_owned));
    known.extend(TOOL_POINTS.map(str::to_owned));
    known.extend(TERMINAL_POINTS.map(str::to_owned));
    known.extend(SWITCH_POINTS.map(str::to_owned));
    known.push(THREAD_POINT.to_owned());
    found.sort();
    known.sort();
    assert_eq!(found, known);
}
