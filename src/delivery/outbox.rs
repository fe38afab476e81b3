//! Sends what must arrive until it has: finals and notices, in order within each place.
//!
//! Places do not wait for each other; within one, a row waits for the row before it. A row is sent
//! with the key it was stored with, so that sending it again after a crash posts nothing twice.
//!
//! A mark that fails lets the rows after it go first, and comes again later.
//!
//! Nobody waits for the earlier texts of a message that was taken back. They can be hundreds, and the network counts
//! each like a message, so they go one at a time for the whole account when it has nothing else to say. Those that fail
//! let the others go first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{
    BodyKind, DeletionProgress, MessageBody, MessageId, Place, PlatformErrorKind, SendKey, ShowMode,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{DeliveryAccount, REQUEST};
use crate::i18n::TextKey;
use crate::pace::RequestClass;
use crate::store::{LiveMessageRow, OutboxKind, OutboxRow, StoreError, Tx, unix_now};
use crate::testing::failpoint;

/// Rows that are loaded at once, so that a long backlog does not keep the store's reader busy.
const LOAD: usize = 256;

/// The longest pause between two requests that clean up. An account that always has something to say gets there too.
const CLEANUP_EACH: Duration = Duration::from_secs(60);

/// Pauses between two tries of one row, where the network does not name one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Pauses between two tries of a row that lets others go first. The longest bounds what a row that fails for ever costs.
const LATER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Rows that wait for their place, as far as they are loaded.
#[derive(Default)]
struct LoadedRows {
    places: HashMap<Place, VecDeque<OutboxRow>>,
    /// Rows of all places that clean up, taken in turns.
    cleanups: VecDeque<OutboxRow>,
    /// How long a row that comes again waits if it fails; from [`LATER`].
    pauses: HashMap<SendKey, Duration>,
    /// The store's number of the last row that was loaded.
    last: i64,
}

impl LoadedRows {
    fn add(&mut self, row: OutboxRow) {
        match row.kind == OutboxKind::Cleanup {
            true => self.cleanups.push_back(row),
            false => self.places.entry(row.place.clone()).or_default().push_back(row),
        }
    }
}

/// What came of one row.
struct HandledRow {
    /// Where the next row may go; `None` if it cleaned up, which keeps no place waiting.
    place: Option<Place>,
    rest: Option<Rest>,
}

/// A row that comes again when its time has come and others had their turn.
struct Rest {
    row: OutboxRow,
    /// How long it waits if it fails then.
    pause: Duration,
}

