//! The gateway and our own agent server, back to back in one process: the gateway uses everything that the server
//! offers.

use std::net::SocketAddr;

use reqwest::Method;
use serde_json::json;
use talaria::agent::{AgentErrorKind, AnswerForm, Ask, AskChoice, DenyReason, OptionKind, StepState};
use talaria::i18n::{LocalizedText, TextCatalog, TextKey};
use tokio::net::{TcpListener, TcpStream};

use crate::support::binary::Talaria;
use crate::support::gateway::{Setup, TestGateway};
use crate::support::ports::free_port;
use crate::support::relay::{model, proxy, relay, relay_as};
use crate::support::scripted::{ask, choice, option, or_text};
use crate::support::served::{KEY, Served, settings};
use crate::support::upstream::{Answer, Upstream};

/// Another address for the listener at `port`, like a forwarded port or a proxy in front.
async fn forwarded(port: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut to = TcpStream::connect(("127.0.0.1", port)).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    address
}

#[tokio::test]
async fn an_answer_and_its_steps_come_through() {
    let served = Served::start().await;
    let script = served
        .agent()
        .says(["Let me see. "])
        .step("c1", "search", StepState::Running)
        .then_hangs()
        .says(["Found."]);
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "look it up").await;
    room.shows("search").await;
    script.goes_on();
    room.shows("bot   Let me see. Found.").await;
    let heard = served.gateway.agent_itself().heard();
    assert_eq!((heard.len(), heard[0].prompt.as_str()), (1, "look it up"));
}

/// Our server has runs too, for gateways that are told to use them.
#[tokio::test]
async fn a_run_with_steps_and_asks_comes_through() {
    let served = Served::start().await;
    served
        .agent()
        .says(["Let me clean up. "])
        .step("c1", "search", StepState::Running)
        .asks("run a command", "rm -r build")
        .says(["Done."]);
    let gateway = relay_as(&served.url(""), Some(KEY), "gateway: {upstream: runs}\n").await;
    let room = gateway.room();
    room.says("@ann", "clean up").await;
    room.is_asked("rm -r build").await;
    room.says("@ann", "/approve").await;
    room.shows("bot   Let me clean up. Done.").await;
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -r build"]);
}

#[tokio::test]
async fn what_the_agent_asks_over_there_is_answered_here() {
    let served = Served::start().await;
    served.agent().says(["Let me clean up. "]).asks("run a command", "rm -r build").says(["Done."]);
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "clean up").await;
    room.is_asked("rm -r build").await;
    room.says("@ann", "/approve").await;
    room.shows("bot   Let me clean up. Done.").await;
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -r build"]);
}

/// An ask with options and free text.
fn colours() -> Ask {
    let options = [option("r", "red", OptionKind::Answer), option("b", "blue `sky`", OptionKind::AllowOnce)];
    or_text(choice("Colour", "Which colour shall it be?", options))
}

#[tokio::test]
async fn options_and_own_words_come_through_in_both_directions() {
    for (words, told) in [
        ("red", AskChoice::Option("r".to_owned())),
        ("2", AskChoice::Option("b".to_owned())),
        ("green,\nlike moss", AskChoice::Text("green,\nlike moss".to_owned())),
    ] {
        let served = Served::start().await;
        served.agent().says(["Let me ask. "]).asks_all([colours()]).says(["Done."]);
        let gateway = relay(&served.url(""), Some(KEY)).await;
        let room = gateway.room();
        room.says("@ann", "paint it").await;
        let asked = room.is_asked("Which colour shall it be?").await;
        assert!(asked.text.contains("1. `red`\n2. `blue 'sky'`"), "{}", asked.text);
        room.says("@ann", &format!("/answer {} {words}", asked.code)).await;
        room.shows("bot   Let me ask. Done.").await;
        let answers = served.gateway.agent_itself().answers();
        assert_eq!((answers.len(), &answers[0].choice), (1, &told));
    }
}

