//! The operator's actions take effect even if the operator no longer waits for the answer.

use std::collections::BTreeSet;
use std::sync::mpsc;

use insta::assert_snapshot;
use serde_json::{Value, json};
use talaria::access::AccessLists;
use talaria::rules::AccountRules;
use talaria_platform::UserId;

use crate::support::gateway::{Setup, TestGateway};

/// The operator sends an action and is gone before the store has done its part.
async fn asks_and_is_gone(gateway: &TestGateway, what: &'static str, question: Value) {
    let (release, held) = mpsc::channel::<()>();
    let store = gateway.store().clone();
    let busy = tokio::spawn(async move { store.write(move |_| Ok(held.recv().is_err())).await });
    let operator = gateway.operator();
    let asked = tokio::spawn(async move { operator.does(what, question).await });
    // Enough steps for everything that has to happen before the store is called.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    drop(release);
    assert!(busy.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_stopped_even_if_nobody_waits_for_the_answer() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().says(["Let me ", "think"]).then_hangs();
    gateway.room().says("@ann", "plan my week").await;
    agent.is_hanging().await;
    assert!(gateway.room().settled().await.contains("bot…  Let me think"));

    asks_and_is_gone(&gateway, "/turns/stop", json!({ "id": null })).await;

    assert_snapshot!(gateway.room().settled().await, @"
    @ann  plan my week
    bot   Let me think
          (stopped)
    ");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_shut_out_is_stopped_even_if_nobody_waits_for_the_answer() {
    let people = BTreeSet::from([UserId::from("@ann:test")]);
    let rules = AccountRules::listed(AccessLists { people, pairing: true, ..AccessLists::default() });
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    gateway.store().write(|tx| tx.let_in(&"test".into(), &"@eve:test".into())).await.unwrap();
    let agent = gateway.agent().says(["Let me ", "think"]).then_hangs();
    gateway.room().says("@eve", "plan my week").await;
    agent.is_hanging().await;
    assert!(gateway.room().settled().await.contains("bot…  Let me think"));

    asks_and_is_gone(&gateway, "/pairings/revoke", json!({ "person": "@eve:test", "account": null })).await;

    assert_snapshot!(gateway.room().settled().await, @"
    @eve  plan my week
    bot   Let me think
          (stopped)
    ");
}
