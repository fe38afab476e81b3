//! The rules of the contract as a test suite, called by every adapter's own tests.
//!
//! An adapter writes one [`ConformanceWorld`]: its platform, connected to a network that the test controls (a
//! mock server, a pipe in memory). Then the whole suite is one test:
//!
//! ```ignore
//! #[tokio::test]
//! async fn keeps_the_contract() {
//!     conformance::run_all(async || MyWorld::new().await).await;
//! }
//! ```
//!
//! Every check gets a world of its own and fails with the rule that was broken. The checks are about what people and
//! the core can see; an adapter's own tests check how it talks to its network. [`MemoryInbox`] is useful there too.

mod inbox;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

pub use inbox::MemoryInbox;

use crate::{BoxFuture, Place, Platform, PlatformError};

/// The longest time an adapter may take for anything the suite waits for. Long, because the suite waits for all of it
/// only when a rule is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// An account on a network that the test controls, with one place where a person and we can talk.
pub trait ConformanceWorld: Send + Sync {
    /// The adapter. A second call stands for a restart: a new platform for the same account on the same network, as a
    /// new process would make it. The suite restarts only where [`resumes`](ConformanceWorld::resumes) is true or
    /// [`keys`](ConformanceWorld::keys) is [`SendKeySupport::Always`].
    fn platform(&self) -> Arc<dyn Platform>;

    /// The place where the person writes and where the suite makes the platform answer.
    fn place(&self) -> Place;

    /// Makes a person write this text, addressed to us. When it returns, the network has the message; the platform
    /// may or may not be reading at that time.
    fn person_says<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()>;

    /// Our messages as people see them now, oldest first, each with its whole text. The suite sends single lines of
    /// plain words, so the conversion of Markdown does not matter.
    fn shown(&self) -> BoxFuture<'_, Vec<String>>;

    /// Whether `run` must open the account first, as with a login: until its first position is accepted, nothing can
    /// be sent, and earlier messages are history. Then the suite also runs the platform for checks that only write,
    /// and no person writes before that position is there.
    fn opens(&self) -> bool {
        false
    }

    /// For how long the network recognises a repeated send.
    fn keys(&self) -> SendKeySupport {
        SendKeySupport::Always
    }

    /// Whether messages that came while nobody read can be read later. True for a network that keeps its messages,
    /// false for a terminal.
    fn resumes(&self) -> bool {
        true
    }
}

/// For how long a network recognises a repeated send by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendKeySupport {
    /// Also after a restart; every adapter should aim at this.
    Always,
    /// Only while the process lives.
    WithinProcess,
    /// Never. The adapter's documentation must say so.
    Never,
}

/// Runs every check and panics with all the rules that were broken.
pub async fn run_all<W: ConformanceWorld>(new_world: impl AsyncFn() -> W) {
    let broken = broken_rules(new_world).await;
    assert!(broken.is_empty(), "the adapter breaks the contract:\n- {}", broken.join("\n- "));
}

/// Runs every check and returns the rules that were broken, one sentence each.
pub async fn broken_rules<W: ConformanceWorld>(new_world: impl AsyncFn() -> W) -> Vec<String> {
    let outcomes = [
        writing::about_is_constant_and_sane(&new_world().await).await,
        writing::a_done_answer_is_shown_whole(&new_world().await).await,
        writing::one_key_posts_once(&new_world().await).await,
        writing::one_key_posts_once_after_a_restart(&new_world().await).await,
        writing::an_answer_grows_as_announced(&new_world().await).await,
        writing::the_end_may_replace_the_beginning(&new_world().await).await,
        writing::delete_does_as_announced(&new_world().await).await,
        writing::fetch_does_as_announced(&new_world().await).await,
        writing::react_does_as_announced(&new_world().await).await,
        writing::signals_are_harmless(&new_world().await).await,
        reading::a_message_arrives_once(&new_world().await).await,
        reading::a_restart_loses_nothing(&new_world().await).await,
        reading::a_failing_store_loses_nothing(&new_world().await).await,
        reading::stop_ends_the_reading(&new_world().await).await,
    ];
    outcomes.into_iter().filter_map(Result::err).collect()
}

/// Result of a check: the broken rule as a sentence, or nothing.
type CheckResult = Result<(), String>;

/// Fails with `rule` unless `holds`.
fn must(holds: bool, rule: impl Display) -> CheckResult {
    if holds { Ok(()) } else { Err(rule.to_string()) }
}

/// Waits for a call that has to return; after [`PATIENCE`] fails with its name.
async fn soon<T>(call: &str, future: impl Future<Output = T>) -> Result<T, String> {
    let seconds = PATIENCE.as_secs();
    tokio::time::timeout(PATIENCE, future)
        .await
        .map_err(|_| format!("every call must come to an end, but {call} took more than {seconds} s"))
}

/// The text of an error, with its cause.
fn cause_of(error: &PlatformError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
