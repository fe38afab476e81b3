//! `talaria <kind> …`: commands of a kind of platform reach the account that is meant, running or not.

use super::*;

const ANN: &str = "access: {people: [\"@ann:example.org\"]}";

#[tokio::test]
async fn a_running_account_answers_the_commands_of_its_kind() {
    let scene = Scene::new(ANN).await;
    let _running = scene.starts().await;
    let answer = scene.prints(["test", "ask", "socket"]).await;
    let socket = scene.network.socket().display().to_string();
    assert_eq!(answer.trim(), format!("{{\"socket\":\"{socket}\",\"running\":true}}"));
    assert_eq!(scene.prints(["test", "--account", "test", "ask", "socket"]).await, answer);
    assert_eq!(scene.prints(["test", "ask", "socket", "--account", "test"]).await, answer);

    let failed = scene.is_refused(1, ["test", "ask", "fail"]).await;
    failed.said("error: the test network is away\n").said("hint: start the test again");
    let unknown = scene.is_refused(1, ["test", "ask", "frob"]).await;
    unknown.said("error: the talaria that runs does not know `/test/frob`").said("another version");
    let typed = scene.is_refused(1, ["test", "ask", "typed"]).await;
    typed.said("error: the question is not understood: ").said("another version");
    let other = scene.is_refused(1, ["test", "--account", "work", "ask", "socket"]).await;
    other.said("error: no test account is called like this").said("hint: there are: test");
}

#[tokio::test]
async fn without_a_gateway_a_command_opens_the_account_itself() {
    let scene = Scene::new(ANN).await;
    let socket = scene.network.socket().display().to_string();
    assert_eq!(scene.prints(["test", "ask", "socket"]).await.trim(), socket);
    scene.is_refused(1, ["test", "ask", "fail"]).await.said("error: talaria is not running");
    scene.is_refused(2, ["test"]).await.said("requires a subcommand");
}

#[tokio::test]
async fn a_wrong_configuration_is_told_before_a_command_runs() {
    let scene = Scene::new("acess: {}").await;
    let refused = scene.is_refused(78, ["test", "ask", "socket"]).await;
    refused.said("error: unknown key `acess` in `platforms.test`").said("hint: did you mean `access`?");
}

#[tokio::test]
async fn among_several_accounts_one_must_be_named() {
    let scene = Scene::new(ANN).await;
    let socket = scene.network.socket().display().to_string();
    let other = format!("  other: {{kind: test, socket: {socket}2, {ANN}}}\n");
    scene.talaria.rewrites_config(format!("{}{other}", scene.config(ANN)));
    let several = scene.is_refused(1, ["test", "ask", "socket"]).await;
    several.said("error: there are several test accounts: other, test").said("`--account NAME`");
    let named = scene.prints(["test", "--account", "other", "ask", "socket"]).await;
    assert_eq!(named.trim(), format!("{socket}2"));
}

#[tokio::test]
async fn without_an_account_the_command_says_how_to_configure_one() {
    let ended = Talaria::new().does(["test", "ask", "socket"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    ended.said("error: no test account is configured").said("hint: add an entry with `kind: test`");
}
