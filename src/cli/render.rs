//! Prints the answers to the operator's commands. Untrusted text goes through the cells of a table.

use std::fmt::Write as _;

use super::table::{length, moment, now, table};
use crate::control;
use crate::control::api::{
    ApprovedPairing, GatewayStatus, GrantList, PairingList, ReloadReport, RevokedGrant, RevokedPairing,
    SessionList, StoppedTurns,
};
use crate::ids::RUN;
use crate::store::Pairing;
use crate::util::one_line;

/// Characters of a turn's id that people are shown.
const SHORT: usize = 6;

pub(super) fn status(status: &GatewayStatus) -> String {
    let mut text = String::new();
    let GatewayStatus {
        version,
        pid,
        uptime_seconds,
        home,
        agent,
        agents,
        mcp_servers,
        health,
        platforms,
        server,
        turns,
        ..
    } = status;
    let _ = writeln!(text, "talaria {version}, process {pid}, running for {}", length(*uptime_seconds));
    let _ = writeln!(text, "state folder  {home}");
    let _ = writeln!(text, "agent         {agent}");
    if let [default, others @ ..] = agents.as_slice()
        && !others.is_empty()
    {
        for agent in std::iter::once(default).chain(others) {
            let state = agent.trouble.as_deref().unwrap_or("answers");
            let mark = if agent.default { " (default)" } else { "" };
            let _ = writeln!(
                text,
                "              {}{mark}: {}, {}",
                agent.name,
                agent.agent,
                one_line(state, 200)
            );
        }
    }
    for agent in agents.iter().filter(|agent| !agent.lines.is_empty()) {
        let _ = writeln!(text, "\n{}:", agent.name);
        for line in &agent.lines {
            let _ = writeln!(text, "  {}", one_line(line, 300));
        }
    }
    if let Some(server) = server {
        let readers = match server.readers {
            0 => String::new(),
            1 => ", read by one program".to_owned(),
            readers => format!(", read by {readers} programs"),
        };
        let _ = writeln!(text, "agent server  {}{readers}", server.address);
    }
    let not = if health.healthy { "" } else { "people are not served: " };
    let _ = writeln!(text, "health        {not}{}", health.words);
    text.push('\n');
    let rows: Vec<_> = platforms
        .iter()
        .map(|platform| {
            let mut outbox = match platform.outbox {
                0 => "nothing".to_owned(),
                count => count.to_string(),
            };
            if platform.cleanups > 0 {
                let _ = write!(outbox, "; earlier texts of deleted messages: {}", platform.cleanups);
            }
            [platform.name.clone(), platform.state.words().to_owned(), outbox]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str(&table(["PLATFORM", "STATE", "NOT YET ARRIVED"], &rows));
    }
    let rows: Vec<_> = mcp_servers
        .iter()
        .map(|server| [server.name.clone(), server.tools.to_string(), server.state.words().to_owned()])
        .collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&table(["MCP SERVER", "TOOLS", "STATE"], &rows));
    }
    // Below the table, whose cells are too short for a reason.
    for server in mcp_servers {
        if let Some(reason) = server.state.reason() {
            let _ = writeln!(text, "{} failed: {reason}", one_line(&server.name, 60));
        }
    }
    if turns.is_empty() {
        text.push_str("\nNothing runs and nothing waits.\n");
        return text;
    }
    let rows: Vec<_> = turns
        .iter()
        .map(|turn| {
            let state = match (turn.stopping, turn.running) {
                (true, _) => "stopping",
                (false, true) => "runs",
                (false, false) => "waits",
            };
            let age = length(u64::try_from(now() - turn.created).unwrap_or_default());
            let (account, room, author) = (turn.account.clone(), turn.room.clone(), turn.author.clone());
            [short(&turn.id), state.to_owned(), age, account, room, author]
        })
        .collect();
    text.push('\n');
    text.push_str(&table(["TURN", "STATE", "FOR", "ACCOUNT", "ROOM", "ASKED BY"], &rows));
    text
}

