//! The agent server: the same turns, asked for over HTTP.
//!
//! A request comes in through [`listen`] (over a `wire` that keeps the time), passes the `guard` (who is asked, from
//! where) and `caller` (who asks), and a handler of the table in `routes` answers it. What runs a turn goes through
//! `begin`, which makes it durable and idempotent, and reads it through `follow`; each surface is a
//! `follow::Shape` that makes its own events of what happens. Errors are [`Problem`]s, whatever went wrong. What can be
//! asked and what comes of it is told to programs by `openapi`, from the same table.

mod about;
mod approvals;
mod apps;
mod begin;
mod body;
mod caller;
mod canned;
mod chat;
mod content;
mod cors;
mod ended;
mod events;
mod follow;
mod frames;
mod guard;
mod heads;
mod health;
mod held;
mod host;
mod keys;
mod limits;
pub mod listen;
mod metrics;
mod notices;
mod openapi;
mod parameters;
mod path;
mod problem;
mod refusals;
mod responses;
mod route;
mod routes;
mod runs;
mod seats;
mod sessions;
mod text_budget;
mod wire;
mod wrong_keys;

use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

pub use apps::Apps;
pub use caller::Caller;
pub use keys::Keys;
pub use limits::Limits;
pub use problem::Problem;
pub use route::Route;
pub use routes::{all as routes, router};

use self::text_budget::TextBudget;
use crate::config::{Host, Origin, Secret};
use crate::rules::Live;
use crate::store::Store;
use crate::turns::Turns;

/// What the server is told about itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may ask everything at first, see [`Keys`]; `None` for a server without a key, which only this machine reaches.
    pub key: Option<Secret>,
    /// Names by which it may be called, besides those of this machine.
    pub hosts: Vec<Host>,
    /// Pages that may ask from a browser.
    pub origins: Vec<Origin>,
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
    pub live: Arc<Live>,
    /// What it was told.
    pub settings: Settings,
    /// Who may ask.
    pub keys: Keys,
    /// The apps that are asking now.
    pub apps: Apps,
    /// Who was turned away, as far as it was told.
    refusals: refusals::Refusals,
    /// Who guesses keys.
    wrong_keys: wrong_keys::WrongKeys,
    /// How much may go on at once.
    pub limits: Limits,
    /// Long texts in memory until they are read.
    texts: TextBudget,
    /// Fired when the process is about to end: nothing new is taken.
    pub draining: CancellationToken,
    /// Since when it serves.
    pub since: SystemTime,
}

impl Server {
    /// A server of these turns.
    pub fn new(store: Store, turns: Arc<Turns>, live: Arc<Live>, settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            keys: Keys::new(settings.key.as_ref()),
            apps: Apps::default(),
            refusals: refusals::Refusals::default(),
            wrong_keys: wrong_keys::WrongKeys::default(),
            limits: Limits::new(settings.runs),
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
