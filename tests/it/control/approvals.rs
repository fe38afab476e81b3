//! `talaria approvals`: lists and revokes grants. `scenes/asks` shows how people give them.

use rustix::process::Signal;

use super::Scene;

/// A gateway that has ended, with grants of these ids.
async fn scene(ids: &[&str]) -> Scene {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let process = scene.starts().await;
    process.signal(Signal::TERM);
    process.ended().await;
    let store = scene.talaria.stored();
    for id in ids {
        let far = 4_000_000_000_i64;
        store
            .execute(
                "INSERT INTO grants (id, digest, title, session, account, room, place, by, granted, expires)
                 VALUES (?1, 'd', ?2, NULL, 'test', '!home', 'room', '@ann:test', 1, ?3)",
                rusqlite::params![id, format!("Run {id}\n\u{1b}[2J"), far],
            )
            .unwrap();
    }
    scene
}

/// The first two columns of the list.
async fn listed(scene: &Scene) -> Vec<String> {
    let list = scene.prints(["approvals"]).await;
    let id = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    list.lines().skip(1).map(id).collect()
}

#[tokio::test]
async fn they_are_listed_and_revoked_whether_something_runs_or_not() {
    let scene = scene(&["aaaa1111", "aaaa2222", "bbbb3333"]).await;
    assert_eq!(listed(&scene).await, ["aaaa11", "aaaa22", "bbbb33"]);
    let said = scene.prints(["approvals", "revoke", "bbbb"]).await;
    assert_eq!(said, "From now on the agent asks again: Run bbbb3333 [2J\n", "and no terminal is cleared");

    let _process = scene.starts().await;
    assert_eq!(listed(&scene).await, ["aaaa11", "aaaa22"]);
    scene.is_refused(1, ["approvals", "revoke", "aaaa"]).await.said("several approvals begin like this");
    for nothing in ["bbbb", "", "zzzz"] {
        scene.is_refused(1, ["approvals", "revoke", nothing]).await.said("no approval begins like this");
    }
    scene.prints(["approvals", "revoke", "AAAA2"]).await;
    assert_eq!(listed(&scene).await, ["aaaa11"]);
    let audit = scene.prints(["audit", "--json"]).await;
    assert_eq!(
        audit.lines().filter(|line| line.contains("\"action\":\"revoke approval\"")).count(),
        2,
        "{audit}"
    );
}
