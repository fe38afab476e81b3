//! Makes steps of codex' items: the tool, and what it works on in one short line.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::agent::{Step, StepState};
use crate::agents::sorted_json::{list_field, text_field};
use crate::agents::step_lines::{LOOKED_AT, TITLE_CHARS, shown_line, step_id, values_of};
use crate::util::one_line;

/// Running items whose output is followed. Nobody is shown more at once.
const RUNNING: usize = 32;

/// Shortest time between two lines of a command's output. Each is an event of the turn.
const PROGRESS: Duration = Duration::from_secs(1);

/// The part of an item's life that codex reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemPhase {
    /// `item/started`.
    Started,
    /// `item/completed`.
    Completed,
}

/// The step of an item that began or ended; `None` for items that are no step, such as messages and reasoning.
pub fn step_of(item: &Value, phase: ItemPhase) -> Option<Step> {
    let (title, subject) = subject_of(item)?;
    let state = match phase {
        ItemPhase::Started => StepState::Running,
        ItemPhase::Completed if has_failed(item) => StepState::Failed,
        ItemPhase::Completed => StepState::Done,
    };
    Some(Step { id: step_id(text_field(item, "id")), title, detail: shown_line(&subject), state })
}

/// The steps that run, so that output of a command can be shown as its progress.
#[derive(Debug, Default)]
pub struct StepTracker {
    /// At most [`RUNNING`], oldest first.
    running: VecDeque<RunningStep>,
}

#[derive(Debug)]
struct RunningStep {
    step: Step,
    shown_at: Instant,
    /// The last line of the output, while it grows.
    line: String,
}

impl StepTracker {
    /// Takes an item that began.
    pub fn started(&mut self, item: &Value, now: Instant) -> Option<Step> {
        let step = step_of(item, ItemPhase::Started)?;
        self.running.retain(|running| running.step.id != step.id);
        if self.running.len() == RUNNING {
            self.running.pop_front();
        }
        self.running.push_back(RunningStep { step: step.clone(), shown_at: now, line: String::new() });
        Some(step)
    }

    /// Takes more output of a running item. Returns the step with the last line of it, not more than once a second.
    pub fn output(&mut self, item_id: &str, delta: &str, now: Instant) -> Option<Step> {
        let id = step_id(item_id);
        let RunningStep { step, shown_at, line } =
            self.running.iter_mut().find(|running| running.step.id == id)?;
        for piece in delta.split_inclusive('\n') {
            if line.ends_with('\n') && !piece.trim().is_empty() {
                line.clear();
            }
            let room = LOOKED_AT.saturating_sub(line.len());
            line.push_str(&piece[..piece.floor_char_boundary(room)]);
            if piece.ends_with('\n') && !line.ends_with('\n') {
                line.push('\n');
            }
        }
        if now.duration_since(*shown_at) < PROGRESS {
            return None;
        }
        let detail = shown_line(line)?;
        *shown_at = now;
        Some(Step { detail: Some(detail), ..step.clone() })
    }

    /// Takes an item that ended.
    pub fn completed(&mut self, item: &Value) -> Option<Step> {
        let step = step_of(item, ItemPhase::Completed)?;
        self.running.retain(|running| running.step.id != step.id);
        Some(step)
    }

    /// The steps that still run when a turn is interrupted, as failed: codex does not complete their items.
    pub fn broken_off(&mut self) -> Vec<Step> {
        let running = std::mem::take(&mut self.running).into_iter();
        running.map(|running| Step { state: StepState::Failed, ..running.step }).collect()
    }
}

/// Title and subject of an item that is a step.
fn subject_of(item: &Value) -> Option<(String, String)> {
    let (title, subject) = match text_field(item, "type") {
        "commandExecution" => ("exec_command".to_owned(), shown_command(item).to_owned()),
        "fileChange" => {
            let changes = list_field(item, "changes").iter().take(RUNNING);
            let paths: Vec<_> = changes.map(|change| text_field(change, "path")).collect();
            ("apply_patch".to_owned(), paths.join(", "))
        }
        "mcpToolCall" => {
            let title = format!("{}.{}", text_field(item, "server"), text_field(item, "tool"));
            (title, values_of(&item["arguments"]))
        }
        "dynamicToolCall" => (text_field(item, "tool").to_owned(), values_of(&item["arguments"])),
        "collabAgentToolCall" => (text_field(item, "tool").to_owned(), text_field(item, "prompt").to_owned()),
        "webSearch" => ("web_search".to_owned(), text_field(item, "query").to_owned()),
        "imageView" => ("view_image".to_owned(), text_field(item, "path").to_owned()),
        "imageGeneration" => ("image_generation".to_owned(), text_field(item, "revisedPrompt").to_owned()),
        "contextCompaction" => ("compact".to_owned(), String::new()),
        _ => return None,
    };
    Some((one_line(&title, TITLE_CHARS), subject))
}

