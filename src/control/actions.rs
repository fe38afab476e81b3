//! Commands of the owner that change something: stop turns, approve and revoke people, reload the
//! configuration.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use talaria_platform::{AccountId, RoomId, UserId};

use super::api::{
    ApproveRequest, ApprovedPairing, ReloadReport, RevokeGrantRequest, RevokeRequest, RevokedGrant,
    RevokedPairing, StopRequest, StoppedTurns,
};
use super::command_error::CommandError;
use super::reload;
use super::routes::{HandlerResult, RawRequest, read};
use super::{ControlState, RunningGateway};
use crate::access::{AccessAction, Actor, PlaceKind};
use crate::agent::AgentTable;
use crate::agents::{self, AgentServices};
use crate::config::{AgentsConfig, Config, Secret, env};
use crate::hub::pairing::{self, PairingApproval};
use crate::ids::{AgentName, RUN, SessionId, TurnId};
use crate::logging;
use crate::post_commit::PostCommit;
use crate::rules::{LiveRules, Rules};
use crate::store::{self, OPERATOR, OperatorAction, TurnOverview, TurnState, Tx};
use crate::turns;
use crate::util::UtcTime;

/// Name of the owner's key in the report of a reload, wherever it is configured.
pub const KEY: &str = "server.key";

/// Message length that every chat network accepts; used when no platform runs that could be asked.
const SHORT: usize = 2000;

