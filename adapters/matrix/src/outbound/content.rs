//! Makes the JSON content of messages.
//!
//! Every message has an empty `m.mentions`: without it, clients and homeservers look for names in the text, and
//! phones ring because of a model's words. The text is included as it is, and also as HTML if that shows more. The
//! outer fallback of an edit is only the beginning of the text, because a client that cannot show edits shows the
//! first message.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use talaria_platform::{BodyKind, EventId, MessageBody, MessageId, Place};

/// Bytes that a room event may have at most, with everything that homeservers add to it.
pub(super) const EVENT: usize = 65_536;

/// Bytes of an event beside its content: its references to others, hashes, signatures, sender, and the names of our
/// keys. Twenty references and two signatures make about 2,500 bytes.
const ENVELOPE: usize = 3_500;

/// Characters of an edit's fallback.
const FALLBACK: usize = 60;

/// The message does not fit into an event, even without HTML.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message has {0} bytes; a Matrix event cannot carry it")]
pub(super) struct TooLarge(usize);

/// Content of a new message.
pub(super) fn message(place: &Place, body: &MessageBody, html: Option<String>) -> Result<String, TooLarge> {
    fitting(html, |html| {
        let mut content = words(body, &body.markdown, html);
        relate(&mut content, place, body.reply_to.as_ref());
        content
    })
}

/// Content of an edit of a message.
pub(super) fn edit(of: &MessageId, body: &MessageBody, html: Option<String>) -> Result<String, TooLarge> {
    fitting(html, |html| {
        let new = words(body, &body.markdown, html);
        let mut content = words(body, &fallback(&body.markdown), None);
        content.insert("m.new_content".into(), new.into());
        content.insert("m.relates_to".into(), json!({ "rel_type": "m.replace", "event_id": of.as_str() }));
        content
    })
}

/// Content of a message with a file; the text of the body, if any, is its caption.
pub(super) fn file(
    place: &Place,
    body: &MessageBody,
    html: Option<String>,
    about: &FileContent<'_>,
) -> Result<String, TooLarge> {
    fitting(html, |html| {
        let mut content = match body.markdown.trim().is_empty() {
            true => words(body, &about.name, None),
            false => words(body, &body.markdown, html),
        };
        content.insert("msgtype".into(), about.msgtype.into());
        content.insert("filename".into(), about.name.as_ref().into());
        content.insert("info".into(), about.info.clone());
        let (key, source) = &about.source;
        content.insert((*key).into(), source.clone());
        relate(&mut content, place, body.reply_to.as_ref());
        content
    })
}

/// Description of an uploaded file in a message.
#[derive(Clone)]
pub(super) struct FileContent<'a> {
    pub msgtype: &'static str,
    pub name: Cow<'a, str>,
    /// Type, size, and the width and height of a picture.
    pub info: Value,
    /// Key and value that locate the file: `url`, or `file` with its keys.
    pub source: (&'static str, Value),
}

/// Content of a reaction to a message.
pub(super) fn reaction(to: &MessageId, mark: &str) -> Value {
    json!({ "m.relates_to": { "rel_type": "m.annotation", "event_id": to.as_str(), "key": mark } })
}

/// The content with its HTML if that fits, otherwise without.
fn fitting(
    html: Option<String>,
    make: impl Fn(Option<&str>) -> Map<String, Value>,
) -> Result<String, TooLarge> {
    if let Some(html) = html {
        let content = Value::from(make(Some(&html))).to_string();
        if fits(&content) {
            return Ok(content);
        }
    }
    let content = Value::from(make(None)).to_string();
    if fits(&content) { Ok(content) } else { Err(TooLarge(content.len())) }
}

/// Whether an event can carry this content encrypted. Unencrypted there would be room for more; nobody needs it.
pub(super) fn fits(content: &str) -> bool {
    sealed(content.len()) + ENVELOPE <= EVENT
}

