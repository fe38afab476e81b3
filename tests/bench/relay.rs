//! Gate R1 and the second half of R5: the cost of relaying a delta compared with only receiving it, and the memory of
//! an open stream.
//!
//! A server process streams N answers at ten deltas a second each. The floor is a process that reads N streams with
//! reqwest and our parser and drops the events; ours is the whole gateway with N rooms, whose answers are edited once a second and
//! stored in a database. Both stay connected for all rounds, each with a server of its own, and a server sends only
//! while its process is measured.

mod consumers;
mod server;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::child::Child;
use crate::count::role;
use crate::rounds::ratio;
use crate::table::Row;

pub use consumers::{allow_many_files, bare, relay};
pub use server::{INTERVAL, phase, server};

/// How long a stream runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(1500);

/// How long opening all streams may take.
const OPENING: Duration = Duration::from_secs(60);

/// Why R1 is missed. Of 13,700 instructions per delta with 50 streams, counted with callgrind, hyper's connection
/// takes 3,200, reading and storing the text 3,300, the tenth part of an edit with its checkpoint 3,700, and tokio
/// most of the rest.
const KNOWN: &str = "hyper, and a checkpoint on disk before each edit";

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
        let mut bare = Pair::open("bare", streams)?;
        let mut relay = Pair::open("relay", streams)?;
        let ratio = ratio("µs", || bare.cpu_per_delta(window), || relay.cpu_per_delta(window))?;
        let edits = relay.consumer.number("edits")?;
        anyhow::ensure!(edits >= streams as f64, "the rooms show nothing");
        let what = format!("CPU per delta, relay / a bare client, {streams} streams ({})", ratio.noise);
        // With one stream every wake-up of a thread is for one delta alone.
        let worst = if streams < 10 { 4.5 } else { 3.0 };
        rows.push(Row::at_most("R1", what, ratio.median, 1.3).known(worst, KNOWN));
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
    let row = Row::at_most("R5", format!("memory per stream, {MORE} more beside 100 (KB)"), each, 32.0);
    // Counted with dhat: two buffers of 8 KB, and a channel for requests that has room for 32 at once.
    Ok(row.known(42.0, "25 KB of it are hyper's for each connection"))
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
