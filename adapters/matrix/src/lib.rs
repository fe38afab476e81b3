//! Adapter for Matrix, with end-to-end encryption.
//!
//! [`MatrixKind`] describes Matrix to the core; [`MatrixSettings`] are one configured account, [`Matrix`] is that account
//! as a [`Platform`]. Inside, `config` reads the configuration, `operator` has the operator's commands, `login` opens the
//! account and its store, `key_store` is the cache before the store of keys, `encryption` keeps its device trusted and
//! its keys backed up, `inbound` reads rooms, `outbound` writes to them, `own_messages` remembers what it wrote,
//! `encrypted_rooms` which rooms were ever encrypted, `media` fetches files, and `error` maps a failure to the core's
//! next action.
//!
//! matrix-sdk does the cryptography and stores the keys. The position in the stream of events is ours: the [`Inbox`]
//! commits it together with the events, so that a crash loses nothing.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts"))]

mod account;
mod config;
mod encrypted_rooms;
mod encryption;
mod error;
mod inbound;
mod key_store;
mod login;
mod media;
mod operator;
mod operator_error;
mod outbound;
mod own_messages;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;
use talaria_platform::{
    BoxFuture, CancellationToken, DeletionProgress, Inbox, MediaId, MessageBody, MessageId, OperatorError,
    OperatorRequest, Place, Platform, PlatformCapabilities, PlatformError, PlatformErrorKind, RequestRefusal,
    SendKey, ShowMode, Signal,
};

pub use config::{EncryptionPolicy, LoginMethod, MatrixKind, MatrixSettings, StoreKey};
pub(crate) use encryption::verify::{VerificationStage, VerificationView, VerifyAnswer};
pub(crate) use operator::{AccountStatus, DoctorReport};

use account::MatrixAccount;

/// An account on a Matrix homeserver, as a [`Platform`].
pub struct Matrix {
    settings: Arc<MatrixSettings>,
    /// The account while `run` has it open. Without it, sends fail with `Retry`.
    open: RwLock<Option<Arc<MatrixAccount>>>,
}

impl Matrix {
    /// Makes the platform for these settings. Opens nothing yet.
    pub fn new(settings: MatrixSettings) -> Self {
        Self { settings: Arc::new(settings), open: RwLock::new(None) }
    }

    /// Facts about the account, for the operator. Works only while the account is open.
    async fn status(&self) -> Result<AccountStatus, OperatorError> {
        Ok(operator::status_of(&self.opened()?.opened).await)
    }

    /// Checks the account, for the operator.
    async fn doctor(&self) -> Result<DoctorReport, OperatorError> {
        Ok(operator::health_of(&self.opened()?.opened, &self.settings).await)
    }

    /// Verifications that wait or are under way.
    async fn verifications(&self) -> Result<Vec<VerificationView>, OperatorError> {
        Ok(encryption::verify::list(&self.opened()?.opened).await)
    }

    /// Carries out the operator's action on a verification.
    async fn verify(&self, id: &str, answer: VerifyAnswer) -> Result<VerificationView, OperatorError> {
        encryption::verify::answer(&self.opened()?.opened, id, answer).await
    }

    /// The open account, or an error for the operator.
    fn opened(&self) -> Result<Arc<MatrixAccount>, OperatorError> {
        self.account().map_err(|_| OperatorError {
            message: "the account is not open: it is starting, or it cannot be used".to_owned(),
            hint: "`talaria status` says whether it reads; the log says why not".to_owned(),
        })
    }

    fn account(&self) -> Result<Arc<MatrixAccount>, PlatformError> {
        let open = self.open.read();
        open.clone().ok_or_else(|| PlatformErrorKind::Retry { after: None }.into())
    }

    fn set_open(&self, account: Option<Arc<MatrixAccount>>) {
        *self.open.write() = account;
    }
}

impl Platform for Matrix {
    fn about(&self) -> PlatformCapabilities {
        PlatformCapabilities {
            show: ShowMode::Edit { pause: self.settings.pause },
            delete: true,
            react: true,
            threads: true,
            media: true,
            max_text: self.settings.max_text,
            rate: Some(self.settings.rate),
        }
    }

    fn run(
        &self,
        inbox: Arc<dyn Inbox>,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<(), PlatformError>> {
        Box::pin(async move {
            let opened = login::open(&self.settings).await?;
            let account = Arc::new(MatrixAccount::new(opened, inbox, self.settings.clone()));
            // The account stays open when reading has ended, because sends may continue while the process drains.
            self.set_open(Some(account.clone()));
            let read = tokio::select! {
                read = inbound::read(&account, &stop) => read,
                // Ends only with an error that makes further reading useless.
                kept = encryption::keep(&account, &stop) => kept,
            };
            if read.is_err() {
                self.set_open(None);
            }
            read
        })
    }

    fn is_away(&self) -> bool {
        self.account().is_ok_and(|account| account.away.load(Ordering::Relaxed))
    }

    fn send<'a>(
        &'a self,
        place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>> {
        Box::pin(async move { outbound::send(&*self.account()?, place, key, body).await })
    }

    fn edit<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async move { outbound::edit(&*self.account()?, place, message, key, body).await })
    }

    fn delete<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
    ) -> BoxFuture<'a, Result<DeletionProgress, PlatformError>> {
        Box::pin(async move { outbound::delete(&*self.account()?, place, message, key).await })
    }

    fn react<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        mark: &'a str,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async move { outbound::react(&*self.account()?, place, message, mark).await })
    }

    fn signal<'a>(&'a self, place: &'a Place, signal: Signal) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Ok(account) = self.account() {
                outbound::signal(&account, place, signal).await;
            }
        })
    }

    fn fetch<'a>(&'a self, media: &'a MediaId, limit: u64) -> BoxFuture<'a, Result<Vec<u8>, PlatformError>> {
        Box::pin(async move { media::fetch(&*self.account()?, media, limit).await })
    }

    fn answer_operator<'a>(
        &'a self,
        request: OperatorRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<u8>, RequestRefusal>> {
        Box::pin(operator::requests::answer(self, request))
    }
}
