//! Real MCP servers from the registries, driven as an agent's loop does, and real clients of `talaria mcp`.
//! `tests/sdk/parts` installs them.

mod node;
mod python;

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::it::binary::{Process, Talaria};

/// The file of a client in the folder of clients.
fn client(file: &str) -> String {
    format!("{}/tests/sdk/clients/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// Lets a client call tools of a running gateway through `talaria mcp`, whose command line follows its own arguments.
/// Returns its output.
async fn output_of(command: &mut Command) -> String {
    let talaria = Talaria::new().args(["serve"]).var("API_SERVER_PORT", "0");
    let skills = talaria.home().join("skills");
    fs::create_dir(&skills).unwrap();
    fs::write(skills.join("tea.md"), "---\nname: tea\ndescription: How to make tea\n---\nBoil water.\n")
        .unwrap();
    let mut gateway = talaria.starts_with(File::open("/dev/null").unwrap());
    gateway.serves().await;
    command.args([env!("CARGO_BIN_EXE_talaria"), "mcp"]).env("TALARIA_HOME", talaria.home());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = Process::watch(command.spawn().unwrap()).ended().await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    ended.out
}

/// Output of a client that called each kind of tool.
const CALLED: &str = "\
tools skills_list skill_view
skills_list ok - tea: How to make tea
skill_view ok Skill `tea`: How to make tea
skill_view failed there is no skill `coffee`; `skills_list` shows all of them
terminal failed There is no tool `terminal`. Tools that need an approval are not offered here.
";
