//! Relays between a model and a reader: the real program, and the least relay on our libraries.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::count::role;

/// The key of the server.
pub const KEY: &str = "9c1f4be07a52d6386f0e1b7d";

/// How long a relay may take to listen.
const STARTING: Duration = Duration::from_secs(30);

/// The kind of relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// The real program, serving HTTP alone.
    Talaria,
    /// See `least`.
    Passing,
    /// Like [`Passing`](Self::Passing), but it waits for the disk as often as the gateway before it asks the model.
    PassingAfterSync,
}

/// A running relay. Dropping it ends the relay.
pub struct Relay {
    /// The port where it listens.
    pub port: u16,
    process: Child,
    _folder: TempDir,
}

impl Relay {
    /// Starts a relay in front of the model at this port.
    pub fn start(other: Other, model: u16) -> anyhow::Result<Self> {
        let folder = crate::scratch()?;
        // Free again until the relay binds it; we accept that another process could take it in between.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = command(other, folder.path(), port, model)?;
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let process = process.with_context(|| format!("{other:?} cannot be started"))?;
        let relay = Self { port, process, _folder: folder };
        let deadline = Instant::now() + STARTING;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                let said = fs::read_to_string(relay._folder.path().join("log")).unwrap_or_default();
                anyhow::bail!("{other:?} does not listen: {said}");
            }
            sleep(Duration::from_millis(50));
        }
        Ok(relay)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// CPU time so far in seconds, of the relay and its children.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            // The name is in brackets and may contain anything.
            let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<&str> = fields.split(' ').collect();
            let field = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
            if id == self.id() || field(1) == Some(f64::from(self.id())) {
                sum += (field(11).unwrap_or_default() + field(12).unwrap_or_default()) / 100.0;
            }
        }
        Ok(sum)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Ended well, the program closes its database.
        if let Ok(id) = i32::try_from(self.process.id())
            && let Some(id) = rustix::process::Pid::from_raw(id)
        {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(other: Other, folder: &Path, port: u16, model: u16) -> anyhow::Result<Command> {
    Ok(match other {
        Other::Talaria => {
            fs::write(folder.join("talaria.yaml"), "gateway:\n  upstream: plain\nserver:\n  runs: 5000\n")?;
            let mut command = Command::new(env!("CARGO_BIN_EXE_talaria"));
            command.arg("serve").env_clear().current_dir(folder);
            command.env("TALARIA_HOME", folder).env("API_SERVER_PORT", port.to_string());
            command.env("API_SERVER_KEY", KEY).env("GATEWAY_PROXY_URL", format!("http://127.0.0.1:{model}"));
            command
        }
        Other::Passing | Other::PassingAfterSync => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(role(&[&crate::ROLE, &"passing", &port, &model]));
            if other == Other::PassingAfterSync {
                command.arg(folder);
            }
            command
        }
    })
}
