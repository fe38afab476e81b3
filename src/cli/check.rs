//! `talaria check`: shows what would run, what is wrong, and which people were refused.

mod acp;
mod codex;
mod mcp_servers;
mod serving;
mod tools;
mod upstream;

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::Access;
use talaria_platform::{AccountId, UserId};

use self::mcp_servers::RunningServers;
use self::upstream::UpstreamFinding;
use super::table::{length, moment};
use super::{complain_of, print};
use crate::access::{AccessAction, Actor, PlaceKind};
use crate::agents::process::sandbox::SandboxState;
use crate::config::{AgentSettings, Config, ConfigError, ConfigSources};
use crate::control::api::{GatewayStatus, RefusedList};
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::{CommandError, refused_list};
use crate::gateway::plan::{self, RunMode};
use crate::ids::AgentName;
use crate::state_dir::StateDir;
use crate::store::{RefusedRow, look};

/// Prints what would run. Changes nothing, and starts nothing but a trial of the sandbox and `codex --version`: a running gateway is
/// asked, a stopped one's database is only read. Fails if the gateway would not start, or would leave every message unanswered.
pub fn run(config: &Config, sources: &ConfigSources) -> ExitCode {
    let mut text = if sources.serve { config.describe_serving() } else { config.describe() };
    let mut wrong = look_around(config, sources.serve, &mut text);
    wrong.extend(tools::look(config, SandboxState::detect, &mut text));
    // Asked at most once, and only if somebody wants to know.
    let gateway = LazyCell::new(|| ask_gateway(config, sources));
    look_at_servers(config, &gateway, &mut text);
    codex::look(config, sources, &mut text);
    acp::look(config, &mut text);
    if !sources.serve {
        let problems = config.platforms.iter().filter_map(|(name, platform)| {
            let ConfigError { message, hint } = platform.settings().start_problem(name.as_str())?;
            Some((message, hint.unwrap_or_default()))
        });
        wrong.extend(problems);
    }
    match look_at_home(&config.home).and_then(|note| Ok((note, look_for_people(config, &gateway)?))) {
        Ok((note, found)) => {
            if let Some(note) = note {
                let _ = write!(text, "\nnote: {note}\n");
            }
            match found {
                Ok(found) => text.push_str(&found),
                Err(why) => {
                    let _ = write!(text, "\nnote: who was turned away is not known: {why}\n");
                }
            }
        }
        Err((message, hint)) => wrong.push((message, hint.to_owned())),
    }
    let printed = print(&text);
    complain_of(wrong.iter().map(|(message, hint)| (message.as_str(), Some(hint.as_str()))));
    if wrong.is_empty() { printed } else { ExitCode::FAILURE }
}

/// A problem and its hint.
type CheckFailure = (String, &'static str);

/// Checks that every remote agent server is reachable, and that our own could be served. Returns problems that
/// would certainly fail the start; problems that may be gone by then are only printed.
fn look_around(config: &Config, serve: bool, text: &mut String) -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let mut wrong = Vec::new();
    runtime.block_on(async {
        for (name, settings) in &config.agents.entries {
            let AgentSettings::Proxy(proxy) = settings else { continue };
            let (who, setting) = match *name == AgentName::proxy() {
                true => {
                    ("remote agent server".to_owned(), "`GATEWAY_PROXY_URL` (`gateway.proxy_url`)".to_owned())
                }
                false => (format!("agent `{name}`"), format!("`agents.{name}.url`")),
            };
            match upstream::look(proxy, &setting).await {
                UpstreamFinding::Well(words) => _ = write!(text, "\n{who}: {words}\n"),
                UpstreamFinding::Trouble(words) => _ = write!(text, "\nwarning: {who}: {words}\n"),
                UpstreamFinding::Refused { message, hint } => {
                    wrong.push((format!("{who}: {message}"), hint));
                }
            }
        }
        // A running gateway holds its port already.
        if let Some(server) = &config.server
            && StateDir::holder(&config.home).is_none()
        {
            // A chat in the terminal runs without the agent server, unless the configuration asks for one.
            let mode = if serve { RunMode::Serve } else { RunMode::Run };
            let needed = plan::serves(config, mode).is_some_and(|serve| serve.needed);
            for (message, hint) in serving::troubles(server, &config.home).await {
                match needed {
                    true => wrong.push((message, hint.to_owned())),
                    false => _ = write!(text, "\nwarning: {message}; {hint}\n"),
                }
            }
        }
    });
    // A pending DNS lookup must not hold us.
    runtime.shutdown_background();
    wrong
}

/// Checks that the state folder can be used; returns a note about it.
fn look_at_home(home: &Path) -> Result<Option<String>, CheckFailure> {
    let Ok(metadata) = std::fs::metadata(home) else {
        if !can_be_made(home) {
            return Err((
                format!("the state folder {} is not there and cannot be made", home.display()),
                "set TALARIA_HOME to a folder of yours",
            ));
        }
        return Ok(Some(format!("the state folder {} is not there yet; it will be made", home.display())));
    };
    if !metadata.is_dir() {
        return Err((
            format!("the state folder {} is not a folder", home.display()),
            "set TALARIA_HOME to a folder of yours",
        ));
    }
    if rustix::fs::access(home, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Err((
            format!("the state folder {} cannot be written to by this user", home.display()),
            "change its owner or its rights, or set TALARIA_HOME to a folder of yours",
        ));
    }
    Ok((!crate::control::fits(home)).then(|| {
        format!(
            "the path {} is too long for a control socket, so `talaria status` and the like will not reach a \
             running talaria; set TALARIA_HOME to a shorter one",
            home.display()
        )
    }))
}

