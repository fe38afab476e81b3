//! `GET /healthz`: whether the server is there, and for callers with a key, which agents it has.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::folders::on_disk;
use crate::ids::AgentName;
use crate::server::caller::bearer;
use crate::server::listen::ClientPeer;
use crate::server::{ApiError, Server};

/// The agent that clients of this surface look for.
const CLAUDE: &str = "claude";

/// The program that clients of this surface look for; agents are run without it.
const ACPX: &str = "acpx";

/// Health of the server.
#[derive(Default, Serialize, JsonSchema)]
pub struct ForgeHealth {
    ok: bool,
    /// Whether there is an agent called `claude`, and its program is installed.
    claude_present: bool,
    /// The version that it told; null until it has run. This and what follows is for callers with a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    claude_version: Option<Option<String>>,
    /// Whether the program `acpx` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    acpx_present: Option<bool>,
    /// Always null: the program is not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    acpx_version: Option<Option<String>>,
    /// Open sessions: the app's own, for the owner all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_sessions: Option<u64>,
    /// Agents that the caller may ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<ForgeAgentView>>,
}

/// An agent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ForgeAgent")]
struct ForgeAgentView {
    name: String,
    /// Whether requests that name no agent ask it.
    default: bool,
    /// Version of its program. Null: not known, because it is none or has not run yet.
    version: Option<String>,
}

/// `GET /healthz`. A wrong key is like none.
pub async fn health(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Json<ForgeHealth>, ApiError> {
    let agents = server.turns.agents();
    let claude = AgentName::new(CLAUDE).and_then(|name| agents.get(&name)).cloned();
    let claude_present = match claude.clone() {
        Some(claude) => on_disk(move || Ok(claude.has_program())).await?,
        None => false,
    };
    let from = request.extensions().get::<ClientPeer>().map(|peer| peer.address);
    let key = bearer(request.headers()).map(<[u8]>::to_vec);
    let caller = match key {
        None => None,
        Some(key) => server.recognise(Some(&key), from.unwrap_or(Ipv4Addr::LOCALHOST.into())).await.ok(),
    };
    let Some(caller) = caller.filter(|caller| !caller.keyless) else {
        return Ok(Json(ForgeHealth { ok: true, claude_present, ..ForgeHealth::default() }));
    };
    let app = (!caller.is_owner()).then(|| caller.app().to_owned());
    let open_sessions = server.store.read(move |tx| tx.open_forge_sessions(app.as_deref())).await?;
    let acpx_present = on_disk(|| Ok(is_in_path(ACPX))).await?;
    let run_agent = &server.settings.forge.config.run_agent;
    let claude_version = claude.and_then(|agent| agent.program_version());
    let agents = agents.iter().filter(|(name, _)| server.admits(&caller, name));
    let agents = agents.map(|(name, agent)| ForgeAgentView {
        name: name.to_string(),
        default: name.as_str() == run_agent,
        version: agent.program_version(),
    });
    Ok(Json(ForgeHealth {
        ok: true,
        claude_present,
        claude_version: Some(claude_version),
        acpx_present: Some(acpx_present),
        acpx_version: Some(None),
        open_sessions: Some(open_sessions),
        agents: Some(agents.collect()),
    }))
}

/// Whether a program is in one of the folders of `PATH`.
fn is_in_path(program: &str) -> bool {
    let path = crate::config::env::process("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder: PathBuf| folder.join(program)).any(|file| file.is_file())
}
