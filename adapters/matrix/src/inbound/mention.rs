//! Finds out whether a message mentions us, and strips the mention. Pure.

use matrix_sdk::ruma::UserId;

use super::wire::MessageContent;

/// Our names in a room.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnNames<'a> {
    pub id: &'a UserId,
    /// Our display name.
    pub shown: Option<&'a str>,
}

impl OwnNames<'_> {
    /// Whether a message mentions us, by its `m.mentions` or by a link. A mention of the whole room does not count:
    /// it is for people.
    pub fn are_mentioned(&self, said: &MessageContent) -> bool {
        match &said.mentions {
            // A client that sends `m.mentions` means nobody else, even if it links to them.
            Some(mentioned) => mentioned.iter().any(|user| user == self.id),
            None => said.html.as_deref().is_some_and(|html| self.are_linked(html)),
        }
    }

    /// The rest of the text if it begins with one of our names, as in `Bot: hello`.
    pub fn after<'t>(&self, text: &'t str) -> Option<&'t str> {
        let text = text.trim_start();
        self.after_link(text)
            .or_else(|| after_id(text, self.id.as_str()))
            .or_else(|| self.shown.and_then(|shown| after_name(text, shown)))
            .or_else(|| after_name(text.strip_prefix('@')?, self.shown?))
            .or_else(|| after_id(text.strip_prefix('@')?, self.id.localpart()))
    }

    /// Handles `[Bot](https://matrix.to/#/@bot:example.org)`, which Markdown clients leave in the plain text.
    fn after_link<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (name, rest) = text.strip_prefix('[')?.split_once("](")?;
        let (link, rest) = rest.split_once(')')?;
        (!name.contains(['[', ']', '\n']) && self.is_link(link)).then(|| without_colon(rest))
    }

    fn are_linked(&self, html: &str) -> bool {
        let html = without_quote(html);
        html.split("href=").skip(1).any(|rest| {
            let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''));
            let link = quote.and_then(|quote| rest.get(1..)?.split_once(quote));
            link.is_some_and(|(link, _)| self.is_link(link))
        })
    }

    fn is_link(&self, link: &str) -> bool {
        let named = match link.split_once("//matrix.to/#/") {
            Some(("https:" | "http:", named)) => named.to_owned(),
            Some(_) => return false,
            None => match link.strip_prefix("matrix:u/") {
                Some(named) => format!("@{named}"),
                None => return false,
            },
        };
        let named = named.split_once('?').map_or(named.as_str(), |(named, _)| named);
        decoded(named) == self.id.as_str()
    }
}

/// HTML without the quoted message, which is full of links to its author.
fn without_quote(html: &str) -> &str {
    match html.trim_start().strip_prefix("<mx-reply>") {
        Some(rest) => rest.split_once("</mx-reply>").map_or("", |(_, rest)| rest),
        None => html,
    }
}

/// The rest after an id. The id must be followed by the end, a space, or `:` or `,` and one of these:
/// `@bot:example.org:8448` is another id.
fn after_id<'t>(text: &'t str, id: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(id)?;
    let end = rest.strip_prefix([':', ',']).unwrap_or(rest);
    (end.is_empty() || end.starts_with(char::is_whitespace)).then(|| end.trim_start())
}

/// The rest after a name. The name must be followed by the end, a space, `:` or `,`.
fn after_name<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let name = name.trim();
    if name.is_empty() {
        return None;
    }
    let mut rest = text.chars();
    for wanted in name.chars() {
        let found = rest.next()?;
        if found != wanted && !found.to_lowercase().eq(wanted.to_lowercase()) {
            return None;
        }
    }
    let rest = rest.as_str();
    (rest.is_empty() || rest.starts_with(|next: char| next.is_whitespace() || matches!(next, ':' | ',')))
        .then(|| without_colon(rest))
}

fn without_colon(rest: &str) -> &str {
    rest.strip_prefix([':', ',']).unwrap_or(rest).trim_start()
}

