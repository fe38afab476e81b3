//! Talaria relays between chat rooms and an AI agent.
//!
//! This page is the map. A message travels like this:
//!
//! 1. A **platform** (`talaria_platform`, built in [`platforms`]) reads it and hands it to its inbox.
//! 2. The [`hub`] takes it: one transaction asks [`access`] whether it may be, and makes it a waiting turn
//!    or a [`command`].
//! 3. [`turns`], the one engine, runs it when its session has come to it: the only caller of an
//!    [`agent`]. Agents that speak the chat-completions protocol share [`openai`].
//! 4. A [`conversation`] watches the turn and folds its events into a [`reply`]: always the whole text
//!    that should be visible now.
//! 5. [`delivery`] makes the platform show it, as often as the [`pace`] permits, and keeps what must
//!    arrive until it has.
//!
//! Around that: [`config`] is complete and checked before anything starts, [`rules`] are the part of it that
//! may change while we run, the [`server`] asks for the same turns over HTTP, [`i18n`] is the catalogue of all that
//! rooms are told and [`notice`] tells them, the [`store`] holds all that is durable and is the only place with SQL,
//! [`ids`] makes ids, [`media`] judges attached files, and the [`gateway`] builds, supervises ([`supervise`]) and drains
//! it all, in the folder that [`state_dir`] locks. The operator's commands reach a running process through [`control`];
//! programs that may ask have a [`token`], and [`metrics`] is for monitoring. [`util`] holds helpers without a domain,
//! [`os`] the calls that only Linux has, and [`poll_when_woken`] polls a future that nearly never has anything to do.

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