/// Bytes of content after encryption: wrapped with its type and room, padded to whole blocks, signed, and
/// base64-encoded.
pub(super) fn sealed(content: usize) -> usize {
    /// Bytes of the wrapping, with the longest possible room id.
    const WRAPPING: usize = 310;
    /// Bytes of version, message index and length before it, authentication and signature after it.
    const AROUND: usize = 16 + 8 + 64;
    let blocks = (content + WRAPPING) / 16 + 1;
    (blocks * 16 + AROUND).div_ceil(3) * 4
}

fn words(body: &MessageBody, text: &str, html: Option<&str>) -> Map<String, Value> {
    let mut content = Map::new();
    let msgtype = match body.kind {
        BodyKind::Answer | BodyKind::Ask if !body.silent => "m.text",
        // By default nobody is notified of notices (`.m.rule.suppress_notices`), and other bots do not answer them.
        // In an encrypted room Synapse cannot see the type and counts each as unread; clients see it after
        // decryption, before they notify.
        BodyKind::Answer | BodyKind::Ask | BodyKind::Notice => "m.notice",
    };
    content.insert("msgtype".into(), msgtype.into());
    content.insert("body".into(), text.into());
    if let Some(html) = html {
        content.insert("format".into(), "org.matrix.custom.html".into());
        content.insert("formatted_body".into(), html.into());
    }
    content.insert("m.mentions".into(), json!({}));
    content
}

/// Adds the thread of a message and the event it replies to.
fn relate(content: &mut Map<String, Value>, place: &Place, reply_to: Option<&EventId>) {
    // Only events that the network made can be replied to.
    let reply_to = reply_to.map(EventId::as_str).filter(|event| event.starts_with('$'));
    let relation = match (&place.thread, reply_to) {
        (Some(thread), reply_to) => json!({
            "rel_type": "m.thread",
            "event_id": thread.as_str(),
            // Clients without threads show a reply; those with threads show it only if it is meant as one.
            "is_falling_back": reply_to.is_none(),
            "m.in_reply_to": { "event_id": reply_to.unwrap_or(thread.as_str()) },
        }),
        (None, Some(event)) => json!({ "m.in_reply_to": { "event_id": event } }),
        (None, None) => return,
    };
    content.insert("m.relates_to".into(), relation);
}

/// The beginning of a text, marked as an edit.
fn fallback(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    let cut = line.char_indices().nth(FALLBACK).map_or(line.len(), |(at, _)| at);
    let more = if cut < line.len() || text.trim_end().contains('\n') { "…" } else { "" };
    format!("* {}{more}", &line[..cut])
}

