//! `talaria audit`: filters and prints decisions.

use clap::Args;
use serde::Serialize;

use super::table::{csv, exact, moment, now, span, table};
use crate::control::CommandError;
use crate::control::api::{AuditReport, AuditRequest, ForgeAudit, ForgeAuditRequest};
use crate::control::client::ControlClient;
use crate::store::{AuditFilter, AuditRow, ForgeEvent};

/// Most decisions shown by default.
const SHOWN: i64 = 100;

/// Filter and output format of `talaria audit`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct AuditArgs {
    /// Only of this last period, such as 30m, 24h, 7d
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<i64>,
    /// Only of this person, by the full id
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Only of this room
    #[arg(long, value_name = "ID")]
    room: Option<String>,
    /// Only of this account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Only refusals
    #[arg(long)]
    denied: bool,
    /// What happened to a session of POST /sessions or /run, by app and id, also after its end: begun, turns, closed
    #[arg(long, value_name = "APP/ID", conflicts_with_all = ["since", "actor", "room", "account", "denied", "limit"])]
    session: Option<String>,
    /// At most this many, the newest [default: 100; all with --json or --csv]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    limit: Option<i64>,
    /// One JSON object per line
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values, with a line of names
    #[arg(long)]
    csv: bool,
}

impl AuditArgs {
    /// Requests what the arguments name, and prints it.
    pub(super) async fn carry_out(&self, client: &ControlClient) -> Result<String, CommandError> {
        let Some(session) = &self.session else { return self.show(&self.ask(client).await?) };
        let asked = ForgeAuditRequest { session: session.clone() };
        let ForgeAudit { events } = client.post("/forge/audit", &asked).await?;
        self.show_session(&events)
    }

    /// Requests all decisions that match, page by page; returns them oldest first.
    async fn ask(&self, client: &ControlClient) -> Result<Vec<AuditRow>, CommandError> {
        let all = if self.json || self.csv { i64::MAX } else { SHOWN };
        let mut left = self.limit.unwrap_or(all);
        let mut filter = AuditFilter {
            account: self.account.clone(),
            actor: self.actor.clone(),
            allowed: self.denied.then_some(false),
            since: self.since.map(|since| now().saturating_sub(since)),
            ..AuditFilter::default()
        };
        let mut newest_first = Vec::new();
        while left > 0 {
            filter.limit = Some(left);
            let asked = AuditRequest { filter: filter.clone(), room: self.room.clone() };
            let AuditReport { decisions } = client.post("/audit", &asked).await?;
            let Some(oldest) = decisions.first() else { break };
            filter.before = Some(oldest.seq);
            left = left.saturating_sub(i64::try_from(decisions.len()).unwrap_or(i64::MAX));
            newest_first.extend(decisions.into_iter().rev());
        }
        newest_first.reverse();
        Ok(newest_first)
    }

    fn show(&self, decisions: &[AuditRow]) -> Result<String, CommandError> {
        if self.json {
            return json_lines(decisions);
        }
        let word = |row: &AuditRow| if row.allowed { "allowed" } else { "denied" };
        if self.csv {
            let mut text =
                csv(["time", "account", "actor", "room", "place", "action", "decision", "rule", "digest"]);
            for row in decisions {
                let AuditRow { account, actor, room, place, action, rule, .. } = row;
                let digest = row.digest.as_deref().unwrap_or_default();
                text.push_str(&csv([
                    &exact(row.at),
                    account,
                    actor,
                    room,
                    place,
                    action,
                    word(row),
                    rule,
                    digest,
                ]));
            }
            return Ok(text);
        }
        if decisions.is_empty() {
            return Ok("Nothing fits.".to_owned());
        }
        let rows: Vec<_> = decisions
            .iter()
            .map(|row| {
                [
                    moment(row.at),
                    row.account.clone(),
                    row.actor.clone(),
                    row.place.clone(),
                    row.room.clone(),
                    row.action.clone(),
                    word(row).to_owned(),
                    row.rule.clone(),
                ]
            })
            .collect();
        Ok(table(["TIME (UTC)", "ACCOUNT", "WHO", "PLACE", "ROOM", "ACTION", "DECISION", "RULE"], &rows))
    }

    fn show_session(&self, events: &[ForgeEvent]) -> Result<String, CommandError> {
        if self.json {
            return json_lines(events);
        }
        let turn = |event: &ForgeEvent| event.turn.as_ref().map_or(String::new(), |turn| turn.0.clone());
        if self.csv {
            let lines = events.iter().map(|event| csv([&exact(event.at), &event.event, &turn(event)]));
            return Ok(std::iter::once(csv(["time", "event", "turn"])).chain(lines).collect());
        }
        if events.is_empty() {
            return Ok("Nothing fits.".to_owned());
        }
        let rows = events.iter().map(|event| [moment(event.at), event.event.clone(), turn(event)]);
        Ok(table(["TIME (UTC)", "EVENT", "TURN"], &rows.collect::<Vec<_>>()))
    }
}

fn json_lines<T: Serialize>(rows: &[T]) -> Result<String, CommandError> {
    let line = |row| serde_json::to_string(row).map(|line| line + "\n");
    let lines = rows.iter().map(line).collect::<Result<String, _>>();
    lines.map_err(|error| CommandError::wrong(error.to_string(), "leave --json out"))
}
