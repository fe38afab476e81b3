//! Many sessions that are begun, used and swept leave nothing behind.

use serde_json::json;
use talaria::config::ForgeConfig;

use super::scene::ForgeScene;
use crate::support::served::json;

/// Open file descriptors and child processes of this process.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = threads.map(|thread| {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.split_whitespace().count()
    });
    (descriptors, children.sum())
}

#[tokio::test]
async fn sessions_that_come_and_go_leave_no_process_no_folder_and_no_descriptor() {
    let count = if std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full") { 1_000 } else { 100 };
    let scene = ForgeScene::with(ForgeConfig { max_live_sessions: count, ..ForgeConfig::default() }).await;
    // Once before, so that everything that stays is there.
    let first = scene.begin().await;
    scene.turn(&first, "x").await;
    let before = held();
    let mut ids = vec![first];
    for number in 1..count {
        let id = scene.begin().await;
        match number % 4 {
            0 => {}
            1 => _ = scene.turn(&id, "x").await.text().await,
            2 => _ = scene.post("/run", &json!({ "prompt": "x" })).await.text().await,
            _ => _ = scene.delete(&format!("/sessions/{id}")).await.text().await,
        }
        ids.push(id);
    }
    let swept = scene.sweep_after(3_700).await;
    let open = ids.len() - ids.len() / 4;
    assert_eq!(swept["soft_closed"].as_u64().unwrap() as usize, open, "{swept}");
    let swept = scene.sweep_after(90_200).await;
    assert_eq!(swept["hard_deleted"].as_u64().unwrap() as usize, ids.len());
    scene.served.until(async || scene.folders().is_empty()).await;
    assert_eq!(json(scene.get("/sessions?include_closed=true").await).await["count"], 0);
    let (descriptors, children) = held();
    assert!(descriptors <= before.0 + 20, "{descriptors} descriptors, {} before", before.0);
    assert_eq!(children, before.1);
    let left = scene.served.gateway.store().read(|tx| tx.forge_folders()).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}
