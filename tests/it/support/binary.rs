//! The real `talaria`, run as people run it: a process with its own state folder and a clean environment.
//!
//! Every wait gives up after a minute, and dropping a process kills it.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::watch;

use super::upstream::Upstream;

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way to run talaria. All its runs share one state folder.
pub struct Talaria {
    home: TempDir,
    args: Vec<String>,
    vars: Vec<(String, String)>,
    /// Limit of open files, if not the test's own.
    open_files: Option<usize>,
}

impl Talaria {
    /// A talaria without any configuration.
    pub fn new() -> Self {
        Self::in_folder(&std::env::temp_dir())
    }

    /// A talaria without any configuration, with its state folder in this one.
    pub fn in_folder(folder: &Path) -> Self {
        let home = tempfile::tempdir_in(folder).unwrap();
        // Private, as talaria makes it. It would close an open folder, or refuse it.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self { home, args: Vec::new(), vars: Vec::new(), open_files: None }
    }

    /// A relay to this server.
    pub fn to(upstream: &Upstream) -> Self {
        Self::new().var("GATEWAY_PROXY_URL", &upstream.url())
    }

    /// Adds arguments.
    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args = args.into_iter().map(str::to_owned).collect();
        self
    }

    /// Adds an environment variable.
    pub fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits open files, which include sockets.
    pub fn open_files(self, limit: usize) -> Self {
        Self { open_files: Some(limit), ..self }
    }

    /// Sets a variable from the next start on, or removes it.
    pub fn sets(&mut self, name: &str, value: Option<&str>) {
        self.vars.retain(|(known, _)| known != name);
        self.vars.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    /// Writes a private configuration file into the state folder.
    pub fn config(self, yaml: &str) -> Self {
        self.rewrites_config(yaml);
        self
    }

    /// Changes the configuration file.
    pub fn rewrites_config(&self, yaml: impl AsRef<[u8]>) {
        let path = self.home.path().join("talaria.yaml");
        fs::write(&path, yaml).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// The state folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The database. Only for after the process has ended.
    pub fn stored(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.home.path().join("talaria.db")).unwrap()
    }

    /// Starts it with a pipe as its input.
    pub fn starts(&self) -> Process {
        self.spawn(&self.args, Stdio::piped())
    }

    /// Starts it with this input.
    pub fn starts_with(&self, input: File) -> Process {
        self.spawn(&self.args, Stdio::from(input))
    }

    /// Runs a command to its end, as an operator does at a shell while the gateway runs.
    pub async fn does<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Ended {
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        self.spawn(&args, Stdio::null()).ended().await
    }

    /// Starts a command with this input, as a person does at a shell while the gateway runs.
    pub fn starts_command<'a>(&self, args: impl IntoIterator<Item = &'a str>, input: File) -> Process {
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        self.spawn(&args, Stdio::from(input))
    }

    /// Runs it to its end with these lines as its input.
    pub async fn reads(&self, lines: &str) -> Ended {
        let mut process = self.starts();
        process.types(lines);
        process.leaves();
        process.ended().await
    }

    /// Starts it with a pipe as its input and this standard output.
    pub fn starts_writing_to(&self, output: impl Into<Stdio>) -> Process {
        Process::watch(self.command(&self.args, Stdio::piped()).stdout(output).spawn().unwrap())
    }

    fn spawn(&self, args: &[String], input: Stdio) -> Process {
        Process::watch(self.command(args, input).spawn().unwrap())
    }

    fn command(&self, args: &[String], input: Stdio) -> Command {
        let binary = env!("CARGO_BIN_EXE_talaria");
        let mut command = match self.open_files {
            None => Command::new(binary),
            Some(limit) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\""), binary]);
                shell
            }
        };
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TALARIA_HOME", self.home.path())
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.path())
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// A running talaria.
pub struct Process {
    pid: Pid,
    input: Option<ChildStdin>,
    out: watch::Receiver<Vec<u8>>,
    err: watch::Receiver<Vec<u8>>,
    /// The exit code once it has ended; -1 for a signal.
    code: watch::Receiver<Option<i32>>,
}

