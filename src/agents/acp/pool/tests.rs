//! Tests: places of the pool, as far as they need no process.

use super::*;
use crate::agents::process::ProcessHost;

fn pool(limit: usize) -> Arc<AcpPool> {
    AcpPool::new(Arc::new(ProcessHost::new("/".as_ref())), limit)
}

fn key(session: &str) -> PlaceKey {
    PlaceKey { agent: 0, session: SessionId(session.to_owned()) }
}

async fn place(pool: &Arc<AcpPool>, session: &str) -> Result<ProcessPlace, PoolError> {
    match pool.acquire(&key(session), &SessionId(session.to_owned())).await? {
        Acquired::Cold(place) => Ok(place),
        Acquired::Warm(_) => panic!("there is no process"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_when_it_is_dropped_and_one_session_has_one_place() {
    let pool = pool(2);
    let one = place(&pool, "one").await.unwrap();
    let two = place(&pool, "two").await.unwrap();
    assert_eq!(place(&pool, "three").await.err(), Some(PoolError::Full));
    assert_eq!((pool.count(), pool.memory()), (0, 0), "nothing was started");
    drop(two);
    let _three = place(&pool, "three").await.unwrap();
    // The same session waits for its own process, and not for ever.
    assert_eq!(place(&pool, "one").await.err(), Some(PoolError::InUse));
    let freed = async {
        tokio::task::yield_now().await;
        drop(one);
    };
    let (again, ()) = tokio::join!(place(&pool, "one"), freed);
    assert!(again.is_ok());
}

#[tokio::test]
async fn nothing_is_started_once_the_gateway_ends() {
    let pool = pool(2);
    pool.end().await;
    assert_eq!(place(&pool, "one").await.err(), Some(PoolError::Ending));
}
