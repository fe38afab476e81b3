//! The operator's commands: their arguments and requests. `render` prints the answers.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
pub use talaria_platform::operator::OutputFormat;

use super::audit::AuditArgs;
use super::codex::CodexCommand;
use super::token::TokenCommand;
use super::{complain_about, print, render};
use crate::config::{ConfigSources, env};
use crate::control::api::{
    AliveReport, ApproveRequest, ApprovedPairing, GatewayStatus, GrantList, HealthReport, PairingList,
    ReloadReport, RevokeGrantRequest, RevokeRequest, RevokedGrant, RevokedPairing, SessionList,
    SessionsRequest, StopRequest, StoppedTurns,
};
use crate::control::client::{CommandNeed, ControlClient, slow};
use crate::control::{CommandError, ErrorDetail};

/// Longest wait of a health check. Docker gives it thirty seconds, and then would not say why it failed.
const HEALTH: Duration = Duration::from_secs(10);

/// Commands of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum OperatorCommand {
    /// Show what the running talaria does: agent, platforms, running and waiting turns
    #[command(after_help = "Examples:\n  talaria status\n  talaria status --json | jq .platforms")]
    Status(OutputFormat),
    /// Say whether people are served: exit code 0 if so, 1 if not, with one line that says why
    #[command(
        after_help = "Not healthy: nothing can be stored, no platform reads, the agent is away or refuses the key.\nA restart mends none of that: a supervisor that restarts unhealthy processes should use --live.\n\nExamples:\n  talaria health\n  HEALTHCHECK CMD [\"talaria\", \"health\", \"--live\"]"
    )]
    Health {
        /// Only ask whether the process answers: for supervisors that restart it
        #[arg(long)]
        live: bool,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// List the conversations of all rooms, the last used first
    #[command(after_help = "Examples:\n  talaria sessions\n  talaria sessions --limit 500 --json")]
    Sessions {
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Stop an answer that runs or waits, as /stop does in its room
    #[command(
        override_usage = "talaria stop-turn <ID>    (talaria status lists the ids)\n       talaria stop-turn --all",
        after_help = "Examples:\n  talaria stop-turn 0eeacd      the beginning of its id, from talaria status\n  talaria stop-turn --all"
    )]
    StopTurn {
        /// The turn, by the beginning of its id, from talaria status
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// All turns
        #[arg(long, conflicts_with = "id")]
        all: bool,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Read the configuration again; a wrong one changes nothing
    #[command(
        after_help = "Access, sessions, busy, places, limits, words and agents hold from the next message on, and so does another\nkey of the agent server. A turn that runs keeps its agent; the answer names the keys that need a restart.\n\nExamples:\n  talaria check && talaria reload"
    )]
    Reload(OutputFormat),
    /// Let in strangers who asked in a direct chat, or take that back
    #[command(subcommand)]
    Pairing(PairingCommand),
    /// Let other programs talk to the agent server, each with a token of its own
    #[command(subcommand)]
    Token(TokenCommand),
    /// Have codex run the turns of an agent, or the agent itself again
    #[command(subcommand)]
    Codex(CodexCommand),
    /// List what agents may do without asking again, or revoke it
    #[command(after_help = "Examples:\n  talaria approvals\n  talaria approvals revoke 3f9a")]
    Approvals {
        /// The command [default: list]
        #[command(subcommand)]
        command: Option<ApprovalsCommand>,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Show who did what and whether it was allowed: every decision, never a word of what was said
    #[command(
        after_help = "Examples:\n  talaria audit --since 24h --denied\n  talaria audit --actor @ann:example.org\n  talaria audit --room '!abc:example.org' --csv > room.csv\n  talaria audit --session ci/fs_0123456789abcdef0123456789abcdef\n  talaria audit --json | jq 'select(.rule == \"not listed\")'\n\nRooms are kept as hashes; --room takes an id or a hash. Times are UTC."
    )]
    Audit(AuditArgs),
}

/// Commands about pairing.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum PairingCommand {
    /// List who waits and who was let in
    #[command(after_help = "Examples:\n  talaria pairing list")]
    List(OutputFormat),
    /// Let in the person who was given this code; they may then talk in direct chats
    #[command(
        after_help = "Examples:\n  talaria pairing approve ABCD-2345\n  talaria pairing approve abcd 2345"
    )]
    Approve {
        /// The code as the stranger was shown it
        #[arg(required = true, num_args = 1.., value_name = "CODE")]
        code: Vec<String>,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Take it back at once and stop everything the person has running
    #[command(
        after_help = "Examples:\n  talaria pairing revoke @bob:example.org\n  talaria pairing revoke @bob:example.org --account matrix"
    )]
    Revoke {
        /// The full id, from talaria pairing list
        #[arg(value_name = "ID")]
        person: String,
        /// On this account only
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
}

/// Commands about approvals that last.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ApprovalsCommand {
    /// List the approvals that last
    List(OutputFormat),
    /// Have the agent ask again from now on
    Revoke {
        /// The approval, by the beginning of its id
        id: String,
    },
}

