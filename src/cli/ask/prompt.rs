//! Makes the question of arguments, standard input and files, and refuses here what the server would refuse.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use talaria_console::{StdinKind, stdin_kind};

use super::AskArguments;
use super::failure::AskFailure;
use crate::media;
use crate::server::{LARGEST_BODY, check_session_name};
use crate::util::FileKind;

/// The argument that means standard input.
const STANDARD_INPUT: &str = "-";

/// Reads the question: text, or parts of which some are pictures.
pub(super) fn read(arguments: &AskArguments) -> Result<Value, AskFailure> {
    if let Some(session) = &arguments.session {
        check_session_name(session).map_err(|rule| {
            AskFailure::wrong(format!("`--session` cannot be {session:?}"), &rule.to_lowercase())
        })?;
    }
    let mut text = words(&arguments.words)?;
    let mut pictures = Vec::new();
    for path in &arguments.files {
        match attachment(path)? {
            Attachment::Text(file) => text.push_str(&file),
            Attachment::Picture(url) => pictures.push(url),
        }
    }
    if text.trim().is_empty() && pictures.is_empty() {
        return Err(AskFailure::wrong(
            "there is nothing to ask",
            "write the question: talaria ask '…', or pipe it in",
        ));
    }
    if pictures.is_empty() {
        return Ok(Value::String(text));
    }
    let words = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
    let pictures =
        pictures.into_iter().map(|url| json!({ "type": "image_url", "image_url": { "url": url } }));
    Ok(words.into_iter().chain(pictures).collect())
}

/// The body of the request that starts the run.
pub(super) fn request(prompt: &Value, arguments: &AskArguments) -> Result<Vec<u8>, AskFailure> {
    let mut body = json!({ "input": prompt });
    if let Some(session) = &arguments.session {
        body["session_id"] = json!(session);
    }
    if let Some(agent) = &arguments.agent {
        body["model"] = json!(agent);
    }
    let body = body.to_string().into_bytes();
    match body.len() <= LARGEST_BODY {
        true => Ok(body),
        false => Err(too_large(&format!("the question has {:.1} MB with its files", megabytes(body.len())))),
    }
}

/// The words of the arguments, and behind them those of standard input.
fn words(arguments: &[String]) -> Result<String, AskFailure> {
    let written = arguments.join(" ");
    let is_stdin = matches!(written.trim(), "" | STANDARD_INPUT);
    let piped = match stdin_kind() {
        StdinKind::Lines => piped()?,
        // A person who writes `-` types the question here, up to Ctrl-D.
        StdinKind::Terminal if written.trim() == STANDARD_INPUT => piped()?,
        StdinKind::Terminal | StdinKind::Nothing => String::new(),
    };
    Ok(match (is_stdin, piped.trim().is_empty()) {
        (true, _) => piped,
        (false, true) => written,
        (false, false) => format!("{written}\n\n{piped}"),
    })
}

/// Standard input to its end.
fn piped() -> Result<String, AskFailure> {
    let hint = "attach a picture with --file";
    let content = bounded(io::stdin().lock()).map_err(|error| {
        AskFailure::wrong(format!("standard input cannot be read: {}", error.kind()), "pipe a text in")
    })?;
    let content = content.ok_or_else(|| too_large("standard input is too long"))?;
    let text =
        String::from_utf8(content).map_err(|_| AskFailure::wrong("standard input is not text", hint))?;
    match text.contains('\0') {
        true => Err(AskFailure::wrong("standard input is not text", hint)),
        false => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

/// An attached file.
enum Attachment {
    /// The text to append to the question.
    Text(String),
    /// The data URL of a picture.
    Picture(String),
}

fn attachment(path: &Path) -> Result<Attachment, AskFailure> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        AskFailure::wrong(format!("the file `{shown}` cannot be read: {}", error.kind()), "correct the path")
    };
    let file = File::open(path).map_err(unreadable)?;
    let content = bounded(file).map_err(unreadable)?;
    let content = content.ok_or_else(|| too_large(&format!("the file `{shown}` is too large")))?;
    match FileKind::of(&content) {
        FileKind::Picture(mime) => {
            Ok(Attachment::Picture(format!("data:{mime};base64,{}", STANDARD.encode(&content))))
        }
        FileKind::Text => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            Ok(Attachment::Text(media::text_file(&name, &String::from_utf8_lossy(&content))))
        }
        FileKind::Empty => Err(AskFailure::wrong(format!("the file `{shown}` is empty"), "leave it out")),
        FileKind::Sound(kind) | FileKind::Film(kind) | FileKind::Other(kind) => Err(AskFailure::wrong(
            format!("the file `{shown}` is neither a picture nor text ({kind})"),
            "attach PNG, JPEG, GIF or WebP pictures, or UTF-8 text",
        )),
    }
}

/// Everything that can be read; `None` if it would not fit into a request.
fn bounded(from: impl io::Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    from.take(LARGEST_BODY as u64 + 1).read_to_end(&mut content)?;
    Ok((content.len() <= LARGEST_BODY).then_some(content))
}

fn too_large(message: &str) -> AskFailure {
    let hint = format!("the server takes requests of {:.0} MB", megabytes(LARGEST_BODY));
    AskFailure::wrong(message, &hint)
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
