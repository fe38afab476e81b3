//! Files that people attach: described from the event, fetched within a limit, decrypted and checked.

mod fetch;
mod name;

use matrix_sdk::ruma::events::room::MediaSource;
use matrix_sdk::ruma::events::room::message::MessageType;
use talaria_platform::{MediaId, MediaInfo, MediaKind};

pub(crate) use fetch::fetch;
pub(crate) use name::base_name;

/// Bytes of the longest file id that is accepted. The id of an encrypted file takes about 400 bytes; more is abuse.
const LONGEST_ID: usize = 4096;

/// Bytes of the longest MIME type that is accepted.
const LONGEST_MIME: usize = 100;

/// The file in a message, if there is one. Nothing in it can be trusted.
pub(crate) fn of(message: &MessageType) -> Option<MediaInfo> {
    let (kind, name, source, mime, size) = match message {
        MessageType::Image(image) => {
            let info = image.info.as_deref();
            let about = (info.and_then(|info| info.mimetype.as_deref()), info.and_then(|info| info.size));
            (MediaKind::Image, image.filename(), &image.source, about.0, about.1)
        }
        MessageType::Audio(audio) => {
            let info = audio.info.as_deref();
            let about = (info.and_then(|info| info.mimetype.as_deref()), info.and_then(|info| info.size));
            (MediaKind::Audio, audio.filename(), &audio.source, about.0, about.1)
        }
        MessageType::Video(video) => {
            let info = video.info.as_deref();
            let about = (info.and_then(|info| info.mimetype.as_deref()), info.and_then(|info| info.size));
            (MediaKind::Video, video.filename(), &video.source, about.0, about.1)
        }
        MessageType::File(file) => {
            let info = file.info.as_deref();
            let about = (info.and_then(|info| info.mimetype.as_deref()), info.and_then(|info| info.size));
            (MediaKind::File, file.filename(), &file.source, about.0, about.1)
        }
        // The type is the SDK's and open: text messages and future kinds have no file.
        _ => return None,
    };
    Some(MediaInfo {
        id: id(source)?,
        kind,
        name: base_name(name),
        mime: mime.filter(|mime| is_mime(mime)).map(str::to_ascii_lowercase),
        size: size.map(u64::from),
    })
}

/// A media source as text for [`fetch`]; `None` if it is too long.
fn id(source: &MediaSource) -> Option<MediaId> {
    let text = serde_json::to_string(source).ok()?;
    (text.len() <= LONGEST_ID).then(|| MediaId::new(text))
}

fn is_mime(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    text.len() <= LONGEST_MIME && text.split_once('/').is_some_and(|(kind, sort)| token(kind) && token(sort))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(content: serde_json::Value) -> MessageType {
        serde_json::from_value(content).unwrap()
    }

    #[test]
    fn a_file_is_described_by_its_kind_its_base_name_and_its_source() {
        let media = of(&message(json!({
            "msgtype": "m.image", "body": "look at this", "filename": "../../etc/cat.png",
            "url": "mxc://example.org/abc", "info": { "mimetype": "image/PNG", "size": 12 },
        })))
        .unwrap();
        assert_eq!(media.kind, MediaKind::Image);
        assert_eq!(
            (media.name.as_str(), media.mime.as_deref(), media.size),
            ("cat.png", Some("image/png"), Some(12))
        );
        assert_eq!(media.id.as_str(), r#"{"url":"mxc://example.org/abc"}"#);
    }

    #[test]
    fn what_a_sender_says_of_a_file_is_bounded() {
        let media = of(&message(json!({
            "msgtype": "m.audio", "body": "x".repeat(5000), "url": "mxc://example.org/abc",
            "info": { "mimetype": "audio/ogg\r\nX-Evil: 1" },
        })))
        .unwrap();
        assert_eq!(media.mime, None);
        assert!(media.name.len() <= 200);
        assert_eq!(
            of(&message(json!({
                "msgtype": "m.file", "body": "x", "url": format!("mxc://example.org/{}", "a".repeat(5000)),
            }))),
            None
        );
    }

    #[test]
    fn a_text_is_no_file() {
        assert_eq!(of(&message(json!({ "msgtype": "m.text", "body": "hello" }))), None);
        assert_eq!(
            of(&message(json!({ "msgtype": "m.location", "body": "here", "geo_uri": "geo:1,2" }))),
            None
        );
    }
}
