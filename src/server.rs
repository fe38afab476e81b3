//! The agent server: the same turns, asked for over HTTP.
//!
//! A request comes in through [`listen`] (over a `connection` that keeps the time), passes the `origin_guard` (who is asked, from
//! where) and `caller` (who asks), and a handler of the table in `routes` answers it. What runs a turn goes through
//! `submit`, which makes it durable and idempotent, and reads it through `turn_stream`; each surface is a
//! `turn_stream::StreamFormat` that makes its own events of what happens. Errors are [`ApiError`]s, whatever went wrong. What can be
//! asked and what comes of it is told to programs by `openapi`, from the same table.

mod api_error;
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
pub use caller::Caller;
pub use limits::TurnLimits;
pub use owner_key::OwnerKey;
pub use route::Route;
pub use routes::{all as routes, router};

use self::text_budget::TextBudget;
use crate::config::{Secret, UrlHost, WebOrigin};
use crate::rules::LiveRules;
use crate::store::Store;
use crate::turns::Turns;

/// What the server is told about itself.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Who may ask everything at first, see [`OwnerKey`]; `None` for a server without a key, which only this machine reaches.
    pub key: Option<Secret>,
    /// Names by which it may be called, besides those of this machine.
    pub hosts: Vec<UrlHost>,
    /// Pages that may ask from a browser.
    pub origins: Vec<WebOrigin>,
    /// What `/v1/models` names.
    pub model: String,
    /// Turns at once, and turns of one app at once.
    pub runs: (usize, usize),
}

/// Everything that a handler may need.
pub struct Server {
    /// Where everything durable is.
    pub store: Store,
    /// Who runs turns.
    pub turns: Arc<Turns>,
    /// The words for people.
    pub live: Arc<LiveRules>,
    /// What it was told.
    pub settings: ServerSettings,
    /// Who may ask.
    pub keys: OwnerKey,
    /// The apps that are asking now.
    pub apps: AppTokens,
    /// Who was turned away, as far as it was told.
    refusals: rejection_log::RejectionLog,
    /// Who guesses keys.
    wrong_keys: auth_throttle::AuthThrottle,
    /// How much may go on at once.
    pub limits: TurnLimits,
    /// Long texts in memory until they are read.
    texts: TextBudget,
    /// Fired when the process is about to end: nothing new is taken.
    pub draining: CancellationToken,
    /// Since when it serves.
    pub since: SystemTime,
}

impl Server {
    /// A server of these turns.
    pub fn new(store: Store, turns: Arc<Turns>, live: Arc<LiveRules>, settings: ServerSettings) -> Arc<Self> {
        Arc::new(Self {
            keys: OwnerKey::new(settings.key.as_ref()),
            apps: AppTokens::default(),
            refusals: rejection_log::RejectionLog::default(),
            wrong_keys: auth_throttle::AuthThrottle::default(),
            limits: TurnLimits::new(settings.runs),
            texts: TextBudget::default(),
            draining: CancellationToken::new(),
            since: SystemTime::now(),
            store,
            turns,
            live,
            settings,
        })
    }
}
