//! All codex processes of the gateway, so that they end in order with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use talaria_platform::{CancellationToken, spawn_task};
use tokio_util::task::TaskTracker;

use super::enable::own_tools_server;
use super::link::CodexLink;
use super::migration::ToolsServer;
use crate::agents::process::ProcessHost;

/// Longest wait for the end of all processes: both pauses of an ordered end, and a moment.
const END: Duration = Duration::from_secs(6);

/// Folder in the state folder for pictures that a running turn has shown to codex.
const PICTURES: &str = "codex-pictures";

/// Time limit for a running codex to read its configuration again. It answers in milliseconds, and a person waits.
const RELOAD: Duration = Duration::from_secs(2);

/// The codex processes of the gateway. One per process of ours.
#[derive(Debug)]
pub struct CodexServers {
    /// Starts the processes.
    pub host: Arc<ProcessHost>,
    /// Our tools server, as codex starts it.
    pub tools_server: ToolsServer,
    /// The processes that run. At most one of each agent, and some that are about to end.
    links: Mutex<Vec<Weak<CodexLink>>>,
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
            links: Mutex::default(),
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

    /// Remembers a process that runs.
    pub fn add_link(&self, link: &Arc<CodexLink>) {
        let mut links = self.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(link));
    }

    /// By what the processes that run are known, with everything that they started.
    pub fn markers(&self) -> Vec<String> {
        let links: Vec<_> = self.links.lock().iter().filter_map(Weak::upgrade).collect();
        let running = links.iter().map(|link| link.rpc()).filter(|rpc| !rpc.is_gone());
        running.filter_map(|rpc| rpc.marker().map(str::to_owned)).collect()
    }

    /// Makes every process that runs read its MCP servers from its configuration again, also for open conversations. One
    /// that does not know how, or not in time, does so when it starts the next time. Until then its file may tell another
    /// program under the name of our tools server than the one that it runs, so it has none of ours.
    pub async fn reload_configuration(&self) {
        let links: Vec<_> = self.links.lock().iter().filter_map(Weak::upgrade).collect();
        let reload = async |link: &Arc<CodexLink>| {
            // Which program has the name of our tools server is asked anew before the next turn.
            link.forget_own_server();
            match link.rpc().call("config/mcpServer/reload", Value::Null, RELOAD).await {
                Ok(_) => link.forget_own_server(),
                Err(error) => {
                    link.distrust_own_server();
                    tracing::warn!(%error, "a running codex did not read its configuration again");
                }
            }
        };
        join_all(links.iter().map(reload)).await;
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
