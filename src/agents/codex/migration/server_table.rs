//! Translates an MCP server of ours into codex' table.
//!
//! Secrets are named and never copied: codex reads the variables from its own environment. A value that cannot be
//! named keeps the server out, because it would start without it. Tools that we ask about are asked about there, too:
//! codex alone would run those that call themselves read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use toml_edit::{Array, InlineTable, Table, Value};

use super::report::SkipReason;
use crate::config::{McpServerConfig, McpTransport, Secret, ToolPermission, ValueOrigin};

/// A server for codex.
#[derive(Debug)]
pub(super) struct ServerTable {
    pub table: Table,
    /// Variables that the server takes from codex' environment.
    pub variables: BTreeSet<String>,
    /// Keys of ours that codex has no place for.
    pub skipped: Vec<String>,
}

/// The table of a server of the configuration.
pub(super) fn server_table(config: &McpServerConfig) -> Result<ServerTable, SkipReason> {
    let mut table = Table::new();
    let values = match &config.transport {
        McpTransport::Stdio { command, args, env, cwd } => {
            table["command"] = text_value(command).into();
            if !args.is_empty() {
                table["args"] = text_array(args).into();
            }
            let values = ServerValues::of_env(config, env)?;
            insert_pairs(&mut table, "env", &values.literal);
            if !values.variables.is_empty() {
                table["env_vars"] = text_array(&values.variables).into();
            }
            if let Some(cwd) = cwd {
                table["cwd"] = path_text(cwd)?.into();
            }
            values
        }
        McpTransport::Http { url, headers } => {
            table["url"] = text_value(url.as_str()).into();
            let values = ServerValues::of_headers(config, headers)?;
            if let Some(variable) = &values.bearer {
                table["bearer_token_env_var"] = text_value(variable).into();
            }
            insert_pairs(&mut table, "http_headers", &values.literal);
            insert_pairs(&mut table, "env_http_headers", &values.named);
            values
        }
    };
    if !config.enabled {
        table["enabled"] = toml_edit::value(false);
    }
    table["startup_timeout_sec"] = seconds(config.connect_timeout).into();
    table["tool_timeout_sec"] = seconds(config.timeout).into();
    insert_tool_rules(&mut table, config)?;
    Ok(ServerTable { table, variables: values.variables, skipped: values.skipped })
}

/// Values of `env` or `headers`, by the way in which codex gets them.
#[derive(Default)]
struct ServerValues {
    /// Values that the file may hold.
    literal: BTreeMap<String, String>,
    /// Variables by the name of the header that carries them.
    named: BTreeMap<String, String>,
    /// The variable behind `Bearer`.
    bearer: Option<String>,
    /// All variables.
    variables: BTreeSet<String>,
    /// Keys that have no place. Only of a server that is off.
    skipped: Vec<String>,
}

impl ServerValues {
    fn of_env(config: &McpServerConfig, env: &BTreeMap<String, Secret>) -> Result<Self, SkipReason> {
        let mut values = Self::default();
        for (name, origin) in origins(config, env) {
            match origin {
                ValueOrigin::Literal => values.keep(name, env),
                ValueOrigin::Variable(variable) if variable == name => {
                    values.variables.insert(variable.clone());
                }
                ValueOrigin::Variable(_) => {
                    values.refuse(config, SkipReason::Renamed(shown_variable(name)))?
                }
                ValueOrigin::BearerVariable(_) | ValueOrigin::Composed => {
                    values.refuse(config, SkipReason::Composed(shown_variable(name)))?;
                }
                ValueOrigin::SecretLiteral => {
                    values.refuse(config, SkipReason::SecretLiteral(shown_variable(name)))?;
                }
            }
        }
        Ok(values)
    }

    fn of_headers(config: &McpServerConfig, headers: &BTreeMap<String, Secret>) -> Result<Self, SkipReason> {
        let mut values = Self::default();
        for (name, origin) in origins(config, headers) {
            match origin {
                ValueOrigin::Literal => values.keep(name, headers),
                ValueOrigin::Variable(variable) => {
                    values.variables.insert(variable.clone());
                    values.named.insert(name.to_owned(), variable.clone());
                }
                ValueOrigin::BearerVariable(variable) if name.eq_ignore_ascii_case("authorization") => {
                    values.variables.insert(variable.clone());
                    values.bearer = Some(variable.clone());
                }
                ValueOrigin::BearerVariable(_) | ValueOrigin::Composed => {
                    values.refuse(config, SkipReason::Composed(shown_header(name)))?;
                }
                ValueOrigin::SecretLiteral => {
                    values.refuse(config, SkipReason::SecretLiteral(shown_header(name)))?;
                }
            }
        }
        Ok(values)
    }

