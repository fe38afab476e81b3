//! schemathesis makes every request that the OpenAPI document permits, and many that it does not: there must be no
//! server error, and every response must match the document.

use std::process::Command;
use std::time::Duration;

use crate::it::upstream::Upstream;
use crate::parts;
use crate::served::{KEY, Served};

/// Configuration of schemathesis.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/schemathesis.toml");

/// Checks of every response. Without the check of wrong keys: a client that sends many of them is throttled, and
/// other tests cover that.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      use_after_free";

/// Longest wait: in full it makes thousands of requests.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn every_answer_is_as_the_document_says() {
    let model = Upstream::plain().await;
    let served = Served::before(&model, "").await;
    let full = std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full");
    // Every day the same requests, so that only a change can make it fail; in full new ones each time.
    let how_many: &[&str] = if full {
        &["--max-examples=200"]
    } else {
        &["--max-examples=5", "--seed=1", "--generation-deterministic"]
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(parts::venv().join("bin/schemathesis"));
    command
        .args(["--config-file", CONFIG, "run", &format!("{}/openapi.json", served.address())])
        .args(["--header", &format!("Authorization: Bearer {KEY}")])
        // One worker: with more, Python 3.11 sometimes miscounts its recursion depth and aborts.
        .args(["--checks", CHECKS, "--continue-on-failure", "--no-color", "--workers=1", "--warnings=off"])
        .args(how_many)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // schemathesis stores its findings in the current folder.
        .current_dir(scratch.path());
    let ended = served.asked_by(&mut command).ended_within(PATIENCE).await;
    served.assert_well(&ended);
}
