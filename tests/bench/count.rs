//! Counts instructions by running this program again under callgrind. Other work on the machine does not change a
//! count, so one run is enough.

use std::fmt::Display;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, bail};

/// Instructions of this program in a role (see [`crate::role`]), from its start to its end.
pub fn instructions(role: &[String]) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .arg(crate::ROLE)
        .args(role)
        .output()
        .context("valgrind cannot be run; `apt-get install valgrind`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} failed under callgrind: {said}", role.join(" "));
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.with_context(|| format!("callgrind named no count for {}: {said}", role.join(" ")))
}

/// Instructions that the second role costs more than the first: the common part cancels out.
pub fn difference(less: &[String], more: &[String]) -> anyhow::Result<f64> {
    let (less, more) = thread::scope(|scope| {
        let less = scope.spawn(|| instructions(less));
        (less.join(), instructions(more))
    });
    let less = less.map_err(|_| anyhow::anyhow!("a counting thread broke"))??;
    Ok(more? as f64 - less as f64)
}

/// A role and its arguments.
pub fn role(words: &[&dyn Display]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}
