//! Everything that the OpenAPI document permits, and much that it does not: no server error, and every answer is as the
//! document says.

use std::process::Command;
use std::time::Duration;

use crate::it::upstream::Upstream;
use crate::parts;
use crate::served::{KEY, Served};

/// What it is told about us.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/schemathesis.toml");

/// What every answer is looked at for. Not for what a wrong key is answered: who sends many is made to wait, and other
/// tests go through that.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      use_after_free";

/// It asks thousands of times in full.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn every_answer_is_as_the_document_says() {
    let model = Upstream::plain().await;
    let served = Served::before(&model, "").await;
    let full = std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full");
    // Every day the same, so that it fails for a change and not for a day; in full something new each time.
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
        // One worker: with more, Python 3.11 sometimes loses count of its own depth and breaks off.
        .args(["--checks", CHECKS, "--continue-on-failure", "--no-color", "--workers=1", "--warnings=off"])
        .args(how_many)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // It keeps what it found where it is started.
        .current_dir(scratch.path());
    let ended = served.asked_by(&mut command).ended_within(PATIENCE).await;
    served.assert_well(&ended);
}
