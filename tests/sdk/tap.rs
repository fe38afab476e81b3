//! A TCP relay between a client and the server that records the server's bytes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::served::PATIENCE;

/// The relay. Dropping it ends it with all of its connections.
pub struct Tap {
    address: SocketAddr,
    said: watch::Receiver<Vec<u8>>,
    _listening: JoinSet<()>,
}

impl Tap {
    /// A relay to the server at this address.
    pub async fn to(server: &str) -> Self {
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (saying, said) = watch::channel(Vec::new());
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(connect(client, server.clone(), saying.clone()));
            }
        });
        Self { address, said, _listening: listening }
    }

    /// The address for clients.
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the server has sent this so often.
    pub async fn has_heard(&mut self, text: &str, times: usize) {
        let heard = self.said.wait_for(|said| memchr::memmem::find_iter(said, text).count() >= times);
        let heard = tokio::time::timeout(PATIENCE, heard).await;
        let heard = heard.map(|heard| heard.map(|_| ()));
        assert!(
            heard.is_ok_and(|heard| heard.is_ok()),
            "{text:?} {times} times should be in {}",
            self.said()
        );
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.borrow()).into_owned()
    }
}

/// Passes on all bytes of one connection, in both directions, until one end leaves.
async fn connect(client: TcpStream, server: String, saying: watch::Sender<Vec<u8>>) {
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asks = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            // Passes the bytes on first: when the test sees them, they are on their way to the client.
            if to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
            saying.send_modify(|said| said.extend_from_slice(&buffer[..read]));
        }
    };
    tokio::select! {
        _ = asks => {}
        () = answers => {}
    }
}
