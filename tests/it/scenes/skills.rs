//! `/skills`: lists the skills of agents and shows one.

use std::fs;
use std::os::unix::fs::symlink;

use insta::assert_snapshot;

use crate::support::gateway::TestGateway;

#[tokio::test(start_paused = true)]
async fn skills_are_listed_and_shown() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "/skills").await;
    room.settled().await;
    let folder = gateway.skills_folder();
    fs::create_dir_all(folder.join("learned")).unwrap();
    fs::write(folder.join("deploy.md"), "---\ndescription: How to deploy\n---\n# Steps\n\n```\nmake\n```\n").unwrap();
    let learned = "---\ndescription: How to tidy\nrequired_environment_variables: [KEY]\n---\nTidy.\n";
    fs::write(folder.join("learned/tidy.md"), learned).unwrap();
    fs::write(folder.join("broken.md"), "---\nname: [\n---\n").unwrap();
    symlink("../talaria.db", folder.join("sly.md")).unwrap();
    for command in ["/skills", "/skills deploy", "/skills TIDY", "/skills ../talaria.db", "/skills sly"] {
        room.says("@ann", command).await;
        room.settled().await;
    }
    assert_snapshot!(room.settled().await, @"");
    assert_eq!(gateway.agent_itself().turns().len(), 0, "the agent is not asked");
}
