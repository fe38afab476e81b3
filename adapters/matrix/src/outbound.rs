//! Writes to rooms: one request for each call, encrypted wherever the room is or ever was.

mod recipients;

use talaria_platform::{Body, Error, ErrorKind, MessageId, Place, SendKey, Signal};

use crate::account::Account;

#[allow(unused_imports, reason = "`login` builds the client with them")]
pub(crate) use recipients::{decryption, recipients};

pub(crate) async fn send(
    _account: &Account,
    _place: &Place,
    _key: &SendKey,
    _body: &Body,
) -> Result<MessageId, Error> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) async fn edit(
    _account: &Account,
    _place: &Place,
    _message: &MessageId,
    _key: &SendKey,
    _body: &Body,
) -> Result<(), Error> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) async fn delete(
    _account: &Account,
    _place: &Place,
    _message: &MessageId,
    _key: &SendKey,
) -> Result<(), Error> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) async fn signal(_account: &Account, _place: &Place, _signal: Signal) {}
