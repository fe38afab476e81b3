//! The 17 cases of `test_proxy_mode.py` in the reference implementation (hermes-agent), each with its equivalent.
//!
//! | case there | equivalent here |
//! |---|---|
//! | `TestGetProxyUrl`, all six: not configured, environment, trailing slash, YAML, environment over YAML, blank | `config::tests::sources::the_proxy_url_comes_from_the_environment_then_from_the_file` |
//! | `run_agent_delegates_to_proxy` | [`a_configured_server_answers`] |
//! | `run_agent_skips_proxy_when_not_configured` | [`without_a_server_nothing_is_forwarded`] |
//! | `builds_correct_request` | [`a_request_has_everything_in_its_place`] |
//! | `handles_http_error` | [`an_http_error_is_shown_and_counts_as_no_call`] |
//! | `handles_connection_error` | [`a_server_that_is_not_there_is_a_connection_error`] |
//! | `skips_tool_messages_in_history` | `openai::wire::tests::only_what_was_really_said_goes_along_and_the_prompt_comes_last_and_once` |
//! | `result_shape_matches_run_agent` | [`a_result_has_all_its_parts`] |
//! | `no_auth_header_without_key` | [`without_a_key_there_is_no_authorization`] |
//! | `no_system_message_when_context_empty` | [`without_a_context_there_is_no_system_message`] |
//! | `proxy_url_in_optional_env_vars`, `proxy_key_in_optional_env_vars` | [`both_variables_are_listed`] |

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Nobody, Upstream, delta};

#[tokio::test]
async fn a_configured_server_answers() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says(["Hello ", "from remote!"]));
    Talaria::to(&upstream).reads("hi\n").await.showed("Hello from remote!\n");
    assert_eq!(upstream.prompt().messages(), said(&[("user", "hi")]));
}

#[tokio::test]
async fn without_a_server_nothing_is_forwarded() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says(["I am the model."]));
    let local =
        Talaria::new().var("OPENAI_BASE_URL", &(upstream.url() + "/v1")).var("OPENAI_MODEL", "llama3");
    local.reads("hi\n").await.showed("I am the model.\n");
    let request = upstream.prompt();
    assert_eq!((upstream.questions(), request.header("x-hermes-session-id")), (0, None));
    assert_eq!(request.json()["model"], "llama3");

    let nobody = Talaria::new().reads("hi\n").await;
    assert!(nobody.code == 0 && nobody.out.contains("GATEWAY_PROXY_URL"), "{}", nobody.out);
    assert_eq!(upstream.prompts().len(), 1);
}

#[tokio::test]
async fn a_request_has_everything_in_its_place() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says(["Hi there!"])).answers(Answer::says(["Hello", " world"]));
    let talaria = Talaria::to(&upstream)
        .var("GATEWAY_PROXY_KEY", "test-key-123")
        .config("agent:\n  context_prompt: You are helpful.\n");
    talaria.reads("Hello\nHow are you?\n").await.showed("Hi there!\nHello world\n");

    let [first, second] = upstream.prompts().try_into().expect("two requests");
    assert_eq!((second.method.as_str(), second.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(second.header("authorization"), Some("Bearer test-key-123"));
    assert_eq!(second.header("content-type"), Some("application/json"));
    assert_eq!(second.json()["stream"], true);
    assert_eq!(
        second.messages(),
        said(&[
            ("system", "You are helpful."),
            ("user", "Hello"),
            ("assistant", "Hi there!"),
            ("user", "How are you?")
        ])
    );

    let session = second.header("x-hermes-session-id").expect("a session");
    assert!(is_session_id(session), "{session}");
    assert_eq!(first.header("x-hermes-session-id"), Some(session), "both belong to one session");
    let keys = [&first, &second].map(|request| request.header("idempotency-key").expect("a key"));
    assert!(keys[0] != keys[1] && keys.iter().all(|key| key.len() >= 32), "{keys:?}");
}

#[tokio::test]
async fn an_http_error_is_shown_and_counts_as_no_call() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::status(401, "Unauthorized: invalid API key"));
    let talaria = Talaria::to(&upstream);
    let ended = talaria.reads("hi\n").await;
    ended.failed_with("").said(
        "⚠️ Proxy error (401): it does not accept the key, or wants one; set the same key at both ends.",
    );
    assert!(!ended.err.contains("Unauthorized: invalid"), "the server's body is not for people");
    assert_eq!(result(&talaria), ("failed".into(), "".into(), 0, "[]".into(), 0));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_connection_error() {
    let nobody = Nobody::new();
    let talaria =
        Talaria::new().var("GATEWAY_PROXY_URL", &nobody.url()).config("gateway:\n  retry_for: 0s\n");
    let ended = talaria.reads("hi\n").await;
    ended.failed_with("").said("⚠️ Proxy connection error: connection refused; nothing listens there.");
    assert_eq!(result(&talaria).2, 0, "no call was made");
}

