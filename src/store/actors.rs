//! What is known of somebody that a decision about them needs, in one place so that nobody forgets a part of it.

use talaria_platform::{AccountId, EventAuthor, RoomId, UserId};

use super::{Result, Tx};
use crate::access::{Actor, EntryChannel};

impl Tx<'_> {
    /// The author of something that has just come in.
    pub fn actor<'a>(
        &self,
        account: &AccountId,
        room: &RoomId,
        author: &'a EventAuthor,
        channel: EntryChannel,
    ) -> Result<Actor<'a>> {
        let known = self.known_actor(account, room, &author.id)?;
        Ok(Actor { trust: author.trust, bot: author.bot, channel, ..known })
    }

    /// Somebody whose message was judged when it came. What was known of the message does not change, but they may
    /// have left since, or have been let in or out.
    pub fn known_actor<'a>(&self, account: &AccountId, room: &RoomId, id: &'a UserId) -> Result<Actor<'a>> {
        Ok(Actor {
            paired: self.is_paired(account, id.as_str())?,
            left: self.has_left(account, room, id.as_str())?,
            ..Actor::known(id)
        })
    }
}
