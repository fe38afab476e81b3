//! Describes each MCP server: its state in the running gateway, and whether its program and its folder are there. Starts
//! none.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;

use rustix::fs::Access;

use crate::agents::mcp::{McpServerState, McpServerStatus};
use crate::config::{Config, McpServerConfig, McpTransport};

/// The servers of the running gateway.
pub(super) enum RunningServers<'a> {
    /// No gateway runs.
    NotRunning,
    /// A gateway runs; these are its servers.
    Known(&'a [McpServerStatus]),
    /// A gateway runs and did not answer, for this reason.
    Unknown(&'a str),
}

/// Describes the configured servers. A name without a folder is looked up in `path`.
pub(super) fn look(config: &Config, path: Option<&OsStr>, running: &RunningServers<'_>, text: &mut String) {
    for (name, server) in &config.mcp_servers {
        if !server.enabled {
            let _ = write!(text, "\nMCP server `{name}`: {}\n", McpServerState::Disabled.words());
            continue;
        }
        let (state, has_failed) = describe_state(name, running);
        let (origin, is_missing) = describe_origin(name, server, path);
        let mark = if has_failed || is_missing { "warning: " } else { "" };
        let _ = write!(text, "\n{mark}MCP server `{name}`: {state}; {origin}\n");
        if let McpTransport::Stdio { cwd: Some(cwd), .. } = &server.transport
            && !cwd.is_dir()
        {
            let _ =
                write!(text, "\nwarning: MCP server `{name}`: its folder {} is not there\n", cwd.display());
        }
    }
}

/// The state and the number of tools in words, and whether the server failed.
fn describe_state(name: &str, running: &RunningServers<'_>) -> (String, bool) {
    let servers = match running {
        RunningServers::NotRunning => return ("not running now".to_owned(), false),
        RunningServers::Unknown(why) => return (format!("its state is not known: {why}"), false),
        RunningServers::Known(servers) => servers,
    };
    let Some(status) = servers.iter().find(|status| status.name == name) else {
        return ("the talaria that runs does not know it; `talaria reload` tells it".to_owned(), false);
    };
    let tools = match status.tools {
        1 => "1 tool".to_owned(),
        tools => format!("{tools} tools"),
    };
    let state = status.state.words();
    match status.state.reason() {
        Some(reason) => (format!("{state} ({reason}), {tools}"), true),
        None => (format!("{state}, {tools}"), false),
    }
}

/// Where the server comes from in words, and whether that is missing.
fn describe_origin(name: &str, server: &McpServerConfig, path: Option<&OsStr>) -> (String, bool) {
    let McpTransport::Stdio { command, .. } = &server.transport else {
        return ("it is reached over HTTP".to_owned(), false);
    };
    match find_program(command, path) {
        Some(program) => (format!("its program is {}", program.display()), false),
        None => {
            let words = format!(
                "its program is not found; install it, or correct `mcp_servers.{name}.command` (a name is looked up in \
                 PATH)"
            );
            (words, true)
        }
    }
}

/// The program that would run: a path as it is, or the first in `PATH` with that name.
fn find_program(command: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let runs = |program: &PathBuf| program.is_file() && rustix::fs::access(program, Access::EXEC_OK).is_ok();
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(runs);
    }
    std::env::split_paths(path?).map(|folder| folder.join(command)).find(runs)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::agents::mcp::{McpFailure, McpFailureKind};
    use crate::config::ConfigSources;

    #[test]
    fn each_server_has_a_line_with_its_state_and_its_program() {
        let scene = tempfile::tempdir().unwrap();
        let at = |name: &str| scene.path().join(name);
        fs::create_dir_all(at("bin")).unwrap();
        fs::write(at("bin/server"), "").unwrap();
        fs::set_permissions(at("bin/server"), fs::Permissions::from_mode(0o700)).unwrap();
        let folder = scene.path().display().to_string();
        let yaml = format!(
            "agents:\n  a: {{kind: model, model: m, tools: [mcp]}}\nmcp_servers:\n  found: {{command: server}}\n  lost: \
             {{command: nowhere}}\n  off: {{command: nowhere, enabled: false}}\n  far: {{url: \
             'https://mcp.example.org/mcp'}}\n  placed: {{command: {folder}/bin/server, cwd: {folder}/gone}}\n"
        );
        fs::write(at("talaria.yaml"), yaml).unwrap();
        let sources = ConfigSources { folder: scene.path().to_owned(), ..ConfigSources::default() };
        let config =
            Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| folder.clone())).unwrap();
        let look = |running: &RunningServers<'_>| {
            let mut text = String::new();
            super::look(&config, Some(at("bin").as_os_str()), running, &mut text);
            text.replace(&folder, "DIR")
        };
        insta::assert_snapshot!(look(&RunningServers::NotRunning), @"
        MCP server `far`: not running now; it is reached over HTTP

        MCP server `found`: not running now; its program is DIR/bin/server

        warning: MCP server `lost`: not running now; its program is not found; install it, or correct `mcp_servers.lost.command` (a name is looked up in PATH)

        MCP server `off`: switched off

        MCP server `placed`: not running now; its program is DIR/bin/server

        warning: MCP server `placed`: its folder DIR/gone is not there
        ");

        let status = |name: &str, state, tools| McpServerStatus { name: name.to_owned(), state, tools };
        let reason = "it ended (exit status 3); it said: no key".to_owned();
        let servers = [
            status("far", McpServerState::Running, 1),
            status("found", McpServerState::Running, 11),
            status("lost", McpServerState::Failed(McpFailure { kind: McpFailureKind::Ended, reason }), 0),
        ];
        insta::assert_snapshot!(look(&RunningServers::Known(&servers)), @"
        MCP server `far`: runs, 1 tool; it is reached over HTTP

        MCP server `found`: runs, 11 tools; its program is DIR/bin/server

        warning: MCP server `lost`: failed (it ended (exit status 3); it said: no key), 0 tools; its program is not found; install it, or correct `mcp_servers.lost.command` (a name is looked up in PATH)

        MCP server `off`: switched off

        MCP server `placed`: the talaria that runs does not know it; `talaria reload` tells it; its program is DIR/bin/server

        warning: MCP server `placed`: its folder DIR/gone is not there
        ");
        let silent = look(&RunningServers::Unknown("it does not answer"));
        assert!(silent.contains("`far`: its state is not known: it does not answer;"), "{silent}");
    }
}
