//! What people attach: what reaches an agent and how, and what is said of the rest.
//!
//! A file is judged by its content, never by its name or by what the sender says. Nothing is written
//! to disk, and no path ever reaches an agent.

use std::time::Duration;

use talaria_platform::{Backoff, MediaInfo, MediaKind, Platform, PlatformError, PlatformErrorKind};

use crate::agent::{Attachment, PromptImage};
use crate::util::{FileKind, fenced, one_line};

/// Pictures and files of one message that are forwarded, in bytes together.
const FORWARDED: u64 = 6_000_000;

/// Text of one message's files that is put into the prompt, in bytes together.
const TEXT: u64 = 256 * 1024;

/// Files of one message that are looked at; the others are only named.
const FILES: usize = 5;

/// Characters of a file's name that an agent is told.
const NAME: usize = 80;

/// Text of one message's files that is remembered after its turn, in bytes together. A quarter of all that an agent is
/// told again, unless the operator says otherwise; of a longer file only the name stays.
const REMEMBERED: usize = 64 * 1024;

/// How long fetching one file may take, with every try.
const FETCH: Duration = Duration::from_secs(60);

/// The pause after a try that may go better the next time, where the network names none; each further one is twice
/// as long.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(1), FETCH);

/// What became of the files of one message.
#[derive(Debug, Default)]
pub struct FetchedMedia {
    /// Pictures for the agent.
    pub images: Vec<PromptImage>,
    /// Other files for the agent.
    pub files: Vec<Attachment>,
    /// What is put after the person's own words: the text files, and a line for each file that is not forwarded.
    pub notes: String,
    /// What is remembered of all of them, to be put after the person's own words.
    pub kept: String,
}

/// What is left of the caps while the files of one message are gone through.
struct RemainingCaps {
    forwarded: u64,
    text: u64,
}

/// Fetches the files of a message within the caps and notes what stays behind. `files`: the agent takes more than
/// text and pictures.
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

/// Bytes that files will take, as far as their senders say.
pub fn announced(media: &[MediaInfo]) -> usize {
    let bytes = media.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
    usize::try_from(bytes.min(FORWARDED)).unwrap_or_default()
}

/// What is remembered of files when nothing is known but their names.
pub fn named(media: &[MediaInfo]) -> String {
    media.iter().map(|file| line(&name(file))).collect()
}

/// That there was a file.
fn line(name: &str) -> String {
    format!("\n[attached file \"{name}\"]")
}

/// A name that fits into the quotes around it.
fn name(file: &MediaInfo) -> String {
    let name = one_line(&file.name, NAME).replace(['"', '/', '\\'], "_");
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The content of one file, if it can be of any use.
async fn one(
    platform: &dyn Platform,
    file: &MediaInfo,
    files: bool,
    caps: &RemainingCaps,
) -> Result<Vec<u8>, &'static str> {
    // Many clients send a picture as a file: what it is, is seen when it is here, so it may be as large as one.
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

/// Tries until there is a content, or never will be. Whoever calls it ends it.
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

/// Puts a file where it belongs. `Some` is a text file as it is put into the prompt.
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
            let text = text.trim_start_matches('\u{feff}');
            return Ok(Some(format!("\n[attached file \"{name}\", as it reads:]\n{}", fenced(text))));
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
