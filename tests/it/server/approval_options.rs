//! Asks with options and free text over HTTP: their events, and how an app answers them.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{Ask, AskChoice, DenyReason, OptionKind};

use crate::support::gateway::Setup;
use crate::support::scripted::{ask, choice, option, or_text};
use crate::support::served::{Served, json, settings};
use crate::support::stream::Stream;

const CHAT: &str = "/v1/chat/completions";

fn permission() -> Ask {
    let options = [
        option("allow", "Allow", OptionKind::AllowOnce),
        option("always", "Always allow", OptionKind::AllowAlways),
        option("reject", "Reject", OptionKind::RejectOnce),
    ];
    choice("run a command", "rm -r build", options)
}

fn colours() -> Ask {
    or_text(choice("Colour", "Which colour shall it be?", [option("b", "blue", OptionKind::Answer)]))
}

fn prompt() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true })
}

/// Starts a turn, waits until its agent asks; returns the stream and the data of the event.
async fn asked(served: &Served) -> (Stream, Value) {
    let mut stream = Stream::of(served.post(CHAT, &prompt()).await);
    let asked = stream.until("approval.request").await.json();
    (stream, asked)
}

/// Answers an ask; returns status and body.
async fn answer(served: &Served, asked: &Value, body: Value) -> (u16, Value) {
    let run = asked["run_id"].as_str().unwrap();
    let answer = served.post(&format!("/v1/runs/{run}/approval"), &body).await;
    (answer.status().as_u16(), json(answer).await)
}

fn told(served: &Served) -> Vec<AskChoice> {
    served.gateway.agent_itself().answers().into_iter().map(|answer| answer.choice).collect()
}

#[tokio::test]
async fn the_event_lists_the_options_and_an_app_chooses_one() {
    let served = Served::start().await;
    served.agent().asks_all([permission()]).says(["done"]);
    let (mut stream, asked) = asked(&served).await;
    let options = json!([
        { "id": "allow", "label": "Allow", "kind": "allow_once" },
        { "id": "always", "label": "Always allow", "kind": "allow_always" },
        { "id": "reject", "label": "Reject", "kind": "reject_once" },
    ]);
    assert_eq!((&asked["options"], &asked["text"]), (&options, &json!(false)));
    assert_eq!(asked["approval"]["choices"], json!(["answer", "deny"]));
    let run = asked["run_id"].as_str().unwrap();
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(shown["status"], "waiting_for_approval");
    assert_eq!(shown["pending_approvals"][0]["options"], options);

    let body = json!({ "choice": "answer", "option": "reject", "approval_id": asked["approval_id"] });
    let (status, taken) = answer(&served, &asked, body.clone()).await;
    assert_eq!((status, &taken["choice"], &taken["option"]), (200, &json!("answer"), &json!("reject")));
    let rest = stream.rest().await;
    let responded = rest.iter().find(|event| event.kind() == "approval.responded").unwrap().json();
    assert_eq!((&responded["choice"], &responded["reason"]), (&json!("answer"), &json!("answered")));
    assert_eq!((&responded["option"], responded.get("text")), (&json!("reject"), None));
    assert_eq!(told(&served), [AskChoice::Option("reject".to_owned())]);

    // The same answer again is a success; another one is too late.
    assert_eq!(answer(&served, &asked, body).await.0, 200);
    let other = json!({ "choice": "answer", "option": "allow", "approval_id": asked["approval_id"] });
    assert_eq!(answer(&served, &asked, other).await.1["error"]["code"], "approval_not_pending");
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    let record = &shown["approvals"][0];
    assert_eq!((&record["status"], &record["choice"]), (&json!("answered"), &json!("answer")));
    assert_eq!((&record["option"], record.get("text")), (&json!("reject"), None));
}

#[tokio::test]
async fn an_ask_that_does_not_show_everything_says_so() {
    let served = Served::start().await;
    let gap = Some("`Half of it.`".into());
    served.agent().asks_all([Ask { gap, ..permission() }]).says(["done"]).asks_all([permission()]);
    let (mut stream, first) = asked(&served).await;
    assert_eq!(first["gap"], "`Half of it.`");
    let run = first["run_id"].as_str().unwrap();
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(shown["pending_approvals"][0]["gap"], "`Half of it.`");
    let body = json!({ "choice": "deny", "approval_id": first["approval_id"] });
    assert_eq!(answer(&served, &first, body).await.0, 200);
    let second = stream.until("approval.request").await.json();
    assert_eq!(second.get("gap"), None);
}

