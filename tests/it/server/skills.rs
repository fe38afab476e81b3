//! `GET /v1/skills`: the skills of the agents.

use std::fs;

use reqwest::Method;
use serde_json::json;

use crate::support::served::{Served, json};

#[tokio::test]
async fn skills_are_listed_as_they_are_now() {
    let served = Served::start().await;
    let empty = json(served.get("/v1/skills").await).await;
    assert_eq!(empty, json!({ "object": "list", "data": [] }));
    let folder = served.gateway.skills_folder();
    fs::create_dir_all(folder.join("learned")).unwrap();
    fs::write(folder.join("deploy.md"), "---\ndescription: How to deploy\n---\nPush.\n").unwrap();
    fs::write(folder.join("learned/tidy.md"), "---\ndescription: How to tidy\n---\nTidy.\n").unwrap();
    fs::write(folder.join("broken.md"), "no head").unwrap();
    let data = json!([
        { "name": "deploy", "description": "How to deploy", "source": "operator" },
        { "name": "tidy", "description": "How to tidy", "source": "learned" },
    ]);
    let faulty = json!([{ "file": "broken.md", "reason": "it does not begin with front matter" }]);
    let listed = json(served.get("/v1/skills").await).await;
    assert_eq!(listed, json!({ "object": "list", "data": data, "faulty": faulty }));

    let token = served.app("phone").await;
    let of_app = served.bare(Method::GET, "/v1/skills").bearer_auth(token).send().await.unwrap();
    assert_eq!(
        json(of_app).await,
        json!({ "object": "list", "data": data }),
        "faults are the owner's business"
    );
    let stranger = served.bare(Method::GET, "/v1/skills").send().await.unwrap();
    assert_eq!(stranger.status(), 401);

    fs::remove_dir_all(&folder).unwrap();
    let empty = json(served.get("/v1/skills").await).await;
    assert_eq!(empty, json!({ "object": "list", "data": [] }));
}
