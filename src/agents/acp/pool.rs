//! The processes of all agents of kind `acp`: one for each session, and at most so many at once.
//!
//! A process is started for a turn and kept for the next one (`idle`). When all places are taken, the process that has
//! been idle for longest makes room, first among those whose agents can open their conversation again; otherwise the
//! newcomer is refused. A place is free only after its process has ended, so there are never more processes than places;
//! a newcomer waits for a place that is about to be free. No app has all places, so that others find one.

mod idle;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::{CancellationToken, spawn_task};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::idle::IdleProcess;
pub use self::place::{PooledProcess, ProcessPlace};
use super::process::AcpProcess;
use crate::agents::process::ProcessHost;
use crate::ids::SessionId;

/// Longest wait for a process that ends: an earlier one of the same session, or one whose place is free then. More than
/// an ordered end takes.
const EARLIER: Duration = Duration::from_secs(10);

/// Longest wait for the end of all processes: both pauses of an ordered end, and a moment.
const END: Duration = Duration::from_secs(6);

/// The processes of all agents. One per process of ours.
pub struct AcpPool {
    /// Starts the processes.
    pub host: Arc<ProcessHost>,
    /// Most processes at once.
    limit: usize,
    places: Mutex<HashMap<PlaceKey, Place>>,
    /// Told when a place is free again.
    freed: Notify,
    /// Number of agents that were built so far.
    agents: AtomicU64,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The session of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlaceKey {
    /// The agent, by the number that [`AcpPool::new_agent`] gave it: a reload builds another one with the same name.
    pub agent: u64,
    /// The session.
    pub session: SessionId,
}

/// A turn that needs a process.
#[derive(Clone, Debug)]
pub struct ProcessWish {
    /// Its session.
    pub key: PlaceKey,
    /// The session under its lasting name.
    pub conversation: SessionId,
    /// The app that asks; `None` for rooms and the owner, who may have all places.
    pub app: Option<String>,
    /// The agent's id of the conversation that is to be opened again, if there is one.
    pub opens: Option<String>,
}

/// A place for one process.
struct Place {
    /// The session under its lasting name.
    conversation: SessionId,
    /// The app whose session it is; `None` for rooms and the owner.
    app: Option<String>,
    /// Marker of the process, once it was started.
    marker: Option<String>,
    /// The process, if no turn has it; `None` also while it is started or ended.
    idle: Option<IdleProcess>,
    /// The process is about to end, and the place to be free.
    is_ending: bool,
    /// The agent's id of the conversation that is open in the process, once a turn of it is over.
    open: Option<String>,
}

/// A place and what is in it.
pub enum Acquired {
    /// The process of the session, as the turn before left it.
    Warm(Box<PooledProcess>),
    /// An empty place, in which a process may be started.
    Cold(ProcessPlace),
}

/// Why a turn gets no place. Nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// All places that the asker may have are taken, and no process can make room.
    #[error("all places for processes are taken")]
    Full,
    /// A process of the same session, or with the same conversation, has not ended yet.
    #[error("an earlier process of the session has not ended yet")]
    InUse,
    /// The gateway ends.
    #[error("the gateway ends")]
    Ending,
}