#[tokio::test]
async fn a_result_has_all_its_parts() {
    let upstream = Upstream::plain().await;
    let tool = "event: hermes.tool.progress\ndata: {\"tool\":\"web_search\",\"toolCallId\":\"1\"}\n\n";
    let answer = delta("answer");
    upstream.answers(Answer::says(["ok"])).answers(Answer::events(format!("{tool}{answer}data: [DONE]\n\n")));
    let talaria = Talaria::to(&upstream);
    talaria.reads("prev\nhi\n").await.showed("ok\nanswer\n");

    assert_eq!(result(&talaria), ("done".into(), "answer".into(), 1, "[\"web_search\"]".into(), 2));
    let stored = talaria.stored();
    let session: String =
        stored.query_row("SELECT session FROM turns ORDER BY seq DESC", [], |row| row.get(0)).unwrap();
    let prompts = upstream.prompts();
    assert_eq!(prompts[1].header("x-hermes-session-id"), Some(session.as_str()));
    let mut messages = stored.prepare("SELECT role, content FROM messages ORDER BY id").unwrap();
    let messages: Vec<(String, String)> =
        messages.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let all = [("user", "prev"), ("assistant", "ok"), ("user", "hi"), ("assistant", "answer")];
    assert_eq!(messages, said(&all));
}

#[tokio::test]
async fn without_a_key_there_is_no_authorization() {
    let upstream = Upstream::plain().await;
    Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
    for request in upstream.requests_to("") {
        assert_eq!(request.header("authorization"), None, "{}", request.path);
    }
    assert_eq!((upstream.questions(), upstream.prompts().len()), (1, 1));
}

#[tokio::test]
async fn without_a_context_there_is_no_system_message() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream).config("agent:\n  context_prompt: '  '\n");
    talaria.reads("hello\n").await.showed("ok\n");
    assert_eq!(upstream.prompt().messages(), said(&[("user", "hello")]));
}

#[tokio::test]
async fn both_variables_are_listed() {
    let ended = Talaria::new().args(["env"]).reads("").await;
    for (name, secret) in [("GATEWAY_PROXY_URL", "no"), ("GATEWAY_PROXY_KEY", "yes")] {
        let row = ended.out.lines().find(|line| line.split_whitespace().next() == Some(name));
        let row: Vec<&str> = row.expect("a row").split_whitespace().collect();
        assert_eq!(row[1..3], ["messaging", secret], "{name}");
    }
}

/// The end of the last turn: state, text, calls, tools, length of the history that was sent.
fn result(talaria: &Talaria) -> (String, String, u32, String, u32) {
    let last = "SELECT state, text, api_calls, tools, history_offset FROM turns ORDER BY seq DESC LIMIT 1";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    talaria.stored().query_row(last, [], row).unwrap()
}

/// Whether an id is `YYYYMMDD_HHMMSS_` and eight hex digits.
fn is_session_id(id: &str) -> bool {
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let hex =
        |text: &str| text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    matches!(id.split('_').collect::<Vec<_>>()[..], [day, time, random]
        if digits(day, 8) && digits(time, 6) && hex(random))
}

fn said(messages: &[(&str, &str)]) -> Vec<(String, String)> {
    messages.iter().map(|(role, content)| ((*role).to_owned(), (*content).to_owned())).collect()
}
