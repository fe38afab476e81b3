//! Connections that wait for their next request, on a real socket.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::paused::Scene;

/// Makes a request on a connection and reads the response; `false` if the connection is closed.
async fn is_answered(socket: &mut TcpStream) -> bool {
    let asked = socket.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut answer = [0; 4096];
    let read = socket.read(&mut answer).await.unwrap_or_default();
    asked.is_ok() && answer[..read].starts_with(b"HTTP/1.1 200 ")
}

/// Waits until the server closes a connection; returns the seconds that took.
async fn is_closed(socket: &mut TcpStream) -> u64 {
    let began = Instant::now();
    let read = timeout(Duration::from_secs(1000), socket.read(&mut [0; 64])).await;
    assert!(matches!(read, Ok(Ok(0))), "it should have been closed, but {read:?}");
    began.elapsed().as_secs()
}

async fn serve() -> (Scene, SocketAddr) {
    let mut scene = Scene::start().await;
    let address = scene.gateway.serve(crate::support::served::settings()).await;
    (scene, address)
}

#[tokio::test(start_paused = true)]
async fn an_answered_connection_is_closed_when_it_stays_idle() {
    let (_scene, address) = serve().await;
    let mut socket = TcpStream::connect(address).await.unwrap();
    assert!(is_answered(&mut socket).await);
    let seconds = is_closed(&mut socket).await;
    assert!((75..=81).contains(&seconds), "{seconds}");
}

/// The time starts anew with every response.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_used_now_and_then_stays() {
    let (_scene, address) = serve().await;
    let mut socket = TcpStream::connect(address).await.unwrap();
    for _ in 0..5 {
        assert!(is_answered(&mut socket).await);
        sleep(Duration::from_secs(60)).await;
    }
    assert!(is_answered(&mut socket).await);
    assert!(is_closed(&mut socket).await >= 75);
}

/// A connection without any request has less time, and half a request does not count as use.
#[tokio::test(start_paused = true)]
async fn a_connection_that_begins_its_next_request_must_end_it() {
    let (_scene, address) = serve().await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert!((10..=16).contains(&is_closed(&mut silent).await));

    let mut socket = TcpStream::connect(address).await.unwrap();
    assert!(is_answered(&mut socket).await);
    sleep(Duration::from_secs(30)).await;
    socket.write_all(b"GET /health HT").await.unwrap();
    let began = Instant::now();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!((10..=16).contains(&began.elapsed().as_secs()));
}
