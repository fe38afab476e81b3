//! A process between two turns of its session: it is kept for a while, and answers nothing but refusals. A process whose
//! conversation no other one can open again is kept until its session ends, or its place is needed after that while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use talaria_platform::CancellationToken;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::place::ProcessPlace;
use super::{AcpProcess, PooledProcess};

/// An idle process, as its place knows it. A task has the process itself.
pub struct IdleProcess {
    /// The end of the turn before.
    pub since: Instant,
    /// Whether the conversation is lost with it.
    pub is_all_there_is: bool,
    /// Time for which it is kept in any case, if the conversation is lost with it.
    patience: Duration,
    /// Tells idle processes of one place apart.
    number: u64,
    /// Asks the task to hand the process over.
    asks: oneshot::Sender<HandOver>,
}

/// The wish for an idle process, and the place that it lies in.
struct HandOver {
    place: ProcessPlace,
    to: oneshot::Sender<PooledProcess>,
}

impl IdleProcess {
    /// Whether it may be ended for a newcomer.
    pub fn can_go(&self, now: Instant) -> bool {
        !self.is_all_there_is || now.duration_since(self.since) >= self.patience
    }

    /// Takes the process out of its place. An error is the place without a process, because that has died; `None` if the
    /// place is free again.
    pub async fn take(self, place: ProcessPlace) -> Result<PooledProcess, Option<ProcessPlace>> {
        let (to, process) = oneshot::channel();
        self.asks.send(HandOver { place, to }).map_err(|wish| Some(wish.place))?;
        process.await.map_err(|_| None)
    }
}

/// Keeps a process in its place until it is asked for, its time is over, or it dies.
pub fn rest(place: ProcessPlace, mut process: AcpProcess, patience: Duration, stop: CancellationToken) {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let (asks, mut asked) = oneshot::channel::<HandOver>();
    let (pool, key) = (place.pool.clone(), place.key.clone());
    let is_all_there_is = process.is_all_there_is();
    {
        let mut places = pool.places.lock();
        let Some(entry) = places.get_mut(&key) else {
            drop(places);
            drop(PooledProcess::new(place, process));
            return;
        };
        entry.open = process.session.as_ref().map(|session| session.id.clone());
        entry.idle = Some(IdleProcess { since: Instant::now(), is_all_there_is, patience, number, asks });
    }
    place.leave();
    pool.freed.notify_waiters();
    let owner = pool.clone();
    // It is waited for at the end.
    drop(owner.spawn("acp-idle", async move {
        let asked_in_time = tokio::select! {
            wish = &mut asked => Some(wish),
            () = process.refuse_all() => None,
            () = tokio::time::sleep(patience), if !is_all_there_is => None,
            () = stop.cancelled() => None,
        };
        let wish = match asked_in_time {
            Some(wish) => wish,
            None => {
                let is_ours = {
                    let mut places = pool.places.lock();
                    let entry = places.get_mut(&key);
                    let is_this = |idle: &mut IdleProcess| idle.number == number;
                    entry.is_some_and(|entry| {
                        let is_ours = entry.idle.take_if(is_this).is_some();
                        entry.is_ending |= is_ours;
                        is_ours
                    })
                };
                if is_ours {
                    drop(PooledProcess::new(ProcessPlace::new(pool, key), process));
                    return;
                }
                // Somebody asks for it at this moment.
                asked.await
            }
        };
        match wish {
            // A turn that gave up drops it, which ends the process before its place is free.
            Ok(HandOver { place, to }) => drop(to.send(PooledProcess::new(place, process))),
            Err(_) => process.end().await,
        }
    }));
}
