//! Talaria relays between chat rooms and an AI agent.
//!
//! This page is the map. A message travels like this:
//!
//! 1. A platform (the crate `talaria_platform` has the contract, [`platforms`] the list of kinds) reads the message and
//!    hands it to its inbox.
//! 2. The [`hub`] takes the message in one transaction: [`access`] decides whether its author may do this, and the
//!    message becomes a queued turn or a [`command`].
//! 3. [`turns`], the engine, runs the turn when its session is free. The engine is the only caller of an [`agent`];
//!    [`agents`] has the agents that there are, and [`openai`] the protocol that several of them speak. Everything that
//!    happens in the turn goes into its [`turn_log`]. An agent may ask people to decide something; the engine keeps such
//!    an ask until it is answered, by a [`command`] in the room or over HTTP.
//! 4. A [`conversation`] reads that log and folds the events into a [`reply`]: the whole text that should be visible now.
//! 5. [`delivery`] makes the platform show the text, as often as the [`pace`] permits, and keeps what must arrive until it
//!    has arrived.
//!
//! The [`server`] asks for turns over HTTP and reads the same logs.
//!
//! Modules depend on one another in one direction; `tests/it/layers.rs` has the order and checks it. From the bottom:
//!
//! - [`util`], [`os`] (calls that only Linux has), [`poll_when_woken`], [`pace`], [`supervise`], [`testing`],
//!   [`platforms`]
//! - [`i18n`] (every text that rooms are shown), [`ids`], [`token`], [`chat_command`], [`access`], [`rules`] (the part of
//!   the configuration that a reload changes)
//! - [`agent`] (the contract), [`turn_source`] (a room or an app), [`media`], [`reply`], [`turn_log`], [`config`],
//!   [`openai`]
//! - [`store`] (the only SQL), [`state_dir`], [`metrics`], [`notice`], [`post_commit`]
//! - [`agents`], [`delivery`], [`conversation`], [`turns`]
//! - [`command`], [`hub`], [`server`]
//! - [`logging`], [`control`] (the socket for operator commands), [`gateway`] (builds, supervises and drains it all),
//!   [`cli`]

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts"))]

pub mod access;
pub mod agent;
pub mod agents;
pub mod chat_command;
pub mod cli;
pub mod command;
pub mod config;
pub mod control;
pub mod conversation;
pub mod delivery;
pub mod gateway;
pub mod hub;
pub mod i18n;
pub mod ids;
pub mod logging;
pub mod media;
pub mod metrics;
pub mod notice;
pub mod openai;
pub mod os;
pub mod pace;
pub mod platforms;
pub mod poll_when_woken;
pub mod post_commit;
pub mod reply;
pub mod rules;
pub mod server;
pub mod state_dir;
pub mod store;
pub mod supervise;
pub mod testing;
pub mod token;
pub mod turn_log;
pub mod turn_source;
pub mod turns;
pub mod util;
