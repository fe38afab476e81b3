//! The socket: connections are taken, bounded in number and time, and let go in order.

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

/// Bytes of a request's head, and of what is read at once.
const BUFFER: usize = 16 * 1024;

/// How long what we send may stay unacknowledged, and how long a silent peer is believed to be there: a cable that is
/// pulled says nothing.
const LOST: Duration = Duration::from_secs(60);

/// Bytes that the kernel takes of an answer before it has sent them. It would take megabytes for a reader that does not
/// read, and a turn goes on only as fast as its answer is taken.
const UNSENT: u32 = 128 * 1024;

/// How soon to try again when no connection can be taken, as when there are no more files.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may take to end if it is answered nothing: enough for a last word to be read.
const LAST: Duration = Duration::from_secs(1);

/// The same for a connection that closes because it was idle: none but a request that comes at this very moment.
const IDLE_LAST: Duration = Duration::from_millis(10);

/// How soon the log is told again of what goes on and on.
const SAID: Duration = Duration::from_secs(60);

/// Who is at the other end of a connection; a part of every request.
#[derive(Clone, Copy, Debug)]
pub struct ClientPeer {
    /// Its address.
    pub address: IpAddr,
    /// Where it came in.
    pub entrance: EntryAddress,
}

/// A server that listens. Dropping it lets go of everything.
pub struct ListeningServer {
    /// Where it listens.
    pub address: SocketAddr,
    server: Arc<Server>,
    /// Fired when no new connection is to be taken.
    stop: CancellationToken,
    connections: TaskTracker,
}

/// Takes what comes to a socket that is bound already, until it is told to stop.
pub fn serve(server: Arc<Server>, listener: TcpListener) -> io::Result<ListeningServer> {
    let address = listener.local_addr()?;
    let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
    let accepting = accept(listener, router(server.clone()), stop.clone(), connections.clone());
    connections.spawn(accepting);
    Ok(ListeningServer { address, server, stop, connections })
}

impl ListeningServer {
    /// The server itself.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Takes nothing new any more. What is read goes on until its turn ends or is let go.
    pub fn stop_taking(&self) {
        self.server.draining.cancel();
    }

    /// Lets every connection end after what it is answered. One that has sent half a request is cut off soon.
    pub fn close_connections(&self) {
        self.stop.cancel();
        self.connections.close();
    }

    /// Does that, and waits for it.
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
    // Whoever floods us must not flood the log too.
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
                    tracing::warn!(%error, "connections cannot be taken; trying again");
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

/// Serves one connection until it ends or `close` fires: because the process ends (`stop`), or because it was idle.
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
        // The wire keeps the time.
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

/// Waits until a connection that should end has had its time since it was answered anything, and that was taken.
async fn unasked(progress: &ConnectionProgress, last: Duration) {
    // What was before does not count.
    progress.has_rested();
    loop {
        tokio::time::sleep(last).await;
        if progress.has_rested() {
            return;
        }
    }
}

/// Says that there is no room, if that can be said without waiting.
fn turn_away(stream: TcpStream) {
    let said = stream.into_std().and_then(|mut stream| stream.write_all(&raw_errors::too_many()));
    if let Err(error) = said {
        tracing::debug!(%error, "a connection was turned away without a word");
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // A delta is small, and somebody waits for it.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(LOST / 2).with_interval(LOST / 6).with_retries(3),
    )?;
    os::bound_unsent_bytes(&socket, LOST, UNSENT)
}