pub(super) fn sessions(sessions: &SessionList) -> String {
    if sessions.sessions.is_empty() {
        return "There are no conversations yet.".to_owned();
    }
    let rows: Vec<_> = sessions
        .sessions
        .iter()
        .map(|session| {
            [
                session.id.clone(),
                session.account.clone(),
                session.room.clone(),
                session.number.to_string(),
                if session.current { "yes" } else { "" }.to_owned(),
                session.messages.to_string(),
                moment(session.used),
                session.title.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table(["SESSION", "ACCOUNT", "ROOM", "NUMBER", "CURRENT", "MESSAGES", "LAST USED (UTC)", "TITLE"], &rows)
}

pub(super) fn stopped(stopped: &StoppedTurns) -> String {
    match stopped.turns.as_slice() {
        [] => "Nothing ran and nothing waited.".to_owned(),
        turns => {
            let ids: Vec<String> = turns.iter().map(|turn| short(&turn.id)).collect();
            format!("Asked to stop: {}. Whoever asked sees it.", ids.join(", "))
        }
    }
}

pub(super) fn reloaded(reloaded: &ReloadReport) -> String {
    let ReloadReport { file, had_file, now, restart, stopped, warnings } = reloaded;
    let mut text = match (file, had_file) {
        (Some(file), _) => format!("Read again: {file}\n"),
        (None, true) => {
            "There is no configuration file any more, so the defaults and the environment hold.\n".to_owned()
        }
        (None, false) => {
            "There is no configuration file; the defaults and the environment hold.\n".to_owned()
        }
    };
    match (now.as_slice(), restart.as_slice()) {
        ([], []) => text.push_str("Nothing changed.\n"),
        ([], _) => {}
        (now, _) => {
            let _ = writeln!(text, "In effect now: {}.", now.join(", "));
        }
    }
    if !restart.is_empty() {
        let _ = writeln!(text, "Needs a restart: {}.", restart.join(", "));
    }
    if now.iter().any(|key| key == control::KEY) {
        text.push_str("Whatever was read with the old key has ended.\n");
    }
    if *stopped > 0 {
        let _ = writeln!(text, "Stopped, because whoever asked may no longer: {stopped}.");
    }
    for warning in warnings {
        let _ = write!(text, "\nwarning: {warning}\n");
    }
    text
}

pub(super) fn pairings(pairings: &PairingList) -> String {
    let mut text = String::new();
    if pairings.pairings.is_empty() {
        text.push_str("Nobody waits, and nobody was let in.\n");
    } else {
        let rows: Vec<_> = pairings
            .pairings
            .iter()
            .map(|pairing| {
                let state = if pairing.pending { "waits" } else { "may talk" };
                let (account, name) = (pairing.account.clone(), pairing.name.clone().unwrap_or_default());
                [pairing.person.clone(), account, state.to_owned(), moment(pairing.at), name]
            })
            .collect();
        text = table(["ID", "ACCOUNT", "STATE", "SINCE (UTC)", "CALLS THEMSELVES"], &rows);
    }
    if let Some(until) = pairings.locked_until {
        let _ = write!(text, "\nToo many codes were wrong; none is taken before {} UTC.\n", moment(until));
    }
    text
}

pub(super) fn approved(approved: &ApprovedPairing) -> String {
    let ApprovedPairing { pairing, told_now } = approved;
    let told = if *told_now { "They are told so." } else { "They are told so when talaria runs." };
    format!("{} may talk now, in direct chats. {told}", who(pairing))
}

pub(super) fn revoked(revoked: &RevokedPairing) -> String {
    let mut text = String::new();
    for pairing in &revoked.pairings {
        let what = if pairing.pending { "is not let in" } else { "may no longer talk" };
        let _ = writeln!(text, "{} {what}.", who(pairing));
    }
    if revoked.stopped > 0 {
        let _ = writeln!(text, "Answers that were stopped: {}.", revoked.stopped);
    }
    for account in &revoked.still_listed {
        let _ = write!(
            text,
            "\nwarning: `platforms.{account}.access` lets them talk all the same; take them off that list and run \
             `talaria reload`\n"
        );
    }
    text
}

pub(super) fn grants(grants: &GrantList) -> String {
    if grants.grants.is_empty() {
        return "Agents ask each time; nothing was allowed for longer.".to_owned();
    }
    let rows: Vec<_> = grants
        .grants
        .iter()
        .map(|grant| {
            let scope = if grant.session.is_some() { "its session" } else { "the room" };
            [
                short(&grant.id),
                grant.account.clone(),
                grant.room.clone(),
                scope.to_owned(),
                grant.by.clone(),
                moment(grant.expires),
                grant.title.clone(),
            ]
        })
        .collect();
    table(["ID", "ACCOUNT", "ROOM", "IN", "ALLOWED BY", "UNTIL (UTC)", "WHAT"], &rows)
}

pub(super) fn revoked_grant(revoked: &RevokedGrant) -> String {
    format!("From now on the agent asks again: {}", one_line(&revoked.grant.title, 200))
}

fn who(pairing: &Pairing) -> String {
    let id = one_line(&pairing.person, 120);
    format!("{id} on {}", pairing.account)
}

fn short(id: &str) -> String {
    // Ids of HTTP turns have a prefix, which would be all that is shown.
    let digits = id.strip_prefix(RUN).unwrap_or(id);
    digits.get(..SHORT).unwrap_or(digits).to_owned()
}
