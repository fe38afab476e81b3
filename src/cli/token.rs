//! `talaria token`: manages tokens for other programs.

use clap::Subcommand;

use super::operator::OutputFormat;
use super::table::{moment, table};
use crate::control::CommandError;
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::tokens::{AddTokenRequest, AddedToken, AppList, RevokeTokenRequest, RevokedToken};

/// Commands about tokens.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum TokenCommand {
    /// Create a token for an app and show it once; the app sees its own sessions and no others
    #[command(
        after_help = "Examples:\n  talaria token add phone\n  talaria token add phone --again      another token for the same app and its sessions\n  talaria token add forge --no-instructions"
    )]
    Add {
        /// The name of the app: a–z, 0–9, - and _
        #[arg(value_name = "NAME")]
        app: String,
        /// Confirm that the name was used before for the same app; its old token, if it has one, is revoked
        #[arg(long)]
        again: bool,
        /// Forbid system messages and instructions; a later token with --again keeps that
        #[arg(long)]
        no_instructions: bool,
        /// Allow system messages and instructions again
        #[arg(long, conflicts_with = "no_instructions")]
        instructions: bool,
        /// Allow the token only from these addresses, such as 192.168.1.0/24; `any` allows all again
        #[arg(long = "from", value_name = "RANGE", value_delimiter = ',')]
        from: Vec<String>,
        /// What agents may do in its turns without a person: `deny` or `ask` alone, or an action that is allowed; repeatable. Without
        /// it, /sessions and /run deny, and the app answers elsewhere
        #[arg(long = "permit", value_name = "POLICY")]
        permit: Vec<String>,
        /// Allow it to replace the system text in /run
        #[arg(long)]
        system_replace: bool,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// List the apps, without their tokens
    #[command(after_help = "Examples:\n  talaria token list\n  talaria token list --json")]
    List(OutputFormat),
    /// Revoke a token at once and stop everything its app has running
    #[command(after_help = "Examples:\n  talaria token revoke phone")]
    Revoke {
        /// The name of the app
        #[arg(value_name = "NAME")]
        app: String,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
}

impl TokenCommand {
    pub(super) fn needs(&self) -> CommandNeed {
        match self {
            // Works before the first start too, so that a machine can be set up in one go.
            Self::Add { .. } => CommandNeed::NewStore,
            Self::List(_) | Self::Revoke { .. } => CommandNeed::Store,
        }
    }

    pub(super) async fn carry_out(&self, client: &ControlClient) -> Result<String, CommandError> {
        match self {
            Self::Add { app, again, no_instructions, instructions, from, permit, system_replace, output } => {
                let instructions = (*instructions || *no_instructions).then_some(*instructions);
                let asked = AddTokenRequest {
                    app: app.clone(),
                    again: *again,
                    instructions,
                    networks: networks(from),
                    permissions: permissions(permit),
                    may_replace: system_replace.then_some(true),
                };
                let added: AddedToken = client.post("/tokens/add", &asked).await?;
                Ok(output.show(&added, show_added)?)
            }
            Self::List(output) => {
                let apps: AppList = client.get("/tokens").await?;
                Ok(output.show(&apps, show_apps)?)
            }
            Self::Revoke { app, output } => {
                let asked = RevokeTokenRequest { app: app.clone() };
                let revoked: RevokedToken = client.post("/tokens/revoke", &asked).await?;
                Ok(output.show(&revoked, show_revoked)?)
            }
        }
    }
}

/// The ranges that were named; an empty list for `any`.
fn networks(from: &[String]) -> Option<Vec<String>> {
    match from {
        [] => None,
        [any] if any == "any" => Some(Vec::new()),
        ranges => Some(ranges.to_vec()),
    }
}

/// The policy that was named.
fn permissions(permit: &[String]) -> Option<serde_json::Value> {
    match permit {
        [] => None,
        [word] if word == "deny" || word == "ask" => Some(word.clone().into()),
        actions => Some(actions.to_vec().into()),
    }
}

fn show_added(added: &AddedToken) -> String {
    let AddedToken { app, token, replaced, instructions } = added;
    let less = if *instructions { "" } else { " It may not send system messages or instructions." };
    let old = if *replaced { " The old one has ended." } else { "" };
    format!(
        "{token}\n\nThis is the token of {app}; it is not shown again.{old}{less} The app sends it as its API key \
         (Authorization: Bearer …)."
    )
}

fn show_apps(apps: &AppList) -> String {
    if apps.apps.is_empty() {
        return "No app has a token.".to_owned();
    }
    let rows: Vec<_> = apps
        .apps
        .iter()
        .map(|app| {
            let state = match app.revoked {
                Some(at) => format!("revoked {}", moment(at)),
                None if !app.instructions => "may ask, not instruct".to_owned(),
                None => "may ask".to_owned(),
            };
            let used = app.used.map_or("never".to_owned(), moment);
            [app.name.clone(), app.token.clone(), state, moment(app.created), used]
        })
        .collect();
    table(["APP", "TOKEN", "STATE", "SINCE (UTC)", "LAST USED (UTC)"], &rows)
}

fn show_revoked(revoked: &RevokedToken) -> String {
    let RevokedToken { app, stopped } = revoked;
    let turns = if *stopped > 0 { format!(" Answers that were stopped: {stopped}.") } else { String::new() };
    format!("The token of {app} has ended; what it had stays.{turns}")
}
