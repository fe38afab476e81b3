//! Skills end to end: listed in the system message, read on demand, and written only if a person agrees.

use std::fs;

use serde_json::json;
use talaria::config::BuiltinTool;

use super::support::{agent_using, calls, system, told};
use crate::support::gateway::Setup;
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn skills_are_listed_and_read_and_a_second_view_is_a_stub() {
    let upstream = Upstream::plain().await;
    let gateway = agent_using(&upstream, &[BuiltinTool::Skills], Setup::default()).await;
    let (room, folder) = (gateway.room(), gateway.skills_folder());
    room.says("@ann", "hi").await;
    room.shows("ok").await;
    assert!(!system(&upstream.prompts()[0]).contains("Skills"));

    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("brew.md"), "---\ndescription: How to brew tea\n---\nBoil water first.\n").unwrap();
    let view = || calls("", &[("v", "skills", r#"{"action":"view","name":"brew"}"#)]);
    upstream.answers(view()).answers(view()).answers(Answer::says(["Boiled."]));
    room.says("@ann", "brew").await;
    room.shows("Boiled.").await;
    let prompts = upstream.prompts();
    let listed = system(&prompts[1]);
    assert!(listed.contains("- brew: How to brew tea") && !listed.contains("Boil water"), "{listed}");
    let results: Vec<_> = told(&prompts[3]).into_iter().filter(|line| line.starts_with("tool for")).collect();
    assert!(results[0].contains("Boil water first."), "{results:?}");
    assert!(results[1].contains("unchanged since you read it"), "{results:?}");
    assert!(!results[1].contains("Boil water"), "{results:?}");

    // A changed skill is read anew, in a later turn too.
    fs::write(folder.join("brew.md"), "---\ndescription: How to brew tea\n---\nWarm the pot.\n").unwrap();
    upstream.answers(view()).answers(Answer::says(["Warmed."]));
    room.says("@ann", "again").await;
    room.shows("Warmed.").await;
    let last = told(upstream.prompts().last().unwrap());
    assert!(last.last().unwrap().contains("Warm the pot."), "{last:?}");
}

#[tokio::test]
async fn a_skill_is_written_only_if_a_person_agrees() {
    let upstream = Upstream::plain().await;
    let gateway = agent_using(&upstream, &[BuiltinTool::Skills], Setup::default()).await;
    let room = gateway.room();
    let write = |body: &str| {
        let skill = json!({ "action": "write", "name": "brew", "description": "How to brew", "body": body });
        calls("", &[("w", "skills", &skill.to_string())])
    };
    let file = gateway.skills_folder().join("learned/brew.md");

    upstream.answers(write("Burn it.")).answers(Answer::says(["Then not."]));
    room.says("@ann", "learn it").await;
    let asked = room.is_asked("Burn it.").await;
    room.says("@ann", &format!("/deny {}", asked.code)).await;
    room.shows("Then not.").await;
    assert!(!file.exists());

    upstream.answers(write("Boil it.")).answers(Answer::says(["Learned."]));
    room.says("@ann", "do learn it").await;
    let second = || room.asked().into_iter().nth(1);
    let asked = gateway.chat().until("the agent asks once more", second).await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.shows("Learned.").await;
    assert!(fs::read_to_string(file).unwrap().contains("Boil it."));
}