#[tokio::test]
async fn a_denied_question_is_denied_over_there() {
    let served = Served::start().await;
    served.agent().asks_all([colours()]).says(["Then not."]);
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "paint it").await;
    let asked = room.is_asked("Colour").await;
    room.says("@ann", &format!("/deny {}", asked.code)).await;
    room.shows("bot   Then not.").await;
    assert_eq!(served.gateway.agent_itself().answers()[0].choice, AskChoice::Deny(DenyReason::Person));
}

#[tokio::test]
async fn an_approval_over_there_chooses_the_only_option_that_allows() {
    let served = Served::start().await;
    let options = [option("y", "Go ahead", OptionKind::AllowOnce), option("n", "No", OptionKind::RejectOnce)];
    served.agent().asks_all([choice("run a command", "rm -r build", options)]).says(["Done."]);
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "clean up").await;
    room.is_asked("rm -r build").await;
    room.says("@ann", "/approve").await;
    room.shows("bot   Done.").await;
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -r build"]);
}

/// An ask of a hermes-agent behind the server over there, which hides a part of the command.
fn masked() -> Ask {
    let gap = Some(TextKey::RunPartHidden.into());
    Ask { form: AnswerForm::once_only(), gap, ..ask("terminal", "TOKEN=*** true") }
}

#[tokio::test]
async fn what_an_ask_over_there_hides_is_said_here_and_it_is_allowed_only_once() {
    for (yaml, language, warning) in [
        ("", "en", "hides a part of this"),
        ("gateway: {upstream: runs}\n", "en", "hides a part of this"),
        ("", "de", "verbirgt einen Teil davon"),
    ] {
        let served = Served::start().await;
        served.agent().asks_all([masked()]).says(["Done."]);
        let agent = Some(proxy(&served.url(""), Some(KEY), yaml));
        let words = TextCatalog::of(language).unwrap();
        let gateway = TestGateway::with(Setup { agent, words, ..Setup::default() }).await;
        let room = gateway.room();
        room.says("@ann", "clean up").await;
        let asked = room.is_asked("TOKEN=*** true").await;
        assert!(asked.text.contains(warning) && !asked.text.contains("session"), "{}", asked.text);
        room.says("@ann", &format!("/approve {} always", asked.code)).await;
        room.says("@ann", &format!("/approve {}", asked.code)).await;
        room.shows("bot   Done.").await;
        let answers = served.gateway.agent_itself().answers();
        assert_eq!(answers.last().unwrap().choice, AskChoice::Option("once".to_owned()), "{yaml}");
    }
}

/// The entry that fits what is shown may not be what would run.
#[tokio::test]
async fn a_policy_here_does_not_permit_what_is_hidden_over_there() {
    let served = Served::start().await;
    let agent = Some(proxy(&served.url(""), Some(KEY), ""));
    let gateway = Served::with(Setup { agent, ..Setup::default() }, settings()).await;
    let listed = json!({ "app": "listed", "again": false, "permissions": ["TOKEN=*** true"] });
    let added = gateway.gateway.operator().does("/tokens/add", listed).await.unwrap();
    let messages = json!([{ "role": "user", "content": "clean up" }]);
    for (asked, choice) in [
        (masked(), AskChoice::Deny(DenyReason::Person)),
        (Ask { gap: None, ..masked() }, AskChoice::Option("once".to_owned())),
    ] {
        served.agent().asks_all([asked]).says(["So be it."]);
        let request =
            gateway.bare(Method::POST, "/v1/chat/completions").bearer_auth(added["token"].as_str().unwrap());
        let answer = request.body(json!({ "messages": messages }).to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answers = served.gateway.agent_itself().answers();
        assert_eq!(answers.last().unwrap().choice, choice);
    }
}

#[tokio::test]
async fn sentences_below_the_answer_come_through_in_the_words_of_this_end() {
    let served = Served::start().await;
    let declined = TextKey::CodexDeclinedForm.with("server", "`time`");
    served.agent().remarks(TextKey::CodexForgot).says(["Hello again."]).remarks(declined);
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "go on").await;
    room.shows("began a new one").await;
    room.shows("Declined: the MCP server `time` asked for a form that cannot be filled in here.").await;
}

