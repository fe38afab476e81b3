//! Gate R1 and the second half of R5: the cost of relaying a delta compared with the least that our libraries allow, and
//! the memory of an open stream.
//!
//! A server process streams N answers at ten deltas a second each. The floor is a process that reads N streams with
//! reqwest and serde_json, and once a second puts the text of each on disk with SQLite (see [`storing`]): people may only
//! see what a power failure does not take back. A client that drops what it reads is no floor; the gateway costs 2.4, 1.6
//! and 1.5 times as much as one with reqwest, and this floor itself 1.7, 1.8 and 1.3 times. Ours is the whole gateway with
//! N rooms, whose answers are edited once a second. Both stay connected for all rounds, each with a server of its own, and
//! a server sends only while its process is measured.

mod consumers;
mod server;
mod storing;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::child::Child;
use crate::count::role;
use crate::rounds::ratio;
use crate::table::Row;

pub use consumers::{allow_many_files, relay};
pub use server::{INTERVAL, phase, server};
pub use storing::storing;

/// How long a stream runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(1500);

/// How long opening all streams may take.
const OPENING: Duration = Duration::from_secs(60);

/// R1.
pub fn cost(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let streams: &[usize] = match scale {
        Scale::Quick | Scale::Usual => &[1, 100, 1000],
        Scale::Full => &[1, 100, 1000, 5000],
    };
    let mut rows = Vec::new();
    for &streams in streams {
        crate::say(&format!("R1: {streams} streams"));
        // Few streams bring few deltas, so they are measured for longer.
        let window = Duration::from_secs(if streams < 10 { 10 } else { 4 });
        let mut least = Pair::open("storing", streams)?;
        let mut relay = Pair::open("relay", streams)?;
        let ratio = ratio("µs", || least.cpu_per_delta(window), || relay.cpu_per_delta(window))?;
        for consumer in [&mut least, &mut relay] {
            anyhow::ensure!(consumer.consumer.number("edits")? >= streams as f64, "a room shows nothing");
        }
        let what =
            format!("CPU per delta, relay / a client that stores, {streams} streams ({})", ratio.noise);
        rows.push(Row::at_most("R1", what, ratio.median, 1.3));
    }
    Ok(rows)
}

/// The second half of R5: memory of a thousand more streams. Compared with a process that has some already, because
/// caches and code that the first ones load are shared.
pub fn memory() -> anyhow::Result<Row> {
    const MORE: usize = 1000;
    let taken = |streams: usize| {
        let mut relay = Pair::open("relay", streams)?;
        relay.cpu_per_delta(Duration::from_secs(5))?;
        relay.consumer.number("memory")
    };
    let each = (taken(100 + MORE)? - taken(100)?) / MORE as f64 / 1024.0;
    Ok(Row::at_most("R5", format!("memory per stream, {MORE} more beside 100 (KB)"), each, 32.0))
}

/// A server and the process that reads from it.
struct Pair {
    server: Child,
    consumer: Child,
}

impl Pair {
    /// Starts both and waits until all streams are open.
    fn open(consumer: &str, streams: usize) -> anyhow::Result<Self> {
        let (server, port) = Child::start(&role(&[&"server"]))?;
        let (consumer, _) = Child::start(&role(&[&consumer, &port, &streams]))?;
        let mut pair = Self { server, consumer };
        pair.consumer.ask("begin")?;
        let deadline = Instant::now() + OPENING;
        while pair.server.number("open")? < streams as f64 {
            anyhow::ensure!(Instant::now() < deadline, "not all streams could be opened");
            sleep(Duration::from_millis(50));
        }
        Ok(pair)
    }

    /// Lets all streams run for a while; returns the consumer's CPU time for each delta, in µs.
    fn cpu_per_delta(&mut self, window: Duration) -> anyhow::Result<f64> {
        self.server.ask("go")?;
        sleep(WARM_UP);
        let before = (self.consumer.number("cpu")?, self.server.number("sent")?);
        sleep(window);
        let after = (self.consumer.number("cpu")?, self.server.number("sent")?);
        self.server.ask("pause")?;
        anyhow::ensure!(after.1 > before.1, "the server sent nothing");
        Ok((after.0 - before.0) / (after.1 - before.1) * 1e6)
    }
}
