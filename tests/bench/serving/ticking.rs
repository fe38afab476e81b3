//! The server with an agent of its own that ticks, for gate A1. It answers questions line by line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use talaria::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, PreparedTurn, TurnEnd, TurnEvent,
};
use talaria::server::{ForgeSettings, ServerSettings};
use talaria_platform::{BoxFuture, CancellationToken};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::others::KEY;
use crate::child;
use crate::relay::{INTERVAL, allow_many_files, phase};
use crate::rounds::{monotonic_micros, process_cpu};
use crate::{room, sse};

/// Runs our server: the whole core with its database and its server; only the agent is a fake.
pub fn ticking() -> anyhow::Result<()> {
    allow_many_files();
    let (folder, runtime) = (crate::scratch()?, Runtime::new()?);
    let (running, run) = watch::channel(false);
    let ticker = Arc::new(Ticker { run, open: AtomicUsize::new(0), sent: AtomicUsize::new(0) });
    let agent = ticker.clone();
    let (_gateway, port) = runtime.block_on(async {
        let (mut gateway, threads) = room::gateway(folder.path(), None, |_| Ok(agent)).await?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        gateway.serve(server_settings(), listener)?;
        anyhow::Ok(((gateway, threads), port))
    })?;
    child::serve(&port.to_string(), |question| match question {
        "open" => ticker.open.load(Ordering::Relaxed).to_string(),
        "sent" => ticker.sent.load(Ordering::Relaxed).to_string(),
        "cpu" => process_cpu().to_string(),
        other => {
            running.send_replace(other == "go");
            String::from("yes")
        }
    })
}

/// Settings of a server for measurements.
pub fn server_settings() -> ServerSettings {
    ServerSettings {
        key: Some(KEY.to_owned().into()),
        hosts: Vec::new(),
        origins: Vec::new(),
        model: "m".to_owned(),
        runs: (5000, 5000),
        forge: ForgeSettings::default(),
    }
}

/// An agent that emits text ten times a second while it is told to, without an end.
struct Ticker {
    run: watch::Receiver<bool>,
    open: AtomicUsize,
    sent: AtomicUsize,
}

impl Ticker {
    async fn tick(&self, out: &dyn AgentOutput) {
        let mut run = self.run.clone();
        let phase = phase(self.open.fetch_add(1, Ordering::Relaxed));
        while run.wait_for(|&running| running).await.is_ok() {
            tokio::time::sleep(phase).await;
            let mut ticks = tokio::time::interval(INTERVAL);
            while *run.borrow() {
                ticks.tick().await;
                out.emit(TurnEvent::Text(&sse::stamp(monotonic_micros())));
                self.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Agent for Ticker {
    fn about(&self) -> AgentInfo {
        AgentInfo::new(AgentKind::Proxy, "ticker")
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async { Ok(PreparedTurn::new(turn, "")) })
    }

    fn run_turn<'a>(
        &'a self,
        _: &'a AgentTurn,
        _: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            tokio::select! {
                () = self.tick(out) => Ok(TurnEnd::Done),
                () = stop.cancelled() => Ok(TurnEnd::Stopped),
            }
        })
    }
}
