//! Sends stored messages until they have arrived.
//!
//! Places do not wait for each other. Within a place one row is sent at a time: ends of turns in their order, then
//! notices. A row is sent with its stored key, so that sending it again after a crash posts nothing twice.
//!
//! A reaction that fails lets the rows behind it go first, and is retried later.
//!
//! Cleaning up the earlier texts (the edit history) of a deleted message is not urgent. There can be hundreds,
//! and the network counts each like a message, so they are deleted one at a time per account, when it has
//! nothing else to send. Those that fail let the others go first.

mod row_request;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{Backoff, Place, PlatformErrorKind, SendKey};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::row_request::{RowProgress, change, clean_up, mark, remove, say_unshown, send};
use super::{DeliveryAccount, REQUEST};
use crate::pace::RequestClass;
use crate::store::{OutboxKind, OutboxRow, StoreError, Tx, unix_now};
use crate::testing::failpoint;

/// Rows to load at once, so that a long backlog does not keep the store's reader busy.
const LOAD: usize = 256;

/// First and longest pause between two tries of one row, if the network does not name one.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(30));

/// First and longest pause of a row that lets others go first. The longest bounds the cost of a row that always
/// fails.
const LATER: Backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(60));

/// Loaded rows that wait to be sent.
#[derive(Default)]
struct LoadedRows {
    places: HashMap<Place, VecDeque<OutboxRow>>,
    /// Cleanup rows of all places, taken in turns.
    cleanups: VecDeque<OutboxRow>,
    /// Next pause of each deferred row if it fails again; from [`LATER`].
    pauses: HashMap<SendKey, Backoff>,
    /// Sequence number of the last row that was loaded.
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

/// Result of handling one row.
struct HandledRow {
    /// Place that is free for its next row; `None` for a cleanup, which occupies no place.
    place: Option<Place>,
    rest: Option<DeferredRow>,
}

/// A row to try again after its pause, behind others.
struct DeferredRow {
    row: OutboxRow,
    /// Pause after the next failure.
    pause: Backoff,
}

/// Runs an account's outbox until `stop` fires or the account is lost.
pub async fn run(account: Arc<DeliveryAccount>, stop: CancellationToken) -> Result<(), StoreError> {
    let mut loaded = LoadedRows::default();
    // One task per place that has something to send, which returns its place, and one for cleanups.
    let mut sending: JoinSet<Result<HandledRow, StoreError>> = JoinSet::new();
    let mut busy: Vec<Place> = Vec::new();
    let mut cleaning_up = false;
    // Places where something was sent since the start. The first row of any other place may have been under way
    // when an earlier process died.
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
                    let pause = loaded.pauses.remove(&row.key).unwrap_or(LATER);
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
                    let pause = loaded.pauses.remove(&row.key).unwrap_or(LATER);
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
                    if let Some(DeferredRow { row, pause }) = rest {
                        loaded.pauses.insert(row.key.clone(), pause);
                        loaded.add(row);
                    }
                    account.done.notify_waiters();
                }
                Ok(Err(error)) => return Err(error),
                // A panic in a platform's send: the row is still stored, and the supervisor restarts this task.
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            },
            () = tokio::time::sleep(wake_in.unwrap_or(Duration::MAX)), if wake_in.is_some() => {}
            () = account.lost.cancelled() => return Ok(()),
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Next action for a place.
enum ReadyRow {
    Row(Box<OutboxRow>),
    /// All rows wait for their time.
    In(Duration),
    Nothing,
}

/// Takes the next row of a place: the ends of turns in their order, and only then the gateway's own notices, so
/// that many small notices never delay an answer. A row whose turn still has an edit under way waits for it,
/// and so do the ends behind it.
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

/// Takes the first row whose time has come.
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

/// Sends one row until it has arrived, never can, is no longer wanted, or is deferred. `tried`: it may have
/// been sent before. `pause`: how long the row waits for its next try, if it is a kind that lets others go
/// first and this try fails.
async fn deliver(
    account: &DeliveryAccount,
    mut row: OutboxRow,
    mut tried: bool,
    mut pause: Backoff,
) -> Result<Option<DeferredRow>, StoreError> {
    let class = match row.kind {
        OutboxKind::Final => RequestClass::Final,
        // Not as a partial edit: if the bucket has no token for those, the row would block its place forever.
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
    let mut backoff = BACKOFF;
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
                let arrived = account.store.write_repeatable(move |tx| match row.kind {
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
                    return Ok(Some(DeferredRow { row, pause: LATER }));
                }
                // An edit may have been under way when the message was deleted.
                let not_before = unix_now() + REQUEST.as_secs() as i64 + 1;
                let rest = OutboxRow { kind: OutboxKind::Cleanup, not_before, ..row.clone() };
                account.store.write(move |tx| tx.clean_up_later(&row, &message, not_before)).await?;
                return Ok(Some(DeferredRow { row: rest, pause: LATER }));
            }
            // Not urgent, so it must not delay other rows.
            Err(PlatformErrorKind::Retry { .. })
                if matches!(row.kind, OutboxKind::Mark | OutboxKind::Cleanup) =>
            {
                account.metrics.delivery_retries.inc();
                row.not_before = unix_now() + pause.advance().as_secs() as i64;
                return Ok(Some(DeferredRow { row, pause }));
            }
            // The rate limiter knows when the next request may go.
            Err(PlatformErrorKind::Retry { after: Some(_) }) => {
                account.metrics.delivery_retries.inc();
            }
            Err(PlatformErrorKind::Retry { after: None }) => {
                account.metrics.delivery_retries.inc();
                tried = true;
                tokio::time::sleep(backoff.advance()).await;
            }
            Err(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
                tracing::error!(account = %account.id, key = %row.key, "a message can never be shown; it is dropped");
                say_unshown(account, &row).await;
                return account.store.write(move |tx| tx.dropped(&row)).await.map(|()| None);
            }
            // The row stays until the account works again.
            Err(PlatformErrorKind::Fatal) => std::future::pending().await,
        }
    }
}

/// Whether a row is still to be sent: the end of a turn is not, if its prompt was deleted or edited.
async fn is_wanted(account: &DeliveryAccount, row: &OutboxRow) -> Result<bool, StoreError> {
    let (OutboxKind::Final | OutboxKind::Again, Some(turn)) = (row.kind, row.turn.clone()) else {
        return Ok(true);
    };
    account.store.read(move |tx| Ok(!tx.is_withdrawn(&turn)?)).await
}
