//! How a gateway that runs is, as its operator is told: in one line, and for each platform.

use std::time::Duration;

use super::api::{Health, PlatformState, StandInStatus};
use super::problem::Problem;
use super::{Office, Running};
use crate::delivery::{Account, Reading};
use crate::reply;

/// How long the store may take to prove that it is there.
const STORE: Duration = Duration::from_secs(5);

/// Whether people are served: the process answers (or nobody would read this), the store answers on both of its
/// threads, at least one platform reads (or there are none, and the agent server serves), and the agent is not known to fail.
pub(super) async fn judge(office: &Office, running: &Running) -> Result<Health, Problem> {
    let stand_in = stand_in(running, &*office.rules_now()?);
    let sick = |words: String| Ok(Health { healthy: false, words, stand_in: stand_in.clone() });
    let store = async {
        office.store.read(|_| Ok(())).await?;
        // Nothing is written, so nothing reaches the disk; but the thread that writes must be there.
        office.store.write(|_| Ok(())).await
    };
    match tokio::time::timeout(STORE, store).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return sick(format!("the store fails: {error}")),
        Err(_) => return sick(format!("the store has not answered for {} seconds", STORE.as_secs())),
    }
    let silent: Vec<String> = running
        .accounts
        .iter()
        .filter(|account| state(running, account) != PlatformState::Reads)
        .map(|account| format!("{} {}", account.id(), state(running, account).words()))
        .collect();
    let server_alone = running.accounts.is_empty() && running.served.is_some();
    if silent.len() == running.accounts.len() && !server_alone {
        return sick(format!("no platform reads: {}", silent.join(", ")));
    }
    if let Some((times, why)) = running.turns.failing() {
        let why = why.to_string();
        let why = reply::one_line(reply::bare(&why), 200);
        return sick(format!("the agent failed the last {times} times: {why}"));
    }
    let away = stand_in.as_ref().filter(|other| other.answers);
    let away = away.map(|other| format!("the agent is away and {} answers", other.name));
    let but: Vec<String> = silent.into_iter().chain(away).collect();
    let words = if but.is_empty() { "ok".to_owned() } else { format!("ok, but {}", but.join(", ")) };
    Ok(Health { healthy: true, words, stand_in })
}

/// Who stands in for the agent, and whether it does.
pub(super) fn stand_in(running: &Running, rules: &crate::rules::Rules) -> Option<StandInStatus> {
    let other = running.turns.agent().stand_in?;
    Some(StandInStatus { name: rules.words.say(&other.name), answers: other.answers })
}

pub(super) fn state(running: &Running, account: &Account) -> PlatformState {
    if account.lost().is_cancelled() {
        return PlatformState::Lost;
    }
    match account.reading() {
        Reading::Starting => PlatformState::Starting,
        Reading::Reads if running.deaf.contains(account.id()) => PlatformState::Deaf,
        Reading::Reads if account.platform().is_away() => PlatformState::Away,
        Reading::Reads => PlatformState::Reads,
        Reading::Pausing => PlatformState::Pausing,
        Reading::Ended => PlatformState::Ended,
    }
}

impl PlatformState {
    /// For people, after the platform's name.
    pub fn words(self) -> &'static str {
        match self {
            Self::Starting => "is starting",
            Self::Reads => "reads",
            Self::Away => "does not reach its network, and tries again",
            Self::Pausing => "failed and is tried again",
            Self::Ended => "has nothing more to read",
            Self::Deaf => "has no input (standard input is closed)",
            Self::Lost => "is lost (see the log)",
        }
    }
}