/// Replaces percent codes such as `%40` by their bytes. Anything that is no code stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;
    use serde_json::{Value, json};

    use super::super::wire::{self, MatrixEventKind};
    use super::*;

    fn names() -> OwnNames<'static> {
        OwnNames { id: user_id!("@bot:example.org"), shown: Some("Hermes Bot") }
    }

    fn said(mut content: Value) -> MessageContent {
        content["msgtype"] = json!("m.text");
        content["body"] = json!("…");
        let event = json!({"type": "m.room.message", "event_id": "$1", "sender": "@ann:example.org",
            "content": content});
        match wire::read(&event.to_string()).expect("an event").what {
            MatrixEventKind::Said(said) => said,
            other => panic!("no message: {other:?}"),
        }
    }

    #[test]
    fn a_name_at_the_start_is_told_from_the_text() {
        let table = [
            ("Hermes Bot: hello", Some("hello")),
            ("hermes bot, hello", Some("hello")),
            ("  Hermes Bot hello", Some("hello")),
            ("@Hermes Bot hello", Some("hello")),
            ("Hermes Bot:hello", Some("hello")),
            ("Hermes Bot", Some("")),
            ("Hermes Bot: /stop", Some("/stop")),
            ("@bot:example.org hello", Some("hello")),
            ("@bot:example.org: hello", Some("hello")),
            ("@bot hello", Some("hello")),
            ("@bot: hello", Some("hello")),
            ("[Hermes Bot](https://matrix.to/#/@bot:example.org): hello", Some("hello")),
            ("[Bot](https://matrix.to/#/%40bot%3Aexample.org?via=example.org) hi", Some("hi")),
            ("Hermes Bottle: hello", None),
            ("Hermes Bot's hello", None),
            ("Hermes", None),
            ("hello Hermes Bot", None),
            ("bot: hello", None),
            ("@bottle hello", None),
            ("@bot:example.organic hello", None),
            ("@bot:example.org:8448 hello", None),
            ("[Bot](https://matrix.to/#/@ann:example.org) hi", None),
            ("[Bot](https://example.org/@bot:example.org) hi", None),
            ("", None),
            ("@", None),
        ];
        for (text, rest) in table {
            assert_eq!(names().after(text), rest, "{text}");
        }
    }

    #[test]
    fn a_name_of_many_scripts_is_no_trouble() {
        let other = OwnNames { shown: Some("Ärger ÅÉ İ"), ..names() };
        assert_eq!(other.after("ärger åé İ: hi"), Some("hi"));
        assert_eq!(other.after("ärger åé"), None);
        assert_eq!(OwnNames { shown: Some("  "), ..names() }.after("  : hello"), None);
        assert_eq!(OwnNames { shown: None, ..names() }.after("Hermes Bot: hi"), None);
    }

    #[test]
    fn mentions_are_the_clients_word_and_links_count_without_it() {
        let link = r#"<a href="https://matrix.to/#/@bot:example.org">Bot</a>"#;
        let table = [
            (json!({"m.mentions": {"user_ids": ["@ann:example.org", "@bot:example.org"]}}), true),
            (json!({"m.mentions": {"user_ids": ["@ann:example.org"]}}), false),
            (json!({"m.mentions": {"room": true}}), false),
            (json!({"m.mentions": {"user_ids": "@bot:example.org"}}), false),
            (json!({"m.mentions": {}, "formatted_body": link}), false),
            (json!({"m.mentions": 7, "formatted_body": link}), true),
            (json!({"formatted_body": link}), true),
            (json!({"formatted_body": "<a href='https://matrix.to/#/%40bot:example.org'>Bot</a>"}), true),
            (json!({"formatted_body": "<a href=\"matrix:u/bot:example.org?action=chat\">Bot</a>"}), true),
            (json!({"formatted_body": "<a href=\"https://matrix.to/#/@ann:example.org\">Ann</a>"}), false),
            (json!({"formatted_body": "<a href=\"https://evil/matrix.to/#/@bot:example.org\">B</a>"}), false),
            (json!({"formatted_body": "https://matrix.to/#/@bot:example.org"}), false),
            (json!({"formatted_body": format!("<mx-reply>{link}</mx-reply>no")}), false),
            (json!({"formatted_body": format!("<mx-reply>{link}")}), false),
            (json!({"formatted_body": "<a href="}), false),
            (json!({"formatted_body": "<a href=\""}), false),
            (json!({}), false),
        ];
        for (content, expected) in table {
            assert_eq!(names().are_mentioned(&said(content.clone())), expected, "{content}");
        }
    }
}