/// Describes refused people, or why they are not known: asks a running process, else reads its database. A
/// database that would have to be migrated first is left alone.
fn look_for_people(
    config: &Config,
    gateway: &LazyAnswer<impl FnOnce() -> GatewayAnswer>,
) -> Result<Result<String, String>, CheckFailure> {
    // Only the running process may open the database. If none runs, the lock keeps one from starting while we
    // read.
    let Ok(_lock) = StateDir::look_at(&config.home) else {
        return Ok(match &**gateway {
            Ok((status, refused)) => Ok(describe_running(config, status, refused)),
            Err(why) => Err(why.clone()),
        });
    };
    let database = StateDir::database_of(&config.home);
    if !database.exists() {
        return Ok(Ok(String::new()));
    }
    let list = look(&database, refused_list).map_err(|error| (error.to_string(), error.hint()))?;
    Ok(match list {
        Some(Ok(list)) => Ok(describe_refused(config, &list)),
        Some(Err(error)) => Err(error.to_string()),
        None => Ok(String::new()),
    })
}

/// The answer of the running gateway, or why there is none.
type GatewayAnswer = Result<(GatewayStatus, RefusedList), String>;

/// An answer that is asked for when it is first needed.
type LazyAnswer<F> = LazyCell<GatewayAnswer, F>;

/// Asks the running gateway how things are, and which people it refused.
fn ask_gateway(config: &Config, sources: &ConfigSources) -> GatewayAnswer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async {
        let client = ControlClient::open(&config.home, sources, CommandNeed::Running).await?;
        Ok((client.get("/status").await?, client.get("/refused").await?))
    });
    asked.map_err(|problem: CommandError| {
        problem.complaints.first().map(|complaint| complaint.message.clone()).unwrap_or_default()
    })
}

/// Describes the MCP servers, with their states in the running gateway.
fn look_at_servers(config: &Config, gateway: &LazyAnswer<impl FnOnce() -> GatewayAnswer>, text: &mut String) {
    if config.mcp_servers.is_empty() {
        return;
    }
    let running = match StateDir::holder(&config.home) {
        None => RunningServers::NotRunning,
        Some(_) => match &**gateway {
            Ok((status, _)) => RunningServers::Known(&status.mcp_servers),
            Err(why) => RunningServers::Unknown(why),
        },
    };
    mcp_servers::look(config, std::env::var_os("PATH").as_deref(), &running, text);
}

/// Describes a running gateway and the people that it refused.
fn describe_running(config: &Config, status: &GatewayStatus, refused: &RefusedList) -> String {
    let GatewayStatus { pid, uptime_seconds, .. } = status;
    let mut text = format!("\nrunning        process {pid}, for {}\n", length(*uptime_seconds));
    text.push_str(&describe_refused(config, refused));
    text
}

/// Lists people who would still be refused, each once, with the line that lets them in.
fn describe_refused(config: &Config, list: &RefusedList) -> String {
    let mut people: BTreeMap<(&str, &str), (usize, i64)> = BTreeMap::new();
    for one in list.refused.iter().filter(|one| is_refused(config, list, one)) {
        let (times, last) = people.entry((&one.account, &one.actor)).or_default();
        *times += one.times;
        *last = one.last.max(*last);
    }
    let mut text = String::new();
    for ((account, actor), (times, last)) in people {
        // A JSON string is also YAML, with any character in the id, and stays on its line.
        let quoted = serde_json::to_string(actor).unwrap_or_default();
        let quoted: String = quoted.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let rules = config.rules.account(&AccountId::from(account));
        let code = match rules.access.pairs() {
            true => "run `talaria pairing approve CODE` with the code they were shown, or ",
            false => "",
        };
        let variable = match rules.people_variable {
            Some(variable) => format!(" (or to {variable}, which wins where it is set, and restart)"),
            None => String::new(),
        };
        let _ = write!(
            text,
            "\nrefused: {quoted} wrote {times} (last {} UTC) and is on no list. To let them in, {code}add below \
             `platforms.{account}.access.people`{variable}:\n      - {quoted}\n",
            moment(last)
        );
    }
    text
}

/// Whether this configuration would refuse a person only because no list names them.
fn is_refused(config: &Config, list: &RefusedList, one: &RefusedRow) -> bool {
    let account = AccountId::from(one.account.as_str());
    // A terminal has no lists, and neither has an account that is no longer configured.
    let Some(rules) = config.rules.accounts.get(&account) else { return false };
    let person = UserId::from(one.actor.as_str());
    let paired = list.paired.iter().any(|(account, actor)| *account == one.account && *actor == one.actor);
    let actor = Actor { paired, ..Actor::known(&person) };
    let place = PlaceKind::from(one.place == "direct");
    !rules.access.authorize(actor, place, AccessAction::Message).allowed
}

/// Whether this folder can be created, with the missing folders above it.
fn can_be_made(folder: &Path) -> bool {
    let there = folder.ancestors().skip(1).find(|above| above.exists());
    // A relative path begins in the current folder.
    let there = there.unwrap_or(Path::new("."));
    there.is_dir() && rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}
