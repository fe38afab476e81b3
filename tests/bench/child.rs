//! A child process, mostly this program again, that answers questions line by line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

/// The asking end. Dropping it ends the process.
pub struct Child {
    process: Process,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts this program in a role; its first line says that it is ready.
    pub fn start(role: &[String]) -> anyhow::Result<(Self, String)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(crate::ROLE).args(role);
        Self::of(command)
    }

    /// Starts any program with the same protocol.
    pub fn of(mut command: Command) -> anyhow::Result<(Self, String)> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let questions = process.stdin.take().context("no pipe")?;
        let answers = BufReader::new(process.stdout.take().context("no pipe")?);
        let mut child = Self { process, questions, answers };
        let first = child.answer()?;
        Ok((child, first))
    }

    pub fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        writeln!(self.questions, "{question}")?;
        self.answer()
    }

    pub fn number(&mut self, question: &str) -> anyhow::Result<f64> {
        let answer = self.ask(question)?;
        answer.parse().with_context(|| format!("`{question}` was answered with `{answer}`"))
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        anyhow::ensure!(self.answers.read_line(&mut line)? > 0, "a process ended early");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The answering end: reports that it is ready and answers until the other end is gone.
pub fn serve(ready: &str, mut answer: impl FnMut(&str) -> String) -> anyhow::Result<()> {
    crate::answer(ready);
    for question in std::io::stdin().lines() {
        crate::answer(&answer(question?.trim()));
    }
    Ok(())
}

/// Resident memory of a process in bytes.
pub fn resident(process: impl std::fmt::Display) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}
