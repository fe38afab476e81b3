//! Reads the messages of a request in the forms that clients send, and converts them into one.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ApiError;
use crate::agent::{ImageUrl, MessageRole, PromptPart, SessionMessage};
use crate::turn_source::AppRequest;

/// Content of a user's message: text, or parts of which some are pictures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptContent {
    /// The text; of several parts, joined by line breaks.
    pub text: String,
    /// All parts in order; empty if there is only text.
    pub parts: Vec<PromptPart>,
}

/// A message of the chat-completions protocol.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ChatMessage {
    /// Role of the sender.
    #[schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool", "function"]))]
    pub role: String,
    /// Text, a list of parts, or nothing.
    #[serde(default)]
    #[schemars(with = "ContentSchema")]
    pub content: Value,
}

/// JSON forms of [`PromptContent`], for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
#[schemars(rename = "Said")]
pub enum ContentSchema {
    /// Text.
    Text(String),
    /// Text and pictures.
    Parts(Vec<ContentPartSchema>),
    /// No content.
    Nothing(()),
}

/// One part of a message's content.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "see `Said`")]
#[schemars(rename = "SaidPart")]
pub enum ContentPartSchema {
    /// Text.
    Text { text: String },
    /// Text, as the Responses API writes it.
    InputText { text: String },
    /// A picture.
    ImageUrl { image_url: ImageUrlSchema },
    /// A picture, as the Responses API writes it.
    InputImage { image_url: String },
}

/// Address of a picture.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "see `Said`")]
#[schemars(rename = "Picture")]
pub struct ImageUrlSchema {
    /// Begins with `http://`, `https://` or `data:image/`.
    #[schemars(regex(pattern = "^(https?://|data:image/)"))]
    url: String,
}

/// A list of messages, sorted into system message, history and prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedMessages {
    /// Text to add to the system message of the turn.
    pub system: Option<String>,
    /// Messages before the prompt.
    pub history: Vec<SessionMessage>,
    /// The prompt.
    pub now: PromptContent,
}

impl PromptContent {
    /// Reads text or parts. `at` names the place in an error.
    pub fn read(value: &Value, at: &str) -> Result<Self, ApiError> {
        match value {
            Value::String(text) => Ok(Self { text: text.clone(), parts: Vec::new() }),
            Value::Null => Ok(Self::default()),
            Value::Array(list) => {
                let parts = list.iter().map(|part| read_part(part, at)).collect::<Result<Vec<_>, _>>()?;
                Ok(Self::from_parts(parts))
            }
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(ApiError::wrong(at, "The content must be text or a list of parts"))
            }
        }
    }

    /// Joins the texts of these parts.
    pub fn from_parts(parts: Vec<PromptPart>) -> Self {
        let texts = parts.iter().filter_map(|part| match part {
            PromptPart::Text { text } => Some(text.as_str()),
            PromptPart::ImageUrl { .. } => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let pictures = parts.iter().any(|part| matches!(part, PromptPart::ImageUrl { .. }));
        Self { text, parts: if pictures { parts } else { Vec::new() } }
    }

    /// Whether there is neither text nor a picture.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty() && self.parts.is_empty()
    }

    /// Text to keep in the history: pictures are named, not kept.
    pub fn remembered(&self) -> String {
        let request = AppRequest { parts: self.parts.clone(), ..AppRequest::default() };
        format!("{}{}", self.text, request.pictures()).trim().to_owned()
    }
}

/// Reads the messages of a request: the last one, a user's, is the prompt; those before it are the history.
/// Results of tools are left out, because they mean nothing without their calls.
pub fn read_messages(messages: &[ChatMessage]) -> Result<ParsedMessages, ApiError> {
    read_list(messages, "messages")
}

/// Reads the input of a run: text, parts, or messages of which the last is the prompt. A history that is passed
/// separately replaces the one in the messages.
pub fn read_input(input: &Value, history: Option<&[ChatMessage]>) -> Result<ParsedMessages, ApiError> {
    let is_message = |one: &Value| one.get("role").is_some();
    let mut spoken = match input {
        Value::Array(list) if list.iter().any(is_message) => {
            let messages: Vec<ChatMessage> = serde_json::from_value(input.clone()).map_err(|_| {
                ApiError::wrong("input", "Each message of the list needs a role and a content")
            })?;
            read_list(&messages, "input")?
        }
        input => {
            let now = PromptContent::read(input, "input")?;
            if now.is_blank() {
                let message = "Say what is asked: text, a list of parts, or a list of messages";
                return Err(ApiError::wrong("input", message));
            }
            ParsedMessages { now, ..ParsedMessages::default() }
        }
    };
    if let Some(history) = history {
        let before = read_each(history, "conversation_history")?;
        spoken.history = history_of(before.said);
        spoken.system = join_system(before.system.into_iter().chain([spoken.system]));
    }
    Ok(spoken)
}