#[tokio::test]
async fn an_app_answers_in_words() {
    let served = Served::start().await;
    served.agent().asks_all([colours()]).says(["done"]);
    let (mut stream, asked) = asked(&served).await;
    assert_eq!((&asked["text"], &asked["options"][0]["id"]), (&json!(true), &json!("b")));
    let words = "a green,\nlike moss";
    assert_eq!(answer(&served, &asked, json!({ "choice": "answer", "text": words })).await.0, 200);
    let rest = stream.rest().await;
    let responded = rest.iter().find(|event| event.kind() == "approval.responded").unwrap().json();
    assert_eq!((&responded["choice"], &responded["text"]), (&json!("answer"), &json!(words)));
    assert_eq!(told(&served), [AskChoice::Text(words.to_owned())]);
    let run = asked["run_id"].as_str().unwrap();
    assert_eq!(json(served.get(&format!("/v1/runs/{run}")).await).await["approvals"][0]["text"], words);
    let audit = served.gateway.store().read(|tx| tx.audited(&Default::default())).await.unwrap();
    assert!(!format!("{audit:?}").contains("moss"), "{audit:?}");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_with_what_would() {
    let served = Served::start().await;
    served.agent().asks_all([permission()]).asks_all([colours()]).asks("plain", "rm -r build");
    let (mut stream, first) = asked(&served).await;
    let refused = async |asked: &Value, body: Value, code: &str, param: &str| {
        let (status, told) = answer(&served, asked, body.clone()).await;
        let error = &told["error"];
        assert_eq!((status, &error["code"], &error["param"]), (400, &json!(code), &json!(param)), "{body}");
        let message = error["message"].as_str().unwrap().to_owned();
        assert!(message.ends_with("nothing was decided"), "{message}");
        message
    };
    let wrong = json!({ "choice": "answer", "option": "maybe" });
    let message = refused(&first, wrong, "unknown_option", "option").await;
    assert!(message.contains(r#"one of the options "allow", "always", "reject""#), "{message}");
    let words = json!({ "choice": "answer", "text": "why not" });
    refused(&first, words, "text_not_accepted", "text").await;
    for scope in ["once", "session", "always", "approve"] {
        refused(&first, json!({ "choice": scope }), "answer_required", "choice").await;
    }
    for unclear in [
        json!({ "choice": "answer" }),
        json!({ "choice": "answer", "option": "allow", "text": "x" }),
        json!({ "choice": "once", "option": "allow" }),
        json!({ "choice": "deny", "text": "no" }),
        json!({ "choice": "maybe" }),
    ] {
        refused(&first, unclear, "invalid_approval_choice", "choice").await;
    }
    assert_eq!(told(&served), []);
    assert_eq!(answer(&served, &first, json!({ "choice": "deny" })).await.0, 200);

    let second = stream.until("approval.request").await.json();
    let long = json!({ "choice": "answer", "text": "ü".repeat(4_001) });
    refused(&second, long, "text_too_long", "text").await;
    refused(&second, json!({ "choice": "answer", "text": " " }), "text_empty", "text").await;
    assert_eq!(answer(&served, &second, json!({ "choice": "answer", "option": "b" })).await.0, 200);

    let plain = stream.until("approval.request").await.json();
    for odd in [json!({ "choice": "answer", "option": "b" }), json!({ "choice": "answer", "text": "b" })] {
        refused(&plain, odd, "invalid_approval_choice", "choice").await;
    }
    assert_eq!(answer(&served, &plain, json!({ "choice": "once" })).await.0, 200);
    stream.rest().await;
    let expected = [
        AskChoice::Deny(DenyReason::Person),
        AskChoice::Option("b".to_owned()),
        AskChoice::Allow(talaria::access::GrantScope::Once),
    ];
    assert_eq!(told(&served), expected);
}

#[tokio::test]
async fn a_client_that_only_approves_gets_the_only_option_that_allows() {
    let served = Served::start().await;
    let options = [option("y", "Go ahead", OptionKind::AllowOnce), option("n", "No", OptionKind::RejectOnce)];
    served.agent().asks_all([choice("run a command", "rm -r build", options)]);
    let (mut stream, asked) = asked(&served).await;
    assert_eq!(asked["approval"]["choices"], json!(["once", "answer", "deny"]));
    let (status, taken) = answer(&served, &asked, json!({ "choice": "once" })).await;
    assert_eq!((status, &taken["choice"], &taken["option"]), (200, &json!("answer"), &json!("y")));
    let again = json!({ "choice": "once", "approval_id": asked["approval_id"] });
    stream.rest().await;
    assert_eq!(answer(&served, &asked, again).await.0, 200, "a lost response is repeated");
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -r build"]);
}

/// Clients of today know exactly these fields.
#[tokio::test]
async fn an_approval_has_no_new_fields() {
    let served = Served::start().await;
    served.agent().asks("plain", "rm -r build");
    let run = json(served.post("/v1/runs", &json!({ "input": "hi" })).await).await;
    let run = run["run_id"].as_str().unwrap();
    let mut stream = Stream::of(served.get(&format!("/v1/runs/{run}/events")).await);
    let asked = stream.until("approval.request").await.json();
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for new in ["options", "text", "option"] {
        assert!(asked.get(new).is_none(), "{asked}");
    }
    assert_eq!(asked["choices"], json!(["once", "session", "always", "deny"]));
    let (_, taken) = answer(&served, &asked, json!({ "choice": "once" })).await;
    assert_eq!(fields(&taken), ["approval_id", "choice", "object", "resolved", "run_id"]);
    let responded = stream.until("approval.responded").await.json();
    assert!(responded.get("option").is_none() && responded.get("text").is_none(), "{responded}");
    stream.rest().await;
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    let record = &shown["approvals"][0];
    assert!(record.get("option").is_none() && record.get("text").is_none(), "{record}");
}

#[tokio::test]
async fn a_response_has_the_options_in_its_item() {
    let served = Served::start().await;
    served.agent().asks_all([colours()]).says(["done"]);
    let mut stream =
        Stream::of(served.post("/v1/responses", &json!({ "input": "hi", "stream": true })).await);
    let asked = stream.until("approval.request").await.json();
    let arguments: Value = serde_json::from_str(asked["item"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&arguments["options"], &arguments["text"]), (&asked["options"], &json!(true)));
    assert_eq!(answer(&served, &asked, json!({ "choice": "answer", "option": "b" })).await.0, 200);
    let responded = stream.until("approval.responded").await.json();
    assert_eq!((&responded["choice"], &responded["option"]), (&json!("answer"), &json!("b")));
    stream.rest().await;
}

#[tokio::test]
async fn options_that_are_too_many_are_denied_and_said_so() {
    let served = Served::start().await;
    let many = (0..200).map(|n| option(&n.to_string(), "x", OptionKind::AllowOnce));
    served.agent().asks_all([choice("Odd", "Shall I?", many)]);
    let events = Stream::of(served.post(CHAT, &prompt()).await).rest().await;
    let responded = events.iter().find(|event| event.kind() == "approval.responded").unwrap().json();
    assert_eq!((&responded["choice"], &responded["reason"]), (&json!("deny"), &json!("too long")));
    assert_eq!(told(&served), [AskChoice::Deny(DenyReason::TooLong)]);
}

#[tokio::test]
async fn the_next_process_denies_the_question_and_repeats_what_was_answered() {
    let mut served = Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await;
    served.agent().asks_all([colours()]).asks_all([or_text(ask("Name", "What is it called?"))]);
    served.agent().says(["done"]);
    let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
    let mut stream = Stream::of(request.body(prompt().to_string()).send().await.unwrap());
    let first = stream.until("approval.request").await.json();
    assert_eq!(answer(&served, &first, json!({ "choice": "answer", "option": "b" })).await.0, 200);
    let second = stream.until("approval.request").await.json();
    served.gateway.kill().await;
    drop(stream);
    served.restart().await;
    let late = json!({ "choice": "answer", "text": "Rex", "approval_id": second["approval_id"] });
    assert_eq!(answer(&served, &second, late).await.0, 409);
    let run = second["run_id"].as_str().unwrap();
    Stream::of(served.get(&format!("/v1/runs/{run}/events")).await).rest().await;
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    let records = shown["approvals"].as_array().unwrap();
    assert_eq!((&records[0]["status"], &records[0]["option"]), (&json!("answered"), &json!("b")));
    assert_eq!((&records[1]["status"], &records[1]["reason"]), (&json!("denied"), &json!("restart")));
}

#[tokio::test]
async fn the_capabilities_and_the_document_name_options() {
    let served = Served::start().await;
    let capabilities = json(served.get("/v1/capabilities").await).await;
    assert_eq!(capabilities["features"]["approval_options"], true);
    let document = json(served.get("/openapi.json").await).await;
    let text = document.to_string();
    let request = document["paths"]["/v1/runs/{run_id}/approval"]["post"]["requestBody"].to_string();
    assert!(request.contains("ApprovalRequest"), "{request}");
    let fields = &document["components"]["schemas"]["ApprovalRequest"]["properties"];
    for field in ["choice", "approval_id", "option", "text"] {
        assert!(fields.get(field).is_some(), "{field}: {text}");
    }
}
