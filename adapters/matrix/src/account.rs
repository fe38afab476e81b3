//! The account while it is open: what reading, writing and its keys share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use matrix_sdk::Client;
use matrix_sdk::ruma::OwnedUserId;
use talaria_platform::Inbox;
use tokio::sync::watch;

use crate::encrypted_rooms::EncryptedRooms;
use crate::login::OpenedAccount;
use crate::outbound::{PendingUploads, RenderCache};
use crate::settings::MatrixSettings;

/// An open account.
pub(crate) struct MatrixAccount {
    /// The SDK's client, logged in.
    pub client: Client,
    /// Our own id.
    pub own: OwnedUserId,
    /// What the operator wants.
    pub settings: Arc<MatrixSettings>,
    /// The core, and what must survive a crash.
    pub inbox: Arc<dyn Inbox>,
    /// What must not be forgotten about rooms.
    pub rooms: EncryptedRooms,
    /// Answers that grow at present, as far as they are rendered.
    pub drafts: RenderCache,
    /// Files of messages that are not sent yet.
    pub uploads: PendingUploads,
    /// Whether the SDK has the state of our rooms: set by `inbound` after the first sync, awaited by `encryption`.
    pub synced: watch::Sender<bool>,
    /// The homeserver did not answer the last time; set and cleared by `inbound`.
    pub away: AtomicBool,
    /// The device and its session. Holds the lock on the account's folder for as long as anybody uses the account.
    pub opened: OpenedAccount,
}

impl MatrixAccount {
    pub fn new(opened: OpenedAccount, inbox: Arc<dyn Inbox>, settings: Arc<MatrixSettings>) -> Self {
        let (client, own) = (opened.client.clone(), opened.own.clone());
        let rooms = EncryptedRooms::new(inbox.clone());
        Self {
            client,
            own,
            settings,
            inbox,
            rooms,
            drafts: RenderCache::default(),
            uploads: PendingUploads::default(),
            synced: watch::Sender::new(false),
            away: AtomicBool::new(false),
            opened,
        }
    }
}
