//! What may be asked of `/v1/responses`, and what of it is repeated in the answer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::Problem;
use super::super::content::{Spoken, join_system};
use super::super::heads::check_name;
use super::input::{Input, read_input};

/// Entries of `metadata`, and the characters of a name and of a value there, as the protocol has them.
const METADATA: (usize, usize, usize) = (16, 64, 512);

/// What may be asked. Everything else that this protocol knows is for models, and the agent has its own.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ResponsesRequest {
    /// Text, or a list of messages and parts.
    #[serde(default)]
    #[schemars(!default, with = "Input")]
    pub input: Value,
    /// For the system message of this turn alone.
    #[serde(default)]
    pub instructions: Option<String>,
    /// The response that this one goes on from.
    #[serde(default)]
    pub previous_response_id: Option<String>,
    /// The session that is talked in: its name, or an object with its `id`.
    #[serde(default)]
    #[schemars(with = "Option<Conversation>")]
    pub conversation: Option<Value>,
    /// Whether it can be found again; it can, unless this is false.
    #[serde(default)]
    pub store: Option<bool>,
    /// Whether the answer comes as it grows.
    #[serde(default)]
    pub stream: Option<bool>,
    /// Whether to answer at once and let it be looked at later.
    #[serde(default)]
    pub background: Option<bool>,
    /// Echoed; there is one agent.
    #[serde(default)]
    pub model: Option<String>,
    /// Echoed.
    #[serde(default)]
    #[schemars(extend("maxProperties" = METADATA.0))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Echoed; what a model is told is the agent's.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Echoed.
    #[serde(default)]
    pub top_p: Option<f64>,
    /// Echoed.
    #[serde(default)]
    pub max_output_tokens: Option<u64>,
}

/// What [`ResponsesRequest::conversation`] is read from, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ConversationName")]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
enum Conversation {
    /// The name of a session.
    Id(String),
    /// The same in an object.
    Object { id: String },
}

/// What of a question is repeated in every answer to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Echo {
    pub model: String,
    pub instructions: Option<String>,
    pub previous_response_id: Option<String>,
    pub conversation: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub background: bool,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub max_output_tokens: Option<u64>,
}

/// What is asked, once it has been checked.
pub struct Asked {
    pub spoken: Spoken,
    pub echo: Echo,
    pub store: bool,
    pub stream: bool,
}

impl ResponsesRequest {
    /// Checks all of it. `model` is what is echoed if none is named.
    pub fn read(self, model: &str) -> Result<Asked, Problem> {
        let mut spoken = read_input(&self.input)?;
        let conversation = self.conversation.as_ref().map(read_conversation).transpose()?;
        let (store, background) = (self.store.unwrap_or(true), self.background.unwrap_or_default());
        if self.previous_response_id.is_some() && conversation.is_some() {
            let message = "Name either the response that this one goes on from, or a conversation";
            return Err(Problem::wrong("previous_response_id", message));
        }
        if self.previous_response_id.is_some() && !spoken.history.is_empty() {
            let message = "What was said before is known from previous_response_id; send only what is new";
            return Err(Problem::wrong("input", message));
        }
        if background && !store {
            let message = "What runs in the background must be stored, or nobody could find it";
            return Err(Problem::wrong("background", message));
        }
        let metadata = self.metadata.unwrap_or_default();
        check_metadata(&metadata)?;
        let instructions = self.instructions.filter(|text| !text.trim().is_empty());
        spoken.system = join_system([instructions.clone(), spoken.system]);
        let echo = Echo {
            model: self.model.unwrap_or_else(|| model.to_owned()),
            instructions,
            previous_response_id: self.previous_response_id,
            conversation,
            metadata,
            background,
            temperature: self.temperature,
            top_p: self.top_p,
            max_output_tokens: self.max_output_tokens,
        };
        Ok(Asked { spoken, echo, store, stream: self.stream.unwrap_or_default() })
    }
}

impl Echo {
    /// As it is stored.
    pub fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| {
            tracing::error!(%error, "what of a question is repeated could not be written");
            "{}".to_owned()
        })
    }
}

fn read_conversation(value: &Value) -> Result<String, Problem> {
    let name = match value {
        Value::Object(object) => object.get("id").and_then(Value::as_str),
        other => other.as_str(),
    };
    let name = name.ok_or_else(|| Problem::wrong("conversation", "It is an id, or an object with an id"))?;
    check_name(name).map_err(|message| Problem::wrong("conversation", message))?;
    Ok(name.to_owned())
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Problem> {
    let (entries, name, value) = METADATA;
    let long = |(key, text): (&String, &String)| key.chars().count() > name || text.chars().count() > value;
    match metadata.len() > entries || metadata.iter().any(long) {
        false => Ok(()),
        true => {
            let message =
                format!("At most {entries} entries, names of {name} and values of {value} characters");
            Err(Problem::wrong("metadata", message))
        }
    }
}
