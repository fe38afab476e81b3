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
    place_of(pool, session, None).await
}

async fn place_of(pool: &Arc<AcpPool>, session: &str, app: Option<&str>) -> Result<ProcessPlace, PoolError> {
    let wish = ProcessWish {
        key: key(session),
        conversation: SessionId(session.to_owned()),
        app: app.map(str::to_owned),
        opens: None,
    };
    match pool.acquire(&wish).await? {
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
    assert_eq!(pool.count(), 0, "nothing was started");
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

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_for_a_place_that_is_about_to_be_free_and_for_no_other() {
    let pool = pool(1);
    let one = place(&pool, "one").await.unwrap();
    assert_eq!(place(&pool, "two").await.err(), Some(PoolError::Full));
    pool.places.lock().get_mut(&key("one")).unwrap().is_ending = true;
    let began = Instant::now();
    assert_eq!(place(&pool, "two").await.err(), Some(PoolError::Full));
    assert_eq!(began.elapsed(), EARLIER, "not for ever");
    let freed = async {
        tokio::task::yield_now().await;
        drop(one);
    };
    let (two, ()) = tokio::join!(place(&pool, "two"), freed);
    assert!(two.is_ok());
}

#[tokio::test]
async fn no_app_has_all_places() {
    let pool = pool(4);
    let mut places = Vec::new();
    for session in ["a/1", "a/2", "a/3"] {
        places.push(place_of(&pool, session, Some("a")).await.unwrap());
    }
    assert_eq!(place_of(&pool, "a/4", Some("a")).await.err(), Some(PoolError::Full));
    places.push(place_of(&pool, "b/1", Some("b")).await.unwrap());
    assert_eq!(place_of(&pool, "b/2", Some("b")).await.err(), Some(PoolError::Full));
    places.remove(0);
    assert!(place(&pool, "room").await.is_ok());
    assert_eq!([1, 2, 3, 8].map(app_share), [1, 2, 3, 6]);
}
