//! A person in rooms, with a foreign client.
//!
//! The client does everything that needs keys: it encrypts, decrypts and verifies. Everything else is a request to
//! the homeserver with the same session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use super::homeserver::{Account, Homeserver};
use super::lines::Lines;
use super::shown::{Shown, messages};
use crate::parts;

/// The client of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// matrix-nio.
    Nio,
    /// mautrix, on libolm.
    Mautrix,
    /// matrix-js-sdk.
    Js,
}

/// A person with a client.
pub struct Person {
    /// The full user id.
    pub id: String,
    pub device: String,
    pub token: String,
    homeserver: Arc<Homeserver>,
    client: Lines,
    /// The number of the last command.
    commands: AtomicU64,
}

/// The kind of room to make.
#[derive(Clone, Copy)]
pub struct Kind {
    pub encrypted: bool,
    pub direct: bool,
}

/// An encrypted chat of two.
pub const DIRECT: Kind = Kind { encrypted: true, direct: true };
/// An encrypted room for several people.
pub const SHARED: Kind = Kind { encrypted: true, direct: false };

impl Person {
    /// A new person.
    pub async fn new(homeserver: &Arc<Homeserver>, name: &str, with: With) -> Self {
        let account = homeserver.registers(name).await;
        Self::logs_in(homeserver, &account, with).await
    }

    /// A known person, on a new device.
    pub async fn logs_in(homeserver: &Arc<Homeserver>, account: &Account, with: With) -> Self {
        let mut command = match with {
            With::Nio => parts::python("nio_client.py"),
            With::Mautrix => parts::python("mautrix_client.py"),
            With::Js => parts::node("js_client.mjs"),
        };
        let mut person = Self {
            id: account.id.clone(),
            device: String::new(),
            token: String::new(),
            homeserver: homeserver.clone(),
            client: Lines::start(&account.id, &mut command),
            commands: AtomicU64::new(0),
        };
        let login = json!({ "homeserver": homeserver.url, "user": account.id, "password": account.password });
        let session = person.does("login", login).await;
        person.device = session["device"].as_str().unwrap().to_owned();
        person.token = session["token"].as_str().unwrap().to_owned();
        person
    }

    /// Makes a room with these people, and waits until they have joined.
    pub async fn makes_room(&self, kind: Kind, others: &[&str]) -> String {
        let room = self.invites(kind, others).await;
        for other in others {
            self.sees_member(&room, other, "join").await;
        }
        room
    }

    /// Makes a room and invites these people.
    pub async fn invites(&self, kind: Kind, others: &[&str]) -> String {
        let encryption = json!({
            "type": "m.room.encryption", "state_key": "", "content": { "algorithm": "m.megolm.v1.aes-sha2" },
        });
        let state = if kind.encrypted { vec![encryption] } else { Vec::new() };
        let body = json!({
            "preset": "private_chat", "is_direct": kind.direct, "invite": others, "initial_state": state,
        });
        let room = self.asks(Method::POST, "/v3/createRoom", body).await;
        room["room_id"].as_str().unwrap().to_owned()
    }

    /// Makes a request to the homeserver that must succeed.
    pub async fn asks(&self, method: Method, path: &str, body: Value) -> Value {
        self.homeserver.asks(&self.token, method, path, body).await
    }

    /// Makes a request about a room: `invite`, `kick`, `ban`, `leave`, `upgrade`…
    pub async fn acts(&self, room: &str, act: &str, body: Value) -> Value {
        self.asks(Method::POST, &format!("/v3/rooms/{}/{act}", escaped(room)), body).await
    }

    /// Sends a text; returns the id of the message.
    pub async fn says(&self, room: &str, text: &str) -> String {
        self.sends(room, text_content(text)).await
    }

    /// Replies to a message.
    pub async fn replies(&self, room: &str, to: &str, text: &str) -> String {
        let mut content = text_content(text);
        content["m.relates_to"] = json!({ "m.in_reply_to": { "event_id": to } });
        self.sends(room, content).await
    }

    /// Sends a text in the thread that begins with a message.
    pub async fn says_in_thread(&self, room: &str, root: &str, text: &str) -> String {
        let mut content = text_content(text);
        content["m.relates_to"] = json!({
            "rel_type": "m.thread", "event_id": root, "is_falling_back": true, "m.in_reply_to": { "event_id": root },
        });
        self.sends(room, content).await
    }

    /// Edits a message.
    pub async fn edits(&self, room: &str, message: &str, text: &str) -> String {
        let mut content = text_content(&format!("* {text}"));
        content["m.new_content"] = text_content(text);
        content["m.relates_to"] = json!({ "rel_type": "m.replace", "event_id": message });
        self.sends(room, content).await
    }

    /// Deletes a message.
    pub async fn deletes(&self, room: &str, message: &str) {
        let path =
            format!("/v3/rooms/{}/redact/{}/{}", escaped(room), escaped(message), fresh("transaction"));
        self.asks(Method::PUT, &path, json!({})).await;
    }

    /// Reacts to a message; reactions are never encrypted.
    pub async fn reacts(&self, room: &str, to: &str, mark: &str) -> String {
        let content = json!({ "m.relates_to": { "rel_type": "m.annotation", "event_id": to, "key": mark } });
        self.sends_plain(room, "m.reaction", content).await
    }

