//! Collects the stored facts that an access decision about a person needs, in one place so that no caller forgets one.

use talaria_platform::{AccountId, EventAuthor, RoomId, UserId};

use super::{Result, Tx};
use crate::access::{Actor, EntryChannel};

impl Tx<'_> {
    /// The author of an event that has just come in.
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

    /// A person whose message was judged when it came. The facts about the message stay, but the person may have left
    /// since, or have been paired or unpaired.
    pub fn known_actor<'a>(&self, account: &AccountId, room: &RoomId, id: &'a UserId) -> Result<Actor<'a>> {
        Ok(Actor {
            paired: self.is_paired(account, id.as_str())?,
            left: self.has_left(account, room, id.as_str())?,
            ..Actor::known(id)
        })
    }
}