/// Runs an account's outbox until `stop` fires or the account is lost.
pub async fn run(account: Arc<DeliveryAccount>, stop: CancellationToken) -> Result<(), StoreError> {
    let mut loaded = LoadedRows::default();
    // One task per place that has something to send, which gives its place back, and one that cleans up.
    let mut sending: JoinSet<Result<HandledRow, StoreError>> = JoinSet::new();
    let mut busy: Vec<Place> = Vec::new();
    let mut cleaning_up = false;
    // Places where something was sent since we began. The first row of any other may have been under way when an
    // earlier process died.
    let mut served: HashSet<Place> = HashSet::new();
    loop {
        let (id, last) = (account.id.clone(), loaded.last);
        let rows = account.store.read(move |tx| tx.pending(&id, last, LOAD)).await?;
        let more = rows.len() == LOAD;
        for (seq, row) in rows {
            loaded.last = seq;
            loaded.add(row);
        }
        let mut wake_in = None;
        if !cleaning_up {
            match take_due(&mut loaded.cleanups) {
                ReadyRow::Row(row) => {
                    cleaning_up = true;
                    let account = account.clone();
                    let pause = loaded.pauses.remove(&row.key).unwrap_or(LATER.0);
                    sending.spawn(async move {
                        let rest = deliver(&account, *row, true, pause).await?;
                        Ok(HandledRow { place: None, rest })
                    });
                }
                ReadyRow::In(wait) => wake_in = Some(wait),
                ReadyRow::Nothing => {}
            }
        }
        for (place, rows) in &mut loaded.places {
            if busy.contains(place) {
                continue;
            }
            match take_ready(&account, rows) {
                ReadyRow::Row(row) => {
                    busy.push(place.clone());
                    let account = account.clone();
                    let first = served.insert(place.clone());
                    let pause = loaded.pauses.remove(&row.key).unwrap_or(LATER.0);
                    sending.spawn(async move {
                        let place = Some(row.place.clone());
                        let rest = deliver(&account, *row, first, pause).await?;
                        Ok(HandledRow { place, rest })
                    });
                }
                ReadyRow::In(wait) => wake_in = Some(wake_in.map_or(wait, |other: Duration| other.min(wait))),
                ReadyRow::Nothing => {}
            }
        }
        loaded.places.retain(|place, rows| !rows.is_empty() || busy.contains(place));
        tokio::select! {
            () = std::future::ready(()), if more => {}
            () = account.work.notified() => {}
            Some(ended) = sending.join_next() => match ended {
                Ok(Ok(HandledRow { place, rest })) => {
                    match place {
                        Some(place) => busy.retain(|other| *other != place),
                        None => cleaning_up = false,
                    }
                    if let Some(Rest { row, pause }) = rest {
                        loaded.pauses.insert(row.key.clone(), pause);
                        loaded.add(row);
                    }
                    account.done.notify_waiters();
                }
                Ok(Err(error)) => return Err(error),
                // A panic in a platform's send: the row is still stored, the supervisor starts us anew.
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            },
            () = tokio::time::sleep(wake_in.unwrap_or(Duration::MAX)), if wake_in.is_some() => {}
            () = account.lost.cancelled() => return Ok(()),
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// What a place can do now.
enum ReadyRow {
    Row(Box<OutboxRow>),
    /// Something waits for its time.
    In(Duration),
    Nothing,
}

/// The next row of a place: the ends of turns in their order, and only then what the gateway itself has to
/// say, so that many small notices never keep an answer waiting. A row whose turn still has an edit under
/// way waits for it, and so do the ends after it.
fn take_ready(account: &DeliveryAccount, rows: &mut VecDeque<OutboxRow>) -> ReadyRow {
    let now = unix_now();
    let (mut notice, mut soonest) = (None, None::<i64>);
    for (index, row) in rows.iter().enumerate() {
        if row.not_before > now {
            soonest = Some(soonest.map_or(row.not_before, |other| other.min(row.not_before)));
            continue;
        }
        match row.kind {
            OutboxKind::Notice | OutboxKind::Change | OutboxKind::Mark => notice = notice.or(Some(index)),
            OutboxKind::Final | OutboxKind::Again | OutboxKind::Removal | OutboxKind::Cleanup => {
                if row.turn.as_ref().is_some_and(|turn| account.open().contains(turn)) {
                    break;
                }
                return take(rows, index);
            }
        }
    }
    match (notice, soonest) {
        (Some(index), _) => take(rows, index),
        (None, Some(at)) => until(at, now),
        (None, None) => ReadyRow::Nothing,
    }
}

/// The first row whose time has come.
fn take_due(rows: &mut VecDeque<OutboxRow>) -> ReadyRow {
    let now = unix_now();
    match rows.iter().position(|row| row.not_before <= now) {
        Some(index) => take(rows, index),
        None => rows.iter().map(|row| row.not_before).min().map_or(ReadyRow::Nothing, |at| until(at, now)),
    }
}

fn until(at: i64, now: i64) -> ReadyRow {
    ReadyRow::In(Duration::from_secs((at - now).unsigned_abs()))
}

fn take(rows: &mut VecDeque<OutboxRow>, index: usize) -> ReadyRow {
    rows.remove(index).map_or(ReadyRow::Nothing, |row| ReadyRow::Row(Box::new(row)))
}

/// Sends one row until it has arrived, never can, is no longer wanted, or comes again later. `tried`: it may have been
/// sent before. `pause`: how long it waits for its next try if it is one that lets others go first and this one fails.
async fn deliver(
    account: &DeliveryAccount,
    mut row: OutboxRow,
    mut tried: bool,
    pause: Duration,
) -> Result<Option<Rest>, StoreError> {
    let class = match row.kind {
        OutboxKind::Final => RequestClass::Final,
        // Not as a partial edit: where the bucket has no token for those, it would block its place for ever.
        OutboxKind::Again
        | OutboxKind::Notice
        | OutboxKind::Change
        | OutboxKind::Mark
        | OutboxKind::Removal => RequestClass::Notice,
        OutboxKind::Cleanup => RequestClass::Cleanup,
    };
    if let Some(file) = row.body.files.first_mut() {
        let key = row.key.clone();
        file.content = account.store.read(move |tx| tx.file(&key)).await?;
    }
    let mut backoff = BACKOFF.0;
    loop {
        failpoint("outbox.taken");
        if !is_wanted(account, &row).await? {
            let unwanted = move |tx: &Tx<'_>| if tried { tx.doubted(&row) } else { tx.dropped(&row) };
            return account.store.write(unwanted).await.map(|()| None);
        }
        let outcome = match row.kind {
            OutboxKind::Removal => remove(account, &row, class).await?,
            OutboxKind::Cleanup => clean_up(account, &row, class).await?,
            OutboxKind::Change => change(account, &row, class).await?.map(RowProgress::Complete),
            OutboxKind::Mark => mark(account, &row, class).await.map(RowProgress::Complete),
            OutboxKind::Final | OutboxKind::Again | OutboxKind::Notice => {
                send(account, &row, class).await?.map(RowProgress::Complete)
            }
        };
        match outcome {
            Ok(RowProgress::Complete(message)) => {
                failpoint("outbox.sent");
                let arrived = account.store.write(move |tx| match row.kind {
                    OutboxKind::Removal => tx.removed(&row),
                    OutboxKind::Mark => tx.marked(&row),
                    OutboxKind::Final
                    | OutboxKind::Again
                    | OutboxKind::Notice
                    | OutboxKind::Change
                    | OutboxKind::Cleanup => tx.sent(&row, &message),
                });
                arrived.await?;
                failpoint("outbox.committed");
                return Ok(None);
            }
            Ok(RowProgress::EarlierTexts(message)) => {
                failpoint("deletion.more");
                if row.kind == OutboxKind::Cleanup {
                    return Ok(Some(Rest { row, pause: LATER.0 }));
                }
                // An edit may have been under way when the message went.
                let not_before = unix_now() + REQUEST.as_secs() as i64 + 1;
                let rest = OutboxRow { kind: OutboxKind::Cleanup, not_before, ..row.clone() };
                account.store.write(move |tx| tx.clean_up_later(&row, &message, not_before)).await?;
                return Ok(Some(Rest { row: rest, pause: LATER.0 }));
            }
            // Nobody waits for it, so nothing else does either.
            Err(PlatformErrorKind::Retry { .. })
                if matches!(row.kind, OutboxKind::Mark | OutboxKind::Cleanup) =>
            {
                account.metrics.delivery_retries.inc();
                row.not_before = unix_now() + pause.as_secs() as i64;
                return Ok(Some(Rest { row, pause: (pause * 2).min(LATER.1) }));
            }
            // The rate limiter knows when the next request may go.
            Err(PlatformErrorKind::Retry { after: Some(_) }) => {
                account.metrics.delivery_retries.inc();
            }
            Err(PlatformErrorKind::Retry { after: None }) => {
                account.metrics.delivery_retries.inc();
                tried = true;
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
            }
            Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
                tracing::error!(account = %account.id, key = %row.key, "a message can never be shown; it is dropped");
                say_unshown(account, &row).await;
                return account.store.write(move |tx| tx.dropped(&row)).await.map(|()| None);
            }
            // The row stays for the day the account works again.
            Err(PlatformErrorKind::Fatal) => std::future::pending().await,
        }
    }
}

/// Whether a row is still to be sent: the end of a turn is not, once its question was deleted or edited.
async fn is_wanted(account: &DeliveryAccount, row: &OutboxRow) -> Result<bool, StoreError> {
    let (OutboxKind::Final | OutboxKind::Again, Some(turn)) = (row.kind, row.turn.clone()) else {
        return Ok(true);
    };
    account.store.read(move |tx| Ok(!tx.is_withdrawn(&turn)?)).await
}

/// How far a request got with its row.
enum RowProgress {
    /// There is nothing more to be done.
    Complete(MessageId),
    /// This message is gone, but not its earlier texts.
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

/// One try of taking back the message that shows a part of a turn. Where the platform cannot, or we may not, the
/// message says that it is void.
async fn remove(
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
        // Something may have been posted under this key: the platform names it, or posts what is taken back at once.
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
        // A room can forbid to take anything back.
        (Err(PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported), ShowMode::Edit { .. }) => {
            let ticket = account.permit(class).await;
            let edit = account.platform.edit(&row.place, &message, &row.key, &void);
            account.request(ticket, edit).await.map(|()| DeletionProgress::Complete)
        }
        (deleted, _) => deleted,
    };
    Ok(match outcome {
        Ok(deletion) => Ok(RowProgress::after(deletion, message)),
        // Somebody else took it away, or nobody can: there is nothing more to be done.
        Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
            Ok(RowProgress::Complete(message))
        }
        Err(kind) => Err(kind),
    })
}

/// Takes back the next earlier text of a message that is gone.
async fn clean_up(
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

/// One try of changing the text of a notice. A notice that is gone stays gone.
async fn change(
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

/// One try of putting a mark on a person's message. A message that takes none is left without.
async fn mark(
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

/// Tells the room that a part of an answer could not be shown there. Tried once: where the room is gone
/// nobody is left to read it.
async fn say_unshown(account: &DeliveryAccount, row: &OutboxRow) {
    let (OutboxKind::Final, Some(turn)) = (row.kind, &row.turn) else { return };
    let Some(words) = account.words(&TextKey::Unshown.with("turn", turn.short())) else { return };
    let body =
        MessageBody { reply_to: row.body.reply_to.clone(), ..MessageBody::new(BodyKind::Notice, words) };
    let key = turn.send_key(format_args!("unshown{}", row.part));
    let ticket = account.permit(RequestClass::Notice).await;
    let _ = account.request(ticket, account.platform.send(&row.place, &key, &body)).await;
}

/// One try. The first part of a turn's end takes the place of the message that showed the turn.
async fn send(
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
        // Whatever was uncertain, no message of ours is there to be shown again.
        None | Some((_, None)) if again => Ok(MessageId::new("")),
        // Somebody took our message away before this came: the answer comes anew.
        None if lost => post(&anew()).await,
        None => post(&row.key).await,
        Some((_, Some(message))) if again => edit(message).await,
        // Something may have been posted under this key: the platform names it, and then it is edited.
        Some((key, None)) => match post(&key).await {
            Ok(message) => {
                let (turn, stored) = (row.turn.clone(), message.clone());
                account
                    .store
                    .write(move |tx| turn.map_or(Ok(()), |turn| tx.set_anchor(&turn, &stored)))
                    .await?;
                edit(message).await
            }
            Err(kind) => Err(kind),
        },
        Some((_, Some(message))) => match edit(message).await {
            // Somebody took our message away, or it cannot be edited any more: the answer comes anew.
            Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
                post(&anew()).await
            }
            outcome => outcome,
        },
    })
}
