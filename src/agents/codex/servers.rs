//! All codex processes of the gateway, so that they end in order with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{CancellationToken, spawn_task};
use tokio_util::task::TaskTracker;

use super::enable::own_tools_server;
use super::migration::ToolsServer;
use crate::agents::process::ProcessHost;

/// Longest wait for the end of all processes: both pauses of an ordered end, and a moment.
const END: Duration = Duration::from_secs(6);

/// Folder in the state folder for pictures that a running turn has shown to codex.
const PICTURES: &str = "codex-pictures";

/// The codex processes of the gateway. One per process of ours.
pub struct CodexServers {
    /// Starts the processes.
    pub host: Arc<ProcessHost>,
    /// Our tools server, as codex starts it.
    pub tools_server: ToolsServer,
    pictures: PathBuf,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl CodexServers {
    /// No processes yet. `home` is the state folder, `file` the configuration.
    pub fn new(host: Arc<ProcessHost>, home: &Path, file: Option<&Path>) -> Arc<Self> {
        let pictures = home.join(PICTURES);
        match std::fs::remove_dir_all(&pictures) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "pictures of an earlier process cannot be removed"),
        }
        let tools_server = own_tools_server(home, file);
        Arc::new(Self {
            host,
            tools_server,
            pictures,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// A token that fires when the gateway ends; its owner may fire it earlier for itself.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// The folder for pictures that a running turn has shown to codex. It need not exist.
    pub fn pictures(&self) -> &Path {
        &self.pictures
    }

    /// Runs a task that is waited for at the end.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        drop(spawn_task(name, self.tasks.track_future(task)));
    }

    /// Ends every process in order, and waits for that. Nothing can be started afterwards.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(END, self.tasks.wait()).await.is_err() {
            tracing::warn!("not every codex ended in time");
        }
    }
}
