//! What the operator is told of requests without a key that counts, of those for a server of another name, and of those
//! that a page elsewhere sends: a line in the log and a row in the audit.
//!
//! Anybody can make us write them, so there is one a minute for each address and token, and a bound for all of them
//! together. Of what was sent nothing is told but which token it was, which is no secret.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::spawn_task;
use tokio::time::Instant;

use super::Server;
use super::auth_throttle::network;

/// How soon the same is told again.
const AGAIN: Duration = Duration::from_secs(60);

/// What is told in that time, at most: few, because the audit has rows for refusals in rooms beside these.
const MOST: usize = 8;

/// What was told of late.
#[derive(Default)]
pub struct RejectionLog {
    told: Mutex<HashMap<(IpAddr, RejectedRequest), Instant>>,
}

/// What was turned away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RejectedRequest {
    /// What calls the server by a name that it does not have, as a forged one does.
    Name,
    /// What a page sends that is not listed.
    Page,
    /// No key.
    Nothing,
    /// One that is none of ours.
    Key,
    /// What looks like a token; which one, by the part that is no secret.
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
    /// A request was turned away because of this.
    pub(super) fn turned_away(&self, from: IpAddr, sent: RejectedRequest) {
        if !self.refusals.is_news(from, &sent, Instant::now()) {
            return;
        }
        let store = self.store.clone();
        // A task of its own: whoever was turned away does not wait for it, and it ends with the store.
        spawn_task("log rejections", async move {
            let kept = store.write(move |tx| {
                let (why, app) = match sent {
                    RejectedRequest::Name => ("unknown host", None),
                    RejectedRequest::Page => ("unknown origin", None),
                    RejectedRequest::Nothing => ("no key", None),
                    RejectedRequest::Key => ("unknown key", None),
                    RejectedRequest::Token(id) => match tx.revoked_app(&id)? {
                        Some(app) => ("revoked token", Some(app)),
                        None => ("unknown token", None),
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
