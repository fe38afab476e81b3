//! F45: a full disk, for real: a small tmpfs. Needs root to mount it; `tests/run` says so where it cannot.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{Process, Talaria};
use crate::support::upstream::Upstream;

const KEY: &str = "a key of the owner, long enough";

/// A small disk, mounted in place of a folder while this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path, size: &str) -> Self {
        let options = format!("size={size},mode=0700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "a tmpfs could not be mounted: run this as root, or leave it out with -E 'not test(full_disk)'"
        );
        Self(folder.to_owned())
    }

    /// Takes all free space.
    fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.0.join("filler")).unwrap();
        for size in [65_536, 4096, 512, 1] {
            while filler.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

struct Api {
    address: String,
    client: reqwest::Client,
}

impl Api {
    async fn of(process: &mut Process) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { address: process.serves().await, client }
    }

    async fn asks(&self, question: &str) -> u16 {
        let body = json!({ "message": format!("{question} {}", "x".repeat(20_000)) });
        let url = format!("{}/api/sessions/s/chat", self.address);
        let asked = self.client.post(url).bearer_auth(KEY).body(body.to_string());
        asked
            .timeout(std::time::Duration::from_secs(8))
            .send()
            .await
            .map_or(0, |answer| answer.status().as_u16())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let answer =
            self.client.get(format!("{}{path}", self.address)).bearer_auth(KEY).send().await.unwrap();
        (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }

    /// The stored questions.
    async fn stored(&self) -> Vec<String> {
        let (_, messages) = self.get("/api/sessions/s/messages").await;
        let mine = messages["data"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
        let words =
            |message: &Value| message["content"].as_str().unwrap().split(' ').next().unwrap().to_owned();
        mine.map(words).collect()
    }
}

#[tokio::test]
async fn a_full_disk_is_said_until_there_is_room_and_nothing_accepted_is_lost() {
    let upstream = Upstream::plain().await;
    let talaria =
        Talaria::to(&upstream).args(["serve"]).var("API_SERVER_PORT", "0").var("API_SERVER_KEY", KEY);
    let disk = SmallDisk::mount(talaria.home(), "16m");
    let mut process = talaria.starts();
    let api = Api::of(&mut process).await;
    let created = api.client.post(format!("{}/api/sessions", api.address)).bearer_auth(KEY);
    assert_eq!(created.body(json!({ "id": "s" }).to_string()).send().await.unwrap().status(), 201);
    assert_eq!(api.asks("before").await, 200);
    assert_eq!(talaria.does(["health"]).await.out, "ok\n");

    disk.fill();
    let mut accepted = vec!["before".to_owned()];
    let mut refused = Vec::new();
    // The existing write-ahead log has some room left.
    for n in 0..400 {
        let question = format!("q{n}");
        match api.asks(&question).await {
            200 => accepted.push(question),
            _ => refused.push(question),
        }
        if refused.len() == 3 {
            break;
        }
    }
    assert_eq!(refused.len(), 3, "the disk is full");
    for _ in 0..2 {
        let health = talaria.does(["health"]).await;
        assert_eq!(health.code, 1, "{}", health.out);
        assert!(health.out.starts_with("nothing can be stored since "), "{}", health.out);
        assert!(health.out.contains("the disk"), "{}", health.out);
    }
    assert_eq!(talaria.does(["health", "--live"]).await.showed("alive\n").code, 0);
    let status = talaria.does(["status"]).await.out;
    assert!(status.contains("people are not served: nothing can be stored since "), "{status}");
    let (code, detailed) = api.get("/health/detailed").await;
    assert_eq!(
        (code, &detailed["status"], &detailed["checks"]["store"]["ok"]),
        (503, &json!("not_ready"), &json!(false))
    );
    assert!(detailed["checks"]["store"]["why"].as_str().unwrap().contains("nothing can be stored since "));

    disk.free();
    // Nobody writes, and still the gateway notices.
    process.logs("everything can be stored again").await;
    assert_eq!(talaria.does(["health"]).await.out, "ok\n");
    assert_eq!(api.asks("after").await, 200);
    accepted.push("after".to_owned());
    let stored = api.stored().await;
    for question in &accepted {
        assert!(stored.contains(question), "{question} was accepted, and is not among {stored:?}");
    }
    process.signal(Signal::TERM);
    process.dies().await;
    let mut process = talaria.starts();
    assert_eq!(Api::of(&mut process).await.stored().await, stored, "and the next process knows the same");
}
