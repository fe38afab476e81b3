//! The agent server as a relay: gates R6 (compared with nginx) and C1 (a crowd of streams); and with an agent of its
//! own: A1 (compared with servers in Python).
//!
//! A model streams ten deltas a second to every client, each with the time at which it was sent; a reader opens N
//! streams and measures their delay. Between the two is the real program, or nginx, or nothing; for A1 the server
//! makes the deltas itself. Each chain has a model and a reader of its own and stays open for all rounds; a model
//! sends only while its chain is measured.

mod others;
mod reader;
mod ticking;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::child::{Child, resident};
use crate::count::role;
use crate::rounds::ratio;
use crate::table::Row;
use others::{Other, Relay};
use ticking::Kind;

pub use others::KEY;
pub use reader::reader;
pub use ticking::{server_settings, ticking};

/// How long a chain runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(1500);

/// How long a measurement takes.
const WINDOW: Duration = Duration::from_secs(4);

/// How long opening all streams may take, and serving a crowd.
const PATIENCE: Duration = Duration::from_secs(120);

/// A model, its relay, and the reader.
struct Chain {
    // Dropped first: a relay that loses its model would retry.
    reader: Child,
    relay: Option<Relay>,
    model: Child,
}

impl Chain {
    /// Opens streams through a relay, or directly from the model.
    fn open(other: Option<Other>, streams: usize) -> anyhow::Result<Self> {
        let (mut model, port) = Child::start(&role(&[&"server"]))?;
        let relay = other.map(|other| Relay::start(other, port.parse()?)).transpose()?;
        let port = relay.as_ref().map_or(port, |relay| relay.port.to_string());
        let reader = read(&port, streams, &mut model)?;
        Ok(Self { reader, relay, model })
    }

    /// Lets all streams run for a while; returns the relay's CPU time for each delta, in µs, and the median delay of
    /// a delta, in µs.
    fn measure(&mut self) -> anyhow::Result<(f64, f64)> {
        self.model.ask("go")?;
        sleep(WARM_UP);
        self.reader.number("median")?;
        let before = (self.cpu()?, self.model.number("sent")?);
        sleep(WINDOW);
        let after = (self.cpu()?, self.model.number("sent")?);
        let median = self.reader.number("median")?;
        self.model.ask("pause")?;
        anyhow::ensure!(after.1 > before.1, "the model sent nothing");
        anyhow::ensure!(median.is_finite(), "nothing arrived");
        Ok(((after.0 - before.0) / (after.1 - before.1) * 1e6, median))
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        self.relay.as_ref().map_or(Ok(0.0), Relay::cpu)
    }
}

/// Opens streams at `port`, and waits until the source of the deltas has seen them all.
fn read(port: &str, streams: usize, source: &mut Child) -> anyhow::Result<Child> {
    let (reader, _) = Child::start(&role(&[&"reader", &port, &streams]))?;
    let deadline = Instant::now() + PATIENCE;
    while source.number("open")? < streams as f64 {
        anyhow::ensure!(Instant::now() < deadline, "not all streams could be opened");
        sleep(Duration::from_millis(50));
    }
    Ok(reader)
}

/// Why R6 is missed, as far as is known. strace showed one read and one write of ours for each delta, perf more than
/// half of the time in the kernel, callgrind 22,000 instructions of our own; nginx was not profiled in the same way.
const KNOWN: &str = "nginx passes bytes on, we read, keep and write events";

/// R6: the delay that the server adds to a delta, and its cost, compared with nginx.
pub fn beside_nginx() -> anyhow::Result<Vec<Row>> {
    const STREAMS: usize = 1000;
    let mut direct = Chain::open(None, STREAMS)?;
    let mut nginx = Chain::open(Some(Other::Nginx), STREAMS)?;
    let mut ours = Chain::open(Some(Other::Talaria), STREAMS)?;
    let cost = ratio("µs", || Ok(nginx.measure()?.0), || Ok(ours.measure()?.0))?;
    // Each compared with the direct way of the same moment.
    let mut added = |chain: &mut Chain| -> anyhow::Result<f64> {
        let floor = direct.measure()?.1;
        Ok((chain.measure()?.1 - floor).max(1.0))
    };
    let mut added_by_nginx = Vec::new();
    let mut added_by_us = Vec::new();
    for _ in 0..crate::rounds::ROUNDS {
        added_by_nginx.push(added(&mut nginx)?);
        added_by_us.push(added(&mut ours)?);
    }
    let (theirs, us) = (crate::rounds::median(added_by_nginx), crate::rounds::median(added_by_us));
    let late = format!("added p50, server / nginx, {STREAMS} streams ({us:.0} µs / {theirs:.0} µs)");
    let work = format!("CPU per delta, server / nginx, {STREAMS} streams ({})", cost.noise);
    Ok(vec![
        Row::at_most("R6", late, us / theirs, 1.5).known(2.0, KNOWN),
        Row::at_most("R6", work, cost.median, 1.3).known(2.6, KNOWN),
    ])
}

