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
    fs::write(folder.join("deploy.md"), "---\ndescription: How to deploy\n---\n# Steps\n\n```\nmake\n```\n")
        .unwrap();
    let learned = "---\ndescription: How to tidy\nrequired_environment_variables: [KEY]\n---\nTidy.\n";
    fs::write(folder.join("learned/tidy.md"), learned).unwrap();
    fs::write(folder.join("broken.md"), "---\nname: [\n---\n").unwrap();
    symlink("../talaria.db", folder.join("sly.md")).unwrap();
    for command in ["/skills", "/skills deploy", "/skills TIDY", "/skills ../talaria.db", "/skills sly"] {
        room.says("@ann", command).await;
        room.settled().await;
    }
    assert_snapshot!(room.settled().await, @r"
    @ann  /skills
    note  There are no skills here.
    @ann  /skills
    note  Skills of the agent:
          - deploy: How to deploy
          - tidy: How to tidy (written by an agent)
          - the file `broken.md` cannot be used: its front matter is not understood (line 2)
          - the file `sly.md` cannot be used: it is a link out of the folder
          `/skills NAME` shows one of them.
    @ann  /skills deploy
    note  deploy: How to deploy
          ````
          # Steps
          ```
          make
          ```
          ````
    @ann  /skills TIDY
    note  tidy: How to tidy
          ```
          Tidy.
          ```
          It asks for variables and does not get them, because an agent wrote it.
    @ann  /skills ../talaria.db
    note  There is no skill `../talaria.db`. /skills lists those there are.
    @ann  /skills sly
    note  There is no skill `sly`. /skills lists those there are.
    ");
}
