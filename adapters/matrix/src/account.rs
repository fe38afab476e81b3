//! The open account: state that reading, writing and encryption share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use matrix_sdk::Client;
use matrix_sdk::ruma::OwnedUserId;
use talaria_platform::Inbox;
use tokio::sync::watch;

use crate::config::MatrixSettings;
use crate::encrypted_rooms::EncryptedRooms;
use crate::login::OpenedAccount;
use crate::outbound::{PendingUploads, RenderCache};
use crate::own_messages::OwnMessages;

/// An account that is logged in and open.
pub(crate) struct MatrixAccount {
    /// The SDK's client, logged in.
    pub client: Client,
    /// Our own user id.
    pub own: OwnedUserId,
    /// Settings from the operator.
    pub settings: Arc<MatrixSettings>,
    /// The core's inbox: hands events to the core and keeps state that must survive a crash.
    pub inbox: Arc<dyn Inbox>,
    /// Which rooms were ever encrypted.
    pub rooms: EncryptedRooms,
    /// Our own messages, and the threads that we take part in.
    pub written: Arc<OwnMessages>,
    /// Rendered text of the answers that grow now.
    pub drafts: RenderCache,
    /// Files that are uploaded for messages that are not sent yet.
    pub uploads: PendingUploads,
    /// Whether the SDK has the state of our rooms: set by `inbound` after the first sync, awaited by `encryption`.
    pub synced: watch::Sender<bool>,
    /// Whether the last request to the homeserver failed; set and cleared by `inbound`.
    pub away: AtomicBool,
    /// The device and its session. Holds the lock on the account's folder while anything uses the account.
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
            written: Arc::default(),
            drafts: RenderCache::default(),
            uploads: PendingUploads::default(),
            synced: watch::Sender::new(false),
            away: AtomicBool::new(false),
            opened,
        }
    }
}
