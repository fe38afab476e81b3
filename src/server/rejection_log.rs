//! Tells the operator about rejected requests, without a valid key, with a foreign host name or from a foreign
//! web page: a line in the log and a row in the audit.
//!
//! Any client can cause these, so there is one per minute for each address and token, and a limit on all of
//! them together. Recorded are the address and the reason, and for a revoked token the name of its app; nothing
//! else of the request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::spawn_task;
use tokio::time::Instant;

use super::Server;
use super::auth_throttle::network;

/// Interval after which the same rejection is recorded again.
const AGAIN: Duration = Duration::from_secs(60);

/// Most rejections recorded in that interval: few, because the audit also has rows for refusals in rooms.
const MOST: usize = 8;

/// Rejections that were recorded recently.
#[derive(Default)]
pub struct RejectionLog {
    told: Mutex<HashMap<(IpAddr, RejectedRequest), Instant>>,
}

/// Kind of a rejected request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RejectedRequest {
    /// Addressed to a host name that is not ours, as after DNS rebinding.
    Name,
    /// Sent by a web page that is not listed.
    Page,
    /// Without a key.
    Nothing,
    /// With a key that is not ours.
    Key,
    /// With a key that looks like a token; its id, which is no secret.
    Token(String),
}

impl RejectionLog {
    fn is_news(&self, from: IpAddr, sent: &RejectedRequest, now: Instant) -> bool {
        let mut told = self.told.lock();
        told.retain(|_, at| now.duration_since(*at) < AGAIN);
        let about = (network(from), sent.clone());
        if told.len() >= MOST || told.contains_key(&about) {
            return false;
        }
        told.insert(about, now);
        true
    }
}

impl Server {
    /// Records a rejected request, unless that was done recently.
    pub(super) fn turned_away(&self, from: IpAddr, sent: RejectedRequest) {
        if !self.refusals.is_news(from, &sent, Instant::now()) {
            return;
        }
        let store = self.store.clone();
        // In a task of its own: the client does not wait for it, and the task ends with the store.
        spawn_task("log-rejections", async move {
            let kept = store.write(move |tx| {
                let (why, app) = match sent {
                    RejectedRequest::Name => ("unknown host", None),
                    RejectedRequest::Page => ("unknown origin", None),
                    RejectedRequest::Nothing => ("no key", None),
                    RejectedRequest::Key => ("unknown key", None),
                    RejectedRequest::Token(id) => match tx.revoked_app(&id)? {
                        Some(app) => ("revoked token", Some(app)),
                        // The secret may be right: its holder is outside of the token's networks.
                        None => match tx.token(&id)?.filter(|token| token.rights.networks.is_some()) {
                            Some(token) => ("token of a limited network", Some(token.app)),
                            None => ("unknown token", None),
                        },
                    },
                };
                tx.audit_turned_away(&from.to_string(), why)?;
                Ok((why, app))
            });
            match kept.await {
                Ok((why, app)) => {
                    tracing::warn!(address = %from, why, app, "a request was turned away; this is said once a minute");
                }
                Err(error) => {
                    tracing::error!(%error, address = %from, "a request was turned away, and the store failed")
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_a_minute_and_all_together_are_bounded() {
        let (refusals, start) = (RejectionLog::default(), Instant::now());
        let address = |number: u32| IpAddr::V4(std::net::Ipv4Addr::from_bits(number));
        let token = RejectedRequest::Token("0123abcd".to_owned());
        for sent in [
            RejectedRequest::Name,
            RejectedRequest::Page,
            RejectedRequest::Nothing,
            RejectedRequest::Key,
            token.clone(),
        ] {
            assert!(refusals.is_news(address(1), &sent, start), "{sent:?}");
            assert!(!refusals.is_news(address(1), &sent, start + AGAIN / 2), "{sent:?}");
        }
        let told = (2..1000)
            .filter(|number| refusals.is_news(address(*number), &RejectedRequest::Key, start))
            .count();
        assert_eq!(told, MOST - 5);
        assert!(refusals.is_news(address(1), &token, start + AGAIN));
    }
}
