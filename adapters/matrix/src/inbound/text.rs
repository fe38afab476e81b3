//! Reads the plain text of a message. Pure.

use matrix_sdk::ruma::events::room::message::MessageType;

/// Characters of a name that are shown at most. A name may have any length and any characters.
const LONGEST_NAME: usize = 80;

/// The text of a message as its author wrote it; `None` if it is not a person's message to us: notices come from
/// programs, and `encryption` handles requests for verification.
pub(super) fn of(message: &MessageType, is_reply: bool, author: &str) -> Option<String> {
    let text = match message {
        MessageType::Text(text) => without_quote(&text.body, is_reply).to_owned(),
        MessageType::Emote(emote) => format!("* {author} {}", without_quote(&emote.body, is_reply)),
        // Without a file name of its own, the body is the file's name and not a caption.
        MessageType::Image(image) => image.caption().unwrap_or_default().to_owned(),
        MessageType::File(file) => file.caption().unwrap_or_default().to_owned(),
        MessageType::Audio(audio) => audio.caption().unwrap_or_default().to_owned(),
        MessageType::Video(video) => video.caption().unwrap_or_default().to_owned(),
        MessageType::Location(location) => format!("{} ({})", location.body, location.geo_uri),
        // Notices, verification, and unknown kinds.
        _ => return None,
    };
    Some(text)
}

/// A reply without the quoted message, which clients used to put before it: lines that begin with `>`, the first of
/// them with the author's id.
fn without_quote(body: &str, is_reply: bool) -> &str {
    let quotes = is_reply && (body.starts_with("> <@") || body.starts_with("> * <@"));
    if !quotes {
        return body;
    }
    let mut rest = body;
    while rest.starts_with('>') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.strip_prefix('\n').unwrap_or(rest)
}

/// A name as one short line without characters that reorder text.
pub(super) fn name(name: &str) -> Option<String> {
    let words = name.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    let line: String = words.filter(|c| !c.is_control() && !is_direction(*c)).take(LONGEST_NAME).collect();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// Marks that change the direction of the text around them.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The beginning of a text, cut after `limit` characters, with `…` if it was cut.
pub(super) fn beginning(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(content: Value, is_reply: bool) -> Option<String> {
        of(&serde_json::from_value(content).expect("a message"), is_reply, "Ann")
    }

    #[test]
    fn people_are_heard_and_programs_are_not() {
        let url = "mxc://example.org/1";
        let table = [
            (json!({"msgtype": "m.text", "body": "hi"}), Some("hi")),
            (json!({"msgtype": "m.emote", "body": "waves"}), Some("* Ann waves")),
            (json!({"msgtype": "m.image", "body": "cat.png", "url": url}), Some("")),
            (json!({"msgtype": "m.image", "body": "cat.png", "filename": "cat.png", "url": url}), Some("")),
            (
                json!({"msgtype": "m.image", "body": "my cat", "filename": "cat.png", "url": url}),
                Some("my cat"),
            ),
            (json!({"msgtype": "m.file", "body": "read", "filename": "a.txt", "url": url}), Some("read")),
            (json!({"msgtype": "m.location", "body": "here", "geo_uri": "geo:1,2"}), Some("here (geo:1,2)")),
            (json!({"msgtype": "m.notice", "body": "beep"}), None),
            (json!({"msgtype": "org.example.new", "body": "?"}), None),
        ];
        for (content, expected) in table {
            assert_eq!(text(content.clone(), false).as_deref(), expected, "{content}");
        }
    }

    #[test]
    fn a_reply_is_told_from_what_it_repeats() {
        let table = [
            ("> <@bob:example.org> one\n> two\n\nyes", true, "yes"),
            ("> * <@bob:example.org> waves\n\nhello\n\n> not this", true, "hello\n\n> not this"),
            ("> <@bob:example.org> one", true, ""),
            ("> <@bob:example.org> one\nyes", true, "yes"),
            ("> quoted by hand\n\nyes", true, "> quoted by hand\n\nyes"),
            ("> <@bob:example.org> one\n\nyes", false, "> <@bob:example.org> one\n\nyes"),
            ("yes", true, "yes"),
            ("", true, ""),
        ];
        for (body, is_reply, expected) in table {
            let content = json!({"msgtype": "m.text", "body": body});
            assert_eq!(text(content, is_reply).as_deref(), Some(expected), "{body:?}");
        }
    }

    #[test]
    fn names_are_one_short_line() {
        assert_eq!(name("  Ann \n of\tHouse "), Some("Ann of House".to_owned()));
        assert_eq!(name("A\u{202e}nn"), Some("Ann".to_owned()));
        assert_eq!(name("\n\u{0}"), None);
        assert_eq!(name(&"ü".repeat(5000)).map(|name| name.chars().count()), Some(80));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(beginning("äöü", 3), "äöü");
        assert_eq!(beginning("äöü", 2), "äö…");
    }
}
