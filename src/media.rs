//! What people attach: what reaches an agent and how, and what is said of the rest.
//!
//! A file is judged by its content, never by its name or by what the sender says. Nothing is written
//! to disk, and no path ever reaches an agent.

pub mod kind;

use std::time::Duration;

use talaria_platform::{ErrorKind, Media, MediaKind, Platform};

use self::kind::Kind;
use crate::agent::{Attachment, Image};
use crate::reply::{fenced, one_line};

/// Pictures and files of one message that are forwarded, in bytes together.
const FORWARDED: u64 = 6_000_000;

/// Text of one message's files that is put into the prompt, in bytes together.
const TEXT: u64 = 256 * 1024;

/// Files of one message that are looked at; the others are only named.
const FILES: usize = 5;

/// Characters of a file's name that an agent is told.
const NAME: usize = 80;

/// How long fetching one file may take.
const FETCH: Duration = Duration::from_secs(60);

/// What became of the files of one message.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Pictures for the agent.
    pub images: Vec<Image>,
    /// Other files for the agent.
    pub files: Vec<Attachment>,
    /// What is put after the person's own words: the text files, and a line for each file that is not forwarded.
    pub notes: String,
}

/// What is left of the caps while the files of one message are gone through.
struct Caps {
    forwarded: u64,
    text: u64,
}

/// Fetches the files of a message within the caps and notes what stays behind. `files`: the agent takes more than
/// text and pictures.
pub async fn fetch(platform: &dyn Platform, media: &[Media], files: bool) -> Fetched {
    let mut fetched = Fetched::default();
    let mut caps = Caps { forwarded: FORWARDED, text: TEXT };
    for (index, file) in media.iter().enumerate() {
        let name = name(file);
        let outcome = match () {
            () if index >= FILES => Err("too many files in one message"),
            () => one(platform, file, files, &caps).await,
        };
        match outcome.and_then(|content| take(&mut fetched, &mut caps, &name, content, files)) {
            Ok(()) => {}
            Err(reason) => fetched.notes.push_str(&format!("\n[attached file \"{name}\": {reason}]")),
        }
    }
    fetched
}

/// A name that fits into the quotes around it.
fn name(file: &Media) -> String {
    let name = one_line(&file.name, NAME).replace(['"', '/', '\\'], "_");
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The content of one file, if it can be of any use.
async fn one(
    platform: &dyn Platform,
    file: &Media,
    files: bool,
    caps: &Caps,
) -> Result<Vec<u8>, &'static str> {
    // Many clients send a picture as a file: what it is, is seen when it is here, so it may be as large as one.
    let limit = match file.kind {
        MediaKind::Audio if !files => return Err("a voice message or other sound, which is not forwarded"),
        MediaKind::Video if !files => return Err("a film, which is not forwarded"),
        MediaKind::Image | MediaKind::Audio | MediaKind::Video | MediaKind::File => caps.forwarded,
    };
    match tokio::time::timeout(FETCH, platform.fetch(&file.id, limit)).await {
        Ok(Ok(content)) => Ok(content),
        Ok(Err(error)) if error.kind() == ErrorKind::Rejected => Err("it is too large, or was refused"),
        Ok(Err(_)) => Err("it could not be fetched"),
        Err(_) => Err("it could not be fetched in time"),
    }
}

/// Puts a file where it belongs.
fn take(
    fetched: &mut Fetched,
    caps: &mut Caps,
    name: &str,
    content: Vec<u8>,
    files: bool,
) -> Result<(), &'static str> {
    let size = content.len() as u64;
    match Kind::of(&content) {
        Kind::Picture(mime) => {
            caps.forwarded = caps.forwarded.saturating_sub(size);
            fetched.images.push(Image { mime, content });
        }
        Kind::Text if size <= caps.text => {
            caps.text -= size;
            let text = String::from_utf8(content).map_err(|_| "it is no text")?;
            let text = text.trim_start_matches('\u{feff}');
            fetched.notes.push_str(&format!("\n[attached file \"{name}\", as it reads:]\n{}", fenced(text)));
        }
        Kind::Text if !files => {
            return Err("its text is too long: up to 256 KB are forwarded in one message");
        }
        Kind::Empty => return Err("it is empty"),
        kind if files => {
            caps.forwarded = caps.forwarded.saturating_sub(size);
            fetched.files.push(Attachment { name: name.to_owned(), mime: kind.mime(), content });
        }
        Kind::Sound(_) => return Err("a voice message or other sound, which is not forwarded"),
        Kind::Text | Kind::Film(_) | Kind::Other(_) => return Err("this kind of file is not forwarded"),
    }
    Ok(())
}
