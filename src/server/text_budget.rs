//! Bounds the memory of long texts that clients have not read yet.
//!
//! A stored answer, a transcript or a page of messages may have 16 MiB, and a client may read it slowly. So its
//! bytes count from before it is loaded from the store until the response body is dropped. A text without a permit
//! waits in the store. Each app has a share, and a part is reserved for the owner, as in the input budget.

use std::sync::Arc;
use std::time::Duration;

use super::{ApiError, Caller};
use crate::store::{self, Store, Tx};
use crate::turns::{BudgetPayer, InputBudget, InputLimits, InputPermit};

const MIB: usize = 1024 * 1024;

/// Limits of all these texts together. An app that does not read leaves room for the others; the longest
/// answers count as one share.
const LIMITS: InputLimits = InputLimits { all: 32 * MIB, share: 12 * MIB, owner: 8 * MIB, rooms: 0 };

/// Texts up to this many bytes are not counted.
pub const SHORT: usize = 16 * 1024;

/// Longest wait for the budget by a request that can simply be repeated.
const BUDGET_WAIT: Duration = Duration::from_secs(10);

/// `Retry-After` when the budget is used up.
const AGAIN: Duration = Duration::from_secs(5);

/// Memory budget for long texts, one per server.
pub struct TextBudget(Arc<InputBudget>);

/// Result of a read from the store that may load only a certain number of bytes.
pub enum LoadResult<T> {
    /// Everything was loaded.
    Whole(T),
    /// Nothing was loaded, because this many bytes are needed.
    TooLong(usize),
}

impl Default for TextBudget {
    fn default() -> Self {
        Self(Arc::new(InputBudget::new(LIMITS)))
    }
}

impl TextBudget {
    /// Loads a text from the store, waiting until the budget allows it. `read` gets the number of bytes that it
    /// may load; they count until the permit is dropped.
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
                    // Given back first: waiting for more while holding some could block forever.
                    drop(permit.take());
                    permit = Some(self.0.take(payer, bytes).await);
                    most = bytes;
                }
            }
        }
    }

    /// Like [`load`](Self::load), for a request that gets an error with `Retry-After` if nothing becomes free
    /// in time.
    pub async fn load_soon<T: Send + 'static>(
        &self,
        store: &Store,
        caller: &Caller,
        read: impl Fn(&Tx<'_>, usize) -> store::Result<LoadResult<T>> + Clone + Send + 'static,
    ) -> Result<(T, Option<InputPermit>), ApiError> {
        let loaded = tokio::time::timeout(BUDGET_WAIT, self.load(store, &caller.payer(), read)).await;
        Ok(loaded.map_err(|_| no_capacity("ask for this one again in a moment"))??)
    }
}

/// Error for a text that the budget does not allow; `next` says what to do.
pub fn no_capacity(next: &str) -> ApiError {
    ApiError::busy(format!("Too many long answers are waiting to be read; {next}"), AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::MessageRole;
    use crate::ids::{SessionId, TurnId};
    use crate::store::NewSession;

    /// Loads a transcript; returns its length in bytes.
    async fn load(texts: &TextBudget, store: &Store, payer: &BudgetPayer) -> (usize, Option<InputPermit>) {
        let loading = texts.load(store, payer, |tx, most| {
            let turn = TurnId("turn".to_owned());
            let bytes = tx.transcript_bytes(&turn)?;
            if bytes > most {
                return Ok(LoadResult::TooLong(bytes));
            }
            Ok(LoadResult::Whole(tx.transcript(&turn)?.iter().map(|said| said.message.content.len()).sum()))
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
        // Once the store has answered a later read, the load has seen the length of the text.
        for _ in 0..3 {
            assert!(futures_util::poll!(&mut second).is_pending());
            store.read(|_| Ok(())).await.unwrap();
        }
        assert!(futures_util::poll!(&mut second).is_pending(), "the app has its share");
        drop(first);
        assert_eq!(second.await.0, 2 * SHORT);
    }
}
