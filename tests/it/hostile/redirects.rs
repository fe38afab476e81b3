//! F22: neither the key nor a word of the conversation follows a redirect.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn no_redirect_is_followed() {
    let attacker = Upstream::plain().await;
    let here = attacker.url();
    let elsewhere = here.trim_start_matches("http:").to_owned();
    let targets = [
        format!("{here}/v1/chat/completions"),
        format!("https:{elsewhere}/v1/chat/completions"),
        elsewhere,
        here.replace("127.0.0.1", "localhost"),
        here.replace("http://", "http://user:password@"),
    ];
    let upstream = Upstream::plain().await;
    let mut codes = Vec::new();
    for code in [301, 302, 303, 307, 308] {
        for target in &targets {
            upstream.answers(Answer::reply(code, &[("location", target)], ""));
            codes.push(code);
        }
        // A redirect within the same server is not followed either.
        upstream.answers(Answer::reply(code, &[("location", "/elsewhere")], ""));
        codes.push(code);
    }
    let talaria = Talaria::to(&upstream).var("GATEWAY_PROXY_KEY", "the-key-itself");
    let ended = talaria.reads(&"hi\n".repeat(codes.len())).await;
    ended.failed_with("");
    for code in codes {
        ended.said(&format!(
            "⚠️ Proxy error ({code}): it redirects, which is not followed; set its final address."
        ));
    }
    assert_eq!(attacker.connections(), 0);
    assert!(upstream.requests_to("/elsewhere").is_empty());
}

#[tokio::test]
async fn the_question_what_it_can_do_is_not_redirected_either() {
    let attacker = Upstream::idempotent().await;
    let location = attacker.url() + "/v1/capabilities";
    let upstream = Upstream::with_capabilities(Answer::reply(307, &[("location", &location)], "")).await;
    let talaria = Talaria::to(&upstream).var("GATEWAY_PROXY_KEY", "the-key-itself");
    talaria.reads("hi\n").await.showed("ok\n");
    assert_eq!((attacker.connections(), upstream.questions()), (0, 1));
}