#[tokio::test]
async fn a_stop_here_ends_the_run_there() {
    let served = Served::start().await;
    let script = served.agent().says(["Thinking"]).then_hangs();
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "think").await;
    room.shows("Thinking").await;
    room.says("@ann", "/stop").await;
    room.shows("(stopped)").await;
    script.is_told_to_stop().await;
}

#[tokio::test]
async fn the_gateway_goes_and_comes_back_while_the_run_goes_on() {
    let served = Served::start().await;
    let script = served.agent().says(["First half, "]).then_hangs().says(["second half."]);
    let mut gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    room.says("@ann", "tell me").await;
    room.shows("First half,").await;
    gateway.restart().await;
    script.goes_on();
    room.shows("bot   First half, second half.").await;
    assert_eq!((served.gateway.agent_itself().heard().len(), room.ours().len()), (1, 1));
}

#[tokio::test]
async fn a_gateway_that_is_pointed_at_itself_says_so() {
    let port = free_port();
    let talaria = Talaria::new()
        .var("GATEWAY_PROXY_URL", &format!("http://{}", forwarded(port).await))
        .var("GATEWAY_PROXY_KEY", KEY)
        .var("API_SERVER_KEY", KEY)
        .var("API_SERVER_PORT", &port.to_string());
    let mut process = talaria.starts();
    process.types("hi\n");
    process.logs("\n⚠️ Proxy error (508): it leads back to this gateway").await;
}

/// A person in a room cannot read the log of the agent server.
#[tokio::test]
async fn why_it_failed_over_there_is_said_here() {
    let status =
        |why| TextKey::StatusError.with("who", TextKey::WhoModel).with("status", 401_u16).with("why", why);
    let unreachable =
        TextKey::ConnectionError.with("who", TextKey::WhoModel).with("why", TextKey::WhyUnknownHost);
    for (kind, words, shown) in [
        (
            AgentErrorKind::Refused,
            status(LocalizedText::from(TextKey::WhyModelKey)),
            "note  (cut short: Model error (401) at the agent server: it does not accept the key, or wants one; set \
             OPENAI_API_KEY)",
        ),
        (
            AgentErrorKind::CutShort,
            unreachable,
            "note  (cut short: Model connection error at the agent server: the host name is not known)",
        ),
        (
            AgentErrorKind::CutShort,
            TextKey::BrokeTooLong.into(),
            "note  (cut short: the conversation is too long for the model; /new begins another one)",
        ),
        // A text that is not from our catalogue is not shown.
        (
            AgentErrorKind::Refused,
            status("see https://secret.example".into()),
            "note  (cut short: the agent reported an error; /retry asks again)",
        ),
    ] {
        let served = Served::start().await;
        served.agent().then_fails(kind, words);
        let gateway = relay(&served.url(""), Some(KEY)).await;
        let room = gateway.room();
        room.says("@ann", "hello?").await;
        room.shows(shown).await;
    }
}

#[tokio::test]
async fn what_the_model_over_there_said_is_not_shown_but_what_it_means() {
    let upstream = Upstream::plain().await;
    let served =
        Served::with(Setup { agent: Some(model(&upstream.url())), ..Setup::default() }, settings()).await;
    let gateway = relay(&served.url(""), Some(KEY)).await;
    let room = gateway.room();
    // A server that failed is asked again a few times before people are told.
    for (status, times, shown) in [
        (401, 1, "Model error (401) at the agent server: it does not accept the key, or wants one"),
        (
            404,
            1,
            "Model error (404) at the agent server: there is no such service at this address, or no such model",
        ),
        (500, 4, "Model error (500) at the agent server: it failed; /retry asks again)"),
    ] {
        let body = r#"{"error":{"message":"canary: see https://secret.example","code":"canary"}}"#;
        for _ in 0..times {
            upstream.answers(Answer::status(status, body));
        }
        room.says("@ann", "hello?").await;
        room.shows(shown).await;
    }
    assert!(!room.now().contains("canary"));
}
