//! Reads a stream of events as a client does.

use serde_json::Value;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub name: String,
    pub id: String,
    pub data: Value,
}

/// All events of a body that are JSON.
pub fn events(body: &str) -> Vec<Event> {
    body.split_terminator("\n\n").filter_map(event).collect()
}

fn event(block: &str) -> Option<Event> {
    let field =
        |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    let data = serde_json::from_str(&field("data: ")).ok()?;
    Some(Event { name: field("event: "), id: field("id: "), data })
}
