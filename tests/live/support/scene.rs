//! A bot and its gateway on a homeserver, with an upstream behind it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fresh;
use super::gateway::Gateway;
use super::homeserver::{Account, Homeserver};
use super::person::{DIRECT, Person, With};
use super::shown::Shown;
use crate::it::upstream::{Answer, Upstream};

/// The parts that most tests need.
pub struct Scene {
    pub homeserver: Arc<Homeserver>,
    pub bot: Account,
    pub upstream: Upstream,
    pub gateway: Gateway,
    /// A person who may talk to the bot.
    pub ann: Person,
}

impl Scene {
    /// A running bot on the shared homeserver that listens to one person on any device.
    pub async fn with(client: With) -> Self {
        let mut scene = Self::prepared(Homeserver::shared().await, client).await;
        scene.gateway.sets("MATRIX_TRUST", "any");
        scene.gateway.starts();
        scene
    }

    /// A bot that is not started, with the default configuration.
    pub async fn prepared(homeserver: Arc<Homeserver>, client: With) -> Self {
        let (bot, ann, upstream) = tokio::join!(
            homeserver.registers("bot"),
            Person::new(&homeserver, "ann", client),
            Upstream::idempotent(),
        );
        let gateway = Gateway::new(&homeserver, &bot, &upstream.url(), &[&ann.id]);
        Self { homeserver, bot, upstream, gateway, ann }
    }

    /// Makes a direct chat of Ann and the bot.
    pub async fn direct(&self) -> String {
        self.ann.makes_room(DIRECT, &[&self.bot.id]).await
    }

    /// Waits until Ann reads exactly this from the bot.
    pub async fn reads(&self, room: &str, text: &str) -> Shown {
        self.ann.reads(room, &self.bot.id, text).await
    }

    /// Every message of the bot in a room, as Ann sees it.
    pub fn said(&self, room: &str) -> Vec<Shown> {
        let mut shown = self.ann.shows(room);
        shown.retain(|message| message.sender == self.bot.id);
        shown
    }

    /// Ann asks something and reads the answer: the bot has finished everything before.
    pub async fn settles(&self, room: &str) {
        let answer = fresh("settled");
        self.upstream.answers(Answer::says([answer.as_str()]));
        self.ann.says(room, "is everything done?").await;
        self.reads(room, &answer).await;
    }

    /// The types of all plaintext events that a user has sent in a room after it was encrypted.
    pub fn in_the_clear(&self, room: &str, who: &str) -> BTreeSet<String> {
        let sent = "SELECT DISTINCT type FROM events WHERE room_id = ?1 AND sender = ?2
            AND type <> 'm.room.encrypted' AND stream_ordering >
                (SELECT min(stream_ordering) FROM events WHERE type = 'm.room.encryption' AND room_id = ?1)";
        let stored = self.homeserver.stored();
        let mut sent = stored.prepare(sent).unwrap();
        let types = sent.query_map([room, who], |row| row.get(0)).unwrap();
        types.map(Result::unwrap).collect()
    }

    /// Number of encrypted events that a user has sent in a room.
    pub fn sealed(&self, room: &str, who: &str) -> usize {
        let sent =
            "SELECT count(*) FROM events WHERE room_id = ?1 AND sender = ?2 AND type = 'm.room.encrypted'";
        self.homeserver.stored().query_row(sent, [room, who], |row| row.get(0)).unwrap()
    }

    /// Ends a scene: in any test, the bot must have sent no plaintext where it must not.
    pub fn ends(self) {
        let clear = self.in_the_clear_anywhere();
        assert!(clear.iter().all(|kind| is_harmless(kind)), "in the open in an encrypted room: {clear:?}");
    }

    /// Ends a scene in which a person was verified who could not decrypt the bot's messages.
    pub fn ends_after_verifying_aloud(self) {
        let clear = self.in_the_clear_anywhere();
        let is_right = |kind: &String| is_harmless(kind) || kind.starts_with("m.key.verification.");
        assert!(clear.iter().all(is_right), "in the open in an encrypted room: {clear:?}");
    }

    /// The types of all plaintext events that the bot has sent in rooms after they were encrypted.
    fn in_the_clear_anywhere(&self) -> BTreeSet<String> {
        let rooms = "SELECT DISTINCT room_id FROM events WHERE sender = ?1";
        let stored = self.homeserver.stored();
        let mut rooms = stored.prepare(rooms).unwrap();
        let rooms = rooms.query_map([&self.bot.id], |row| row.get::<_, String>(0)).unwrap();
        rooms.flat_map(|room| self.in_the_clear(&room.unwrap(), &self.bot.id)).collect()
    }
}

/// Event types that Matrix never encrypts: membership, reactions and redactions.
fn is_harmless(kind: &str) -> bool {
    ["m.room.member", "m.reaction", "m.room.redaction"].contains(&kind)
}
