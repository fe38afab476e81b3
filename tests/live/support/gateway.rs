//! The real binary with a Matrix account, as people run it in a container: configured by environment variables alone.

use rustix::process::Signal;

use super::homeserver::{Account, Homeserver};
use crate::it::binary::{Ended, Process, Talaria};

/// Quick edits and high limits, so that tests of other things do not wait.
const QUICK: &str = "
platforms:
  matrix:
    pause: 100ms
    rate: { per_second: 50, burst: 100 }
    limits: { per_minute: 10000, per_hour: 10000 }
";

/// A gateway. Its state folder stays while it dies and starts.
pub struct Gateway {
    /// How it is run.
    pub talaria: Talaria,
    /// The process, while it runs.
    running: Option<Process>,
}

impl Gateway {
    /// A gateway that is not started yet.
    pub fn new(homeserver: &Homeserver, bot: &Account, upstream: &str, allowed: &[&str]) -> Self {
        let talaria = Talaria::new()
            .var("GATEWAY_PROXY_URL", upstream)
            .var("MATRIX_HOMESERVER", &homeserver.url)
            .var("MATRIX_USER_ID", &bot.id)
            .var("MATRIX_PASSWORD", &bot.password)
            .var("MATRIX_ALLOWED_USERS", &allowed.join(","))
            .var("TALARIA_LOG", "info")
            .config(QUICK);
        Self { talaria, running: None }
    }

    /// Sets the configuration file from the next start on.
    pub fn configures(&mut self, yaml: &str) {
        self.talaria.rewrites_config(yaml);
    }

    /// Sets a variable from the next start on.
    pub fn sets(&mut self, name: &str, value: &str) {
        self.talaria.sets(name, Some(value));
    }

    /// Makes the next life end by itself, when it reaches a failpoint for the nth time.
    pub fn dies_at(&mut self, point: &str, time: u32) {
        self.sets("TALARIA_FAILPOINT", &format!("{point}:{time}"));
    }

    /// From now on no life ends by itself.
    pub fn lives_on(&mut self) {
        self.talaria.sets("TALARIA_FAILPOINT", None);
    }

    /// Starts it.
    pub fn starts(&mut self) {
        assert!(self.running.is_none(), "it runs already");
        self.running = Some(self.talaria.starts());
    }

    /// The running process.
    pub fn process(&mut self) -> &mut Process {
        self.running.as_mut().expect("it runs")
    }

    /// Ends in order.
    pub async fn stops(&mut self) -> Ended {
        let process = self.running.take().expect("it runs");
        process.signal(Signal::TERM);
        process.ended().await
    }

    /// Is killed in the middle of its work.
    pub async fn is_killed(&mut self) -> Ended {
        let process = self.running.take().expect("it runs");
        process.signal(Signal::KILL);
        process.ended().await
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> Ended {
        self.running.take().expect("it runs").ended().await
    }

    /// The result of a counting query on its database, with `about` as its parameter. It may be running.
    pub fn count(&self, query: &str, about: &str) -> usize {
        let path = self.talaria.home().join("talaria.db");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = rusqlite::Connection::open_with_flags(path, flags).unwrap();
        database.query_row(query, [about], |row| row.get(0)).unwrap()
    }

    /// Its log in this life.
    pub fn log(&self) -> String {
        self.running.as_ref().map(Process::so_far).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "what the gateway says is half of what there is to know")]
            {
                eprintln!("{}", self.log());
            }
        }
    }
}
