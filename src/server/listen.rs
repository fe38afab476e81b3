//! The socket: connections are taken, bounded in number and time, and let go in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Server, router};

/// Connections at once. Each takes little, and a reader is one.
const CONNECTIONS: usize = 10_000;

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);

/// Bytes of a request's head, and of what is read at once.
const BUFFER: usize = 16 * 1024;

/// How soon to try again when no connection can be taken, as when there are no more files.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens. Dropping it lets go of everything.
pub struct Serving {
    /// Where it listens.
    pub address: SocketAddr,
    server: Arc<Server>,
    /// Fired when no new connection is to be taken.
    stop: CancellationToken,
    connections: TaskTracker,
}

/// Takes what comes to a socket that is bound already, until it is told to stop.
pub fn serve(server: Arc<Server>, listener: TcpListener) -> io::Result<Serving> {
    let address = listener.local_addr()?;
    let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
    let accepting = accept(listener, router(server.clone()), stop.clone(), connections.clone());
    connections.spawn(accepting);
    Ok(Serving { address, server, stop, connections })
}

impl Serving {
    /// The server itself.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Takes nothing new any more. What is read goes on until its turn ends or is let go.
    pub fn stop_taking(&self) {
        self.server.draining.cancel();
    }

    /// Lets every connection end after what it is answering, and waits for that.
    pub async fn ended(&self) {
        self.stop.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.draining.cancel();
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, router: Router, stop: CancellationToken, connections: TaskTracker) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let taken = async {
            let permit = free.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            taken = taken => taken,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let answering = answer(stream, router.clone(), stop.clone());
                connections.spawn(async move {
                    answering.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, router: Router, stop: CancellationToken) {
    // A delta is small, and somebody waits for it.
    let _ = stream.set_nodelay(true);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
