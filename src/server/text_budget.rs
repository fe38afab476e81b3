//! Bounds the long texts that are in memory until a client has read them.
//!
//! A stored answer, a transcript or a page of messages may have 16 MiB, and nobody has to read them quickly. So their
//! bytes count before they are loaded from the store, and until the body of the response is dropped. What finds no room
//! waits in the store. An app has a share, and a part is for the owner alone, as with questions.

use std::sync::Arc;
use std::time::Duration;

use super::{Caller, Problem};
use crate::store::{self, Store, Tx};
use crate::turns::{InputBudget, InputLimits, InputPermit, Payer};

const MIB: usize = 1024 * 1024;

/// What all such texts may have together. An app may hold the longest answer there is, and leaves room for what others
/// usually read.
const LIMITS: InputLimits = InputLimits { all: 32 * MIB, share: 16 * MIB, owner: 8 * MIB, rooms: 0 };

/// Bytes of a text that is not long, and counts nothing.
pub const SHORT: usize = 16 * 1024;

/// How long a request waits for room if it can simply be sent again.
const ROOM: Duration = Duration::from_secs(10);

/// When to come back if there is no room then.
const AGAIN: Duration = Duration::from_secs(5);

/// The budget of a server.
pub struct TextBudget(Arc<InputBudget>);

/// What a read of the store gives that may load only so many bytes.
pub enum Loaded<T> {
    /// All of it.
    Whole(T),
    /// Nothing, because it has so many.
    TooLong(usize),
}

impl Default for TextBudget {
    fn default() -> Self {
        Self(Arc::new(InputBudget::new(LIMITS)))
    }
}

impl TextBudget {
    /// Reads a text from the store, once there is room for it. `read` is told how many bytes it may load; they count until
    /// the permit is dropped.
    pub async fn load<T: Send + 'static>(
        &self,
        store: &Store,
        payer: &Payer,
        read: impl Fn(&Tx<'_>, usize) -> store::Result<Loaded<T>> + Clone + Send + 'static,
    ) -> store::Result<(T, Option<InputPermit>)> {
        let (mut most, mut permit) = (SHORT, None);
        loop {
            let read = read.clone();
            match store.read(move |tx| read(tx, most)).await? {
                Loaded::Whole(text) => return Ok((text, permit)),
                Loaded::TooLong(bytes) => {
                    // What it has must not keep it from what it needs.
                    drop(permit.take());
                    permit = Some(self.0.take(payer, bytes).await);
                    most = bytes;
                }
            }
        }
    }

    /// The same for a request that is told to come back if there is no room in time.
    pub async fn load_soon<T: Send + 'static>(
        &self,
        store: &Store,
        caller: &Caller,
        read: impl Fn(&Tx<'_>, usize) -> store::Result<Loaded<T>> + Clone + Send + 'static,
    ) -> Result<(T, Option<InputPermit>), Problem> {
        let loaded = tokio::time::timeout(ROOM, self.load(store, &caller.payer(), read)).await;
        Ok(loaded.map_err(|_| no_room("ask for this one again in a moment"))??)
    }
}

/// There is no room for a text; `next` says what to do.
pub fn no_room(next: &str) -> Problem {
    Problem::busy(format!("Too many long answers are waiting to be read; {next}"), AGAIN)
}
