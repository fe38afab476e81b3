//! Accepts connections, limits them in number and time, and ends them gracefully.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::connection::{ConnectionProgress, TimedConnection, TrackedBody};
use super::connection_limit::{CLOSE_IDLE_EVERY, ConnectionLimit, ConnectionPermit};
use super::host::EntryAddress;
use super::{Server, raw_errors, router};
use crate::os;
use crate::poll_when_woken::poll_when_woken;

/// Most bytes of a request's head, and of one read.
const BUFFER: usize = 16 * 1024;

/// Longest time for which sent bytes may stay unacknowledged, and for which a silent peer counts as alive: a pulled
/// cable sends no notice.
const LOST: Duration = Duration::from_secs(60);

/// Bytes of an answer that the kernel buffers unsent. By default it buffers megabytes for a peer that does not
/// read, and a turn must only run as fast as its answer is read.
const UNSENT: u32 = 128 * 1024;

/// Pause after a failed accept, as when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// During shutdown: how long a connection without an answer may stay, enough to read the last bytes.
const LAST: Duration = Duration::from_secs(1);

/// Like [`LAST`], for a connection that closes because it was idle: only a request that arrives at this very
/// moment is waited for.
const IDLE_LAST: Duration = Duration::from_millis(10);

/// Interval at which a lasting problem is logged again.
const SAID: Duration = Duration::from_secs(60);

/// The peer of a connection; an extension of every request.
#[derive(Clone, Copy, Debug)]
pub struct ClientPeer {
    /// The peer's address.
    pub address: IpAddr,
    /// The local address that the peer connected to.
    pub entrance: EntryAddress,
}

/// A listening server. Dropping it ends everything.
pub struct ListeningServer {
    /// The address it listens on.
    pub address: SocketAddr,
    server: Arc<Server>,
    /// Fired when no new connection is to be accepted.
    stop: CancellationToken,
    connections: TaskTracker,
}

/// Accepts connections on a bound socket until told to stop.
pub fn serve(server: Arc<Server>, listener: TcpListener) -> io::Result<ListeningServer> {
    let address = listener.local_addr()?;
    let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
    let accepting = accept(listener, router(server.clone()), stop.clone(), connections.clone());
    connections.spawn(accepting);
    Ok(ListeningServer { address, server, stop, connections })
}

impl ListeningServer {
    /// The state that handlers share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Refuses new requests from now on. Running responses continue until their turn ends or is suspended.
    pub fn stop_taking(&self) {
        self.server.draining.cancel();
    }

    /// Lets every connection end after its current answer. One that has sent half a request is soon cut off.
    pub fn close_connections(&self) {
        self.stop.cancel();
        self.connections.close();
    }

    /// Closes all connections and waits until they are gone.
    pub async fn ended(&self) {
        self.close_connections();
        self.connections.wait().await;
    }
}

impl Drop for ListeningServer {
    fn drop(&mut self) {
        self.server.draining.cancel();
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, router: Router, stop: CancellationToken, connections: TaskTracker) {
    let connection_limit = ConnectionLimit::of_this_process();
    let everywhere = listener.local_addr().is_ok_and(|address| address.ip().is_unspecified());
    // A flood of connections must not flood the log too.
    let mut said: Option<Instant> = None;
    let mut may_say = || {
        let may = said.is_none_or(|said| said.elapsed() > SAID);
        if may {
            said = Some(Instant::now());
        }
        may
    };
    let mut look_for_idle = tokio::time::interval(CLOSE_IDLE_EVERY);
    look_for_idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = look_for_idle.tick() => {
                connection_limit.close_idle();
                continue;
            }
            () = stop.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if may_say() {
                    tracing::warn!(%error, "connections cannot be accepted; trying again");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let close = stop.child_token();
        let Some(permit) = connection_limit.take(peer.ip(), close.clone()) else {
            if may_say() {
                tracing::warn!("there are too many connections; more are turned away");
            }
            turn_away(stream);
            continue;
        };
        let Ok(local) = stream.local_addr() else { continue };
        let entrance = EntryAddress { address: local.ip(), everywhere };
        let peer = ClientPeer { address: peer.ip().to_canonical(), entrance };
        connections.spawn(answer(stream, peer, router.clone(), stop.clone(), close, permit));
    }
}

/// Serves one connection until it ends or `close` fires: because the process ends (`stop`), or because it was
/// idle.
async fn answer(
    stream: TcpStream,
    peer: ClientPeer,
    router: Router,
    stop: CancellationToken,
    close: CancellationToken,
    permit: Arc<ConnectionPermit>,
) {
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%error, "a connection could not be set up");
    }
    let progress = ConnectionProgress::begin();
    let wire = TimedConnection::new(stream, progress.clone());
    let stage = progress.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let lasts = (progress.answers(), permit.busy());
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let answering = router.clone().oneshot(request);
        async move {
            let response = answering.await?;
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, lasts)))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        // `TimedConnection` enforces the timeout.
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(wire), service);
    tokio::pin!(connection);
    let mut stopped = poll_when_woken(close.cancelled());
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = &mut stopped => {
            connection.as_mut().graceful_shutdown();
            let last = if stop.is_cancelled() { LAST } else { IDLE_LAST };
            tokio::select! {
                ended = connection => ended,
                () = unasked(&stage, last) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// During shutdown: returns once the connection has been idle for `last` and the client has read everything.
async fn unasked(progress: &ConnectionProgress, last: Duration) {
    // Resets the mark: activity before now does not count.
    progress.has_rested();
    loop {
        tokio::time::sleep(last).await;
        if progress.has_rested() {
            return;
        }
    }
}

/// Answers that there are too many connections, if the socket takes it without waiting.
fn turn_away(stream: TcpStream) {
    let said = stream.into_std().and_then(|mut stream| stream.write_all(&raw_errors::too_many()));
    if let Err(error) = said {
        tracing::debug!(%error, "a connection was turned away without an answer");
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // A delta is small, and a reader waits for it.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(LOST / 2).with_interval(LOST / 6).with_retries(3),
    )?;
    os::bound_unsent_bytes(&socket, LOST, UNSENT)
}
