//! One try of one outbox row: the requests to the platform that its kind needs.
//!
//! Nothing here retries. The outbox decides by the error kind when a row comes again.

use std::time::Duration;

use talaria_platform::{BodyKind, DeletionProgress, MessageBody, MessageId, PlatformErrorKind, ShowMode};

use super::super::DeliveryAccount;
use crate::i18n::TextKey;
use crate::pace::RequestClass;
use crate::store::{LiveMessageRow, OutboxKind, OutboxRow, StoreError};

/// Longest pause between two cleanup requests, so that even a busy account gets them done.
const CLEANUP_EACH: Duration = Duration::from_secs(60);

/// Result of a request for a row.
pub(super) enum RowProgress {
    /// Nothing is left to do.
    Complete(MessageId),
    /// The message is deleted, but not its earlier texts.
    EarlierTexts(MessageId),
}

impl RowProgress {
    fn after(deletion: DeletionProgress, message: MessageId) -> Self {
        match deletion {
            DeletionProgress::Complete => Self::Complete(message),
            DeletionProgress::More => Self::EarlierTexts(message),
        }
    }
}

/// One try to delete the message that shows a part of a turn. If the platform cannot, or we may not, the
/// message is replaced by a notice that it was removed.
pub(super) async fn remove(
    account: &DeliveryAccount,
    row: &OutboxRow,
    class: RequestClass,
) -> Result<Result<RowProgress, PlatformErrorKind>, StoreError> {
    let nothing = || Ok(Ok(RowProgress::Complete(MessageId::new(""))));
    let Some(turn) = row.turn.clone() else { return nothing() };
    let part = row.part;
    let shown = account.store.read(move |tx| match part {
        0 => tx.anchor(&turn),
        part => tx.shown_part(&turn, part),
    });
    let Some(LiveMessageRow { key, message }) = shown.await? else { return nothing() };
    let void = MessageBody::new(
        BodyKind::Notice,
        account.words(&TextKey::Removed.into()).unwrap_or_else(|| "…".to_owned()),
    );
    let message = match message {
        Some(message) => message,
        // A message may have been posted under this key: the platform names it, or posts one that is then
        // deleted.
        None => {
            let ticket = account.permit(class).await;
            match account.request(ticket, account.platform.send(&row.place, &key, &void)).await {
                Ok(message) => message,
                Err(kind) => return Ok(Err(kind)),
            }
        }
    };
    let deleted = match account.about.delete {
        true => {
            let ticket = account.permit(class).await;
            account.request(ticket, account.platform.delete(&row.place, &message, &row.key)).await
        }
        false => Err(PlatformErrorKind::Unsupported),
    };
    let outcome = match (deleted, account.about.show) {
        // A room can forbid deletions.
        (Err(PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported), ShowMode::Edit { .. }) => {
            let ticket = account.permit(class).await;
            let edit = account.platform.edit(&row.place, &message, &row.key, &void);
            account.request(ticket, edit).await.map(|()| DeletionProgress::Complete)
        }
        (deleted, _) => deleted,
    };
    Ok(match outcome {
        Ok(deletion) => Ok(RowProgress::after(deletion, message)),
        // Somebody else deleted it, or it cannot be deleted: nothing is left to do.
        Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
            Ok(RowProgress::Complete(message))
        }
        Err(kind) => Err(kind),
    })
}

/// Deletes the next earlier text of a deleted message.
pub(super) async fn clean_up(
    account: &DeliveryAccount,
    row: &OutboxRow,
    class: RequestClass,
) -> Result<Result<RowProgress, PlatformErrorKind>, StoreError> {
    let wanted = row.clone();
    let Some(message) = account.store.read(move |tx| tx.message_to_clean_up(&wanted)).await? else {
        return Ok(Ok(RowProgress::Complete(MessageId::new(""))));
    };
    let ticket = match tokio::time::timeout(CLEANUP_EACH, account.permit(class)).await {
        Ok(ticket) => ticket,
        Err(_) => account.permit(RequestClass::Notice).await,
    };
    let deleted = account.request(ticket, account.platform.delete(&row.place, &message, &row.key)).await;
    Ok(match deleted {
        Ok(deletion) => Ok(RowProgress::after(deletion, message)),
        Err(
            kind @ (PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported),
        ) => {
            tracing::warn!(account = %account.id, key = %row.key, ?kind, "earlier texts of a deleted message may still be there");
            Ok(RowProgress::Complete(message))
        }
        Err(kind) => Err(kind),
    })
}

