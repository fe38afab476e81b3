//! A person and the operator compare emoji.

use serde_json::{Value, json};

use super::PATIENCE;
use super::scene::Scene;
use crate::it::binary::Ended;
use crate::it::upstream::Answer;

/// A verification in which Ann and the operator see emoji.
pub struct Comparing {
    pub scene: Scene,
    pub room: String,
    /// Its id in the operator's commands.
    pub id: String,
}

impl Comparing {
    /// Ann asks in a room, as people do.
    pub async fn in_room(scene: Scene, room: String) -> Self {
        let request = json!({ "user": scene.bot.id, "room": room });
        Self::begins(scene, room, request).await
    }

    /// Ann asks in a room, with a client that encrypts its part.
    pub async fn sealed_in_room(scene: Scene, room: String) -> Self {
        let request = json!({ "user": scene.bot.id, "room": room, "sealed": true });
        Self::begins(scene, room, request).await
    }

    /// Ann asks the bot's device.
    pub async fn by_device(scene: Scene, room: String) -> Self {
        let request = json!({ "user": scene.bot.id });
        Self::begins(scene, room, request).await
    }

    async fn begins(scene: Scene, room: String, request: Value) -> Self {
        let theirs = scene.ann.begins("verify", request);
        let list = until(&scene, &["list"], |list| list["verifications"][0]["id"].is_string()).await;
        let one = &list["verifications"][0];
        assert_eq!(one["user"], *scene.ann.id);
        let id = one["id"].as_str().unwrap().to_owned();
        let ours = until(&scene, &["accept", &id], |one| one["stage"] == "compare").await;
        let theirs = scene.ann.has_done("verify", theirs).await;
        let pictures = |emoji: &Value| -> Vec<String> {
            let emoji = emoji.as_array().expect("pictures");
            emoji.iter().map(|one| one[0].as_str().unwrap().trim_end_matches('\u{fe0f}').to_owned()).collect()
        };
        assert_eq!(pictures(&ours["emoji"]).len(), 7);
        assert_eq!(pictures(&ours["emoji"]), pictures(&theirs["emoji"]));
        Self { scene, room, id }
    }

    /// Both confirm that the emoji are the same.
    pub async fn matches(&self) {
        let confirmed = self.scene.ann.begins("confirm", json!({}));
        operator(&self.scene, &["confirm", &self.id]).await;
        self.scene.ann.has_done("confirm", confirmed).await;
        until(&self.scene, &["list"], |list| {
            let all = list["verifications"].as_array().unwrap();
            all.iter().all(|one| one["id"] != self.id || one["stage"] == "done")
        })
        .await;
    }

    /// Whether Ann's client has verified the bot.
    pub async fn is_sure(&self) -> bool {
        self.scene.ann.does("verified", json!({ "user": self.scene.bot.id })).await["verified"] == true
    }

    pub async fn still_talk(self) {
        self.scene.upstream.answers(Answer::says(["Of course."]));
        self.scene.ann.says(&self.room, "is it you?").await;
        self.scene.reads(&self.room, "Of course.").await;
        self.scene.ends();
    }
}

/// Repeats the operator's command until its output is as awaited.
pub async fn until(scene: &Scene, step: &[&str], happened: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let answer = operator(scene, step).await;
            let answer = serde_json::from_str(&answer.out)
                .unwrap_or_else(|_| panic!("{step:?} {:?} {}", answer.out, answer.err));
            if happened(&answer) {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{step:?}"))
}

/// Runs an operator's command about verifications.
pub async fn operator(scene: &Scene, step: &[&str]) -> Ended {
    let command = ["matrix", "verify", "--json"].iter().chain(step).copied();
    scene.gateway.talaria.does(command).await
}
