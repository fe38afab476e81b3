//! The foreign clients can talk to each other: otherwise the other tests mean nothing.

use crate::parts;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nio_and_mautrix_read_each_other() {
    read_each_other(With::Nio, With::Mautrix).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nio_and_js_read_each_other() {
    if parts::has_js() {
        read_each_other(With::Nio, With::Js).await;
    }
}

async fn read_each_other(one: With, other: With) {
    let homeserver = Homeserver::shared().await;
    let (ann, ben) =
        tokio::join!(Person::new(&homeserver, "ann", one), Person::new(&homeserver, "ben", other));
    let room = ann.invites(DIRECT, &[&ben.id]).await;
    ben.acts(&room, "join", serde_json::json!({})).await;
    ann.sees_member(&room, &ben.id, "join").await;

    let question = ann.says(&room, "do you hear me?").await;
    let read = ben.reads(&room, &ann.id, "do you hear me?").await;
    assert!(read.encrypted && read.readable && read.id == question);
    ben.replies(&room, &question, "yes").await;
    let read = ann.reads(&room, &ben.id, "yes").await;
    assert_eq!(read.reply_to, Some(question));
    ben.edits(&room, &read.id, "yes, I do").await;
    let read = ann.reads(&room, &ben.id, "yes, I do").await;
    assert!(read.encrypted && read.edits() == 1);
}
