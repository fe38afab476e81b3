//! Bounds the long texts that are in memory until a client has read them.
//!
//! A stored answer, a transcript or a page of messages may have 16 MiB, and nobody has to read them quickly. So their
//! bytes count before they are loaded from the store, and until the body of the response is dropped. What finds no room
//! waits in the store. An app has a share, and a part is for the owner alone, as with questions.

use std::sync::Arc;
use std::time::Duration;

use super::{ApiError, Caller};
use crate::store::{self, Store, Tx};
use crate::turns::{BudgetPayer, InputBudget, InputLimits, InputPermit};

const MIB: usize = 1024 * 1024;

/// What all such texts may have together. An app that reads nothing leaves as much for the others; the longest answers
/// count as one share.
const LIMITS: InputLimits = InputLimits { all: 32 * MIB, share: 12 * MIB, owner: 8 * MIB, rooms: 0 };

/// Bytes of a text that is not long, and counts nothing.
pub const SHORT: usize = 16 * 1024;

/// How long a request waits for room if it can simply be sent again.
const ROOM: Duration = Duration::from_secs(10);

/// When to come back if there is no room then.
const AGAIN: Duration = Duration::from_secs(5);

/// The budget of a server.
pub struct TextBudget(Arc<InputBudget>);

/// What a read of the store gives that may load only so many bytes.
pub enum LoadResult<T> {
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
        payer: &BudgetPayer,
        read: impl Fn(&Tx<'_>, usize) -> store::Result<LoadResult<T>> + Clone + Send + 'static,
    ) -> store::Result<(T, Option<InputPermit>)> {
        let (mut most, mut permit) = (SHORT, None);
        loop {
            let read = read.clone();
            match store.read(move |tx| read(tx, most)).await? {
                LoadResult::Whole(text) => return Ok((text, permit)),
                LoadResult::TooLong(bytes) => {
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
        read: impl Fn(&Tx<'_>, usize) -> store::Result<LoadResult<T>> + Clone + Send + 'static,
    ) -> Result<(T, Option<InputPermit>), ApiError> {
        let loaded = tokio::time::timeout(ROOM, self.load(store, &caller.payer(), read)).await;
        Ok(loaded.map_err(|_| no_room("ask for this one again in a moment"))??)
    }
}

/// There is no room for a text; `next` says what to do.
pub fn no_room(next: &str) -> ApiError {
    ApiError::busy(format!("Too many long answers are waiting to be read; {next}"), AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::MessageRole;
    use crate::ids::{SessionId, TurnId};
    use crate::store::NewSession;

    /// Loads a transcript, and how many bytes it has.
    async fn load(texts: &TextBudget, store: &Store, payer: &BudgetPayer) -> (usize, Option<InputPermit>) {
        let loading = texts.load(store, payer, |tx, most| {
            let turn = TurnId("turn".to_owned());
            let bytes = tx.transcript_bytes(&turn)?;
            if bytes > most {
                return Ok(LoadResult::TooLong(bytes));
            }
            Ok(LoadResult::Whole(
                tx.transcript(&turn)?.iter().map(|said| said.record.message.content.len()).sum(),
            ))
        });
        loading.await.unwrap()
    }

    #[tokio::test]
    async fn a_long_text_counts_until_it_is_read_and_the_next_one_waits_in_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&folder.path().join("state.db")).unwrap();
        let texts = TextBudget(Arc::new(InputBudget::new(InputLimits {
            all: 3 * SHORT,
            share: 2 * SHORT,
            owner: 0,
            rooms: 0,
        })));
        let app = BudgetPayer::app("app");
        let say = |bytes: usize| {
            store.write(move |tx| {
                let session = SessionId("session".to_owned());
                if !tx.has_session(&session)? {
                    tx.create_session(&NewSession::new(&session, "app"))?;
                }
                tx.record(&session, &TurnId("turn".to_owned()), MessageRole::Assistant, &"x".repeat(bytes))
            })
        };
        say(SHORT).await.unwrap();
        let (bytes, permit) = load(&texts, &store, &app).await;
        assert!(bytes == SHORT && permit.is_none(), "what is short counts nothing");
        say(SHORT).await.unwrap();
        let (bytes, first) = load(&texts, &store, &app).await;
        assert!(bytes == 2 * SHORT && first.is_some());
        let mut second = Box::pin(load(&texts, &store, &app));
        // It has seen how long the text is when the store has answered somebody else after it.
        for _ in 0..3 {
            assert!(futures_util::poll!(&mut second).is_pending());
            store.read(|_| Ok(())).await.unwrap();
        }
        assert!(futures_util::poll!(&mut second).is_pending(), "the app has its share");
        drop(first);
        assert_eq!(second.await.0, 2 * SHORT);
    }
}
