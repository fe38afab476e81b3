//! What the known ACP agents need: how to install them, and what to set. `.github/docs/acp.md` has the same. Pure.

use std::fmt;
use std::path::Path;

use crate::config::AcpConfig;

/// An agent that was driven over the protocol.
pub struct AgentRecipe {
    /// Its name.
    pub name: &'static str,
    /// Names by which it is known among the words of a command: programs, and the last parts of packages.
    known_by: &'static [&'static str],
    /// The program that speaks the protocol.
    program: &'static str,
    /// The command that installs it.
    install: &'static str,
    /// How it gets at a model.
    login: &'static str,
    /// The argument without which it speaks no ACP.
    argument: Option<&'static str>,
    /// A variable that it needs, with its value and the reason.
    variable: Option<(&'static str, &'static str, &'static str)>,
    /// Whether it opens conversations again, as it says.
    loads: bool,
    /// A setting elsewhere.
    elsewhere: Option<&'static str>,
}

/// All of them, in the order of `.github/docs/acp.md`.
pub const RECIPES: [AgentRecipe; 4] = [
    AgentRecipe {
        name: "claude",
        known_by: &["claude", "claude-agent-acp"],
        program: "claude-agent-acp",
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        login: "`claude` logged in, or ANTHROPIC_API_KEY in `env_passthrough`",
        argument: None,
        variable: None,
        loads: true,
        elsewhere: None,
    },
    AgentRecipe {
        name: "codex-acp",
        known_by: &["codex-acp"],
        program: "codex-acp",
        install: "npm install -g @agentclientprotocol/codex-acp",
        login: "`codex login`",
        argument: None,
        variable: Some(("INITIAL_AGENT_MODE", "read-only", "otherwise a model decides about approvals")),
        loads: true,
        elsewhere: None,
    },
    AgentRecipe {
        name: "opencode",
        known_by: &["opencode", "opencode-ai"],
        program: "opencode",
        install: "npm install -g opencode-ai",
        login: "`opencode auth login`",
        argument: Some("acp"),
        variable: None,
        loads: true,
        elsewhere: Some(
            r#"`"permission": {"bash": "ask", "edit": "ask"}` in its opencode.json, so that it asks"#,
        ),
    },
    AgentRecipe {
        name: "gemini",
        known_by: &["gemini", "gemini-cli"],
        program: "gemini",
        install: "npm install -g @google/gemini-cli",
        login: "a login, or GEMINI_API_KEY in `env_passthrough`",
        argument: Some("--experimental-acp"),
        variable: Some(("GEMINI_CLI_NO_RELAUNCH", "true", "otherwise it starts itself once more")),
        loads: false,
        elsewhere: None,
    },
];

/// Packages of others whose program has the name of one above and that need nothing of its settings.
const OTHERS: [&str; 1] = ["@zed-industries"];

impl AgentRecipe {
    /// The agent that a command starts, also through `npx` or `node`; `None` if nobody here knows it.
    pub fn of(acp: &AcpConfig) -> Option<&'static Self> {
        let parts: Vec<&str> =
            std::iter::once(&acp.command).chain(&acp.args).flat_map(|word| word.split('/')).collect();
        if parts.iter().any(|part| OTHERS.contains(part)) {
            return None;
        }
        // A package may have a version behind it.
        let names = |part: &&str| part.split_once('@').map_or(*part, |(name, _)| name).to_owned();
        let parts: Vec<String> = parts.iter().map(names).collect();
        RECIPES.iter().find(|recipe| parts.iter().any(|part| recipe.known_by.contains(&part.as_str())))
    }

    /// What is missing in the entry of an agent, each in a sentence.
    pub fn missing(&self, name: &str, acp: &AcpConfig) -> Vec<String> {
        let mut missing = Vec::new();
        // The program that people know is not always the one that speaks the protocol.
        let program = Path::new(&acp.command).file_name().unwrap_or_default();
        if program == self.name && self.name != self.program {
            missing.push(format!(
                "`{}` itself does not speak ACP; set `agents.{name}.command: {}`",
                self.name, self.program
            ));
        }
        if let Some(argument) = self.argument
            // Some versions call it `--acp`.
            && !acp.args.iter().any(|word| word.ends_with("acp"))
        {
            missing.push(format!(
                "without an argument it does not speak ACP; set `agents.{name}.args: [{argument}]`"
            ));
        }
        if let Some((variable, value, reason)) = self.variable
            && !acp.env.contains_key(variable)
            && !acp.env_passthrough.iter().any(|passed| passed == variable)
        {
            missing.push(format!("set `agents.{name}.env: {{{variable}: \"{value}\"}}`; {reason}"));
        }
        if acp.load && !self.loads {
            missing.push(format!(
                "it says that it opens conversations again, and then does not; set `agents.{name}.load: false`"
            ));
        }
        missing
    }
}