impl AcpPool {
    /// A pool without processes.
    pub fn new(host: Arc<ProcessHost>, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            host,
            limit,
            places: Mutex::default(),
            freed: Notify::new(),
            agents: AtomicU64::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// A number for an agent that is built, and the token that fires when the gateway ends; the agent fires it earlier
    /// when it is dropped.
    pub fn new_agent(&self) -> (u64, CancellationToken) {
        (self.agents.fetch_add(1, Ordering::Relaxed), self.stop.child_token())
    }

    /// The process of a session, or a place for one. Dropping the future gives the place up.
    pub async fn acquire(self: &Arc<Self>, wish: &ProcessWish) -> Result<Acquired, PoolError> {
        let until = Instant::now() + EARLIER;
        loop {
            if self.stop.is_cancelled() {
                return Err(PoolError::Ending);
            }
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.take_place(wish)? {
                TakenPlace::Empty(place) => return Ok(Acquired::Cold(place)),
                TakenPlace::Idle(place, idle) => match idle.take(place).await {
                    Ok(process) if process.is_gone() => process.end().await,
                    Ok(process) => return Ok(Acquired::Warm(Box::new(process))),
                    // It died a moment ago.
                    Err(Some(place)) => return Ok(Acquired::Cold(place)),
                    Err(None) => {}
                },
                TakenPlace::After(place, other, idle) => {
                    self.end_idle(other, idle).await;
                    return Ok(Acquired::Cold(place));
                }
                TakenPlace::AfterEarlier(other, idle) => self.end_idle(other, idle).await,
                TakenPlace::Later(error) => {
                    if tokio::time::timeout_at(until, freed).await.is_err() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Ends an idle process, in a task of its own, because the turn that waits for it may give up meanwhile.
    async fn end_idle(&self, place: ProcessPlace, idle: IdleProcess) {
        let ending = self.spawn("acp-makes-room", async move {
            if let Ok(process) = idle.take(place).await {
                process.end().await;
            }
        });
        let _ = ending.await;
    }

    fn take_place(self: &Arc<Self>, wish: &ProcessWish) -> Result<TakenPlace, PoolError> {
        let ProcessWish { key, conversation, app, opens } = wish;
        let mut places = self.places.lock();
        if let Some(place) = places.get_mut(key) {
            return Ok(match place.idle.take() {
                Some(idle) => TakenPlace::Idle(ProcessPlace::new(self.clone(), key.clone()), idle),
                None => TakenPlace::Later(PoolError::InUse),
            });
        }
        // A reload builds the agent anew, and agents let one process at a time open a conversation. Two agents may use
        // the same id for different ones.
        let has_it =
            |place: &Place| opens.is_some() && place.open == *opens && place.conversation == *conversation;
        if let Some((earlier, place)) = places.iter_mut().find(|(_, place)| has_it(place)) {
            return Ok(match place.take_to_end() {
                Some(idle) => {
                    TakenPlace::AfterEarlier(ProcessPlace::new(self.clone(), earlier.clone()), idle)
                }
                None => TakenPlace::Later(PoolError::InUse),
            });
        }
        let lasting = |place: &&Place| !place.is_ending;
        let own = |place: &&Place| app.is_some() && place.app == *app;
        let is_share_taken = places.values().filter(lasting).filter(own).count() >= app_share(self.limit);
        let mut room = None;
        if is_share_taken || places.values().filter(lasting).count() >= self.limit {
            let now = Instant::now();
            let can_go = places.iter_mut().filter_map(|(key, place)| {
                let can_go = !is_share_taken || own(&&*place);
                let idle = place.idle.as_ref().filter(|idle| can_go && idle.can_go(now))?;
                Some(((idle.is_all_there_is, idle.since), key.clone(), place))
            });
            let (_, other, place) = can_go.min_by_key(|(order, _, _)| *order).ok_or(PoolError::Full)?;
            tracing::info!("an idle process of an agent makes room for another session");
            room = place.take_to_end().map(|idle| (ProcessPlace::new(self.clone(), other), idle));
        } else if places.len() >= self.limit {
            return Ok(TakenPlace::Later(PoolError::Full));
        }
        let place = Place {
            conversation: conversation.clone(),
            app: app.clone(),
            marker: None,
            idle: None,
            is_ending: false,
            open: None,
        };
        places.insert(key.clone(), place);
        let place = ProcessPlace::new(self.clone(), key.clone());
        Ok(match room {
            Some((other, idle)) => TakenPlace::After(place, other, idle),
            None => TakenPlace::Empty(place),
        })
    }

    /// Ends the process of a session, if no turn has it.
    pub async fn end_session(self: &Arc<Self>, key: &PlaceKey) {
        let idle = self.places.lock().get_mut(key).and_then(Place::take_to_end);
        let Some(idle) = idle else { return };
        if let Ok(process) = idle.take(ProcessPlace::new(self.clone(), key.clone())).await {
            process.end().await;
        }
    }

    /// Whether an agent has a process for a session, by the session's lasting name.
    pub fn has_process(&self, agent: u64, conversation: &SessionId) -> bool {
        let places = self.places.lock();
        places.iter().any(|(key, place)| {
            key.agent == agent && place.marker.is_some() && place.conversation == *conversation
        })
    }

    /// Most processes at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Number of processes that run.
    pub fn count(&self) -> usize {
        self.markers().len()
    }

    /// By what the processes that run are known, with everything that they started.
    pub fn markers(&self) -> BTreeSet<String> {
        self.places.lock().values().filter_map(|place| place.marker.clone()).collect()
    }

    /// The same for the processes of one agent.
    pub fn markers_of(&self, agent: u64) -> BTreeSet<String> {
        let places = self.places.lock();
        let own = places.iter().filter(|(key, _)| key.agent == agent);
        own.filter_map(|(_, place)| place.marker.clone()).collect()
    }

    /// Runs a task that is waited for at the end.
    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        spawn_task(name, self.tasks.track_future(task))
    }

    /// Ends every process in order, and waits for that. Nothing can be started afterwards.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(END, self.tasks.wait()).await.is_err() {
            tracing::warn!("not every process of an agent ended in time");
        }
    }
}

/// The result of looking for a place.
enum TakenPlace {
    /// It is free.
    Empty(ProcessPlace),
    /// It has the idle process of the session.
    Idle(ProcessPlace, IdleProcess),
    /// It is free once this idle process of another session has ended.
    After(ProcessPlace, ProcessPlace, IdleProcess),
    /// There may be one once this idle process of the same conversation, which an earlier build of the agent left, has
    /// ended.
    AfterEarlier(ProcessPlace, IdleProcess),
    /// There may be one when a process has ended; else this is the error.
    Later(PoolError),
}

impl Place {
    /// The idle process, which is to be ended; `None` if there is none.
    fn take_to_end(&mut self) -> Option<IdleProcess> {
        let idle = self.idle.take()?;
        self.is_ending = true;
        Some(idle)
    }
}

/// Most places of one app: three quarters of all, so that others find one while its turns take long.
fn app_share(limit: usize) -> usize {
    (limit * 3).div_ceil(4)
}
