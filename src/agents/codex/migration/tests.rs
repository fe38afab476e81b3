//! Tests of the migration, and the servers and files that they use.

mod arbitrary;
mod block;
mod clashes;
mod files;
mod servers;
mod shared;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml_edit::DocumentMut;

use super::*;
use crate::config::{
    BaseUrl, CodexConfig, McpSelection, McpServerConfig, McpTransport, ProfileSetting, Secret, ValueOrigin,
};
use crate::ids::AgentName;

/// A server that is a program with these arguments.
fn stdio(command: &str, args: &[&str]) -> McpServerConfig {
    server(McpTransport::Stdio {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: None,
    })
}

/// A server at this address.
fn http(url: &str) -> McpServerConfig {
    server(McpTransport::Http { url: BaseUrl::parse(url).unwrap(), headers: BTreeMap::new() })
}

fn server(transport: McpTransport) -> McpServerConfig {
    McpServerConfig {
        transport,
        enabled: true,
        connect_timeout: Duration::from_secs(30),
        timeout: Duration::from_secs(60),
        include: None,
        exclude: Vec::new(),
        permissions: BTreeMap::new(),
        origins: BTreeMap::new(),
    }
}

/// The server with a value of `env` or `headers`.
fn with_value(mut config: McpServerConfig, name: &str, value: &str, origin: ValueOrigin) -> McpServerConfig {
    let values = match &mut config.transport {
        McpTransport::Stdio { env, .. } => env,
        McpTransport::Http { headers, .. } => headers,
    };
    values.insert(name.to_owned(), Secret::from(value.to_owned()));
    config.origins.insert(name.to_owned(), origin);
    config
}

fn variable(name: &str) -> ValueOrigin {
    ValueOrigin::Variable(name.to_owned())
}

fn tools_server() -> ToolsServer {
    ToolsServer {
        program: PathBuf::from("/usr/bin/talaria"),
        home: PathBuf::from("/var/lib/talaria"),
        config: Some(PathBuf::from("/etc/talaria.yaml")),
    }
}

/// An agent of kind `codex` with all servers.
fn agent(name: &str, codex: &CodexConfig) -> MigratedAgent {
    let name = AgentName::new(name).unwrap();
    MigratedAgent { name, codex: codex.clone(), servers: McpSelection::All, is_switched: false }
}

fn wanting<'a>(servers: impl IntoIterator<Item = (&'a str, McpServerConfig)>) -> WantedEntries {
    let servers = servers.into_iter().map(|(name, config)| (name.to_owned(), config));
    WantedEntries { servers: servers.collect(), offered: McpSelection::All, ..WantedEntries::default() }
}

/// Every kind of entry.
fn wanting_all() -> WantedEntries {
    let plugins = PluginListing {
        curated: vec!["calendar@openai-curated".to_owned()],
        others: vec!["own@mine".to_owned()],
    };
    WantedEntries {
        tools_server: Some(tools_server()),
        plugins: PluginChoice::Listed(plugins),
        profile: Some(DEFAULT_PROFILE.to_owned()),
        ..wanting([("time", stdio("npx", &["-y", "some-server"]))])
    }
}

/// The planned file. It must not be an error.
fn planned(old: &str, wanted: &WantedEntries) -> String {
    let plan = MigrationPlan::make(old.as_bytes(), wanted);
    assert_eq!(plan.report.errors, [], "{old}");
    let new = String::from_utf8(plan.bytes).unwrap();
    new.parse::<DocumentMut>().unwrap_or_else(|error| panic!("{error}\n{new}"));
    new
}

/// The file without our part, by a migration that wants nothing.
fn removed(text: &str) -> String {
    planned(text, &WantedEntries::default())
}

fn sentences(report: &MigrationReport) -> String {
    let lines: Vec<_> = report.lines().iter().map(ToString::to_string).collect();
    lines.join("\n")
}
