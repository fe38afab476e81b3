//! Claims of a server about itself or about a turn, and how the real binary takes them.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Upstream, delta, event, finish};

#[tokio::test]
async fn a_server_that_could_not_say_what_it_can_do_is_asked_again() {
    let abilities = r#"{"features":{"idempotency":true}}"#;
    for failing in [
        Answer::status(503, ""),
        Answer::stream_with(&[("content-type", "application/json")]).sends(r#"{"features":{"#).closes(),
    ] {
        let upstream = Upstream::with_capabilities(failing).await;
        // The rest is requested only from a server that is known to be idempotent.
        upstream
            .answers(Answer::stream().sends(delta("Half")).closes())
            .answers(Answer::says(["Half and half."]));
        let talaria = Talaria::to(&upstream);
        let mut process = talaria.starts();
        process.types("hi\n");
        process.logs("a try failed").await;
        upstream.now_says_of_itself(Answer::status(200, abilities));
        process.leaves();

        process.ended().await.showed("Half and half.\n");
        let prompts = upstream.prompts();
        assert_eq!(prompts.len(), 2);
        assert_eq!(prompts[0].body, prompts[1].body);
    }
}

#[tokio::test]
async fn an_error_is_not_made_good_by_the_stop_after_it() {
    let error = event(&serde_json::json!({ "error": { "message": "the model fell over" } }));
    for (text, shown) in [(delta("Half"), "Half\n"), (String::new(), "")] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::events(text + &*error + &*finish("stop") + DONE));
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        ended.failed_with(shown).said("the agent reported an error");
    }
}
