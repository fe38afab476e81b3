//! Stores an agent's reports about a session while its turn runs.
//!
//! A report is stored at once and not with the end of the turn: a process that dies in between would otherwise leave
//! something at the upstream that nobody knows of.

use std::convert::Infallible;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::Turns;
use crate::agent::UPSTREAM_BYTES;
use crate::ids::{AgentName, SessionId};
use crate::store::{Store, StoreError};

/// The latest report of a running agent. An earlier one that was not stored yet is skipped.
#[derive(Default)]
pub(super) struct UpstreamReports {
    state: Mutex<ReportState>,
    /// Woken by a new report, for [`Turns::keep_reports`].
    news: Notify,
}

#[derive(Default)]
struct ReportState {
    latest: Option<Value>,
    /// Number of reports so far, and of the one that is stored.
    number: u64,
    stored: u64,
}

impl UpstreamReports {
    /// Takes a report. One that is too large is dropped, and so is the report before it, which is out of date.
    pub fn put(&self, report: Value) {
        let fits = report.to_string().len() <= UPSTREAM_BYTES;
        if !fits {
            tracing::warn!("the agent reported too much about its session; the report is dropped");
        }
        let mut state = self.state.lock();
        state.latest = fits.then_some(report);
        state.number += 1;
        drop(state);
        self.news.notify_one();
    }

    /// The latest report and its number, if it is not stored yet.
    fn unstored(&self) -> Option<(u64, Option<Value>)> {
        let state = self.state.lock();
        (state.number > state.stored).then(|| (state.number, state.latest.clone()))
    }

    /// Stores the latest report if it is not stored yet. An error is in the log by then.
    pub async fn store(
        &self,
        store: &Store,
        session: &SessionId,
        agent: &AgentName,
    ) -> Result<(), StoreError> {
        let Some((number, report)) = self.unstored() else { return Ok(()) };
        let (session, agent) = (session.clone(), agent.clone());
        let written = store.write(move |tx| tx.set_upstream(&session, &agent, report.as_ref())).await;
        match &written {
            Ok(()) => {
                let mut state = self.state.lock();
                state.stored = state.stored.max(number);
            }
            Err(error) => tracing::error!(%error, "a report of the agent was not stored"),
        }
        written
    }
}

impl Turns {
    /// Stores reports as they come, until it is dropped.
    pub(super) async fn keep_reports(
        &self,
        session: &SessionId,
        agent: &AgentName,
        reports: &UpstreamReports,
    ) -> Infallible {
        loop {
            reports.news.notified().await;
            self.store_report(session, agent, reports).await;
        }
    }

    /// Stores the latest report if it is not stored yet.
    pub(super) async fn store_report(
        &self,
        session: &SessionId,
        agent: &AgentName,
        reports: &UpstreamReports,
    ) {
        // It is tried again with the next report, and at the end of the try.
        let _ = reports.store(&self.store, session, agent).await;
    }
}
