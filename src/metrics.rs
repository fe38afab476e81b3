//! Counters and gauges for monitoring (`GET /metrics`).
//!
//! One instance per gateway, shared by all code that counts. Counters and gauges are single atomics; a
//! histogram has a lock, so code that runs once per delta must not use one. Labels are few and fixed: none of
//! them comes from people, rooms or programs.

use std::sync::OnceLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::os;
use crate::reply::TurnOutcome;
use crate::store::Store;

/// All metrics.
pub struct Metrics {
    registry: Registry,
    /// Turns of rooms.
    pub rooms: SurfaceMetrics,
    /// Turns of HTTP callers.
    pub http: SurfaceMetrics,
    /// Turns whose agent is answering now.
    pub streams: Gauge,
    /// HTTP clients that read a turn now.
    pub readers: Gauge,
    /// Edits that platforms were asked to make.
    pub edits: Counter,
    /// Attempts of a turn after its first.
    pub agent_retries: Counter,
    /// Attempts to deliver a message after its first.
    pub delivery_retries: Counter,
    /// Set when metrics are read.
    queues: Family<QueueLabel, Gauge>,
    memory: Gauge,
    files: Gauge,
    agent_processes: Gauge,
    agent_memory: Gauge,
    /// Counts the processes of agents and their bytes of memory. Set once, by the process that starts them.
    count_agents: OnceLock<AgentCounter>,
}

/// Returns the number of processes of agents, and their bytes of memory. May look at every process of this user.
type AgentCounter = Box<dyn Fn() -> (usize, i64) + Send + Sync>;

/// Metrics of turns from one kind of source.
pub struct SurfaceMetrics {
    ended: Family<OutcomeLabels, Counter>,
    name: &'static str,
    /// Time from taking a turn to the first text of its answer.
    pub first_delta: Histogram,
}

/// Lengths of queues when metrics are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitingCounts {
    /// Turns behind another turn of their session.
    pub turns: usize,
    /// Messages in the outbox that have not arrived yet.
    pub outbox: usize,
    /// Deleted messages whose earlier texts a network still keeps.
    pub cleanups: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    surface: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SurfaceLabel {
    surface: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLabel {
    of: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

/// Name of every [`TurnOutcome`], so that each counter exists before the first turn ends like that.
const OUTCOMES: [&str; 9] =
    ["done", "stopped", "limit", "cut_short", "failed", "unavailable", "interrupted", "unknown", "cancelled"];

impl Metrics {
    /// Registers all metrics. All are zero but those of the store.
    pub fn new(store: &Store) -> Self {
        let mut all = Registry::default();
        let (memory, files) = (Gauge::default(), Gauge::default());
        // Standard names of process metrics.
        all.register_with_unit("process_resident_memory", "Memory", Unit::Bytes, memory.clone());
        all.register("process_open_fds", "Files and connections that are open", files.clone());
        let registry = all.sub_registry_with_prefix("talaria");
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The program that runs", Info::new(version));
        let ended = Family::<OutcomeLabels, Counter>::default();
        registry.register(
            "turns",
            "Turns that ended, by where they were asked and how they ended",
            ended.clone(),
        );
        let first = Family::<SurfaceLabel, Histogram, fn() -> Histogram>::new_with_constructor(waits);
        let about = "From when a turn is taken up to the first text of its answer";
        registry.register_with_unit("first_delta", about, Unit::Seconds, first.clone());
        let surface = |name| {
            for outcome in OUTCOMES {
                let _ = ended.get_or_create(&OutcomeLabels { surface: name, outcome });
            }
            let first_delta = first.get_or_create_owned(&SurfaceLabel { surface: name });
            SurfaceMetrics { ended: ended.clone(), name, first_delta }
        };
        let (rooms, http) = (surface("room"), surface("http"));
        let (streams, readers, edits) = (Gauge::default(), Gauge::default(), Counter::default());
        registry.register("streams_open", "Turns whose agent answers now", streams.clone());
        registry.register("readers_open", "Programs that read a turn now", readers.clone());
        registry.register("edits_sent", "Edits that platforms were asked for", edits.clone());
        let retries = Family::<OfLabel, Counter>::default();
        registry.register("retries", "Tries after the first, of turns and of messages", retries.clone());
        let retried = |of| retries.get_or_create_owned(&OfLabel { of });
        let (agent_retries, delivery_retries) = (retried("agent"), retried("delivery"));
        let about = "From when something is asked of the store to its answer; a write is then on disk";
        for (name, histogram) in store.timings() {
            registry.register_with_unit(format!("store_{name}"), about, Unit::Seconds, histogram);
        }
        let (agent_processes, agent_memory) = (Gauge::default(), Gauge::default());
        registry.register(
            "agent_processes",
            "Processes of agents that are programs",
            agent_processes.clone(),
        );
        let about = "Memory of the processes of agents, with everything that they started";
        registry.register_with_unit("agent_process_memory", about, Unit::Bytes, agent_memory.clone());
        let queues = Family::<QueueLabel, Gauge>::default();
        registry.register("queue_length", "What waits, by where", queues.clone());
        Self {
            registry: all,
            rooms,
            http,
            streams,
            readers,
            edits,
            agent_retries,
            delivery_retries,
            queues,
            memory,
            files,
            agent_processes,
            agent_memory,
            count_agents: OnceLock::new(),
        }
    }

    /// Sets what counts the processes of agents and their bytes of memory. Only the first call counts.
    pub fn count_agents(&self, count: impl Fn() -> (usize, i64) + Send + Sync + 'static) {
        let _ = self.count_agents.set(Box::new(count));
    }

    /// All metrics as text, with their current values. May take some milliseconds where agents are programs.
    pub fn text(&self, store: &Store, waiting: WaitingCounts) -> String {
        let (reads, writes) = store.waiting();
        let queues = [
            ("turns", waiting.turns),
            ("outbox", waiting.outbox),
            ("cleanups", waiting.cleanups),
            ("store_reads", reads),
            ("store_writes", writes),
        ];
        for (queue, length) in queues {
            self.queues.get_or_create(&QueueLabel { queue }).set(i64::try_from(length).unwrap_or(i64::MAX));
        }
        self.memory.set(os::resident_memory().unwrap_or_default());
        self.files.set(os::open_files().unwrap_or_default());
        if let Some(count) = self.count_agents.get() {
            let (processes, memory) = count();
            self.agent_processes.set(i64::try_from(processes).unwrap_or(i64::MAX));
            self.agent_memory.set(memory);
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        text
    }
}

impl SurfaceMetrics {
    /// Counts a turn that has ended.
    pub fn ended(&self, outcome: &TurnOutcome) {
        let (outcome, _) = outcome.for_the_log();
        self.ended.get_or_create(&OutcomeLabels { surface: self.name, outcome }).inc();
    }
}

/// Raises a gauge by one while it exists.
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    /// Raises the gauge.
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Buckets for waits on other services: from a millisecond to four minutes.
fn waits() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_counter_from_the_start() {
        let words = || crate::i18n::LocalizedText::from("");
        for outcome in [
            TurnOutcome::Done,
            TurnOutcome::Stopped,
            TurnOutcome::Limit,
            TurnOutcome::CutShort { words: words() },
            TurnOutcome::Failed { words: words() },
            TurnOutcome::Unavailable { words: words(), rate_limited: true, retry_after: 1 },
            TurnOutcome::Interrupted,
            TurnOutcome::Unknown { words: words() },
            TurnOutcome::Cancelled { words: words() },
        ] {
            assert!(OUTCOMES.contains(&outcome.for_the_log().0));
        }
    }
}
