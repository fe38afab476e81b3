//! hermes-agent's own gateway in proxy mode, with `talaria serve` as its agent server.

use rustix::process::Signal;

use crate::hermes_process::HermesProcess;
use crate::irc_server::IrcServer;
use crate::it::binary::Talaria;
use crate::scripted_model::{ScriptedModel, answer};

const KEY: &str = "the-key-of-the-talaria-under-test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_gateway_has_two_turns_stops_one_and_shows_an_error() {
    let (model, irc) = tokio::join!(ScriptedModel::listen(), IrcServer::listen());
    let server = Talaria::new()
        .args(["serve"])
        .var("OPENAI_BASE_URL", &model.url())
        .var("OPENAI_MODEL", "scripted")
        .var("API_SERVER_KEY", KEY)
        .var("API_SERVER_PORT", "0");
    let mut server = server.starts();
    let url = format!("http://{}", server.serves().await.trim_start_matches("http://"));
    let mut hermes = HermesProcess::in_proxy_mode(irc.port(), &url, KEY);
    hermes.starts();
    irc.is_joined().await;

    irc.ann_says("my name is Ann");
    irc.reads(&answer("my name is Ann")).await;
    irc.ann_says("what is my name?");
    irc.reads(&answer("what is my name?")).await;
    let asked = model.last_asked();
    let expected = ["my name is Ann".to_owned(), answer("my name is Ann"), "what is my name?".to_owned()];
    assert_eq!(asked, expected, "{}", server.so_far());

    irc.ann_says("count 2000, hold after 5");
    model.is_held("count 2000").await;
    irc.ann_says("/stop");
    irc.reads("topped").await;
    model.goes_on();
    model.was_left(1).await;

    // hermes-agent reads only the text of a stream, so an error in a stream becomes this.
    irc.ann_says("please fail");
    irc.reads("(No response from remote agent)").await;

    server.signal(Signal::TERM);
    server.dies().await;
    irc.ann_says("are you there?");
    let said = irc.reads("⚠️ Proxy connection error").await;
    assert!(!said.iter().any(|line| line.contains("part 100,")), "what was stopped does not come: {said:?}");
}
