//! Sends what must arrive until it has: finals and notices, in order within each place.
//!
//! Places do not wait for each other; within one, a row waits for the row before it. A row is sent
//! with the key it was stored with, so that sending it again after a crash posts nothing twice.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{Body, BodyKind, Deletion, ErrorKind, MessageId, Place, Show};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Account;
use crate::pace::Class;
use crate::store::{Anchor, OutboxKind, OutboxRow, StoreError, unix_now};
use crate::testing::failpoint;
use crate::words::Text;

/// Rows that are loaded at once, so that a long backlog does not keep the store's reader busy.
const LOAD: usize = 256;

/// Requests that one deletion may take. More than any message has edits; a platform that always wants one more must
/// not block its place for ever.
const DELETIONS: usize = 2000;

/// Pauses between two tries of one row, where the network does not name one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Rows that wait for their place, as far as they are loaded.
#[derive(Default)]
struct Loaded {
    places: HashMap<Place, VecDeque<OutboxRow>>,
    /// The store's number of the last row that was loaded.
    last: i64,
}

/// Runs an account's outbox until `stop` fires or the account is lost.
pub async fn run(account: Arc<Account>, stop: CancellationToken) -> Result<(), StoreError> {
    let mut loaded = Loaded::default();
    // One task per place that has something to send; each gives its place back.
    let mut sending: JoinSet<Result<Place, StoreError>> = JoinSet::new();
    let mut busy: Vec<Place> = Vec::new();
    // Places where something was sent since we began. The first row of any other may have been under way when an
    // earlier process died.
    let mut served: HashSet<Place> = HashSet::new();
    loop {
        let (id, last) = (account.id.clone(), loaded.last);
        let rows = account.store.read(move |tx| tx.pending(&id, last, LOAD)).await?;
        let more = rows.len() == LOAD;
        for (seq, row) in rows {
            loaded.last = seq;
            loaded.places.entry(row.place.clone()).or_default().push_back(row);
        }
        let mut wake_in = None;
        for (place, rows) in &mut loaded.places {
            if busy.contains(place) {
                continue;
            }
            match take_ready(&account, rows) {
                Ready::Row(row) => {
                    busy.push(place.clone());
                    let account = account.clone();
                    let first = served.insert(place.clone());
                    sending.spawn(async move {
                        let place = row.place.clone();
                        deliver(&account, *row, first).await.map(|()| place)
                    });
                }
                Ready::In(wait) => wake_in = Some(wake_in.map_or(wait, |other: Duration| other.min(wait))),
                Ready::Nothing => {}
            }
        }
        loaded.places.retain(|place, rows| !rows.is_empty() || busy.contains(place));
        tokio::select! {
            () = std::future::ready(()), if more => {}
            () = account.work.notified() => {}
            Some(ended) = sending.join_next() => match ended {
                Ok(Ok(place)) => {
                    busy.retain(|other| *other != place);
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
enum Ready {
    Row(Box<OutboxRow>),
    /// Something waits for its time.
    In(Duration),
    Nothing,
}

/// The next row of a place: the ends of turns in their order, and only then what the gateway itself has to
/// say, so that many small notices never keep an answer waiting. A row whose turn still has an edit under
/// way waits for it, and so do the ends after it.
fn take_ready(account: &Account, rows: &mut VecDeque<OutboxRow>) -> Ready {
    let now = unix_now();
    let (mut notice, mut soonest) = (None, None::<i64>);
    for (index, row) in rows.iter().enumerate() {
        if row.not_before > now {
            soonest = Some(soonest.map_or(row.not_before, |other| other.min(row.not_before)));
            continue;
        }
        match row.kind {
            OutboxKind::Notice | OutboxKind::Change => notice = notice.or(Some(index)),
            OutboxKind::Final | OutboxKind::Again | OutboxKind::Removal => {
                if row.turn.as_ref().is_some_and(|turn| account.open().contains(turn)) {
                    break;
                }
                return take(rows, index);
            }
        }
    }
    match (notice, soonest) {
        (Some(index), _) => take(rows, index),
        (None, Some(at)) => Ready::In(Duration::from_secs((at - now).unsigned_abs())),
        (None, None) => Ready::Nothing,
    }
}

fn take(rows: &mut VecDeque<OutboxRow>, index: usize) -> Ready {
    rows.remove(index).map_or(Ready::Nothing, |row| Ready::Row(Box::new(row)))
}

/// Sends one row until it has arrived, never can, or is no longer wanted. `tried`: it may have been sent before.
async fn deliver(account: &Account, mut row: OutboxRow, mut tried: bool) -> Result<(), StoreError> {
    let class = match row.kind {
        OutboxKind::Final => Class::Final,
        // Not as a partial edit: where the bucket has no token for those, it would block its place for ever.
        OutboxKind::Again | OutboxKind::Notice | OutboxKind::Change | OutboxKind::Removal => Class::Notice,
    };
    if let Some(file) = row.body.files.first_mut() {
        let key = row.key.clone();
        file.content = account.store.read(move |tx| tx.file(&key)).await?;
    }
    let mut backoff = BACKOFF.0;
    loop {
        failpoint("outbox.taken");
        if !is_wanted(account, &row).await? {
            return account
                .store
                .write(move |tx| if tried { tx.doubted(&row) } else { tx.dropped(&row) })
                .await;
        }
        let outcome = match row.kind {
            OutboxKind::Removal => remove(account, &row, class).await?,
            OutboxKind::Change => change(account, &row, class).await?,
            OutboxKind::Final | OutboxKind::Again | OutboxKind::Notice => send(account, &row, class).await?,
        };
        match outcome {
            Ok(message) => {
                failpoint("outbox.sent");
                let arrived = account.store.write(move |tx| match row.kind {
                    OutboxKind::Removal => tx.removed(&row),
                    OutboxKind::Final | OutboxKind::Again | OutboxKind::Notice | OutboxKind::Change => {
                        tx.sent(&row, &message)
                    }
                });
                arrived.await?;
                failpoint("outbox.committed");
                return Ok(());
            }
            // The governor knows when the next request may go.
            Err(ErrorKind::Retry { after: Some(_) }) => {
                account.metrics.delivery_retries.inc();
            }
            Err(ErrorKind::Retry { after: None }) => {
                account.metrics.delivery_retries.inc();
                tried = true;
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
            }
            Err(ErrorKind::Gone | ErrorKind::Rejected | ErrorKind::Unsupported) => {
                tracing::error!(account = %account.id, key = %row.key, "a message can never be shown; it is dropped");
                say_unshown(account, &row).await;
                return account.store.write(move |tx| tx.dropped(&row)).await;
            }
            // The row stays for the day the account works again.
            Err(ErrorKind::Fatal) => std::future::pending().await,
        }
    }
}

/// Whether a row is still to be sent: the end of a turn is not, once its question was deleted or edited.
async fn is_wanted(account: &Account, row: &OutboxRow) -> Result<bool, StoreError> {
    match (row.kind, row.turn.clone()) {
        (OutboxKind::Final | OutboxKind::Again, Some(turn)) => {
            account.store.read(move |tx| Ok(!tx.is_withdrawn(&turn)?)).await
        }
        (OutboxKind::Final | OutboxKind::Again, None)
        | (OutboxKind::Notice | OutboxKind::Change | OutboxKind::Removal, _) => Ok(true),
    }
}

/// One try of taking back the message that shows a part of a turn. Where the platform cannot, or we may not, the
/// message says that it is void.
async fn remove(
    account: &Account,
    row: &OutboxRow,
    class: Class,
) -> Result<Result<MessageId, ErrorKind>, StoreError> {
    let nothing = || Ok(Ok(MessageId::new("")));
    let Some(turn) = row.turn.clone() else { return nothing() };
    let part = row.part;
    let shown = account.store.read(move |tx| match part {
        0 => tx.anchor(&turn),
        part => tx.shown_part(&turn, part),
    });
    let Some(Anchor { key, message }) = shown.await? else { return nothing() };
    let void =
        Body::new(BodyKind::Notice, account.words(&Text::Removed.into()).unwrap_or_else(|| "…".to_owned()));
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
        true => delete(account, row, &message, class).await,
        false => Err(ErrorKind::Unsupported),
    };
    let outcome = match (deleted, account.about.show) {
        // A room can forbid to take anything back.
        (Err(ErrorKind::Rejected | ErrorKind::Unsupported), Show::Edit { .. }) => {
            let ticket = account.permit(class).await;
            account.request(ticket, account.platform.edit(&row.place, &message, &row.key, &void)).await
        }
        (deleted, _) => deleted,
    };
    Ok(match outcome {
        // Somebody else took it away, or nobody can: there is nothing more to be done.
        Ok(()) | Err(ErrorKind::Gone | ErrorKind::Rejected | ErrorKind::Unsupported) => Ok(message),
        Err(kind) => Err(kind),
    })
}

/// Takes a message back with every earlier text of it. What an interrupted try has done stays done, so the next one
/// goes on from there.
async fn delete(
    account: &Account,
    row: &OutboxRow,
    message: &MessageId,
    class: Class,
) -> Result<(), ErrorKind> {
    for _ in 0..DELETIONS {
        let ticket = account.permit(class).await;
        match account.request(ticket, account.platform.delete(&row.place, message, &row.key)).await? {
            Deletion::Complete => return Ok(()),
            Deletion::More => failpoint("deletion.more"),
        }
    }
    tracing::error!(account = %account.id, key = %row.key, "earlier texts of a deleted message may still be there");
    Ok(())
}

/// One try of changing the text of a notice. A notice that is gone stays gone.
async fn change(
    account: &Account,
    row: &OutboxRow,
    class: Class,
) -> Result<Result<MessageId, ErrorKind>, StoreError> {
    let wanted = row.clone();
    let Some(message) = account.store.read(move |tx| tx.notice_to_change(&wanted)).await? else {
        return Ok(Ok(MessageId::new("")));
    };
    let ticket = account.permit(class).await;
    account.metrics.edits.inc();
    let edit = account.platform.edit(&row.place, &message, &row.key, &row.body);
    Ok(match account.request(ticket, edit).await {
        Err(ErrorKind::Gone | ErrorKind::Rejected | ErrorKind::Unsupported) => Ok(MessageId::new("")),
        outcome => outcome.map(|()| MessageId::new("")),
    })
}

/// Tells the room that a part of an answer could not be shown there. Tried once: where the room is gone
/// nobody is left to read it.
async fn say_unshown(account: &Account, row: &OutboxRow) {
    let (OutboxKind::Final, Some(turn)) = (row.kind, &row.turn) else { return };
    let Some(words) = account.words(&Text::Unshown.with("turn", turn.short())) else { return };
    let body = Body { reply_to: row.body.reply_to.clone(), ..Body::new(BodyKind::Notice, words) };
    let key = turn.send_key(format_args!("unshown{}", row.part));
    let ticket = account.permit(Class::Notice).await;
    let _ = account.request(ticket, account.platform.send(&row.place, &key, &body)).await;
}

/// One try. The first part of a turn's end takes the place of the message that showed the turn.
async fn send(
    account: &Account,
    row: &OutboxRow,
    class: Class,
) -> Result<Result<MessageId, ErrorKind>, StoreError> {
    let (anchor, lost) = match &row.turn {
        Some(turn) if row.part == 0 => {
            let (id, own) = (turn.clone(), turn.send_key(0));
            let shown = account.store.read(move |tx| Ok((tx.anchor(&id)?, tx.is_anchor_lost(&id)?)));
            let (anchor, lost) = shown.await?;
            (anchor.filter(|anchor| account.takes_over() || anchor.key == own), lost)
        }
        _ => (None, false),
    };
    let anew = || row.turn.as_ref().map_or_else(|| row.key.clone(), |turn| turn.send_key("anew"));
    let post = async |key| {
        let ticket = account.permit(class).await;
        account.request(ticket, account.platform.send(&row.place, key, &row.body)).await
    };
    let edit = async |message: MessageId| {
        let key = row.turn.as_ref().map_or_else(
            || row.key.clone(),
            |turn| match row.kind {
                OutboxKind::Again => turn.send_key("again"),
                OutboxKind::Final | OutboxKind::Notice | OutboxKind::Change | OutboxKind::Removal => {
                    turn.send_key("final")
                }
            },
        );
        let ticket = account.permit(class).await;
        account.metrics.edits.inc();
        let outcome =
            account.request(ticket, account.platform.edit(&row.place, &message, &key, &row.body)).await;
        outcome.map(|()| message)
    };
    let again = row.kind == OutboxKind::Again;
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
            Err(ErrorKind::Gone | ErrorKind::Rejected | ErrorKind::Unsupported) => post(&anew()).await,
            outcome => outcome,
        },
    })
}
