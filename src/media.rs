//! Files that people attach: decides which reach the agent and how, and notes the others.
//!
//! A file is judged by its content, never by its name or by the type that the sender claims. Nothing is written
//! to disk, and no path ever reaches an agent.

use std::time::Duration;

use talaria_platform::{Backoff, MediaInfo, MediaKind, Platform, PlatformError, PlatformErrorKind};

use crate::agent::{Attachment, PromptImage};
use crate::util::{FileKind, fenced, one_line};

/// Most bytes of pictures and files that are forwarded per message, together.
const FORWARDED: u64 = 6_000_000;

/// Most bytes of text files that are put into the prompt per message, together.
const TEXT: u64 = 256 * 1024;

/// Most files of one message that are fetched; the others are only named.
const FILES: usize = 5;

/// Most characters of a file's name that the agent gets.
const NAME: usize = 80;

/// Most bytes of text files that the history keeps per message, together. A quarter of the default history that
/// an agent is sent; of a longer file only the name is kept.
const REMEMBERED: usize = 64 * 1024;

/// Longest time to fetch one file, including retries.
const FETCH: Duration = Duration::from_secs(60);

/// First pause after a failed fetch that may be retried, if the network does not name one; it doubles with each
/// retry.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(1), FETCH);

/// Result of fetching the files of one message.
#[derive(Debug, Default)]
pub struct FetchedMedia {
    /// Pictures for the agent.
    pub images: Vec<PromptImage>,
    /// Other files for the agent.
    pub files: Vec<Attachment>,
    /// Text to append to the prompt: the text files, and a line for each file that is not forwarded.
    pub notes: String,
    /// Text about all files to append to the prompt in the history.
    pub kept: String,
}

/// Rest of the limits while the files of one message are fetched.
struct RemainingCaps {
    forwarded: u64,
    text: u64,
}

/// Fetches the files of a message within the limits, and notes those that are left out. `files`: the agent
/// accepts more than text and pictures.
pub async fn fetch(platform: &dyn Platform, media: &[MediaInfo], files: bool) -> FetchedMedia {
    let mut fetched = FetchedMedia::default();
    let mut caps = RemainingCaps { forwarded: FORWARDED, text: TEXT };
    for (index, file) in media.iter().enumerate() {
        let name = name(file);
        let outcome = match () {
            () if index >= FILES => Err("too many files in one message"),
            () => one(platform, file, files, &caps).await,
        };
        match outcome.and_then(|content| take(&mut fetched, &mut caps, &name, content, files)) {
            Ok(Some(text)) => {
                fetched.notes.push_str(&text);
                let fits = fetched.kept.len() + text.len() <= REMEMBERED;
                fetched.kept.push_str(&if fits { text } else { line(&name) });
            }
            Ok(None) => fetched.kept.push_str(&line(&name)),
            Err(reason) => {
                let why = format!("\n[attached file \"{name}\": {reason}]");
                fetched.notes.push_str(&why);
                fetched.kept.push_str(&why);
            }
        }
    }
    fetched
}

/// Bytes that the files will take, according to their senders.
pub fn announced(media: &[MediaInfo]) -> usize {
    let bytes = media.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
    usize::try_from(bytes.min(FORWARDED)).unwrap_or_default()
}

/// Text for the history when only the names of the files are known.
pub fn named(media: &[MediaInfo]) -> String {
    media.iter().map(|file| line(&name(file))).collect()
}

/// Line that names a file.
fn line(name: &str) -> String {
    format!("\n[attached file \"{name}\"]")
}

/// A text file as the part of a prompt that follows the person's own words.
pub fn text_file(name: &str, text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}');
    format!("\n[attached file \"{}\", as it reads:]\n{}", safe_name(name), fenced(text))
}

fn name(file: &MediaInfo) -> String {
    safe_name(&file.name)
}

/// A file name that is safe inside quotes.
fn safe_name(name: &str) -> String {
    let name = one_line(name, NAME).replace(['"', '/', '\\'], "_");
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Fetches one file, if the agent can use its kind.
async fn one(
    platform: &dyn Platform,
    file: &MediaInfo,
    files: bool,
    caps: &RemainingCaps,
) -> Result<Vec<u8>, &'static str> {
    // Many clients send a picture as a plain file. Its kind is known only after fetching, so every file may be
    // as large as a picture.
    let limit = match file.kind {
        MediaKind::Audio if !files => return Err("a voice message or other sound, which is not forwarded"),
        MediaKind::Video if !files => return Err("a film, which is not forwarded"),
        MediaKind::Image | MediaKind::Audio | MediaKind::Video | MediaKind::File => caps.forwarded,
    };
    match tokio::time::timeout(FETCH, insist(platform, file, limit)).await {
        Ok(Ok(content)) => Ok(content),
        Ok(Err(error)) if error.kind() == PlatformErrorKind::Rejected => {
            Err("it is too large, or was refused")
        }
        Ok(Err(_)) => Err("it could not be fetched"),
        Err(_) => Err("it could not be fetched in time"),
    }
}

/// Retries until the file is there, or never will be. The caller limits the time.
async fn insist(platform: &dyn Platform, file: &MediaInfo, limit: u64) -> Result<Vec<u8>, PlatformError> {
    let mut backoff = PAUSES;
    loop {
        let error = match platform.fetch(&file.id, limit).await {
            Ok(content) => return Ok(content),
            Err(error) => error,
        };
        let PlatformErrorKind::Retry { after } = error.kind() else { return Err(error) };
        let pause = backoff.advance();
        tokio::time::sleep(after.unwrap_or(pause)).await;
    }
}

/// Adds a file to the result. `Some` is a text file in the form for the prompt.
fn take(
    fetched: &mut FetchedMedia,
    caps: &mut RemainingCaps,
    name: &str,
    content: Vec<u8>,
    files: bool,
) -> Result<Option<String>, &'static str> {
    let size = content.len() as u64;
    match FileKind::of(&content) {
        FileKind::Picture(mime) => {
            caps.forwarded = caps.forwarded.saturating_sub(size);
            fetched.images.push(PromptImage { mime, content });
        }
        FileKind::Text if size <= caps.text => {
            caps.text -= size;
            let text = String::from_utf8(content).map_err(|_| "it is no text")?;
            return Ok(Some(text_file(name, &text)));
        }
        FileKind::Text if !files => {
            return Err("its text is too long: up to 256 KB are forwarded in one message");
        }
        FileKind::Empty => return Err("it is empty"),
        kind if files => {
            caps.forwarded = caps.forwarded.saturating_sub(size);
            fetched.files.push(Attachment { name: name.to_owned(), mime: kind.mime(), content });
        }
        FileKind::Sound(_) => return Err("a voice message or other sound, which is not forwarded"),
        FileKind::Text | FileKind::Film(_) | FileKind::Other(_) => {
            return Err("this kind of file is not forwarded");
        }
    }
    Ok(None)
}
