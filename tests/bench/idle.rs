//! Gate R5: memory of the real program while idle, and for each stream.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;

use crate::child::resident;
use crate::relay;
use crate::table::Row;

const MB: f64 = 1024.0 * 1024.0;

/// Both rows.
pub fn memory() -> anyhow::Result<Vec<Row>> {
    Ok(vec![
        Row::at_most("R5", "memory of an idle gateway (MB)", measured("")?.0 / MB, 15.0),
        relay::memory()?,
    ])
}

/// Memory of the program without input and with this configuration, measured when it is idle, and the number of its
/// child processes.
pub fn measured(config: &str) -> anyhow::Result<(f64, usize)> {
    let home = crate::scratch()?;
    std::fs::write(home.path().join("talaria.yaml"), config)?;
    let program = Command::new(env!("CARGO_BIN_EXE_talaria"))
        .env_clear()
        .env("TALARIA_HOME", home.path())
        .env("API_SERVER_PORT", "0")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut program = Ended(program);
    let log = BufReader::new(program.0.stderr.take().context("no pipe")?);
    let said: Vec<String> =
        log.lines().map_while(Result::ok).take_while(|line| !line.contains("running")).collect();
    let mut memory = f64::NAN;
    loop {
        sleep(Duration::from_millis(500));
        let now = resident(program.0.id()).with_context(|| format!("it did not stay: {said:?}"))?;
        if now == memory {
            let mut children = 0;
            for thread in std::fs::read_dir(format!("/proc/{}/task", program.0.id()))? {
                let listed = std::fs::read_to_string(thread?.path().join("children"))?;
                children += listed.split_whitespace().count();
            }
            return Ok((memory, children));
        }
        memory = now;
    }
}

/// A process that is killed after the measurement.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