impl fmt::Display for AgentRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`, and {}; `command: {}`", self.name, self.install, self.login, self.program)?;
        if let Some(argument) = self.argument {
            write!(f, ", `args: [{argument}]`")?;
        }
        if let Some((variable, value, _)) = self.variable {
            write!(f, ", `env: {{{variable}: \"{value}\"}}`")?;
        }
        if !self.loads {
            write!(f, ", `load: false`")?;
        }
        self.elsewhere.map_or(Ok(()), |elsewhere| write!(f, "; {elsewhere}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn acp(words: &[&str]) -> AcpConfig {
        let mut acp = AcpConfig::new(words[0], "/work".into());
        acp.args = words[1..].iter().map(|word| (*word).to_owned()).collect();
        acp
    }

    #[test]
    fn an_agent_is_known_however_it_is_started() {
        for (words, name) in [
            (&["codex-acp"][..], Some("codex-acp")),
            (&["/usr/local/bin/opencode", "acp"], Some("opencode")),
            (&["npx", "-y", "@agentclientprotocol/claude-agent-acp@0.99.1"], Some("claude")),
            (&["node", "/srv/node_modules/@google/gemini-cli/dist/index.js"], Some("gemini")),
            (&["npx", "opencode-ai@latest", "acp"], Some("opencode")),
            (&["npx", "@zed-industries/codex-acp"], None),
            (&["my-codex-acp-like-thing"], None),
            (&["sh", "-c", "true"], None),
        ] {
            assert_eq!(AgentRecipe::of(&acp(words)).map(|recipe| recipe.name), name, "{words:?}");
        }
    }

    #[test]
    fn what_an_entry_lacks_is_said_with_the_line_to_write() {
        let missing = |acp: &AcpConfig| AgentRecipe::of(acp).unwrap().missing("x", acp).join("\n");
        assert!(missing(&acp(&["claude"])).contains("`agents.x.command: claude-agent-acp`"));
        assert!(missing(&acp(&["opencode"])).contains("`agents.x.args: [acp]`"));
        assert_eq!(missing(&acp(&["claude-agent-acp"])), "");
        assert_eq!(missing(&acp(&["opencode", "acp"])), "");
        let mut codex = acp(&["codex-acp"]);
        assert!(missing(&codex).contains(r#"`agents.x.env: {INITIAL_AGENT_MODE: "read-only"}`"#));
        codex.env.insert("INITIAL_AGENT_MODE".to_owned(), Secret::from("read-only".to_owned()));
        assert_eq!(missing(&codex), "");
        let mut gemini = acp(&["gemini", "--acp"]);
        gemini.env_passthrough.push("GEMINI_CLI_NO_RELAUNCH".to_owned());
        assert!(missing(&gemini).contains("`agents.x.load: false`"));
        gemini.load = false;
        assert_eq!(missing(&gemini), "");
    }

    #[test]
    fn the_documentation_has_the_same() {
        let page = include_str!("../../../../.github/docs/acp.md");
        for recipe in RECIPES {
            for words in [recipe.install, recipe.program].into_iter().chain(recipe.argument) {
                assert!(page.contains(words), "{words}");
            }
            if let Some((variable, value, _)) = recipe.variable {
                let shown = page.lines().any(|line| line.contains(variable) && line.contains(value));
                assert!(shown, "{variable}");
            }
            assert!(recipe.loads || page.contains("load: false"), "{}", recipe.name);
        }
    }
}
