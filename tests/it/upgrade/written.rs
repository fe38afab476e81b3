//! Makes a database with something of everything that has to go on after a restart.

use reqwest::Method;
use serde_json::{Value, json};

use super::{PEOPLE_SAID, setup};
use crate::support::room::{Fault, Gate};
use crate::support::served::{Served, json, settings};

/// Leaves `talaria.db` in the folder that `TALARIA_STORED_COPY` names.
#[tokio::test]
#[ignore = "writes a stored copy, by hand"]
async fn a_database_is_left_behind() {
    let folder = std::env::var("TALARIA_STORED_COPY").expect("a folder for the stored copy");
    let mut served = Served::with(setup(), settings()).await;
    let says = async |nth: usize| {
        let (room, who, text) = PEOPLE_SAID[nth];
        let room = served.gateway.direct_room(room);
        room.says(who, text).await;
        room
    };
    let counts = |query: &str| -> i64 {
        let database = rusqlite::Connection::open(served.gateway.database()).unwrap();
        database.query_row(query, [], |row| row.get(0)).unwrap()
    };

    served.agent().when("tea").says(["Tea is at four."]);
    let home = says(0).await;
    served.until(async || counts("SELECT count(*) FROM turns WHERE state = 'done'") == 1).await;
    served.agent().when("clean up").says(["Looking around. "]).asks("delete the build", "rm -r build");
    says(1).await;
    home.is_asked("delete the build").await;
    home.shows("Looking around.").await;
    says(2).await;

    // The network never answers, so the end of this one stays in the outbox.
    served.gateway.chat().next_send(Fault::Late(Gate::default()));
    served.agent().when("who is in").says(["Everybody is in."]);
    says(3).await;
    served.until(async || counts("SELECT count(*) FROM turns WHERE state = 'finalizing'") == 1).await;

    // Waits with the name of its own agent.
    served.gateway.stand_in().prepares_slowly();
    says(4).await;

    let token = served.app("phone").await;
    let run = async |input: &str| -> String {
        let body = json!({ "input": input, "session_id": "notes" });
        let request = served.bare(Method::POST, "/v1/runs").bearer_auth(&token).body(body.to_string());
        json(request.send().await.unwrap()).await["run_id"].as_str().unwrap().to_owned()
    };
    served.agent().when("milk").says(["Noted."]);
    let milk = run("buy milk").await;
    served.until(async || counts("SELECT count(*) FROM turns WHERE state = 'done'") == 2).await;
    served.agent().when("tidy").says(["Tidying. "]).asks("delete a note", "rm note");
    let tidy = run("tidy up").await;
    served.until(async || counts("SELECT count(*) FROM asks WHERE state = 'open'") == 2).await;
    served.until(async || counts("SELECT count(*) FROM checkpoints") == 2).await;
    let left = run("what is left?").await;

    let chat = |key: Option<&str>, text: &str| {
        let body: Value =
            json!({ "messages": [{ "role": "user", "content": text }], "stream": key.is_none() });
        let request =
            served.request(Method::POST, "/v1/chat/completions").header("x-hermes-session-id", "desk");
        let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
        request.body(body.to_string()).send()
    };
    served.agent().when("hello").says(["Hello, owner."]);
    assert_eq!(chat(Some("k"), "hello").await.unwrap().status(), 200);
    let hangs = served.agent().when("a secret").then_hangs();
    let unread = chat(None, "a secret").await.unwrap();
    hangs.is_hanging().await;

    println!("token {token}\nmilk {milk}\ntidy {tidy}\nleft {left}");
    println!("unread {}", unread.headers()["x-hermes-run-id"].to_str().unwrap());
    served.gateway.kill().await;
    let database = rusqlite::Connection::open(served.gateway.database()).unwrap();
    database.execute("VACUUM INTO ?1", [format!("{folder}/talaria.db")]).unwrap();
}
