//! `talaria check`: what would run, what is wrong, and who was turned away.

mod serving;
mod upstream;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::Access;
use talaria_platform::{AccountId, UserId};

use self::upstream::UpstreamFinding;
use super::table::{length, moment};
use super::{complain_of, print};
use crate::access::{AccessAction, Actor, PlaceKind};
#[cfg(feature = "matrix")]
use crate::config::PlatformConfig;
use crate::config::{AgentChoice, Config, ConfigSources};
use crate::control::api::{GatewayStatus, RefusedList};
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::{CommandError, refused_list};
use crate::platforms::{self, RunMode};
use crate::state_dir::StateDir;
use crate::store::{RefusedRow, look};

/// Says what would run. Starts nothing and changes nothing: what runs is asked, and what does not is only read. Fails
/// if it would not start, or would leave every message unanswered.
pub fn run(config: &Config, sources: &ConfigSources) -> ExitCode {
    let mut text = if sources.serve { config.describe_serving() } else { config.describe() };
    let mut wrong = look_around(config, sources.serve, &mut text);
    #[cfg(feature = "matrix")]
    if !sources.serve {
        wrong.extend(config.platforms.iter().filter_map(|(name, platform)| cannot_log_in(name, platform)));
    }
    match look_at_home(&config.home).and_then(|note| Ok((note, look_for_people(config, sources)?))) {
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

/// What is wrong, and what to do about it.
type CheckFailure = (String, &'static str);

/// Whether the remote agent server is there, and whether our own could be served. What would certainly fail is returned,
/// what may be otherwise by then is only said.
fn look_around(config: &Config, serve: bool, text: &mut String) -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let mut wrong = Vec::new();
    runtime.block_on(async {
        if let AgentChoice::Proxy(proxy, _) = &config.agent {
            match upstream::look(proxy).await {
                UpstreamFinding::Well(words) => _ = write!(text, "\nremote agent server: {words}\n"),
                UpstreamFinding::Trouble(words) => {
                    _ = write!(text, "\nwarning: remote agent server: {words}\n")
                }
                UpstreamFinding::Refused { message, hint } => {
                    wrong.push((format!("remote agent server: {message}"), hint));
                }
            }
        }
        // What runs has its port already.
        if let Some(server) = &config.server
            && StateDir::holder(&config.home).is_none()
        {
            // A chat in the terminal goes on without the server that nobody asked for.
            let mode = if serve { RunMode::Serve } else { RunMode::Run };
            let needed = platforms::serves(config, mode).is_some_and(|serve| serve.needed);
            for (message, hint) in serving::troubles(server, &config.home).await {
                match needed {
                    true => wrong.push((message, hint.to_owned())),
                    false => _ = write!(text, "\nwarning: {message}; {hint}\n"),
                }
            }
        }
    });
    // A name that is still being looked up must not hold us.
    runtime.shutdown_background();
    wrong
}

/// Why an account could not be read: nothing says how to log in, and nobody has.
#[cfg(feature = "matrix")]
fn cannot_log_in(name: &AccountId, platform: &PlatformConfig) -> Option<(String, String)> {
    let PlatformConfig::Matrix(settings) = platform else { return None };
    let stored = matches!(settings.login, talaria_matrix::LoginMethod::Stored);
    (stored && !talaria_matrix::has_session(settings)).then(|| {
        let folder = settings.folder.display();
        (
            format!("`platforms.{name}` has neither a password nor an access token, and no session is kept in {folder}"),
            "set `password_file` or `access_token_file` (MATRIX_PASSWORD_FILE, MATRIX_ACCESS_TOKEN_FILE)".to_owned(),
        )
    })
}

/// Whether the state folder can be used, and what is worth knowing about it.
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

/// Who was turned away, or why that is not known: from a process that runs, or else from its database. One that would
/// first have to be brought up to date is left alone.
fn look_for_people(config: &Config, sources: &ConfigSources) -> Result<Result<String, String>, CheckFailure> {
    // The file belongs to the process that runs; nobody else may open it. Without one none begins while we read.
    let Ok(_lock) = StateDir::look_at(&config.home) else { return Ok(ask(config, sources)) };
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

/// Asks what runs about people who were turned away.
fn ask(config: &Config, sources: &ConfigSources) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async {
        let client = ControlClient::open(&config.home, sources, CommandNeed::Running).await?;
        Ok((client.get::<GatewayStatus>("/status").await?, client.get::<RefusedList>("/refused").await?))
    });
    let (status, refused) = asked.map_err(|problem: CommandError| {
        problem.complaints.first().map(|complaint| complaint.message.clone()).unwrap_or_default()
    })?;
    let GatewayStatus { pid, uptime_seconds, .. } = status;
    let mut text = format!("\nrunning        process {pid}, for {}\n", length(uptime_seconds));
    text.push_str(&describe_refused(config, &refused));
    Ok(text)
}

/// Names those who would still be refused, each once, with the line that lets them in.
fn describe_refused(config: &Config, list: &RefusedList) -> String {
    let mut people: BTreeMap<(&str, &str), (usize, i64)> = BTreeMap::new();
    for one in list.refused.iter().filter(|one| is_refused(config, list, one)) {
        let (times, last) = people.entry((&one.account, &one.actor)).or_default();
        *times += one.times;
        *last = one.last.max(*last);
    }
    let mut text = String::new();
    for ((account, actor), (times, last)) in people {
        // As JSON it is also YAML, whatever the id holds, and stays on its line.
        let quoted = serde_json::to_string(actor).unwrap_or_default();
        let quoted: String = quoted.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let code = match config.rules.account(&AccountId::from(account)).access.pairs() {
            true => "run `talaria pairing approve CODE` with the code they were shown, or ",
            false => "",
        };
        let variable = match account {
            "matrix" => " (or to MATRIX_ALLOWED_USERS, which wins where it is set, and restart)",
            _ => "",
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

/// Whether somebody would be refused by this configuration, for no other reason than that no list names them.
fn is_refused(config: &Config, list: &RefusedList, one: &RefusedRow) -> bool {
    let account = AccountId::from(one.account.as_str());
    // A terminal has no lists, and neither has what is no longer configured.
    let Some(rules) = config.rules.accounts.get(&account) else { return false };
    let person = UserId::from(one.actor.as_str());
    let paired = list.paired.iter().any(|(account, actor)| *account == one.account && *actor == one.actor);
    let actor = Actor { paired, ..Actor::known(&person) };
    let place = PlaceKind::from(one.place == "direct");
    !rules.access.authorize(actor, place, AccessAction::Message).allowed
}

/// Whether what is there already lets us make this folder. What is missing above it is made too.
fn can_be_made(folder: &Path) -> bool {
    let there = folder.ancestors().skip(1).find(|above| above.exists());
    // A relative path begins where we are.
    let there = there.unwrap_or(Path::new("."));
    there.is_dir() && rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}
