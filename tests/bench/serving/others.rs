//! Relays between a model and a reader: the real program, and nginx.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;

/// The key of the server.
pub const KEY: &str = "9c1f4be07a52d6386f0e1b7d";

/// How long a relay may take to listen.
const STARTING: Duration = Duration::from_secs(30);

/// The kind of relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// The real program, serving HTTP alone.
    Talaria,
    /// A plain `proxy_pass` without buffering. It does not parse the bytes that it passes on.
    Nginx,
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
        // Nginx has children, which end on SIGTERM but not when it is killed.
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
        Other::Nginx => {
            fs::write(folder.join("nginx.conf"), nginx_conf(folder, port, model))?;
            let mut command = Command::new("nginx");
            command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
            command.arg("-e").arg(folder.join("error.log"));
            command
        }
    })
}

fn nginx_conf(folder: &Path, port: u16, model: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 2;
worker_rlimit_nofile 20000;
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://127.0.0.1:{model};
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"
    )
}
