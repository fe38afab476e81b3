//! What an agent says about itself when it is started. Pure.

use serde_json::{Value, json};

use crate::util::one_line;

/// The version of the protocol that we speak.
pub const PROTOCOL: u64 = 1;

/// Characters of an agent's name and version.
const NAME_CHARS: usize = 60;

/// The abilities of an agent that we make use of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentAbilities {
    /// It opens conversations of earlier processes.
    pub loads: bool,
    /// Prompts may have pictures.
    pub takes_images: bool,
    /// Prompts may have the text of other documents.
    pub takes_context: bool,
    /// Its name and version, if it tells them.
    pub name: Option<String>,
    /// Its version, if it tells that.
    pub version: Option<String>,
}

/// Parameters of `initialize`.
pub fn initialize_params() -> Value {
    json!({
        "protocolVersion": PROTOCOL,
        "clientCapabilities": { "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": false },
        "clientInfo": { "name": "talaria", "title": "Talaria", "version": env!("CARGO_PKG_VERSION") },
    })
}

impl AgentAbilities {
    /// Reads the answer to `initialize`. An error is the version that the agent speaks instead of ours; `None` if it
    /// names none, so it is no agent of this protocol.
    pub fn read(answer: &Value) -> Result<Self, Option<u64>> {
        match answer["protocolVersion"].as_u64() {
            Some(PROTOCOL) => {}
            other => return Err(other),
        }
        let abilities = &answer["agentCapabilities"];
        let prompts = &abilities["promptCapabilities"];
        let info = &answer["agentInfo"];
        let words = [&info["name"], &info["version"]].map(|word| word.as_str().unwrap_or_default().trim());
        let name = one_line(words.join(" ").trim(), NAME_CHARS);
        let version = one_line(words[1], NAME_CHARS);
        Ok(Self {
            loads: abilities["loadSession"] == true,
            takes_images: prompts["image"] == true,
            takes_context: prompts["embeddedContext"] == true,
            name: Some(name).filter(|name| !name.is_empty()),
            version: Some(version).filter(|version| !version.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_read_and_what_is_missing_is_not_there() {
        let answer = json!({ "protocolVersion": 1, "agentInfo": { "name": "Coder", "version": "2.6.0" },
            "agentCapabilities": { "loadSession": true, "promptCapabilities": { "image": true } } });
        let abilities = AgentAbilities::read(&answer).unwrap();
        assert!(abilities.loads && abilities.takes_images && !abilities.takes_context);
        assert_eq!(abilities.name.as_deref(), Some("Coder 2.6.0"));
        assert_eq!(abilities.version.as_deref(), Some("2.6.0"));
        let plain = AgentAbilities::read(&json!({ "protocolVersion": 1 })).unwrap();
        assert_eq!(plain, AgentAbilities::default());
        assert_eq!(AgentAbilities::read(&json!({ "protocolVersion": 2 })), Err(Some(2)));
        assert_eq!(AgentAbilities::read(&json!("hello")), Err(None));
    }
}
