//! Many sessions that are begun, used and swept leave nothing behind.

use serde_json::json;
use talaria::agents::process::count_children;
use talaria::config::ForgeConfig;

use super::scene::ForgeScene;
use crate::acp::scripted_agent::{Act, Script};
use crate::support::served::json;

/// Open file descriptors of this process. Other tests of it have some too, unless each test has a process of its own.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[tokio::test]
async fn sessions_that_come_and_go_leave_no_process_no_folder_and_no_descriptor() {
    let count = if std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full") { 1_000 } else { 100 };
    // One app has three quarters of them at most.
    let config = ForgeConfig { max_live_sessions: 2 * count, ..ForgeConfig::default() };
    let (scene, _acp) = ForgeScene::acp_with(config, Script::default().turn("x", [Act::says(&["y"])])).await;
    let home = scene.served.gateway.home().to_owned();
    // Once before, so that everything that stays is there.
    let first = scene.begin().await;
    scene.turn(&first, "x").await;
    let before = descriptors();
    let mut ids = vec![first];
    for number in 1..count {
        let id = scene.begin().await;
        assert_eq!(scene.turn(&id, "x").await.status(), 200);
        match number % 4 {
            0 => {}
            1 => assert_eq!(scene.turn(&id, "x").await.status(), 200),
            2 => assert_eq!(scene.post("/run", &json!({ "prompt": "x" })).await.status(), 200),
            _ => assert_eq!(scene.delete(&format!("/sessions/{id}")).await.status(), 200),
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
    scene.served.until(async || count_children(&home) == 0).await;
    let is_alone = std::env::var("NEXTEST").is_ok();
    let after = descriptors();
    assert!(after <= before + 10 || !is_alone, "{after} descriptors, {before} before");
    let left = scene.served.gateway.store().read(|tx| tx.forge_folders()).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}
