//! An ACP agent behind the command: its questions at the terminal, and a server that is killed while the agent works.

use serde_json::Value;
use talaria::agents::process::count_children;

use super::scene::AskScene;
use crate::acp::scripted_agent::{Act, Script};
use crate::processes::nobody_is_left;

#[tokio::test]
async fn the_agents_own_options_are_chosen_at_the_terminal() {
    let cleans = [Act::runs_if_allowed("make clean", ""), Act::says(&["I went on."])];
    let script = Script::default().turn("clean", cleans);
    for (number, option, ran, code) in [("1", "yes", 1, 0), ("3", "no", 0, 1)] {
        let (scene, agent) = AskScene::acp(&script).await;
        let mut terminal = scene.at_a_terminal("talaria ask clean up; echo \"code $?\"");
        terminal.shows("Write a number; Ctrl-D refuses to answer.\r\n> ").await;
        let screen = terminal.screen();
        for words in [
            "    make clean\r\n",
            "  1  Yes, proceed  (allows it this once)",
            "  2  Yes, and always  (allows it from now on)",
            "  3  No  (refuses it)",
        ] {
            assert!(screen.contains(words), "{words}: {screen}");
        }
        assert_eq!(agent.ran(), Vec::<String>::new());
        terminal.types(number);
        terminal.shows("I went on.").await;
        let (_, screen) = terminal.ended().await;
        assert!(screen.ends_with(&format!("code {code}\r\n")), "{screen}");
        let chosen = agent.answers()[0]["result"]["outcome"]["optionId"].clone();
        assert_eq!((chosen, agent.ran().len()), (Value::from(option), ran));
    }
}

#[tokio::test]
async fn a_killed_server_leaves_no_agent_and_the_next_one_opens_the_conversation_again() {
    let stubborn = [Act::StaysAlive, Act::says(&["I begin."]), Act::waits("never")];
    let (mut scene, agent) = AskScene::acp(&Script::default().turn("work", stubborn)).await;
    let asking = scene.begins(&["--session", "s", "work"]);
    agent.reached("never").await;
    let home = scene.talaria.home().to_owned();
    assert!(count_children(&home) > 0);
    scene.crashes().await;
    nobody_is_left(&home).await;
    drop(asking);

    scene.restarts().await;
    let ended = scene.asks(["--session", "s", "hello"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "hello\n"), "{}", ended.err);
    let opened = (agent.received("session/new").len(), agent.received("session/load").len());
    // What may have run is not run again.
    assert_eq!((opened, agent.received("session/prompt").len()), ((1, 1), 2), "{}", agent.history());
}