    fn keep(&mut self, name: &str, values: &BTreeMap<String, Secret>) {
        if let Some(value) = values.get(name) {
            self.literal.insert(name.to_owned(), value.expose().to_owned());
        }
    }

    /// Notes a value without a place. Only a server that is off can do without it.
    fn refuse(&mut self, config: &McpServerConfig, reason: SkipReason) -> Result<(), SkipReason> {
        match (config.enabled, &reason) {
            (
                false,
                SkipReason::Renamed(key) | SkipReason::Composed(key) | SkipReason::SecretLiteral(key),
            ) => {
                self.skipped.push(key.clone());
                Ok(())
            }
            _ => Err(reason),
        }
    }
}

/// Each value with its source. One whose source is unknown counts as a secret.
fn origins<'a>(
    config: &'a McpServerConfig,
    values: &'a BTreeMap<String, Secret>,
) -> impl Iterator<Item = (&'a str, &'a ValueOrigin)> {
    let unknown = values.keys().filter(|name| !config.origins.contains_key(*name));
    let unknown = unknown.map(|name| (name.as_str(), &ValueOrigin::SecretLiteral));
    config.origins.iter().map(|(name, origin)| (name.as_str(), origin)).chain(unknown)
}

/// The key for people. A name that might be a secret in the wrong place is left out.
fn shown_variable(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if name.bytes().all(plain) { format!("env.{name}") } else { "env".to_owned() }
}

/// The key of a header for people. A name that might be a secret in the wrong place is left out.
fn shown_header(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
    if name.bytes().all(plain) { format!("headers.{name}") } else { "headers".to_owned() }
}

/// Writes the tools that are offered, and which of them are asked about.
fn insert_tool_rules(table: &mut Table, config: &McpServerConfig) -> Result<(), SkipReason> {
    let with = |wanted: ToolPermission| {
        config.permissions.iter().filter(move |(_, may)| **may == wanted).map(|(tool, _)| tool.as_str())
    };
    let mut disabled: BTreeSet<&str> = config.exclude.iter().map(String::as_str).collect();
    disabled.extend(with(ToolPermission::Deny));
    let include = config.include.as_ref().map(|include| {
        include.iter().map(String::as_str).filter(|tool| !disabled.contains(tool)).collect::<BTreeSet<_>>()
    });
    // codex drops an empty list when it writes its file again, and then offers every tool.
    if include.as_ref().is_some_and(BTreeSet::is_empty) {
        return Err(SkipReason::NoTools);
    }
    table["default_tools_approval_mode"] = text_value("prompt").into();
    let is_offered = |tool: &str| {
        !disabled.contains(tool) && include.as_ref().is_none_or(|include| include.contains(tool))
    };
    let mut rules = InlineTable::new();
    for tool in with(ToolPermission::Allow).filter(|tool| is_offered(tool)) {
        let rule = InlineTable::from_iter([("approval_mode", text_value("approve"))]);
        rules.insert(tool, Value::InlineTable(rule));
    }
    if let Some(include) = &include {
        table["enabled_tools"] = text_array(include).into();
    }
    if !disabled.is_empty() {
        table["disabled_tools"] = text_array(&disabled).into();
    }
    if !rules.is_empty() {
        table["tools"] = Value::InlineTable(rules).into();
    }
    Ok(())
}

fn insert_pairs(table: &mut Table, key: &str, pairs: &BTreeMap<String, String>) {
    if !pairs.is_empty() {
        table[key] =
            inline_table(pairs.iter().map(|(name, value)| (name.as_str(), text_value(value)))).into();
    }
}

pub(super) fn inline_table<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::InlineTable(InlineTable::from_iter(pairs))
}

pub(super) fn text_array(values: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::Array(values.into_iter().map(|value| text_value(value.as_ref())).collect::<Array>())
}

pub(super) fn path_text(path: &Path) -> Result<Value, SkipReason> {
    path.to_str().map(text_value).ok_or(SkipReason::OddPath)
}

/// A text on one line. Control characters are escaped: toml_edit alone writes a text with line breaks on several lines.
pub(super) fn text_value(value: &str) -> Value {
    if !value.contains(char::is_control) {
        return Value::from(value);
    }
    let mut written = String::from('"');
    for letter in value.chars() {
        match letter {
            '"' | '\\' => written.extend(['\\', letter]),
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            letter if letter.is_control() => written.push_str(&format!("\\u{:04X}", u32::from(letter))),
            letter => written.push(letter),
        }
    }
    written.push('"');
    written.parse().unwrap_or_else(|_| Value::from(value))
}

/// A length of time, as whole seconds where it is.
fn seconds(span: Duration) -> Value {
    match (span.subsec_nanos(), i64::try_from(span.as_secs())) {
        (0, Ok(seconds)) => Value::from(seconds),
        (_, _) => Value::from(span.as_secs_f64()),
    }
}