/// Why A1 is missed: the kernel's cost of a write is the same for everybody, and here it is most of the cost of a
/// delta. The row shows the cost of a server that only writes, which is above the second limit by itself.
const WRITING: &str = "most of it is the write itself, as the server that only writes shows";

/// A1: the cost of a delta that the server's own agent makes, compared with servers in Python, and with one that only
/// writes.
pub fn beside_python() -> anyhow::Result<Vec<Row>> {
    /// Half of the others' maximum: a server that is never idle writes several deltas at once.
    const STREAMS: usize = 500;
    let mut rows = Vec::new();
    for (kind, limit) in [(Kind::Aiohttp, 0.35), (Kind::FastApi, 0.25)] {
        let mut python = Alone::open(ticking::start(kind)?, STREAMS)?;
        let mut least = Alone::open(Child::start(&role(&[&"server"]))?, STREAMS)?;
        let mut ours = Alone::open(ticking::start(Kind::Talaria)?, STREAMS)?;
        let least = ratio("µs", || python.cpu_per_delta(), || least.cpu_per_delta())?;
        let ratio = ratio("µs", || python.cpu_per_delta(), || ours.cpu_per_delta())?;
        let what = format!(
            "CPU per delta, server / {kind:?}, {STREAMS} streams ({}; one that only writes: {:.2})",
            ratio.noise, least.median
        );
        rows.push(Row::at_most("A1", what, ratio.median, limit).known(0.8, WRITING));
    }
    Ok(rows)
}

/// A server that makes the deltas itself, and its reader.
struct Alone {
    reader: Child,
    server: Child,
}

impl Alone {
    fn open((mut server, port): (Child, String), streams: usize) -> anyhow::Result<Self> {
        Ok(Self { reader: read(&port, streams, &mut server)?, server })
    }

    /// Lets all streams run for a while; returns the server's CPU time for each delta, in µs.
    fn cpu_per_delta(&mut self) -> anyhow::Result<f64> {
        self.server.ask("go")?;
        sleep(WARM_UP);
        self.reader.number("median")?;
        let before = (self.server.number("cpu")?, self.server.number("sent")?);
        sleep(WINDOW);
        let after = (self.server.number("cpu")?, self.server.number("sent")?);
        self.server.ask("pause")?;
        anyhow::ensure!(self.reader.number("median")?.is_finite(), "nothing arrived");
        Ok((after.0 - before.0) / (after.1 - before.1) * 1e6)
    }
}

/// C1: a thousand streams of a hundred deltas each, all at once.
pub fn crowd(scale: Scale) -> anyhow::Result<Vec<Row>> {
    const DELTAS: usize = 100;
    let streams = if scale == Scale::Quick { 200 } else { 1000 };
    let (mut model, port) = Child::start(&role(&[&"server", &DELTAS]))?;
    let relay = Relay::start(Other::Talaria, port.parse()?)?;
    let idle = resident(relay.id())?;
    model.ask("go")?;
    let (mut reader, _) = Child::start(&role(&[&"reader", &relay.port, &streams, &DELTAS]))?;
    let (deadline, mut most) = (Instant::now() + PATIENCE, idle);
    while reader.number("ended")? < streams as f64 {
        anyhow::ensure!(Instant::now() < deadline, "not all streams came to their end");
        most = most.max(resident(relay.id())?);
        sleep(Duration::from_millis(100));
    }
    let whole = reader.number("whole")?;
    let first = reader.number("first")? / 1e6;
    let each = (most - idle) / streams as f64 / 1024.0;
    Ok(vec![
        Row::at_least(
            "C1",
            format!("streams of {DELTAS} deltas, all there and in order"),
            whole,
            streams as f64,
        ),
        Row::at_most("C1", format!("latest first delta of {streams} streams (s)"), first, 1.0),
        Row::at_most("C1", format!("memory per stream, {streams} at once (KB)"), each, 64.0),
    ])
}