/// Asks turns to stop: one by the beginning of its id, or all.
pub(super) async fn stop(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<StoppedTurns> {
    let StopRequest { id } = read(asked)?;
    let running = control.running()?;
    let stopped = control.store.write(move |tx| {
        let open = tx.turns_under_way()?;
        let chosen = match &id {
            None => open,
            Some(id) => match choose(open, id) {
                Ok(turn) => vec![turn],
                Err(problem) => return Ok(Err(problem)),
            },
        };
        for turn in &chosen {
            stop_turn(tx, turn, "operator")?;
        }
        Ok(Ok(chosen))
    });
    let turns = stopped.await??;
    for turn in &turns {
        running.turns.stop_turn(&SessionId(turn.session.clone()), &TurnId(turn.id.clone()));
    }
    Ok(Json(StoppedTurns { turns }))
}

/// The only open turn whose id begins with `id`.
fn choose(open: Vec<TurnOverview>, id: &str) -> Result<TurnOverview, CommandError> {
    let id = id.trim().to_ascii_lowercase();
    let begins = |turn: &TurnOverview| {
        turn.id.starts_with(&id) || turn.id.strip_prefix(RUN).is_some_and(|digits| digits.starts_with(&id))
    };
    let mut fit = open.into_iter().filter(|turn| !id.is_empty() && begins(turn));
    match (fit.next(), fit.next()) {
        (Some(turn), None) => Ok(turn),
        (None, _) => Err(CommandError::missing(
            format!("no turn that runs or waits begins with `{}`", crate::util::one_line(&id, 40)),
            "`talaria status` lists them",
        )),
        (Some(one), Some(two)) => Err(CommandError::new(
            StatusCode::CONFLICT,
            format!("several turns begin with `{id}`: {}, {} …", one.id, two.id),
            "write more of the id; `--all` stops all of them",
        )),
    }
}

fn stop_turn(tx: &Tx<'_>, turn: &TurnOverview, rule: &str) -> store::Result<()> {
    tx.ask_to_stop(&TurnId(turn.id.clone()))?;
    tx.audit_operator(&OperatorAction {
        account: &turn.account,
        actor: &turn.author,
        room: Some(&RoomId::new(turn.room.clone())),
        action: "stop turn",
        // A stop by the operator is not a refusal; losing access is.
        allowed: rule == "operator",
        rule,
    })
}

/// Approves the person who was given this code.
pub(super) async fn approve(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<ApprovedPairing> {
    let ApproveRequest { code } = read(asked)?;
    let accounts = control.running.as_ref().map(|running| running.accounts.clone()).unwrap_or_default();
    let longest = move |id: &AccountId| {
        accounts.iter().find(|account| account.id() == id).map_or(SHORT, |account| account.about().max_text)
    };
    let judge = control.clone();
    let approval = control.store.write(move |tx| {
        // Read inside the transaction: it may have waited for a reload.
        Ok(match judge.rules_now() {
            Ok(rules) => Ok(pairing::approve(tx, &rules, &code, longest)?),
            Err(problem) => Err(problem),
        })
    });
    let approval = approval.await??;
    let pairing = match approval {
        PairingApproval::Paired(pairing) => pairing,
        PairingApproval::NoCode => {
            return Err(CommandError::wrong(
                "that is not a code",
                "a code has eight letters and digits, such as `ABCD-2345`; type it as the stranger was shown it",
            ));
        }
        PairingApproval::Wrong { left } => {
            return Err(CommandError::missing(
                format!("nobody who waits has this code ({left} more wrong ones, then an hour's pause)"),
                "codes hold for an hour; a person who wants to be let in writes again to get another one, and \
                 `talaria pairing list` shows who waits",
            ));
        }
        PairingApproval::Locked { until } => {
            return Err(CommandError::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("too many codes were wrong; none is taken before {} UTC", time(until)),
                "wait, or name the person in `access.people` of the configuration and run `talaria reload`",
            ));
        }
        PairingApproval::Off(pairing) => {
            return Err(CommandError::new(
                StatusCode::CONFLICT,
                format!(
                    "`platforms.{}` does not let strangers ask, so this would do nothing",
                    pairing.account
                ),
                format!(
                    "set `platforms.{}.access.pairing: true` and run `talaria reload`; or name them in \
                     `access.people`",
                    pairing.account
                ),
            ));
        }
    };
    let running = control.running.iter().flat_map(|running| &running.accounts);
    let account = running.into_iter().find(|account| account.id().as_str() == pairing.account);
    if let Some(account) = account {
        account.wake();
    }
    Ok(Json(ApprovedPairing { told_now: account.is_some(), pairing }))
}

/// Revokes a person's access at once.
pub(super) async fn revoke(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<RevokedPairing> {
    let RevokeRequest { person, account } = read(asked)?;
    let who = person.clone();
    let (pairings, after) =
        control.store.write(move |tx| pairing::revoke(tx, account.as_deref(), &who)).await?;
    if pairings.is_empty() {
        return Err(CommandError::missing(
            format!("`{}` neither waits nor was let in", crate::util::one_line(&person, 80)),
            "`talaria pairing list` shows everybody by their full id",
        ));
    }
    let mut stopped = 0;
    for step in after {
        if let PostCommit::StopTurn(session, turn) = step {
            stopped += 1;
            if let Some(running) = &control.running {
                running.turns.stop_turn(&session, &turn);
            }
        }
    }
    // Without rules the lists are unknown, and the report leaves them out.
    let rules = control.rules_now().ok();
    let person = UserId::new(person);
    let listed = |account: &String| {
        rules.as_ref().is_some_and(|rules| {
            let policy = &rules.account(&AccountId::new(account.clone())).access;
            policy.authorize(Actor::known(&person), PlaceKind::Direct, AccessAction::Message).allowed
        })
    };
    let still_listed = pairings.iter().map(|pairing| pairing.account.clone()).filter(listed).collect();
    Ok(Json(RevokedPairing { pairings, stopped, still_listed }))
}

/// Revokes a grant by the beginning of its id: the agent asks again from now on.
pub(super) async fn revoke_grant(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<RevokedGrant> {
    let RevokeGrantRequest { id } = read(asked)?;
    let revoked = control.store.write(move |tx| {
        let id = id.trim().to_ascii_lowercase();
        let mut fit = tx.grants()?.into_iter().filter(|grant| !id.is_empty() && grant.id.starts_with(&id));
        let grant = match (fit.next(), fit.next()) {
            (Some(grant), None) => grant,
            (Some(_), Some(_)) => return Ok(Err(true)),
            (None, _) => return Ok(Err(false)),
        };
        tx.revoke_grant(&grant.id)?;
        tx.audit_operator(&OperatorAction {
            account: grant.account.as_str(),
            actor: &grant.by,
            room: Some(&grant.room),
            action: "revoke approval",
            allowed: true,
            rule: "operator",
        })?;
        Ok(Ok(grant))
    });
    let hint = "`talaria approvals` lists them";
    match revoked.await? {
        Ok(grant) => Ok(Json(RevokedGrant { grant: grant.into() })),
        Err(true) => Err(CommandError::new(StatusCode::CONFLICT, "several approvals begin like this", hint)),
        Err(false) => Err(CommandError::missing("no approval begins like this", hint)),
    }
}

/// Reloads the configuration. If anything is wrong with it, everything stays as it is.
pub(super) async fn reload(State(control): State<Arc<ControlState>>) -> HandlerResult<ReloadReport> {
    let running = control.running()?;
    let super::ControlRules::Live(live) = &control.rules else {
        return Err(CommandError::not_running(&control.home));
    };
    let mut agents = running.reloading.lock().await;
    let sources = running.sources.clone();
    let loaded = tokio::task::spawn_blocking(move || Config::load(&sources, &env::process)).await;
    let config = match loaded {
        Ok(Ok(config)) => config,
        Ok(Err(errors)) => {
            tracing::warn!(errors = errors.len(), "a reload found a wrong configuration; the old one stays");
            return Err(CommandError::config(errors));
        }
        Err(error) => return Err(CommandError::store(&error)),
    };
    let ids = running.accounts.iter().map(|account| account.id());
    let next = Arc::new(live.permissible(reload::rules(ids, &running.config, &live.now(), &config)));
    let mut reloaded = reload::compare(&running.config, &agents, &live.now(), &next, &config);
    if let Some(services @ AgentServices { mcp, .. }) = running.services.as_deref() {
        // Before an agent of the new configuration runs anything; also if the rest of the reload fails.
        services.hide_files_of(&config);
        reloaded
            .now
            .extend(mcp.changes(&config.mcp_servers).into_iter().map(|name| format!("mcp_servers.{name}")));
    }
    let changed = reload::changed_agents(&agents, &config.agents);
    let table = match *agents == config.agents {
        true => None,
        false => Some(rebuild(&control, running, live, &agents, &config)?),
    };
    let key = new_key(&control, running, &config).await?;
    let done = ["reload", "replace server.key"].into_iter().take(1 + usize::from(key.is_some()));
    // Stored first: if that fails, the running state stays as it was. A missing key has been created by then.
    let rules = next.clone();
    let default = running.turns.agents().default_name().clone();
    let named = default.clone();
    let recorded = control.store.write(move |tx| {
        for action in done {
            tx.audit_operator(&OperatorAction {
                account: "",
                actor: OPERATOR,
                room: None,
                action,
                allowed: true,
                rule: "operator",
            })?;
        }
        // The rules forget the others too.
        tx.keep_runtime_overrides(&rules.agents.switchable())?;
        stop_the_unwanted(tx, &rules, &named)
    });
    let unwanted = recorded.await?;
    config.secrets().iter().for_each(logging::hide);
    // The rules come first: an agent that is new must not talk to anybody before its list holds.
    live.replace(Rules::clone(&next));
    if let Some(AgentServices { mcp, .. }) = running.services.as_deref() {
        mcp.replace(&config.mcp_servers);
    }
    if let Some(runtimes) = &control.runtimes {
        runtimes.replace(&config);
    }
    if let Some(table) = table {
        running.turns.replace_agents(table, &changed);
        *agents = config.agents.clone();
    }
    if let (Some(key), Some(served)) = (key, &running.served) {
        logging::hide(&key);
        served.server.replace_key(&key);
        reloaded.now.push(KEY.to_owned());
    }
    running.stop(&unwanted);
    // Repeated for turns that began in between under the old rules. From now on the new rules are applied
    // before a turn runs.
    let in_between = control.store.write(move |tx| stop_the_unwanted(tx, &next, &default)).await.map_err(|error| {
        CommandError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the new configuration holds, but then the store did not answer: {error}"),
            "what was asked at this very moment by somebody who may no longer ask may still run; `talaria reload` \
             again stops it",
        )
    })?;
    running.stop(&in_between);
    reloaded.file = config.file.map(|file| file.display().to_string());
    reloaded.had_file = running.config.file.is_some();
    reloaded.warnings = config.warnings;
    reloaded.stopped = unwanted.len() + in_between.len();
    tracing::info!(now = ?reloaded.now, restart = ?reloaded.restart, "the configuration was read again");
    Ok(Json(reloaded))
}

/// Builds the agents of a new configuration; those that are configured as before are taken over.
fn rebuild(
    control: &ControlState,
    running: &RunningGateway,
    live: &Arc<LiveRules>,
    old: &AgentsConfig,
    new: &Config,
) -> Result<AgentTable, CommandError> {
    let table = running.turns.agents();
    let before = agents::BuiltAgents { config: old, table: &table };
    let services = match &running.services {
        Some(services) => services.clone(),
        None => Arc::new(AgentServices::new(new, control.store.clone())),
    };
    agents::build(&new.agents, live, &services, Some(before)).map_err(|error| {
        tracing::error!(%error, "an agent could not be built");
        CommandError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{error}, so nothing was changed"),
            "look at the log; a restart may help",
        )
    })
}

/// The configured owner's key of the agent server, if it differs from the current one. A key file that was
/// removed is created anew.
async fn new_key(
    control: &ControlState,
    running: &RunningGateway,
    config: &Config,
) -> Result<Option<Secret>, CommandError> {
    let (Some(served), Some(old), Some(new)) = (&running.served, &running.config.server, &config.server)
    else {
        return Ok(None);
    };
    if !old.may_take_key_of(new) {
        return Ok(None);
    }
    let (new, home) = (new.clone(), control.home.clone());
    let read = tokio::task::spawn_blocking(move || new.owner_key(&home)).await;
    let key = read.map_err(|error| CommandError::store(&error))?;
    let key = key.map_err(|error| CommandError::config(vec![error.into()]))?;
    Ok(key.filter(|key| !served.server.keys.is(key)))
}

/// Asks the turns of people to stop who lost access under these rules, to everything or to the agent that answers.
fn stop_the_unwanted(
    tx: &Tx<'_>,
    rules: &Rules,
    default: &AgentName,
) -> store::Result<Vec<(SessionId, TurnId)>> {
    let mut unwanted = Vec::new();
    for open in tx.turns_under_way()? {
        let Some(turn) = tx.turn(&TurnId(open.id.clone()))? else { continue };
        let agent = turn.agent.as_ref().unwrap_or(default);
        // A turn that waits for its agent says why it is not run when its time comes, and a turn that runs keeps an agent
        // that the configuration no longer has.
        let is_wanted = turns::permitted(tx, rules, &turn.source)?
            && (turn.state == TurnState::Queued
                || !rules.agents.by_name.contains_key(agent)
                || turns::may_talk_to(tx, rules, &turn.source, agent)?)
            && (turn.state == TurnState::Queued || turns::may_keep_fallback(tx, rules, &turn)?);
        if !open.stopping && !is_wanted {
            stop_turn(tx, &open, "reload")?;
            unwanted.push((turn.session, turn.id));
        }
    }
    Ok(unwanted)
}

impl RunningGateway {
    /// Stops running turns that are already marked as stopped in the store.
    fn stop(&self, turns: &[(SessionId, TurnId)]) {
        for (session, turn) in turns {
            self.turns.stop_turn(session, turn);
        }
    }
}

/// `hh:mm`, in UTC.
fn time(at: i64) -> String {
    let since = std::time::Duration::from_secs(u64::try_from(at).unwrap_or_default());
    let utc = UtcTime::from(std::time::UNIX_EPOCH + since);
    format!("{:02}:{:02}", utc.hour, utc.minute)
}
