//! `/admin/tokens`: only the admin token opens it, and it opens nothing else.

use reqwest::Method;
use serde_json::json;

use super::scene::{ADMIN, ForgeScene, error};
use crate::support::served::{KEY, json};

#[tokio::test]
async fn without_an_admin_token_the_address_does_not_exist() {
    let scene = ForgeScene::start().await;
    for key in [KEY, scene.app.as_str(), ADMIN, "wrong"] {
        for (method, path) in [
            (Method::GET, "/admin/tokens"),
            (Method::POST, "/admin/tokens"),
            (Method::DELETE, "/admin/tokens/forge"),
        ] {
            let refused = scene.request(key, method, path).body("{}").send().await.unwrap();
            let nothing = scene.request(key, Method::GET, "/admin/nothing").send().await.unwrap();
            assert_eq!(refused.status(), 404);
            assert_eq!(refused.text().await.unwrap(), nothing.text().await.unwrap());
        }
    }
}

#[tokio::test]
async fn the_admin_token_is_the_only_key_here_and_a_key_nowhere_else() {
    let scene = ForgeScene::with_admin().await;
    for key in [KEY, scene.app.as_str(), "wrong", ""] {
        let refused = scene.request(key, Method::GET, "/admin/tokens").send().await.unwrap();
        error(refused, 401).await;
    }
    assert_eq!(scene.served.bare(Method::GET, "/admin/tokens").send().await.unwrap().status(), 401);
    assert_eq!(scene.request(ADMIN, Method::GET, "/admin/tokens").send().await.unwrap().status(), 200);
    for path in ["/sessions", "/v1/models", "/metrics"] {
        assert_eq!(scene.request(ADMIN, Method::GET, path).send().await.unwrap().status(), 401, "{path}");
    }
}

#[tokio::test]
async fn a_token_is_made_listed_and_revoked() {
    let scene = ForgeScene::with_admin().await;
    let admin = |method: Method, path: &str| scene.request(ADMIN, method, path);
    let body = json!({ "name": "ci-1", "ip_cidrs": ["127.0.0.1", "::1"], "permissions": ["ls"] });
    let made = admin(Method::POST, "/admin/tokens").body(body.to_string()).send().await.unwrap();
    let made = json(made).await;
    assert_eq!((&made["ok"], &made["name"]), (&json!(true), &json!("ci-1")));
    let token = made["token"].as_str().unwrap();
    scene.request(token, Method::GET, "/sessions").send().await.unwrap();

    let listed = admin(Method::GET, "/admin/tokens").send().await.unwrap().text().await.unwrap();
    assert!(!listed.contains(&token[12..]), "the secret is shown once");
    let shown = json(admin(Method::GET, "/admin/tokens/ci-1").send().await.unwrap()).await;
    assert!(listed.contains("\"ci-1\"") && shown["created_at"].is_i64());
    assert_eq!(
        (&shown["ip_cidrs"], &shown["permissions"]),
        (&json!(["127.0.0.1/32", "::1/128"]), &json!(["ls"]))
    );

    let taken = admin(Method::POST, "/admin/tokens")
        .body(json!({ "name": "ci-1" }).to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(error(taken, 409).await, "name_taken");
    let revoked = admin(Method::DELETE, "/admin/tokens/ci-1").send().await.unwrap();
    assert_eq!((revoked.status(), json(revoked).await["ok"].clone()), (200.try_into().unwrap(), json!(true)));
    assert_eq!(scene.request(token, Method::GET, "/sessions").send().await.unwrap().status(), 401);
    for name in ["ci-1", "never", "../x"] {
        let again = admin(Method::DELETE, &format!("/admin/tokens/{name}")).send().await.unwrap();
        assert_eq!(again.status(), 404, "{name}");
    }
}

#[tokio::test]
async fn a_revoked_token_stops_what_runs_within_a_second() {
    let scene = ForgeScene::with_admin().await;
    let made = scene.request(ADMIN, Method::POST, "/admin/tokens").body(json!({ "name": "one" }).to_string());
    let token = json(made.send().await.unwrap()).await["token"].as_str().unwrap().to_owned();
    let id = scene.begin_as(&token).await;
    let script = scene.says().says(["half"]).then_hangs();
    let request = scene.request(&token, Method::POST, &format!("/sessions/{id}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "slow" }).to_string()).send());
    script.is_hanging().await;
    let began = std::time::Instant::now();
    let revoked = scene.request(ADMIN, Method::DELETE, "/admin/tokens/one").send().await.unwrap();
    assert_eq!(json(revoked).await["stopped"], 1);
    assert_eq!(running.await.unwrap().unwrap().status(), 401);
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    script.is_told_to_stop().await;
}

#[tokio::test]
async fn an_unclear_wish_makes_no_token() {
    let scene = ForgeScene::with_admin().await;
    for body in [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "Upper" }),
        json!({ "name": "a/b" }),
        json!({ "name": "x".repeat(65) }),
        json!({ "name": "a", "ip_cidrs": [] }),
        json!({ "name": "a", "ip_cidrs": ["10.0.0.0/33"] }),
        json!({ "name": "a", "ip_cidrs": ["localhost"] }),
        json!({ "name": "a", "ip_cidr": ["10.0.0.0/8"] }),
        json!({ "name": "a", "permissions": "allow" }),
        json!({ "name": "a", "permissions": ["*"] }),
    ] {
        let made =
            scene.request(ADMIN, Method::POST, "/admin/tokens").body(body.to_string()).send().await.unwrap();
        error(made, 400).await;
    }
    assert_eq!(scene.served.gateway.store().read(|tx| tx.apps()).await.unwrap().len(), 2);
}
