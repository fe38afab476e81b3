//! Checks what agents of kind `acp` need: the program, and a login in its variables. Starts nothing: some agents talk to
//! their servers when they start.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use crate::access::AppPermissions;
use crate::agents::acp::acp_environment;
use crate::agents::codex::binary::look_up;
use crate::config::{AcpConfig, AgentSettings, Config};
use crate::util::one_line;

/// Characters of a program's name that are shown.
const NAME: usize = 200;

/// Describes the program of each agent of kind `acp`.
pub(super) fn look(config: &Config, text: &mut String) {
    for (name, settings) in &config.agents.entries {
        let AgentSettings::Acp(acp) = settings else { continue };
        let environment = acp_environment(acp, acp.cwd.as_ref().unwrap_or(&acp.workspace));
        let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let found = look_up(&acp.command, path);
        let line = match &found {
            Some(program) => format!(
                "agent `{name}`: {} runs its turns, over the Agent Client Protocol; {}",
                program.display(),
                permission_words(acp),
            ),
            None => format!(
                "warning: agent `{name}`: the program {} is not there, or not in PATH; install it, or correct \
                 `agents.{name}.command` (the image of Talaria has no such programs, so such an agent runs on the host)",
                one_line(&acp.command, NAME),
            ),
        };
        let _ = write!(text, "\n{line}\n");
        for variable in acp.env_passthrough.iter().filter(|name| !environment.contains_key(OsStr::new(name)))
        {
            let _ =
                write!(text, "\nnote: agent `{name}`: the variable {variable} that it may have is not set\n");
        }
    }
}

/// What becomes of the agent's requests for permission.
fn permission_words(acp: &AcpConfig) -> String {
    match &acp.permissions {
        AppPermissions::Ask => "what it asks for, people decide".to_owned(),
        AppPermissions::Deny => "what it asks for is refused".to_owned(),
        AppPermissions::Allow(entries) => {
            format!("of what it asks for, {} kinds of commands are allowed", entries.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigSources;

    #[test]
    fn it_says_whether_the_program_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("talaria.yaml");
        let agents = "agents:\n  there: {command: sh}\n  gone: {command: /nowhere/agent, permissions: deny, \
                      env_passthrough: [NOT_SET_ANYWHERE]}\ndefault_agent: there\n";
        std::fs::write(&file, agents).unwrap();
        let home = folder.path().display().to_string();
        let sources = ConfigSources { config: Some(file), folder: folder.path().to_owned(), serve: false };
        let config = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap();
        let mut text = String::new();
        look(&config, &mut text);
        assert!(text.contains("agent `there`: /") && text.contains("people decide"), "{text}");
        assert!(text.contains("warning: agent `gone`: the program /nowhere/agent is not there"), "{text}");
        assert!(text.contains("NOT_SET_ANYWHERE"), "{text}");
    }
}
