//! A bot and its gateway on a homeserver, with an upstream behind it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fresh;
use super::gateway::Gateway;
use super::homeserver::{Account, Homeserver};
use super::person::{DIRECT, Person, With};
use super::shown::Shown;
use crate::it::upstream::{Answer, Upstream};

/// What most tests need.
pub struct Scene {
    pub homeserver: Arc<Homeserver>,
    pub bot: Account,
    pub upstream: Upstream,
    pub gateway: Gateway,
    /// Somebody who is allowed to talk to the bot.
    pub ann: Person,
}

impl Scene {
    /// A bot on the shared homeserver that listens to somebody, whatever device it is.
    pub async fn with(client: With) -> Self {
        let mut scene = Self::prepared(Homeserver::shared().await, client).await;
        scene.gateway.sets("MATRIX_TRUST", "any");
        scene.gateway.starts();
        scene
    }

    /// The same, not started, with what is configured if nobody says otherwise.
    pub async fn prepared(homeserver: Arc<Homeserver>, client: With) -> Self {
        let (bot, ann, upstream) = tokio::join!(
            homeserver.registers("bot"),
            Person::new(&homeserver, "ann", client),
            Upstream::idempotent(),
        );
        let gateway = Gateway::new(&homeserver, &bot, &upstream.url(), &[&ann.id]);
        Self { homeserver, bot, upstream, gateway, ann }
    }

    /// A direct chat of Ann and the bot.
    pub async fn direct(&self) -> String {
        self.ann.makes_room(DIRECT, &[&self.bot.id]).await
    }

    /// Waits until Ann reads exactly this of the bot.
    pub async fn reads(&self, room: &str, text: &str) -> Shown {
        self.ann.reads(room, &self.bot.id, text).await
    }

    /// Everything that the bot has written in a room, as Ann sees it.
    pub fn said(&self, room: &str) -> Vec<Shown> {
        let mut shown = self.ann.shows(room);
        shown.retain(|message| message.sender == self.bot.id);
        shown
    }

    /// Ann asks something, the answer comes: whatever the bot was doing before is done.
    pub async fn settles(&self, room: &str) {
        let answer = fresh("settled");
        self.upstream.answers(Answer::says([answer.as_str()]));
        self.ann.says(room, "is everything done?").await;
        self.reads(room, &answer).await;
    }

    /// The types of everything that somebody has sent in a room after it was encrypted, and not encrypted.
    pub fn in_the_clear(&self, room: &str, who: &str) -> BTreeSet<String> {
        let sent = "SELECT DISTINCT type FROM events WHERE room_id = ?1 AND sender = ?2
            AND type <> 'm.room.encrypted' AND stream_ordering >
                (SELECT min(stream_ordering) FROM events WHERE type = 'm.room.encryption' AND room_id = ?1)";
        let stored = self.homeserver.stored();
        let mut sent = stored.prepare(sent).unwrap();
        let types = sent.query_map([room, who], |row| row.get(0)).unwrap();
        types.map(Result::unwrap).collect()
    }

    /// How many encrypted events somebody has sent in a room.
    pub fn sealed(&self, room: &str, who: &str) -> usize {
        let sent =
            "SELECT count(*) FROM events WHERE room_id = ?1 AND sender = ?2 AND type = 'm.room.encrypted'";
        self.homeserver.stored().query_row(sent, [room, who], |row| row.get(0)).unwrap()
    }

    /// The end of a scene: whatever it was about, the bot said nothing in the open where it must not.
    pub fn ends(self) {
        let clear = self.in_the_clear_anywhere();
        assert!(clear.iter().all(|kind| is_harmless(kind)), "in the open in an encrypted room: {clear:?}");
    }

    /// The same where somebody was verified who could not read the bot.
    pub fn ends_after_verifying_aloud(self) {
        let clear = self.in_the_clear_anywhere();
        let is_right = |kind: &String| is_harmless(kind) || kind.starts_with("m.key.verification.");
        assert!(clear.iter().all(is_right), "in the open in an encrypted room: {clear:?}");
    }

    /// The types of everything that the bot has sent in rooms after they were encrypted, and not encrypted.
    fn in_the_clear_anywhere(&self) -> BTreeSet<String> {
        let rooms = "SELECT DISTINCT room_id FROM events WHERE sender = ?1";
        let stored = self.homeserver.stored();
        let mut rooms = stored.prepare(rooms).unwrap();
        let rooms = rooms.query_map([&self.bot.id], |row| row.get::<_, String>(0)).unwrap();
        rooms.flat_map(|room| self.in_the_clear(&room.unwrap(), &self.bot.id)).collect()
    }
}

/// What Matrix encrypts nowhere: that somebody comes, marks something and takes something back.
fn is_harmless(kind: &str) -> bool {
    ["m.room.member", "m.reaction", "m.room.redaction"].contains(&kind)
}