/// A talaria that has ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Process {
    /// Watches a process whose streams are pipes.
    pub fn watch(mut child: Child) -> Self {
        let pid = Pid::from_child(&child);
        let input = child.stdin.take();
        let out = child.stdout.take().map_or_else(|| watch::channel(Vec::new()).1, collect);
        let err = collect(child.stderr.take().unwrap());
        let (end, code) = watch::channel(None);
        std::thread::spawn(move || {
            let code = child.wait().unwrap().code().unwrap_or(-1);
            end.send_replace(Some(code));
        });
        Self { pid, input, out, err, code }
    }

    /// Writes to its standard input. A process that refuses to start may be gone already.
    pub fn types(&mut self, lines: &str) {
        let _ = self.input.as_mut().unwrap().write_all(lines.as_bytes());
    }

    /// Ends its standard input.
    pub fn leaves(&mut self) {
        self.input = None;
    }

    /// Waits until standard output contains this.
    pub async fn shows(&mut self, text: &str) {
        self.has("standard output", text).await;
    }

    /// Waits until standard error contains this.
    pub async fn logs(&mut self, text: &str) {
        self.has("standard error", text).await;
    }

    async fn has(&mut self, what: &str, text: &str) {
        let stream = if what == "standard output" { &mut self.out } else { &mut self.err };
        let came = stream.wait_for(|bytes| memchr::memmem::find(bytes, text.as_bytes()).is_some());
        let came = matches!(tokio::time::timeout(PATIENCE, came).await, Ok(Ok(_)));
        assert!(came, "{text:?} should have come on {what}\n{}", self.so_far());
    }

    /// Peak memory in bytes.
    pub fn peak_memory(&self) -> usize {
        self.bytes_of("VmHWM:")
    }

    /// Memory of its files in bytes: its code, of which a build without optimisation has a lot.
    pub fn file_memory(&self) -> usize {
        self.bytes_of("RssFile:")
    }

    /// Current memory in bytes.
    pub fn memory(&self) -> usize {
        self.bytes_of("VmRSS:")
    }

    fn bytes_of(&self, what: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("it is there");
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Number of open files, which include sockets.
    pub fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid.as_raw_nonzero());
        // The process hides its folder from others of the same user, but newer kernels report the count.
        let counted = || fs::metadata(&folder).map_or(0, |folder| folder.len() as usize);
        fs::read_dir(&folder).map_or_else(|_| counted(), Iterator::count)
    }

    /// Waits until it serves HTTP, and returns the address.
    pub async fn serves(&mut self) -> String {
        self.logs(" serving ").await;
        let log = text(&self.err);
        let line = log.lines().find(|line| line.contains(" serving ")).unwrap();
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("address=")).unwrap();
        address.trim_matches('"').to_owned()
    }

    /// Sends it a signal, unless it has just ended by itself.
    pub fn signal(&self, signal: Signal) {
        match kill_process(self.pid, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until the process has ended.
    pub async fn dies(&mut self) {
        let died = self.code.wait_for(Option::is_some);
        assert!(tokio::time::timeout(PATIENCE, died).await.is_ok(), "it should have died\n{}", self.so_far());
    }

    /// Waits for its end. In no test may it have panicked.
    pub async fn ended(self) -> Ended {
        self.ended_within(PATIENCE).await
    }

    /// Waits for its end for as long as `patience`.
    pub async fn ended_within(mut self, patience: Duration) -> Ended {
        let end = tokio::time::timeout(patience, self.code.wait_for(Option::is_some)).await;
        let code = end.ok().and_then(|code| code.ok().and_then(|code| *code));
        let Some(code) = code else { panic!("it should have ended\n{}", self.so_far()) };
        // The streams end with the process; the pipes must be read to their end.
        for stream in [&mut self.out, &mut self.err] {
            while stream.changed().await.is_ok() {}
        }
        let ended = Ended { code, out: text(&self.out), err: text(&self.err) };
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        ended
    }

    /// Its output so far.
    pub fn so_far(&self) -> String {
        format!("standard output:\n{}\nstandard error:\n{}", text(&self.out), text(&self.err))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.code.borrow().is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

impl Ended {
    /// Checks that it succeeded and printed exactly this.
    #[track_caller]
    pub fn showed(&self, out: &str) -> &Self {
        assert_eq!((self.code, self.out.as_str()), (0, out), "{}", self.err);
        self
    }

    /// Checks that a prompt was not answered and that it printed exactly this.
    #[track_caller]
    pub fn failed_with(&self, out: &str) -> &Self {
        assert_eq!((self.code, self.out.as_str()), (1, out), "{}", self.err);
        self
    }

    /// Checks that standard error contains this.
    #[track_caller]
    pub fn said(&self, text: &str) -> &Self {
        assert!(self.err.contains(text), "{text:?} should be in\n{}", self.err);
        self
    }
}

fn text(stream: &watch::Receiver<Vec<u8>>) -> String {
    String::from_utf8_lossy(&stream.borrow()).into_owned()
}

/// Reads a stream to its end on a thread of its own.
fn collect(mut from: impl Read + Send + 'static) -> watch::Receiver<Vec<u8>> {
    let (sender, receiver) = watch::channel(Vec::new());
    std::thread::spawn(move || {
        let mut buffer = [0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            sender.send_modify(|bytes| bytes.extend_from_slice(&buffer[..read]));
        }
    });
    receiver
}
