//! `talaria audit`: filters and prints decisions.

use clap::Args;

use super::table::{csv, exact, moment, now, span, table};
use crate::control::CommandError;
use crate::control::api::{AuditReport, AuditRequest};
use crate::control::client::ControlClient;
use crate::store::{AuditFilter, AuditRow};

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
    /// Requests all decisions that match, page by page; returns them oldest first.
    pub(super) async fn ask(&self, client: &ControlClient) -> Result<Vec<AuditRow>, CommandError> {
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

    pub(super) fn show(&self, decisions: &[AuditRow]) -> Result<String, CommandError> {
        if self.json {
            let line = |row| serde_json::to_string(row).map(|line| line + "\n");
            let lines = decisions.iter().map(line).collect::<Result<String, _>>();
            return lines.map_err(|error| CommandError::wrong(error.to_string(), "leave --json out"));
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
}
