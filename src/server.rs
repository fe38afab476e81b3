//! The agent server: the HTTP interface to the turns that rooms use too.
//!
//! A request comes in through [`listen`] (over a `connection` that enforces timeouts) and passes the
//! `origin_guard` (is the host ours, may this web page ask) and `caller` (authentication); a handler from the
//! table in `routes` answers it. Handlers that run a turn submit it through `submit`, which makes it durable
//! and idempotent, and read it through `turn_stream`; each surface implements `turn_stream::StreamFormat` to
//! write its own events. Every error is an [`ApiError`]. `openapi` describes all endpoints for programs, from
//! the table in `routes`.

mod agent_choice;
mod api_error;
pub mod app_admin;
mod app_tokens;
mod approvals;
mod auth_throttle;
mod body;
mod caller;
mod chat;
mod connection;
mod connection_limit;
mod content;
mod cors;
mod discovery;
mod forge;
mod headers;
mod health;
mod host;
mod limits;
pub mod listen;
mod metrics;
mod notices;
mod openapi;
mod origin_guard;
mod owner_key;
mod parameters;
mod path_params;
mod raw_errors;
mod rejection_log;
mod responses;
mod revocable_body;
mod route;
mod routes;
mod run_events;
mod runs;
mod sessions;
mod skills;
mod sse;
mod submit;
mod text_budget;
mod turn_result;
mod turn_stream;

use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

pub use api_error::ApiError;
pub use app_tokens::AppTokens;
pub use body::LARGEST_BODY;
pub use caller::Caller;
pub use forge::{ForgeSettings, sweep_regularly};
pub use headers::check_name as check_session_name;
pub use limits::TurnLimits;
pub use owner_key::OwnerKey;
pub use route::Route;
pub use routes::{all as routes, router};

use self::text_budget::TextBudget;
use crate::agents::skills::SkillLibrary;
use crate::config::{Secret, UrlHost, WebOrigin};
use crate::rules::LiveRules;
use crate::store::Store;
use crate::turns::Turns;

/// Settings of the server, resolved from the configuration.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The owner's key as configured, see [`OwnerKey`]; `None` for a server without a key, which only this
    /// machine can reach.
    pub key: Option<Secret>,
    /// Host names that a request may be addressed to, besides those of this machine.
    pub hosts: Vec<UrlHost>,
    /// Origins of web pages whose scripts may call the server.
    pub origins: Vec<WebOrigin>,
    /// Model name that `/v1/models` lists.
    pub model: String,
    /// Turns of HTTP callers, running or waiting, at once: in total, and of one app.
    pub runs: (usize, usize),
    /// Settings of sessions with agents that other programs run.
    pub forge: ForgeSettings,
}

/// State shared by all handlers.
pub struct Server {
    /// The database.
    pub store: Store,
    /// The engine that runs turns, for rooms and for HTTP.
    pub turns: Arc<Turns>,
    /// The current rules, with the texts for people.
    pub live: Arc<LiveRules>,
    /// The skills of agents, if there is a folder for them.
    pub skills: Option<Arc<SkillLibrary>>,
    /// Settings that the server was started with.
    pub settings: ServerSettings,
    /// The owner's key, which a reload may replace.
    pub keys: OwnerKey,
    /// Tokens of apps: bounded lookups, and the cut-off of running requests when a token is revoked.
    pub apps: AppTokens,
    /// Limits how many rejected requests are logged.
    refusals: rejection_log::RejectionLog,
    /// Slows down clients that guess keys.
    wrong_keys: auth_throttle::AuthThrottle,
    /// Bounds on the turns of HTTP callers and on the requests of apps.
    pub limits: TurnLimits,
    /// Memory budget for long texts, held until they are sent.
    texts: TextBudget,
    /// The folders of forge sessions, and uploaded files.
    forge: forge::ForgeFolders,
    /// Cancelled when the process is about to end: from then on new requests are refused.
    pub draining: CancellationToken,
    /// Start time of the server.
    pub since: SystemTime,
}

impl Server {
    /// Creates a server for these turns.
    pub fn new(
        store: Store,
        turns: Arc<Turns>,
        live: Arc<LiveRules>,
        skills: Option<Arc<SkillLibrary>>,
        settings: ServerSettings,
    ) -> Arc<Self> {
        Arc::new(Self {
            keys: OwnerKey::new(settings.key.as_ref()),
            apps: AppTokens::default(),
            refusals: rejection_log::RejectionLog::default(),
            wrong_keys: auth_throttle::AuthThrottle::default(),
            limits: TurnLimits::new(settings.runs),
            texts: TextBudget::default(),
            forge: forge::ForgeFolders::new(&settings.forge.folder),
            draining: CancellationToken::new(),
            since: SystemTime::now(),
            store,
            turns,
            live,
            skills,
            settings,
        })
    }
}
