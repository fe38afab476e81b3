//! `GET /openapi.json` documents exactly the routes that exist.

use reqwest::Method;
use serde_json::Value;
use talaria::config::ForgeConfig;
use talaria::server::{ForgeSettings, ServerSettings};

use crate::support::gateway::Setup;
use crate::support::served::{Served, json, settings};

/// The documented routes: method and path.
async fn documented(served: &Served) -> Vec<(String, String)> {
    let document = json(served.get("/openapi.json").await).await;
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap().clone();
    let methods = |(path, item): (String, Value)| {
        let methods: Vec<_> = item.as_object().unwrap().keys().map(|m| m.to_uppercase()).collect();
        methods.into_iter().map(move |method| (method, path.clone()))
    };
    paths.into_iter().flat_map(methods).collect()
}

#[tokio::test]
async fn the_document_and_the_capabilities_name_the_same() {
    let served = Served::start().await;
    let mut documented = documented(&served).await;
    let capabilities = json(served.get("/v1/capabilities").await).await;
    let endpoints = capabilities["endpoints"].as_object().unwrap();
    let named = |endpoint: &Value, field: &str| endpoint[field].as_str().unwrap().to_owned();
    let mut announced: Vec<_> =
        endpoints.values().map(|endpoint| (named(endpoint, "method"), named(endpoint, "path"))).collect();
    documented.sort();
    announced.sort();
    assert_eq!(documented, announced);
}

#[tokio::test]
async fn the_document_and_the_router_know_the_same() {
    // Without an admin token some of the addresses do not exist.
    let config = ForgeConfig {
        admin_token: Some("an admin token, long enough".to_owned().into()),
        ..ForgeConfig::default()
    };
    let forge = ForgeSettings { config, ..ForgeSettings::default() };
    let served = Served::with(Setup::default(), ServerSettings { forge, ..settings() }).await;
    let documented = documented(&served).await;
    let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
    for (_, path) in &documented {
        for method in &methods {
            let known = documented.contains(&(method.to_string(), path.clone()));
            // A path with an id that does not exist.
            let path = path.replace(['{', '}'], "");
            // Without a key, so that the request has no effect.
            let answer = served.bare(method.clone(), &path).send().await.unwrap();
            assert_eq!(answer.status() != 405, known, "{method} {path} answers {}", answer.status());
            if known {
                assert!(
                    [200, 401].contains(&answer.status().as_u16()),
                    "{method} {path}: {}",
                    answer.status()
                );
            }
        }
    }
}

#[tokio::test]
async fn every_operation_says_what_it_is_for_and_who_may_ask() {
    let served = Served::start().await;
    let document = json(served.get("/openapi.json").await).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let asked = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let bare = served.bare(asked, &path.replace(['{', '}'], "")).send().await.unwrap();
            let open = operation.get("security").is_some();
            assert_eq!(open, bare.status() != 401, "{method} {path}");
            assert!(operation["summary"].is_string() && operation["responses"].is_object());
            for name in path.split('/').filter_map(|part| part.strip_prefix('{')) {
                let name = name.trim_end_matches('}');
                let parameters = operation["parameters"].as_array().unwrap();
                assert!(
                    parameters.iter().any(|parameter| parameter["name"] == name && parameter["in"] == "path")
                );
            }
        }
    }
}
