//! Checks what the tools of agents need: folders and the sandbox. Changes nothing, and starts nothing but the trial of
//! the sandbox.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rustix::fs::Access;

use super::can_be_made;
use crate::agents::process::sandbox::SandboxState;
use crate::config::{AgentSettings, BuiltinTool, Config, ModelConfig};
use crate::ids::AgentName;

/// Describes what the tools of the configured agents find on this machine. Returns problems that would fail the start.
/// `sandbox` is called only if an agent has the terminal.
pub(super) fn look<'a>(
    config: &Config,
    sandbox: impl FnOnce() -> &'a SandboxState,
    text: &mut String,
) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    for (name, model) in models(config) {
        if let Some(workspace) = &model.workspace {
            wrong.extend(look_at_workspace(name, workspace, text));
        }
    }
    if has_tool(config, BuiltinTool::Skills) {
        let folder = config.skills_dir.display();
        let _ = match count_skills(&config.skills_dir) {
            Some(1) => write!(text, "\nskills: 1 file in {folder}\n"),
            Some(count) => write!(text, "\nskills: {count} files in {folder}\n"),
            None => write!(text, "\nnote: the folder of the skills {folder} is not there yet\n"),
        };
    }
    if has_tool(config, BuiltinTool::Terminal) {
        let sandbox = sandbox();
        let warning = if sandbox.is_on() { "" } else { "warning: " };
        _ = write!(text, "\n{warning}{}\n", sandbox.describe());
    }
    wrong
}

fn look_at_workspace(name: &AgentName, workspace: &Path, text: &mut String) -> Option<(String, String)> {
    let shown = workspace.display();
    let hint = || format!("correct `agents.{name}.workspace`, or make that folder and give it to this user");
    if !workspace.exists() {
        if !can_be_made(workspace) {
            return Some((format!("the workspace {shown} of the agent `{name}` cannot be made"), hint()));
        }
        let _ = write!(
            text,
            "\nnote: the workspace {shown} of the agent `{name}` is not there yet; it will be made\n"
        );
        return None;
    }
    let usable = rustix::fs::access(workspace, Access::READ_OK | Access::EXEC_OK).is_ok();
    if usable && rustix::fs::access(workspace, Access::WRITE_OK).is_err() {
        let _ = write!(
            text,
            "\nwarning: the workspace {shown} of the agent `{name}` cannot be written to by this user\n"
        );
    }
    (!usable).then(|| (format!("the workspace {shown} of the agent `{name}` cannot be read"), hint()))
}

/// Number of Markdown files in the folder and one level below it; `None` if there is no folder.
fn count_skills(folder: &Path) -> Option<usize> {
    let is_skill = |path: &Path| path.extension().is_some_and(|ending| ending == "md") && path.is_file();
    let files = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    if !folder.is_dir() {
        return None;
    }
    let (folders, plain): (Vec<_>, Vec<_>) = files(folder).into_iter().partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| files(folder));
    Some(plain.into_iter().chain(below).filter(|path| is_skill(path)).count())
}

fn has_tool(config: &Config, tool: BuiltinTool) -> bool {
    models(config).any(|(_, model)| model.tools.contains(&tool))
}

fn models(config: &Config) -> impl Iterator<Item = (&AgentName, &ModelConfig)> {
    config.agents.entries.iter().filter_map(|(name, settings)| match settings {
        AgentSettings::Model(model) => Some((name, model)),
        AgentSettings::Proxy(_) | AgentSettings::Codex(_) | AgentSettings::Acp(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigSources;

    #[test]
    fn it_says_what_the_tools_find() {
        let scene = tempfile::tempdir().unwrap();
        let at = |name: &str| scene.path().join(name);
        for folder in ["home/skills/deploy", "there"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["home/skills/deploy/SKILL.md", "home/skills/mail.md", "home/skills/notes.txt"] {
            fs::write(at(file), "").unwrap();
        }
        fs::write(at("file"), "").unwrap();
        let folder = scene.path().display().to_string();
        let yaml = format!(
            "agents:\n  a: {{kind: model, model: m, tools: [terminal, skills], workspace: {folder}/there}}\n  b: {{kind: \
             model, model: m, tools: [read_file], workspace: {folder}/later}}\n  c: {{kind: model, model: m, tools: \
             [read_file], workspace: {folder}/file/x}}\ndefault_agent: a\n"
        );
        fs::write(at("talaria.yaml"), yaml).unwrap();
        let sources = ConfigSources { folder: scene.path().to_owned(), ..ConfigSources::default() };
        let home = at("home").display().to_string();
        let config = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap();
        let look = |sandbox: &SandboxState| {
            let mut text = String::new();
            let wrong = super::look(&config, || sandbox, &mut text);
            let problem = wrong.iter().map(|(problem, hint)| format!("error: {problem}\nhint: {hint}\n"));
            format!("{text}\n{}", problem.collect::<String>()).replace(&folder, "DIR")
        };
        insta::assert_snapshot!(look(&SandboxState::Bwrap("/usr/bin/bwrap".into())), @"
        note: the workspace DIR/later of the agent `b` is not there yet; it will be made

        skills: 2 files in DIR/home/skills

        commands of the terminal are sandboxed with /usr/bin/bwrap

        error: the workspace DIR/file/x of the agent `c` cannot be made
        hint: correct `agents.c.workspace`, or make that folder and give it to this user
        ");
        let without = look(&SandboxState::Missing);
        assert!(without.contains("\nwarning: commands of the terminal are not sandboxed"), "{without}");
        let broken = look(&SandboxState::NotWorking("no namespaces".into()));
        assert!(broken.contains("bwrap does not work here (no namespaces)"), "{broken}");
    }

    #[test]
    fn without_a_terminal_no_sandbox_is_tried() {
        let scene = tempfile::tempdir().unwrap();
        let sources = ConfigSources { folder: scene.path().to_owned(), ..ConfigSources::default() };
        let home = scene.path().display().to_string();
        let config = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap();
        let wrong = look(&config, || panic!("it was tried"), &mut String::new());
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
