//! All other scenes rely on this: the paused clock does not run ahead of the store's threads.

use std::time::Duration;

use talaria::store::Store;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn the_clock_stands_still_while_the_store_works() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _threads) = Store::open(&folder.path().join("talaria.db")).unwrap();
    let began = Instant::now();
    // A timer that the clock could run ahead to.
    let alarm = tokio::spawn(tokio::time::sleep(Duration::from_secs(3600)));

    // A slow disk: real time in a real thread, which the paused clock does not see.
    let slow = || std::thread::sleep(Duration::from_millis(30));
    store
        .write(move |_| {
            slow();
            Ok(())
        })
        .await
        .unwrap();
    store
        .read(move |_| {
            slow();
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);

    alarm.await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(3600), "and it runs again afterwards");
}
