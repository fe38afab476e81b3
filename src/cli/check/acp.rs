//! Checks what agents of kind `acp` need: the program, its settings, and a login in its variables. Starts nothing: some
//! agents talk to their servers when they start.

mod recipes;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use self::recipes::{AgentRecipe, RECIPES};
use crate::access::AppPermissions;
use crate::agents::acp::acp_environment;
use crate::agents::codex::binary::look_up;
use crate::config::{AcpConfig, AgentSettings, Config};
use crate::util::one_line;

/// Characters of a program's name that are shown.
const NAME: usize = 200;

/// Describes the program of each agent of kind `acp`, and what it lacks.
pub(super) fn look(config: &Config, text: &mut String) {
    let (mut is_any, mut is_unknown_missing) = (false, false);
    for (name, settings) in &config.agents.entries {
        let AgentSettings::Acp(acp) = settings else { continue };
        is_any = true;
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
        match AgentRecipe::of(acp) {
            Some(recipe) => {
                let _ = write!(text, "\nnote: agent `{name}`: it looks like {recipe}\n");
                for missing in recipe.missing(name.as_str(), acp) {
                    let _ = write!(text, "\nwarning: agent `{name}`: {missing}\n");
                }
            }
            None => is_unknown_missing |= found.is_none(),
        }
        for variable in acp.env_passthrough.iter().filter(|name| !environment.contains_key(OsStr::new(name)))
        {
            let _ =
                write!(text, "\nnote: agent `{name}`: the variable {variable} that it may have is not set\n");
        }
    }
    if is_unknown_missing {
        text.push_str("\nnote: agents that are known to work over ACP:\n");
        RECIPES.iter().for_each(|recipe| _ = writeln!(text, "  {recipe}"));
    }
    if is_any {
        let _ = write!(
            text,
            "\nnote: agents over ACP run as your user, without a sandbox of Talaria's: they and their commands can read what \
             you can, also {} with the owner's key and what was said. Where that matters, run the agent server as a user of \
             its own\n",
            config.home.display()
        );
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

    fn looked(agents: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("talaria.yaml");
        std::fs::write(&file, agents).unwrap();
        let home = folder.path().display().to_string();
        let sources = ConfigSources { config: Some(file), folder: folder.path().to_owned(), serve: false };
        let config = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap();
        let mut text = String::new();
        look(&config, &mut text);
        text.replace(&home, "HOME")
    }

    #[test]
    fn it_says_whether_the_program_is_there() {
        let text = looked(
            "agents:\n  there: {command: sh}\n  gone: {command: /nowhere/agent, permissions: deny, \
             env_passthrough: [NOT_SET_ANYWHERE]}\ndefault_agent: there\n",
        );
        assert!(text.contains("agent `there`: /") && text.contains("people decide"), "{text}");
        assert!(text.contains("warning: agent `gone`: the program /nowhere/agent is not there"), "{text}");
        assert!(text.contains("NOT_SET_ANYWHERE"), "{text}");
        for known in ["claude", "codex-acp", "opencode", "gemini"] {
            assert!(text.contains(&format!("\n  {known}: `npm install -g ")), "{text}");
        }
    }

    #[test]
    fn a_known_agent_has_its_recipe_alone_and_says_what_its_entry_lacks() {
        let text = looked("agents:\n  coder: {command: /nowhere/opencode}\n");
        assert!(
            text.contains("note: agent `coder`: it looks like opencode: `npm install -g opencode-ai`"),
            "{text}"
        );
        assert!(text.contains("warning: agent `coder`: without an argument it does not speak ACP"), "{text}");
        assert!(!text.contains("gemini"), "{text}");
        let text = looked("agents:\n  coder: {command: sh}\n");
        assert!(!text.contains("npm install"), "{text}");
    }

    #[test]
    fn what_an_agent_can_read_is_said_once_and_only_where_there_is_one() {
        let text = looked("agents:\n  one: {command: sh}\n  two: {command: cat}\ndefault_agent: one\n");
        assert_eq!(
            text.matches("can read what you can, also HOME with the owner's key").count(),
            1,
            "{text}"
        );
        assert_eq!(looked("{}\n"), "");
    }
}
