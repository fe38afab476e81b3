//! One table of apps: both prefixes open everything, and a token may be limited to networks.

use reqwest::Method;
use serde_json::json;
use talaria::access::AppPermissions;
use talaria::store::AuditFilter;

use super::scene::{ForgeScene, error};

#[tokio::test]
async fn a_token_of_either_prefix_opens_every_surface() {
    let scene = ForgeScene::with_admin().await;
    let made = scene.makes_token(&json!({ "name": "a_1" })).await;
    assert!(made.starts_with("cf_") && scene.app.starts_with("tlr_"));
    for token in [&made, &scene.app] {
        for path in ["/v1/models", "/api/sessions", "/sessions"] {
            assert_eq!(scene.request(token, Method::GET, path).send().await.unwrap().status(), 200, "{path}");
        }
        scene.begin_as(token).await;
    }
    // The same table: the command line sees both and may revoke either.
    let listed = scene.served.gateway.store().read(|tx| tx.apps()).await.unwrap();
    let names: Vec<_> = listed.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["a_1", "forge", "phone"]);
    assert!(listed.iter().all(|app| !format!("{app:?}").contains(&made[12..])), "only a digest is kept");
    scene.served.revoke("a_1").await;
    error(scene.request(&made, Method::GET, "/sessions").send().await.unwrap(), 401).await;
}

#[tokio::test]
async fn outside_of_its_networks_a_token_is_no_token() {
    let scene = ForgeScene::with_admin().await;
    let far = scene.makes_token(&json!({ "name": "far", "ip_cidrs": ["10.0.0.0/8", "fd00::/8"] })).await;
    let near = scene.makes_token(&json!({ "name": "near", "ip_cidrs": ["10.0.0.0/8", "127.0.0.0/8"] })).await;
    for path in ["/sessions", "/v1/models", "/api/sessions", "/openapi.json"] {
        let ask = |key: &str| scene.request(key, Method::GET, path).send();
        assert_eq!(ask(&near).await.unwrap().status(), 200, "{path}");
        let (refused, unknown) = (ask(&far).await.unwrap(), ask("another wrong key").await.unwrap());
        assert_eq!((refused.status(), unknown.status()), (401.try_into().unwrap(), 401.try_into().unwrap()));
        assert_eq!(refused.text().await.unwrap(), unknown.text().await.unwrap(), "{path}");
    }
    // What a request says of its address does not count.
    let mut claims = scene.request(&far, Method::GET, "/sessions");
    for header in ["x-forwarded-for", "x-real-ip", "forwarded", "cf-connecting-ip", "true-client-ip"] {
        claims = claims.header(header, "10.0.0.1");
    }
    assert_eq!(claims.send().await.unwrap().status(), 401);
    // The operator can see what happened.
    scene
        .served
        .until(async || {
            let filter = AuditFilter { allowed: Some(false), ..AuditFilter::default() };
            let rows = scene.served.gateway.store().read(move |tx| tx.audited(&filter)).await.unwrap();
            rows.iter().any(|row| row.rule == "token of a limited network")
        })
        .await;
}

#[tokio::test]
async fn another_token_for_an_app_ends_the_old_one_and_keeps_its_sessions() {
    let scene = ForgeScene::with_admin().await;
    let old = scene.makes_token(&json!({ "name": "one" })).await;
    let id = scene.begin_as(&old).await;
    let new = scene.makes_token(&json!({ "name": "one", "again": true })).await;
    let show = |key: &str| scene.request(key, Method::GET, &format!("/sessions/{id}")).send();
    assert_eq!(show(&old).await.unwrap().status(), 401);
    assert_eq!(show(&new).await.unwrap().status(), 200);
}

#[tokio::test]
async fn another_token_for_an_app_keeps_what_the_request_does_not_name() {
    let scene = ForgeScene::with_admin().await;
    let rights = async |name: &str| {
        let name = name.to_owned();
        let app = scene.served.gateway.store().read(move |tx| tx.app(&name)).await.unwrap();
        app.unwrap().rights()
    };
    let narrow =
        json!({ "name": "one", "ip_cidrs": ["127.0.0.1"], "permissions": ["ls"], "system_replace": true });
    scene.makes_token(&narrow).await;
    let before = rights("one").await;
    scene.makes_token(&json!({ "name": "one", "again": true })).await;
    assert_eq!(rights("one").await, before);
    scene.makes_token(&json!({ "name": "one", "again": true, "permissions": "deny" })).await;
    let after = rights("one").await;
    assert_eq!(after.permissions, Some(AppPermissions::Deny));
    assert_eq!((after.networks, after.may_replace), (before.networks, true));
    scene.makes_token(&json!({ "name": "one", "again": true, "system_replace": false })).await;
    assert!(!rights("one").await.may_replace);
    // What the command line took away stays away, also behind a revocation.
    scene.served.app_without_instructions("two").await;
    scene.served.revoke("two").await;
    scene.makes_token(&json!({ "name": "two", "again": true })).await;
    assert!(!rights("two").await.instructions);
    assert_eq!(rights("two").await.permissions, None, "the command line set none");
    // A new app is denied what it does not ask for.
    scene.makes_token(&json!({ "name": "three" })).await;
    assert_eq!(rights("three").await.permissions, Some(AppPermissions::Deny));
}