/// Messages by kind, before the prompt is told from the history.
#[derive(Default)]
pub struct MessageCollector {
    /// Texts for the system message.
    pub system: Vec<Option<String>>,
    /// Messages of users and of the agent, in order.
    pub said: Vec<(MessageRole, PromptContent)>,
}

impl MessageCollector {
    /// Takes one message. Returns `false` if the role is none of those that speak.
    pub fn take(&mut self, role: Option<&str>, content: PromptContent) -> bool {
        match role {
            Some("system" | "developer") => self.system.push(Some(content.text)),
            Some("user") => self.said.push((MessageRole::User, content)),
            Some("assistant") => self.said.push((MessageRole::Assistant, content)),
            Some(_) | None => return false,
        }
        true
    }

    /// Makes all collected messages history, with `now` as the prompt. `name` names the list in an error.
    pub fn then(self, now: Option<PromptContent>, name: &str) -> Result<ParsedMessages, ApiError> {
        let Self { system, said } = self;
        let wrong = || ApiError::wrong(name, "The last message must be a user's, and not empty");
        let now = now.filter(|now| !now.is_blank()).ok_or_else(wrong)?;
        Ok(ParsedMessages { system: join_system(system), history: history_of(said), now })
    }
}

/// Joins texts for the system message in this order. Blank ones are left out.
pub fn join_system(said: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let said: Vec<_> = said.into_iter().flatten().filter(|text| !text.trim().is_empty()).collect();
    (!said.is_empty()).then(|| said.join("\n\n"))
}

fn read_list(messages: &[ChatMessage], name: &str) -> Result<ParsedMessages, ApiError> {
    if let Some(last) = messages.last()
        && is_tool(&last.role)
    {
        let at = format!("{name}[{}].role", messages.len() - 1);
        let message =
            "The agent calls its own tools, so nobody waits for this result; end with a user's message";
        return Err(ApiError::unsupported(at, message));
    }
    let mut heard = read_each(messages, name)?;
    let last = heard.said.pop_if(|(role, _)| *role == MessageRole::User);
    heard.then(last.map(|(_, content)| content), name)
}

fn history_of(said: Vec<(MessageRole, PromptContent)>) -> Vec<SessionMessage> {
    let said = said.into_iter().map(|(role, content)| SessionMessage::new(role, content.remembered()));
    said.filter(|message| !message.content.is_empty()).collect()
}

fn read_each(messages: &[ChatMessage], name: &str) -> Result<MessageCollector, ApiError> {
    let mut heard = MessageCollector::default();
    for (index, message) in messages.iter().enumerate() {
        let content = PromptContent::read(&message.content, &format!("{name}[{index}].content"))?;
        let role = message.role.as_str();
        if !is_tool(role) && !heard.take(Some(role), content) {
            let at = format!("{name}[{index}].role");
            return Err(ApiError::wrong(at, "The role is one of system, user, assistant and tool"));
        }
    }
    Ok(heard)
}

/// Whether a message with this role is the result of a tool.
fn is_tool(role: &str) -> bool {
    matches!(role, "tool" | "function")
}

fn read_part(part: &Value, at: &str) -> Result<PromptPart, ApiError> {
    let wrong = |message: &str| ApiError::wrong(at, message);
    if let Value::String(text) = part {
        return Ok(PromptPart::Text { text: text.clone() });
    }
    let text = |name: &str| part.get(name).and_then(Value::as_str).map(str::to_owned);
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => text("text")
            .map(|text| PromptPart::Text { text })
            .ok_or_else(|| wrong("A text part needs its text")),
        Some("image_url" | "input_image") => {
            let nested = part.get("image_url").and_then(|image| image.get("url")).and_then(Value::as_str);
            let url = nested.map(str::to_owned).or_else(|| text("image_url"));
            let url = url.ok_or_else(|| wrong("A picture needs its image_url"))?;
            let begins = |kind: &str| url.get(..kind.len()).is_some_and(|url| url.eq_ignore_ascii_case(kind));
            let known = ["http://", "https://", "data:image/"].into_iter().any(begins);
            match known {
                true => Ok(PromptPart::ImageUrl { image_url: ImageUrl { url } }),
                false => Err(wrong("A picture's address begins with http://, https:// or data:image/")),
            }
        }
        Some(kind) => Err(wrong(&format!(
            "Parts of type {:?} are not supported; send text or image_url",
            crate::util::one_line(kind, 40)
        ))),
        None => Err(wrong("Each part needs a type")),
    }
}
