//! The agent server as a relay: gates R6 (compared with the least relay on our libraries) and C1 (a crowd of streams); and
//! with an agent of its own: A1 (compared with a server that only writes).
//!
//! A model streams ten deltas a second to every client, each with the time at which it was sent; a reader opens N
//! streams and measures their delay. Between the two is the real program, or the least relay, or nothing; for A1 the server
//! makes the deltas itself. Each chain has a model and a reader of its own and stays open for all rounds; a model
//! sends only while its chain is measured.

mod least;
mod others;
mod reader;
mod ticking;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::child::{Child, resident};
use crate::count::role;
use crate::rounds::{ROUNDS, median, ratio};
use crate::table::Row;
use others::{Other, Relay};

pub use least::{passing, writer};
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

/// R6: the delay that the server adds to a delta, and its cost, compared with the least relay on our libraries. Nginx is no
/// floor for us: it passes bytes on and reads none of them. Beside it that relay costs 1.3 times the CPU and adds 1.4 times
/// the delay, and the server costs and adds twice as much.
pub fn beside_relay() -> anyhow::Result<Vec<Row>> {
    const STREAMS: usize = 1000;
    let mut direct = Chain::open(None, STREAMS)?;
    let mut ours = Chain::open(Some(Other::Talaria), STREAMS)?;
    let mut least = Chain::open(Some(Other::Passing), STREAMS)?;
    let cost = ratio("µs", || Ok(least.measure()?.0), || Ok(ours.measure()?.0))?;
    // Each compared with the direct way of the same moment.
    let mut added = |chain: &mut Chain| -> anyhow::Result<f64> {
        let floor = direct.measure()?.1;
        Ok((chain.measure()?.1 - floor).max(1.0))
    };
    let (mut by_it, mut by_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        by_it.push(added(&mut least)?);
        by_us.push(added(&mut ours)?);
    }
    let (it, us) = (median(by_it), median(by_us));
    let late = format!("added p50, server / least relay, {STREAMS} streams ({us:.0} µs / {it:.0} µs)");
    let work = format!("CPU per delta, server / least relay, {STREAMS} streams ({})", cost.noise);
    Ok(vec![Row::at_most("R6", late, us / it, 1.5), Row::at_most("R6", work, cost.median, 1.5)])
}

/// A1: the cost of a delta that the server's own agent makes, compared with a server on axum that only writes. One that
/// writes to the socket itself, without HTTP, costs four fifths of that.
pub fn beside_writer() -> anyhow::Result<Vec<Row>> {
    /// A server that is never idle writes several deltas at once, so there are fewer than it could serve.
    const STREAMS: usize = 500;
    let mut least = Alone::open(Child::start(&role(&[&"writer"]))?, STREAMS)?;
    let mut ours = Alone::open(Child::start(&role(&[&"ticking"]))?, STREAMS)?;
    let ratio = ratio("µs", || least.cpu_per_delta(), || ours.cpu_per_delta())?;
    let what = format!("CPU per delta, server / one that only writes, {STREAMS} streams ({})", ratio.noise);
    Ok(vec![Row::at_most("A1", what, ratio.median, 1.5)])
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
        first_deltas()?,
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

/// C1: how long fifty who ask at once wait for their first delta, of a model that answers at once. Compared with a relay
/// that waits for the disk as often before it asks the model: a question is on disk before it is handed on, and the model is
/// asked at most once. The direct way has no disk in it, so a ratio to that would be a number about the disk.
fn first_deltas() -> anyhow::Result<Row> {
    const STREAMS: usize = 50;
    let mut least = Firsts::open(Other::PassingAfterSync)?;
    let mut ours = Firsts::open(Other::Talaria)?;
    let ratio = ratio("µs", || least.wait(STREAMS), || ours.wait(STREAMS))?;
    let what = format!("first delta of {STREAMS} streams, server / least relay that syncs ({})", ratio.noise);
    Ok(Row::at_most("C1", what, ratio.median, 1.3))
}

/// A relay before a model that answers at once, with one delta.
struct Firsts {
    relay: Relay,
    _model: Child,
}

impl Firsts {
    fn open(other: Other) -> anyhow::Result<Self> {
        let (mut model, port) = Child::start(&role(&[&"server", &1, &"at-once"]))?;
        model.ask("go")?;
        Ok(Self { relay: Relay::start(other, port.parse()?)?, _model: model })
    }

    /// The median time from a request to its first delta, in µs.
    fn wait(&mut self, streams: usize) -> anyhow::Result<f64> {
        let (mut reader, _) = Child::start(&role(&[&"reader", &self.relay.port, &streams, &1]))?;
        let deadline = Instant::now() + PATIENCE;
        while reader.number("ended")? < streams as f64 {
            anyhow::ensure!(Instant::now() < deadline, "not all streams came to their end");
            sleep(Duration::from_millis(20));
        }
        anyhow::ensure!(reader.number("whole")? == streams as f64, "some streams were not whole");
        reader.number("waited")
    }
}