    /// Sends a message with this content, encrypted if the room is.
    pub async fn sends(&self, room: &str, content: Value) -> String {
        let sent =
            self.does("send", json!({ "room": room, "type": "m.room.message", "content": content })).await;
        sent["id"].as_str().unwrap().to_owned()
    }

    /// Sends an event as it is, past the client.
    pub async fn sends_plain(&self, room: &str, kind: &str, content: Value) -> String {
        let path = format!("/v3/rooms/{}/send/{kind}/{}", escaped(room), fresh("transaction"));
        let sent = self.asks(Method::PUT, &path, content).await;
        sent["event_id"].as_str().unwrap().to_owned()
    }

    /// Encrypts a file and sends it, with a caption if there is one.
    pub async fn sends_file(
        &self,
        room: &str,
        kind: &str,
        name: &str,
        caption: &str,
        bytes: &[u8],
    ) -> String {
        let encrypted = self.does("encrypt_file", json!({ "data": BASE64_STANDARD.encode(bytes) })).await;
        let data = BASE64_STANDARD.decode(encrypted["data"].as_str().unwrap()).unwrap();
        let mut file = encrypted["file"].clone();
        file["url"] = self.homeserver.takes_file(&self.token, data, "application/octet-stream").await.into();
        file["v"] = "v2".into();
        let body = if caption.is_empty() { name } else { caption };
        let mime = if kind == "m.image" { "image/png" } else { "application/octet-stream" };
        let content = json!({
            "msgtype": kind, "body": body, "filename": name, "file": file,
            "info": { "size": bytes.len(), "mimetype": mime }, "m.mentions": {},
        });
        self.sends(room, content).await
    }

    /// The file of a message, decrypted by the client.
    pub async fn opens_file(&self, message: &Shown) -> Vec<u8> {
        let file = &message.content["file"];
        let bytes = self.homeserver.gives_file(&self.token, file["url"].as_str().expect("a file")).await;
        let plain = json!({ "data": BASE64_STANDARD.encode(bytes), "file": file });
        let plain = self.does("decrypt_file", plain).await;
        BASE64_STANDARD.decode(plain["data"].as_str().unwrap()).unwrap()
    }

    /// The messages of a room now.
    pub fn shows(&self, room: &str) -> Vec<Shown> {
        shown(&self.client.said().lines, room)
    }

    /// Waits until `found` returns something for the messages of a room.
    pub async fn sees<T>(&self, room: &str, what: &str, mut found: impl FnMut(&[Shown]) -> Option<T>) -> T {
        self.client.until(format_args!("{what} in {room}"), |lines| found(&shown(lines, room))).await
    }

    /// Waits until a message of this sender has exactly this text.
    pub async fn reads(&self, room: &str, by: &str, text: &str) -> Shown {
        let look = |shown: &[Shown]| {
            shown.iter().find(|message| message.sender == by && message.text() == text).cloned()
        };
        self.sees(room, &format!("{text:?}"), look).await
    }

    /// Waits until a user has this membership in a room.
    pub async fn sees_member(&self, room: &str, who: &str, membership: &str) {
        let what = format!("{membership} of {who}");
        self.client
            .until(what, |lines| {
                let mut events = events(lines, room);
                events
                    .rfind(|event| event["type"] == "m.room.member" && event["state_key"] == who)
                    .filter(|event| event["content"]["membership"] == membership)
                    .map(|_| ())
            })
            .await;
    }

    /// Waits until an event has come from a room.
    pub async fn sees_event(&self, room: &str, what: &str, is_it: impl Fn(&Value) -> bool) {
        self.client.until(what, |lines| events(lines, room).any(&is_it).then_some(())).await;
    }

    /// Every event that has come from a room, as the client read it.
    pub fn events(&self, room: &str) -> Vec<Value> {
        events(&self.client.said().lines, room).cloned().collect()
    }

    /// Makes the client run a command, and waits for it.
    pub async fn does(&self, what: &str, with: Value) -> Value {
        let number = self.begins(what, with);
        self.has_done(what, number).await
    }

    /// Makes the client start a command; the test waits for it later.
    pub fn begins(&self, what: &str, mut with: Value) -> u64 {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        with["id"] = number.into();
        with["do"] = what.into();
        self.client.say(&with.to_string());
        number
    }

    /// Waits until the client has done a command.
    pub async fn has_done(&self, what: &str, number: u64) -> Value {
        let answer =
            self.client.until(what, |lines| lines.iter().find(|line| line["id"] == number).cloned()).await;
        assert_eq!(answer.get("error"), None, "{}: {what}", self.id);
        answer["ok"].clone()
    }
}

fn events<'a>(lines: &'a [Value], room: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    lines.iter().filter_map(|line| line.get("event")).filter(move |event| event["room"] == room)
}

fn shown(lines: &[Value], room: &str) -> Vec<Shown> {
    messages(&events(lines, room).collect::<Vec<_>>())
}

fn text_content(text: &str) -> Value {
    json!({ "msgtype": "m.text", "body": text, "m.mentions": {} })
}

/// An id escaped as a part of a path.
pub fn escaped(id: &str) -> String {
    id.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