/// Text without invisible characters that take six bytes each in JSON.
pub(super) fn legible(text: &str) -> Cow<'_, str> {
    let odd = |byte: u8| (byte < 0x20 && byte != b'\n' && byte != b'\t') || byte == 0x7f;
    // Does not stop early, so that the compiler can check many bytes at once.
    if !text.bytes().fold(false, |found, byte| found | odd(byte)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| !c.is_ascii() || !odd(*c as u8)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::html::render;
    use super::*;

    fn body(kind: BodyKind, markdown: &str) -> MessageBody {
        MessageBody::new(kind, markdown)
    }

    #[test]
    fn an_answer_is_text_with_html_only_where_it_shows_more() {
        let place = Place::room("!r");
        let plain = message(&place, &body(BodyKind::Answer, "hello"), render("hello")).unwrap();
        insta::assert_snapshot!(plain, @r#"{"body":"hello","m.mentions":{},"msgtype":"m.text"}"#);
        let marked = message(&place, &body(BodyKind::Notice, "**hello**"), render("**hello**")).unwrap();
        insta::assert_snapshot!(marked, @r#"{"body":"**hello**","format":"org.matrix.custom.html","formatted_body":"<strong>hello</strong>","m.mentions":{},"msgtype":"m.notice"}"#);
    }

    #[test]
    fn what_goes_on_with_an_answer_does_not_ring() {
        let part = MessageBody { silent: true, ..body(BodyKind::Answer, "and so on") };
        let sent = message(&Place::room("!r"), &part, None).unwrap();
        insta::assert_snapshot!(sent, @r#"{"body":"and so on","m.mentions":{},"msgtype":"m.notice"}"#);
    }

    #[test]
    fn a_reply_and_a_thread_are_kept() {
        let reply = MessageBody { reply_to: Some(EventId::new("$q")), ..body(BodyKind::Ask, "may I?") };
        let thread = Place { thread: Some("$root".into()), ..Place::room("!r") };
        let relation = |place: &Place, body: &MessageBody| {
            let content: Value = serde_json::from_str(&message(place, body, None).unwrap()).unwrap();
            content.get("m.relates_to").map(Value::to_string).unwrap_or_default()
        };
        insta::assert_snapshot!(relation(&Place::room("!r"), &reply), @r#"{"m.in_reply_to":{"event_id":"$q"}}"#);
        insta::assert_snapshot!(relation(&thread, &reply), @r#"{"event_id":"$root","is_falling_back":false,"m.in_reply_to":{"event_id":"$q"},"rel_type":"m.thread"}"#);
        insta::assert_snapshot!(relation(&thread, &body(BodyKind::Answer, "x")), @r#"{"event_id":"$root","is_falling_back":true,"m.in_reply_to":{"event_id":"$root"},"rel_type":"m.thread"}"#);
        let odd = MessageBody { reply_to: Some(EventId::new("gap-17")), ..reply };
        assert_eq!(relation(&Place::room("!r"), &odd), "");
    }

    #[test]
    fn an_edit_carries_its_text_once_and_its_html_once() {
        let text = "A **longer** text that goes on beyond what a fallback shows, in one line.\nAnd another.";
        let content = edit(&MessageId::new("$m"), &body(BodyKind::Answer, text), render(text)).unwrap();
        assert_eq!(content.matches("And another").count(), 2);
        let mut content: Value = serde_json::from_str(&content).unwrap();
        let new = content["m.new_content"].take();
        insta::assert_snapshot!(content, @r#"{"body":"* A **longer** text that goes on beyond what a fallback shows,…","m.mentions":{},"m.new_content":null,"m.relates_to":{"event_id":"$m","rel_type":"m.replace"},"msgtype":"m.text"}"#);
        assert_eq!(new["body"], text);
        assert_eq!(new["m.mentions"], json!({}));
        assert_eq!(new.get("m.relates_to"), None);
    }

    #[test]
    fn what_is_too_large_loses_its_html_before_it_is_refused() {
        let place = Place::room("!r");
        let text = "*<* ".repeat(5_000);
        let sent = message(&place, &body(BodyKind::Answer, &text), render(&text)).unwrap();
        assert!(!sent.contains("formatted_body") && fits(&sent));
        let text = "x".repeat(EVENT);
        assert!(message(&place, &body(BodyKind::Answer, &text), None).is_err());
    }

    #[test]
    fn a_file_has_a_name_a_caption_and_a_source() {
        let about = FileContent {
            msgtype: "m.file",
            name: "a.txt".into(),
            info: json!({ "mimetype": "text/plain", "size": 3 }),
            source: ("url", "mxc://h/a".into()),
        };
        let bare = file(&Place::room("!r"), &body(BodyKind::Answer, ""), None, &about).unwrap();
        insta::assert_snapshot!(bare, @r#"{"body":"a.txt","filename":"a.txt","info":{"mimetype":"text/plain","size":3},"m.mentions":{},"msgtype":"m.file","url":"mxc://h/a"}"#);
        let captioned =
            file(&Place::room("!r"), &body(BodyKind::Answer, "*look*"), render("*look*"), &about).unwrap();
        assert!(
            captioned.contains(r#""body":"*look*""#) && captioned.contains("<em>look</em>"),
            "{captioned}"
        );
    }

    #[test]
    fn nobody_gets_control_characters() {
        assert_eq!(legible("a\0b\x1b[31m\r\n\tc\x7f ü"), "ab[31m\n\tc ü");
        assert!(matches!(legible("fine\n\tü"), Cow::Borrowed(_)));
    }
}