/// The command without the shell that codex wraps around it, if the rest is certainly all of it: codex leaves parts of a
/// command out of its actions.
fn shown_command(item: &Value) -> &str {
    let whole = text_field(item, "command");
    let [action] = list_field(item, "commandActions") else { return whole };
    let inner = text_field(action, "command");
    let script = [" -lc ", " -c "].into_iter().find_map(|option| whole.split_once(option));
    let plain = |text: &str| text.replace(['\'', '"', '\\'], "");
    match script {
        Some((_, script)) if !inner.is_empty() && plain(script) == plain(inner) => inner,
        _ => whole,
    }
}

fn has_failed(item: &Value) -> bool {
    let failed_status = matches!(text_field(item, "status"), "failed" | "declined");
    let failed_code = item["exitCode"].as_i64().is_some_and(|code| code != 0);
    failed_status || failed_code || item["success"] == false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn command(status: &str, code: Value) -> Value {
        json!({
            "type": "commandExecution", "id": "call_r2", "command": "/bin/bash -lc 'echo APPROVED > a.txt'",
            "cwd": "/work-dir/ws", "status": status, "exitCode": code,
            "commandActions": [{ "type": "unknown", "command": "echo APPROVED > a.txt" }],
        })
    }

    fn shown(item: &Value) -> Option<(String, String)> {
        step_of(item, ItemPhase::Started).map(|step| (step.title, step.detail.unwrap_or_default()))
    }

    #[test]
    fn a_step_shows_the_whole_command_and_not_only_the_part_that_codex_calls_its_action() {
        for (whole, action, line) in [
            ("/bin/bash -lc 'cat a | sh'", "cat a", "/bin/bash -lc 'cat a | sh'"),
            ("/bin/bash -lc \"echo 'hi' && ls\"", "echo 'hi' && ls", "echo 'hi' && ls"),
            ("bash -c ls", "ls", "ls"),
            ("ls -la", "ls -la", "ls -la"),
            ("ls -la", "", "ls -la"),
        ] {
            let item = json!({ "type": "commandExecution", "id": "c", "command": whole,
                "commandActions": [{ "type": "unknown", "command": action }] });
            assert_eq!(shown(&item).unwrap().1, line);
        }
    }

    #[test]
    fn a_step_names_the_tool_and_its_subject() {
        for (item, title, detail) in [
            (command("inProgress", Value::Null), "exec_command", "echo APPROVED > a.txt"),
            (
                json!({ "type": "fileChange", "id": "call_r15", "status": "inProgress",
                    "changes": [{ "path": "/ws/new3.txt", "kind": { "type": "add" }, "diff": "x" },
                        { "path": "/ws/b.txt", "kind": { "type": "delete" }, "diff": "x" }] }),
                "apply_patch",
                "/ws/new3.txt, /ws/b.txt",
            ),
            (
                json!({ "type": "mcpToolCall", "id": "c", "server": "el", "tool": "echo",
                    "arguments": { "text": "hey", "times": 2 } }),
                "el.echo",
                "text=hey times=2",
            ),
            (
                json!({ "type": "dynamicToolCall", "id": "c", "tool": "get_weather",
                    "arguments": { "city": "Paris" } }),
                "get_weather",
                "city=Paris",
            ),
            (json!({ "type": "webSearch", "id": "w", "query": "rust book" }), "web_search", "rust book"),
            (json!({ "type": "imageView", "id": "i", "path": "/x.png" }), "view_image", "/x.png"),
            (
                json!({ "type": "imageGeneration", "id": "i", "revisedPrompt": "a cat" }),
                "image_generation",
                "a cat",
            ),
            (json!({ "type": "collabAgentToolCall", "id": "i", "tool": "wait", "prompt": null }), "wait", ""),
            (json!({ "type": "contextCompaction", "id": "i" }), "compact", ""),
        ] {
            assert_eq!(shown(&item), Some((title.to_owned(), detail.to_owned())), "{item}");
        }
        for kind in
            ["userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "sleep", "new thing", ""]
        {
            assert_eq!(step_of(&json!({ "type": kind, "id": "x" }), ItemPhase::Started), None, "{kind}");
        }
    }

    #[test]
    fn the_end_of_an_item_says_whether_it_went_well() {
        let state = |item: &Value| step_of(item, ItemPhase::Completed).unwrap().state;
        assert_eq!(state(&command("completed", json!(0))), StepState::Done);
        assert_eq!(state(&command("failed", json!(3))), StepState::Failed);
        assert_eq!(state(&command("completed", json!(3))), StepState::Failed);
        assert_eq!(state(&command("declined", Value::Null)), StepState::Failed);
        let dynamic =
            json!({ "type": "dynamicToolCall", "tool": "x", "success": false, "status": "completed" });
        assert_eq!(state(&dynamic), StepState::Failed);
    }

    #[test]
    fn a_line_is_short_escaped_and_has_no_secrets() {
        let of = |command: &str| {
            let item =
                json!({ "type": "commandExecution", "id": "c", "command": command, "commandActions": [] });
            shown(&item).unwrap().1
        };
        assert_eq!(of("ls \u{202e}x\n\t\u{1b}[2Ky"), "ls x [2Ky");
        assert_eq!(of("curl -H 'Authorization: Bearer abc' x"), "curl -H 'Authorization: Bearer […] x");
        let long = of(&format!("echo {} sk-proj-0123456789abcdef", "word ".repeat(15)));
        assert!(long.chars().count() == 80 && long.ends_with('…') && !long.contains("sk-"), "{long}");
        // Another command than the parsed one is not shown in its place.
        let mut odd = command("inProgress", Value::Null);
        odd["commandActions"] = json!([{ "type": "unknown", "command": "ls" }]);
        assert_eq!(shown(&odd).unwrap().1, "/bin/bash -lc 'echo APPROVED > a.txt'");
        let hostile =
            json!({ "type": "mcpToolCall", "id": "x".repeat(999), "server": "a\nb".repeat(99), "tool": 7 });
        let step = step_of(&hostile, ItemPhase::Started).unwrap();
        assert!(
            step.id.len() == 64 && step.title.chars().count() == TITLE_CHARS && !step.title.contains('\n')
        );
    }

    #[tokio::test(start_paused = true)]
    async fn output_is_shown_as_the_last_line_not_more_than_once_a_second() {
        let mut steps = StepTracker::default();
        let began = Instant::now();
        steps.started(&command("inProgress", Value::Null), began).unwrap();
        assert_eq!(steps.output("call_r2", "Compiling a\nCompil", began), None);
        let later = began + PROGRESS;
        let step = steps.output("call_r2", "ing b\n", later).unwrap();
        assert_eq!((step.detail.as_deref(), step.state), (Some("Compiling b"), StepState::Running));
        assert_eq!(steps.output("call_r2", "Compiling c\n", later), None);
        let step = steps.output("call_r2", "\n", later + PROGRESS).unwrap();
        assert_eq!(step.detail.as_deref(), Some("Compiling c"));
        assert_eq!(steps.output("another", "x\n", later + 2 * PROGRESS), None);

        // An endless line takes no memory.
        (0..100).for_each(|_| drop(steps.output("call_r2", &"y".repeat(1_000), later)));
        assert!(steps.running[0].line.len() <= LOOKED_AT + 1);
        assert_eq!(steps.completed(&command("completed", json!(0))).unwrap().state, StepState::Done);
        assert_eq!(steps.output("call_r2", "late\n", later + 9 * PROGRESS), None);
    }

    #[tokio::test(start_paused = true)]
    async fn steps_of_an_interrupted_turn_do_not_stay_open() {
        let mut steps = StepTracker::default();
        for number in 0..RUNNING + 5 {
            let mut item = command("inProgress", Value::Null);
            item["id"] = json!(format!("call_{number}"));
            steps.started(&item, Instant::now());
        }
        let broken = steps.broken_off();
        assert!(broken.len() == RUNNING && broken.iter().all(|step| step.state == StepState::Failed));
        assert_eq!(broken[0].id, "call_5");
        assert_eq!(steps.broken_off(), []);
    }
}
