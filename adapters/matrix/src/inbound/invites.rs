//! Answers invitations, and follows rooms that were upgraded.
//!
//! The core decides whether we join. This runs beside the reading, so that a flood of invitations delays nobody.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use matrix_sdk::deserialized_responses::RawSyncOrStrippedState;
use matrix_sdk::ruma::api::client::membership::{
    forget_room, join_room_by_id_or_alias::v3::Request as Join, leave_room,
};
use matrix_sdk::ruma::events::direct::DirectEventContent;
use matrix_sdk::ruma::events::room::tombstone::RoomTombstoneEventContent;
use matrix_sdk::ruma::{OwnedRoomId, OwnedServerName, OwnedUserId, RoomId, UserId};
use matrix_sdk::{HttpError, Room, RoomState};
use parking_lot::Mutex;
use talaria_platform::{AuthorTrust, EventAuthor, EventId, PlatformError, PlatformErrorKind, RoomInvite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::retry::{RetryBackoff, once};
use super::{SyncReader, event_lookup, store_failed, text};
use crate::error::{from_http, from_sdk, kind_of};

/// Invitations that are handled at a time; then there is a pause.
const AT_A_TIME: usize = 20;
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit for a join. Long: our homeserver asks others for the whole state of the room.
const JOINING: Duration = Duration::from_secs(120);
/// Time limit for an update of the list of direct chats.
const MARKING: Duration = Duration::from_secs(30);
/// Attempts to join or decline before an invitation is left alone until the next start.
const ATTEMPTS: u32 = 6;
/// Upgraded rooms that may wait to be followed. Nobody upgrades this many at once in earnest.
const UPGRADES: usize = 50;

/// A room that continues as another room.
#[derive(Clone, Debug)]
pub(super) struct RoomUpgrade {
    /// The event that announces it.
    pub event: EventId,
    pub to: OwnedRoomId,
    /// The person who upgraded the room; counts as having invited us.
    pub by: OwnedUserId,
    /// Facts about the old room.
    pub about: talaria_platform::RoomInfo,
}

/// Invitations and room upgrades that wait.
#[derive(Default)]
pub(super) struct PendingInvites {
    /// Rooms that a sync brought an invitation to. The SDK has the invitations themselves.
    invited: Mutex<Vec<OwnedRoomId>>,
    upgraded: Mutex<VecDeque<RoomUpgrade>>,
    news: Notify,
}

impl PendingInvites {
    /// Notes that invitations came.
    pub fn invited(&self, rooms: impl IntoIterator<Item = OwnedRoomId>) {
        self.invited.lock().extend(rooms);
        self.news.notify_one();
    }

    /// Queues a room that was upgraded.
    pub fn upgraded(&self, upgrade: RoomUpgrade) {
        let mut upgraded = self.upgraded.lock();
        if upgraded.len() < UPGRADES && upgraded.iter().all(|other| other.to != upgrade.to) {
            upgraded.push_back(upgrade);
            self.news.notify_one();
        }
    }

    fn next_upgrade(&self) -> Option<RoomUpgrade> {
        self.upgraded.lock().pop_front()
    }
}

/// Invitations that we have answered and the SDK still lists, because no sync has brought the outcome yet.
#[derive(Default)]
struct HandledInvites {
    done: HashSet<OwnedRoomId>,
    failed: HashMap<OwnedRoomId, (RetryBackoff, u32, Instant)>,
}

impl HandledInvites {
    /// Forgets rooms that are no longer listed, and rooms with a new invitation.
    fn update(&mut self, listed: &HashSet<OwnedRoomId>, anew: Vec<OwnedRoomId>) {
        for room in anew {
            self.done.remove(&room);
            self.failed.remove(&room);
        }
        self.done.retain(|room| listed.contains(room));
        self.failed.retain(|room, _| listed.contains(room));
    }

    fn is_due(&self, room: &RoomId, now: Instant) -> bool {
        !self.done.contains(room) && self.failed.get(room).is_none_or(|(_, _, again)| *again <= now)
    }

    fn failed(&mut self, room: OwnedRoomId, after: Option<Duration>) {
        let (patience, attempts, again) =
            self.failed.entry(room.clone()).or_insert_with(|| (RetryBackoff::default(), 0, Instant::now()));
        *attempts += 1;
        *again = Instant::now() + patience.next(after);
        if *attempts >= ATTEMPTS {
            self.done.insert(room);
        }
    }

    fn next_attempt(&self) -> Option<Instant> {
        let open = self.failed.iter().filter(|(room, _)| !self.done.contains(*room));
        open.map(|(_, (_, _, again))| *again).min()
    }
}

impl SyncReader<'_> {
    /// Answers invitations and follows upgrades. Ends only with an error.
    pub async fn answer_invites(&self) -> Result<(), PlatformError> {
        let mut dealt = HandledInvites::default();
        self.left_behind().await?;
        loop {
            let more = self.invitations(&mut dealt).await?;
            while let Some(upgrade) = self.invites.next_upgrade() {
                self.follow(upgrade).await?;
            }
            let again = if more { Some(Instant::now() + PAUSE) } else { dealt.next_attempt() };
            let due = async {
                match again {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.invites.news.notified(), if !more => {}
                () = due => {}
            }
        }
    }

    /// Handles some invitations; returns `true` if there are more.
    async fn invitations(&self, dealt: &mut HandledInvites) -> Result<bool, PlatformError> {
        let listed = self.account.client.invited_rooms();
        let anew = std::mem::take(&mut *self.invites.invited.lock());
        dealt.update(&listed.iter().map(|room| room.room_id().to_owned()).collect(), anew);
        let now = Instant::now();
        let due: Vec<_> = listed.into_iter().filter(|room| dealt.is_due(room.room_id(), now)).collect();
        let more = due.len() > AT_A_TIME;
        for room in due.into_iter().take(AT_A_TIME) {
            let id = room.room_id().to_owned();
            match self.invitation(&room).await {
                Ok(()) => {
                    dealt.done.insert(id);
                }
                Err(error) => match error.kind() {
                    PlatformErrorKind::Fatal => return Err(error),
                    PlatformErrorKind::Retry { after } => dealt.failed(id, after),
                    // We are banned there, or the room is gone.
                    PlatformErrorKind::Gone
                    | PlatformErrorKind::Rejected
                    | PlatformErrorKind::Unsupported => {
                        tracing::info!(room = %id, error = ?error, "an invitation could not be followed or declined");
                        dealt.done.insert(id);
                    }
                },
            }
        }
        Ok(more)
    }

    async fn invitation(&self, room: &Room) -> Result<(), PlatformError> {
        if room.state() != RoomState::Invited {
            return Ok(());
        }
        let id = room.room_id();
        // An invitation that does not name the inviter is not followed.
        let Ok(details) = room.invite_details().await else { return self.decline(id).await };
        let by = details.inviter_id;
        let direct = room.is_direct().await.unwrap_or_default();
        let name = room.name().as_deref().and_then(text::name);
        let invite = RoomInvite {
            id: EventId::new(format!("invite {id}")),
            room: talaria_platform::RoomId::new(id.as_str()),
            about: talaria_platform::RoomInfo { name, direct },
            author: author(&by, event_lookup::shown_name(room, &by).await),
        };
        if !self.account.inbox.may_join(invite).await.map_err(store_failed)? {
            return self.decline(id).await;
        }
        self.enter(id, &by, direct).await
    }

    async fn follow(&self, upgrade: RoomUpgrade) -> Result<(), PlatformError> {
        let known = self.account.client.get_room(&upgrade.to).map(|room| room.state());
        if known == Some(RoomState::Joined) {
            return Ok(());
        }
        let RoomUpgrade { event, to, by, about } = upgrade;
        let direct = about.direct;
        let room = talaria_platform::RoomId::new(to.as_str());
        let invite = RoomInvite { id: event, room, about, author: author(&by, None) };
        if !self.account.inbox.may_join(invite).await.map_err(store_failed)? {
            return Ok(());
        }
        let mut patience = RetryBackoff::default();
        for _ in 0..ATTEMPTS {
            let Err(error) = self.enter(&to, &by, direct).await else { return Ok(()) };
            match error.kind() {
                PlatformErrorKind::Fatal => return Err(error),
                PlatformErrorKind::Retry { after } => sleep(patience.next(after)).await,
                // A private room does not admit us by itself: the invitation that we need is still to come.
                PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported => {
                    tracing::info!(room = %to, ?error, "an upgraded room needs an invitation; waiting for it");
                    return Ok(());
                }
            }
        }
        tracing::warn!(room = %to, "an upgraded room could not be joined; the next start tries again");
        Ok(())
    }

    /// Finds upgraded rooms that we did not follow, because of a crash or a failing homeserver. A room that we still
    /// cannot join is tried once at each start.
    async fn left_behind(&self) -> Result<(), PlatformError> {
        let direct = self.direct_rooms().await?;
        for room in self.account.client.joined_rooms() {
            let Some(successor) = room.successor_room() else { continue };
            let tombstone = room.get_state_event_static::<RoomTombstoneEventContent>().await;
            let Some(RawSyncOrStrippedState::Sync(raw)) = tombstone.map_err(from_sdk)? else { continue };
            let (Ok(Some(by)), Ok(Some(event))) =
                (raw.get_field::<OwnedUserId>("sender"), raw.get_field::<String>("event_id"))
            else {
                continue;
            };
            let about = self.about(&room, &direct).await.map_err(store_failed)?;
            let (event, about) = (EventId::new(event), about.room.clone());
            self.invites.upgraded(RoomUpgrade { event, to: successor.room_id, by, about });
        }
        Ok(())
    }

    /// Joins a room. The SDK's own `join` is not used: it decides too late whether the room is a direct chat, and
    /// writes the list of those from a copy that may be old. Here the list comes first, so that we hear a person who
    /// writes as soon as they see us join.
    async fn enter(&self, room: &RoomId, by: &UserId, direct: bool) -> Result<(), PlatformError> {
        if direct {
            match timeout(MARKING, self.mark_direct(room, by)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => match from_sdk(error) {
                    error
                        if matches!(
                            error.kind(),
                            PlatformErrorKind::Retry { .. } | PlatformErrorKind::Fatal
                        ) =>
                    {
                        return Err(error);
                    }
                    error => tracing::warn!(%room, ?error, "a direct chat could not be marked as one"),
                },
                Err(_) => return Err(PlatformErrorKind::Retry { after: None }.into()),
            }
        }
        let mut request = Join::new(room.to_owned().into());
        request.via = vec![OwnedServerName::from(by.server_name())];
        let config = once().timeout(JOINING);
        self.account.client.send(request).with_request_config(config).await.map_err(from_http)?;
        self.entered.notify_one();
        tracing::info!(%room, %by, "joined a room");
        Ok(())
    }

    async fn mark_direct(&self, room: &RoomId, with: &UserId) -> Result<(), matrix_sdk::Error> {
        let account = self.account.client.account();
        let kept = account.fetch_account_data_static::<DirectEventContent>().await?;
        // A list that we cannot parse was written by another client: do not overwrite it.
        let mut direct = kept.map(|raw| raw.deserialize()).transpose()?.unwrap_or_default();
        let rooms = direct.entry(with.into()).or_default();
        if !rooms.iter().any(|other| other == room) {
            rooms.push(room.to_owned());
            account.set_account_data(direct).await?;
        }
        Ok(())
    }

    /// Declines an invitation. The SDK's own `leave` is not used: it also leaves the rooms that this one claims to
    /// continue, and the inviter chooses what a room claims.
    async fn decline(&self, room: &RoomId) -> Result<(), PlatformError> {
        let client = &self.account.client;
        let left =
            client.send(leave_room::v3::Request::new(room.to_owned())).with_request_config(once()).await;
        if let Err(error) = left
            && !is_out_anyway(&error)
        {
            return Err(from_http(error));
        }
        let forget = forget_room::v3::Request::new(room.to_owned());
        if let Err(error) = client.send(forget).with_request_config(once()).await {
            tracing::debug!(%room, %error, "a declined room could not be forgotten");
        }
        tracing::info!(%room, "declined an invitation");
        Ok(())
    }
}

/// Whether leaving failed because we are not in the room.
fn is_out_anyway(error: &HttpError) -> bool {
    match kind_of(error) {
        PlatformErrorKind::Gone | PlatformErrorKind::Rejected => true,
        PlatformErrorKind::Retry { .. } | PlatformErrorKind::Unsupported | PlatformErrorKind::Fatal => false,
    }
}

/// The inviter, on the homeserver's word.
fn author(id: &UserId, name: Option<String>) -> EventAuthor {
    let id = talaria_platform::UserId::new(id.as_str());
    EventAuthor { id, name, trust: AuthorTrust::Network, bot: false, device: None }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::owned_room_id;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_invitation_is_dealt_with_once_unless_it_comes_again() {
        let (one, two) = (owned_room_id!("!one:example.org"), owned_room_id!("!two:example.org"));
        let listed = HashSet::from([one.clone(), two.clone()]);
        let mut dealt = HandledInvites::default();
        dealt.done.insert(one.clone());
        dealt.update(&listed, Vec::new());
        assert!(!dealt.is_due(&one, Instant::now()) && dealt.is_due(&two, Instant::now()));

        dealt.update(&listed, vec![one.clone()]);
        assert!(dealt.is_due(&one, Instant::now()));

        dealt.done.insert(one.clone());
        dealt.update(&HashSet::new(), Vec::new());
        assert!(dealt.is_due(&one, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_again_later_and_not_for_ever() {
        let room = owned_room_id!("!one:example.org");
        let mut dealt = HandledInvites::default();
        for _ in 1..ATTEMPTS {
            dealt.failed(room.clone(), Some(Duration::from_secs(20)));
            assert!(!dealt.is_due(&room, Instant::now()));
            tokio::time::advance(Duration::from_secs(20)).await;
            assert!(dealt.is_due(&room, Instant::now()));
        }
        dealt.failed(room.clone(), None);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(!dealt.is_due(&room, Instant::now()));
        assert_eq!(dealt.next_attempt(), None);
    }
}
