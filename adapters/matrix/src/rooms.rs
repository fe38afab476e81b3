//! What must not be forgotten about rooms: which of them were ever encrypted.

use std::sync::Arc;

use talaria_platform::Inbox;

/// The memory of an account's rooms; kept in the inbox's notes.
pub(crate) struct Rooms {
    _inbox: Arc<dyn Inbox>,
}

impl Rooms {
    pub fn new(inbox: Arc<dyn Inbox>) -> Self {
        Self { _inbox: inbox }
    }
}
