//! `/approvals`: the grants that hold in a place, and who may take them back.

use crate::scenes::asks::gateway;
use crate::support::gateway::TestGateway;
use crate::support::room::Room;

async fn last(room: &Room, who: &str, text: &str) -> String {
    room.says(who, text).await;
    room.settled().await;
    room.ours().pop().unwrap_or_default()
}

/// Lets the agent ask for a command; `who` allows it.
async fn approved(gateway: &TestGateway, room: &Room, who: &str, command: &str, reach: &str) {
    gateway.agent().asks(command, command);
    room.says("@ann", "go on").await;
    room.is_asked(command).await;
    room.says(who, &format!("/approve {reach}")).await;
    room.settled().await;
}

/// Ids of all grants, oldest first.
async fn ids(gateway: &TestGateway) -> Vec<String> {
    let grants = gateway.store().read(|tx| tx.grants()).await.unwrap();
    grants.into_iter().map(|grant| grant.id).collect()
}

#[tokio::test(start_paused = true)]
async fn grants_are_listed_where_they_hold() {
    let gateway = gateway().await;
    let (room, other) = (gateway.shared_room(), gateway.room());
    assert_eq!(last(&room, "@ann", "/approvals").await, "Nothing is allowed here without asking again.");
    approved(&gateway, &room, "@ada", "make clean", "always").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    approved(&gateway, &room, "@bob", "make test", "session").await;

    let shown = last(&room, "@ann", "/approvals").await;
    let [always, session] = &ids(&gateway).await[..] else { panic!("two grants") };
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("- ")).collect();
    let [first, second] = lines[..] else { panic!("{shown}") };
    assert!(
        first.starts_with(&format!(
            "- `{always}` `make clean`, in this place, for the agent proxy; allowed by `@ada:test` until 20"
        )),
        "{first}"
    );
    assert!(
        second.starts_with(&format!(
            "- `{session}` `make test`, in this conversation, for the agent proxy; allowed by `@bob:test` until 20"
        )),
        "{second}"
    );
    assert_eq!(last(&other, "@ann", "/approvals").await, "Nothing is allowed here without asking again.");
    // A grant of a session holds in that session only.
    last(&room, "@ann", "/new").await;
    let shown = last(&room, "@ann", "/approvals").await;
    assert!(shown.contains(always) && !shown.contains(session), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn admins_and_the_giver_take_a_grant_back() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    approved(&gateway, &room, "@ada", "make clean", "always").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    approved(&gateway, &room, "@bob", "make test", "session").await;
    let [always, session] = &ids(&gateway).await[..] else { panic!("two grants") };

    for (who, id) in [("@ann", always), ("@bob", always), ("@ann", session)] {
        let said = last(&room, who, &format!("/approvals revoke {id}")).await;
        assert!(
            said.starts_with("Only admins and the person who allowed it can take this back: `make "),
            "{said}"
        );
    }
    assert_eq!(ids(&gateway).await.len(), 2);
    let said = last(&room, "@bob", &format!("/approvals revoke {}", session.to_uppercase())).await;
    assert_eq!(said, "No longer allowed: `make test`. The agent asks again.");
    let said = last(&room, "@ada", &format!("/approvals REVOKE {}", &always[..6])).await;
    assert_eq!(said, "No longer allowed: `make clean`. The agent asks again.");
    assert!(ids(&gateway).await.is_empty());

    gateway.agent().asks("make clean", "make clean");
    room.says("@ann", "again").await;
    room.is_asked("make clean").await;

    let rows = gateway.store().read(|tx| tx.audited(&talaria::store::AuditFilter::default())).await.unwrap();
    let revoked: Vec<_> = rows
        .iter()
        .filter(|row| row.action == "command approvals" && (row.rule == "giver" || row.rule == "admins only"))
        .map(|row| (row.actor.as_str(), row.allowed))
        .collect();
    assert_eq!(
        revoked,
        [
            ("@ann:test", false),
            ("@bob:test", false),
            ("@ann:test", false),
            ("@bob:test", true),
            ("@ada:test", true)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_another_place_cannot_be_named() {
    let gateway = gateway().await;
    approved(&gateway, &gateway.shared_room(), "@ada", "make clean", "always").await;
    let id = ids(&gateway).await.remove(0);
    let said = last(&gateway.room(), "@ada", &format!("/approvals revoke {id}")).await;
    assert!(said.starts_with(&format!("Nothing with the id {id} is allowed here")), "{said}");
    for words in ["/approvals revoke", "/approvals all", "/approvals revoke  "] {
        let said = last(&gateway.room(), "@ada", words).await;
        assert!(said.starts_with("I understand `/approvals`"), "{said}");
    }
    assert_eq!(ids(&gateway).await, [id]);
}
