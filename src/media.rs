//! What people attach: which files reach an agent as pictures, and what is said of the rest.
//!
//! A file is judged by its content, never by its name or by what the sender says. Nothing is written
//! to disk, and no path ever reaches an agent.

use std::time::Duration;

use talaria_platform::{Media, MediaKind, Platform};

use crate::agent::Image;
use crate::reply::one_line;

/// Pictures of one message that are forwarded, in bytes together.
const PICTURES: u64 = 6_000_000;

/// Files of one message that are looked at; the others are only named.
const FILES: usize = 5;

/// How long fetching one file may take.
const FETCH: Duration = Duration::from_secs(60);

/// What became of the files of one message.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Pictures for the agent.
    pub images: Vec<Image>,
    /// A line for each file that is not forwarded, to be put after the person's own words.
    pub notes: String,
}

/// Fetches the pictures of a message within the caps and notes everything else.
pub async fn fetch(platform: &dyn Platform, media: &[Media]) -> Fetched {
    let mut fetched = Fetched::default();
    let mut room = PICTURES;
    for (index, file) in media.iter().enumerate() {
        let reason = if file.kind != MediaKind::Image {
            "this kind of file is not forwarded"
        } else if index >= FILES {
            "too many files in one message"
        } else {
            let content = tokio::time::timeout(FETCH, platform.fetch(&file.id, room)).await;
            match content {
                Ok(Ok(content)) => match picture_type(&content) {
                    Some(mime) => {
                        room = room.saturating_sub(content.len() as u64);
                        fetched.images.push(Image { mime, content });
                        continue;
                    }
                    None => "it is not a picture this gateway knows",
                },
                Ok(Err(_)) => "it is too large or could not be fetched",
                Err(_) => "it could not be fetched in time",
            }
        };
        fetched.notes.push_str(&format!("\n[attached file \"{}\": {reason}]", one_line(&file.name, 80)));
    }
    fetched
}

/// The MIME type of a picture that models take, by its first bytes.
fn picture_type(content: &[u8]) -> Option<&'static str> {
    match content {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_known_by_their_content() {
        assert_eq!(picture_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(picture_type(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(picture_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(picture_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(picture_type(b"<svg onload=alert(1)>"), None);
        assert_eq!(picture_type(b""), None);
    }
}
