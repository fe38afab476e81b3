//! Time limits of the servers that agents ask.

use std::time::Duration;

use serde::Deserialize;

use crate::config::value::TimeSpan;

/// Time limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the first byte of an answer.
    pub first_byte: Duration,
    /// Between two reads of an answer.
    pub idle: Duration,
    /// Between two reads of a stream that has shown a keep-alive comment.
    pub keepalive_idle: Duration,
}

/// `agents.<name>.timeouts:`
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct TimeoutsSection {
    /// Time limit for connecting. Default: `10s`.
    pub(super) connect: Option<TimeSpan<1>>,
    /// Time limit for the first byte of an answer. Default: `300s`.
    pub(super) first_byte: Option<TimeSpan<1>>,
    /// Longest pause within an answer. Default: `300s`.
    pub(super) idle: Option<TimeSpan<1>>,
    /// Longest pause within an answer on a stream that has shown keep-alive comments. Default: `60s`.
    pub(super) keepalive_idle: Option<TimeSpan<1>>,
}

impl TimeoutsSection {
    /// The limits, with defaults for those that are not written.
    pub(super) fn resolve(self) -> UpstreamTimeouts {
        let seconds = |written: Option<TimeSpan<1>>, default: u64| {
            written.map_or(Duration::from_secs(default), |span| span.0)
        };
        UpstreamTimeouts {
            connect: seconds(self.connect, 10),
            first_byte: seconds(self.first_byte, 300),
            idle: seconds(self.idle, 300),
            keepalive_idle: seconds(self.keepalive_idle, 60),
        }
    }
}