/// One try to change the text of a notice. A deleted notice stays deleted.
pub(super) async fn change(
    account: &DeliveryAccount,
    row: &OutboxRow,
    class: RequestClass,
) -> Result<Result<MessageId, PlatformErrorKind>, StoreError> {
    let wanted = row.clone();
    let Some(message) = account.store.read(move |tx| tx.notice_to_change(&wanted)).await? else {
        return Ok(Ok(MessageId::new("")));
    };
    let ticket = account.permit(class).await;
    account.metrics.edits.inc();
    let edit = account.platform.edit(&row.place, &message, &row.key, &row.body);
    Ok(match account.request(ticket, edit).await {
        Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
            Ok(MessageId::new(""))
        }
        outcome => outcome.map(|()| MessageId::new("")),
    })
}

/// One try to add a reaction to a person's message. Messages that cannot have one are skipped.
pub(super) async fn mark(
    account: &DeliveryAccount,
    row: &OutboxRow,
    class: RequestClass,
) -> Result<MessageId, PlatformErrorKind> {
    let nothing = MessageId::new("");
    let Some(event) = &row.body.reply_to else { return Ok(nothing) };
    let message = MessageId::new(event.as_str());
    let ticket = account.permit(class).await;
    match account.request(ticket, account.platform.react(&row.place, &message, &row.body.markdown)).await {
        Ok(())
        | Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
            Ok(nothing)
        }
        Err(kind @ (PlatformErrorKind::Retry { .. } | PlatformErrorKind::Fatal)) => Err(kind),
    }
}

/// Tells the room that a part of an answer could not be shown there. Tried once: if the room is gone, it has no
/// readers.
pub(super) async fn say_unshown(account: &DeliveryAccount, row: &OutboxRow) {
    let (OutboxKind::Final, Some(turn)) = (row.kind, &row.turn) else { return };
    let Some(words) = account.words(&TextKey::Unshown.with("turn", turn.short())) else { return };
    let body =
        MessageBody { reply_to: row.body.reply_to.clone(), ..MessageBody::new(BodyKind::Notice, words) };
    let key = turn.send_key(format_args!("unshown{}", row.part));
    let ticket = account.permit(RequestClass::Notice).await;
    let _ = account.request(ticket, account.platform.send(&row.place, &key, &body)).await;
}

/// One try to send a row. The first part of a turn's end replaces the message that showed the turn.
pub(super) async fn send(
    account: &DeliveryAccount,
    row: &OutboxRow,
    class: RequestClass,
) -> Result<Result<MessageId, PlatformErrorKind>, StoreError> {
    let (anchor, lost) = match &row.turn {
        Some(turn) if row.part == 0 => {
            let (id, own) = (turn.clone(), turn.send_key(0));
            let shown = account.store.read(move |tx| Ok((tx.anchor(&id)?, tx.is_anchor_lost(&id)?)));
            let (anchor, lost) = shown.await?;
            (anchor.filter(|anchor| account.takes_over() || anchor.key == own), lost)
        }
        _ => (None, false),
    };
    let again = row.kind == OutboxKind::Again;
    let anew = || row.turn.as_ref().map_or_else(|| row.key.clone(), |turn| turn.send_key("anew"));
    let post = async |key| {
        let ticket = account.permit(class).await;
        account.request(ticket, account.platform.send(&row.place, key, &row.body)).await
    };
    let edit = async |message: MessageId| {
        let what = if again { "again" } else { "final" };
        let key = row.turn.as_ref().map_or_else(|| row.key.clone(), |turn| turn.send_key(what));
        let ticket = account.permit(class).await;
        account.metrics.edits.inc();
        let outcome =
            account.request(ticket, account.platform.edit(&row.place, &message, &key, &row.body)).await;
        outcome.map(|()| message)
    };
    Ok(match anchor.map(|anchor| (anchor.key, anchor.message)) {
        // There is no message of ours that could be shown again.
        None | Some((_, None)) if again => Ok(MessageId::new("")),
        // Our message was deleted before this: the answer is posted as a new one.
        None if lost => post(&anew()).await,
        None => post(&row.key).await,
        Some((_, Some(message))) if again => edit(message).await,
        // A message may have been posted under this key: the platform names it, and then it is edited.
        Some((key, None)) => match post(&key).await {
            Ok(message) => {
                let (turn, stored) = (row.turn.clone(), message.clone());
                account
                    .store
                    .write_repeatable(move |tx| turn.map_or(Ok(()), |turn| tx.set_anchor(&turn, &stored)))
                    .await?;
                edit(message).await
            }
            Err(kind) => Err(kind),
        },
        Some((_, Some(message))) => match edit(message).await {
            // Our message was deleted, or cannot be edited any more: the answer is posted as a new one.
            Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
                post(&anew()).await
            }
            outcome => outcome,
        },
    })
}