/// Runs a command of the operator.
pub fn run(command: &OperatorCommand, sources: &ConfigSources) -> ExitCode {
    let home = match crate::config::home(&env::process) {
        Ok(home) => home,
        Err(error) => return complain_about(&CommandError::config(vec![error])),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain_about(&CommandError::wrong(error.to_string(), "try again")),
    };
    let done = runtime.block_on(async {
        if sources.config.is_some() && !command.reads_configuration() {
            return Err(no_file("this command reads no configuration file"));
        }
        let client = ControlClient::open(&home, sources, command.needs()).await?;
        if sources.config.is_some() && client.is_there() {
            return Err(no_file("the running talaria goes by the configuration file it was started with"));
        }
        let done = command.carry_out(&client).await;
        client.close().await;
        done
    });
    match done {
        Ok(CommandOutput { text, well }) => {
            let printed = print(&text);
            if well { printed } else { ExitCode::FAILURE }
        }
        Err(problem) => complain_about(&problem),
    }
}

/// Output of a command, and whether it reports success.
struct CommandOutput {
    text: String,
    well: bool,
}

impl From<String> for CommandOutput {
    fn from(text: String) -> Self {
        Self { text, well: true }
    }
}

/// Refuses a file that would be ignored: people would believe that it counts.
fn no_file(why: &str) -> CommandError {
    CommandError::wrong(why, "leave `--config` out; TALARIA_HOME says which talaria is meant")
}

impl OperatorCommand {
    /// Whether the command uses the configuration when nothing runs: it says who may pair, and which agents there are.
    fn reads_configuration(&self) -> bool {
        matches!(
            self,
            Self::Pairing(PairingCommand::Approve { .. } | PairingCommand::Revoke { .. }) | Self::Codex(_)
        )
    }

    fn needs(&self) -> CommandNeed {
        match self {
            Self::Status(_) | Self::Health { .. } | Self::StopTurn { .. } | Self::Reload(_) => {
                CommandNeed::Running
            }
            Self::Sessions { .. } | Self::Pairing(_) | Self::Approvals { .. } | Self::Audit(_) => {
                CommandNeed::Store
            }
            Self::Token(command) => command.needs(),
            Self::Codex(command) => command.needs(),
        }
    }

    async fn carry_out(&self, client: &ControlClient) -> Result<CommandOutput, CommandError> {
        Ok(match self {
            Self::Status(output) => {
                let status: GatewayStatus = client.get("/status").await?;
                output.show(&status, render::status)?.into()
            }
            Self::Health { live: true, output } => {
                let asked = tokio::time::timeout(HEALTH, client.get("/live")).await;
                let alive: AliveReport = asked.unwrap_or_else(|_| Err(slow(HEALTH)))?;
                output.show(&alive, |_| "alive".to_owned())?.into()
            }
            Self::Health { live: false, output } => {
                let asked = tokio::time::timeout(HEALTH, client.get("/health")).await;
                let health: HealthReport = asked.unwrap_or_else(|_| Err(slow(HEALTH)))?;
                let well = health.healthy;
                CommandOutput { text: output.show(&health, |health| health.words.clone())?, well }
            }
            Self::Sessions { limit, output } => {
                let asked = SessionsRequest { limit: *limit };
                let sessions: SessionList = client.post("/sessions", &asked).await?;
                output.show(&sessions, render::sessions)?.into()
            }
            Self::StopTurn { id, all: _, output } => {
                let stopped: StoppedTurns =
                    client.post("/turns/stop", &StopRequest { id: id.clone() }).await?;
                output.show(&stopped, render::stopped)?.into()
            }
            Self::Reload(output) => {
                let reloaded: ReloadReport = client.post("/reload", &()).await.map_err(unchanged)?;
                output.show(&reloaded, render::reloaded)?.into()
            }
            Self::Pairing(PairingCommand::List(output)) => {
                let pairings: PairingList = client.get("/pairings").await?;
                output.show(&pairings, render::pairings)?.into()
            }
            Self::Pairing(PairingCommand::Approve { code, output }) => {
                let asked = ApproveRequest { code: code.concat() };
                let approved: ApprovedPairing = client.post("/pairings/approve", &asked).await?;
                output.show(&approved, render::approved)?.into()
            }
            Self::Pairing(PairingCommand::Revoke { person, account, output }) => {
                let asked = RevokeRequest { person: person.clone(), account: account.clone() };
                let revoked: RevokedPairing = client.post("/pairings/revoke", &asked).await?;
                output.show(&revoked, render::revoked)?.into()
            }
            Self::Token(command) => command.carry_out(client).await?.into(),
            Self::Codex(command) => command.carry_out(client).await?.into(),
            Self::Approvals { command: None, output }
            | Self::Approvals { command: Some(ApprovalsCommand::List(output)), .. } => {
                let grants: GrantList = client.get("/grants").await?;
                output.show(&grants, render::grants)?.into()
            }
            Self::Approvals { command: Some(ApprovalsCommand::Revoke { id }), output } => {
                let asked = RevokeGrantRequest { id: id.clone() };
                let revoked: RevokedGrant = client.post("/grants/revoke", &asked).await?;
                output.show(&revoked, render::revoked_grant)?.into()
            }
            Self::Audit(args) => args.carry_out(client).await?.into(),
        })
    }
}

/// Adds to a configuration error that the old configuration stays in use.
fn unchanged(mut problem: CommandError) -> CommandError {
    if problem.is_configuration() {
        problem.complaints.push(ErrorDetail {
            message: "nothing was changed: the configuration from before still holds".to_owned(),
            hint: Some("put it right, then run `talaria reload` again".to_owned()),
        });
    }
    problem
}
