//! A TCP relay between the gateway and hermes-agent that a test can cut.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub struct CuttableWire {
    address: SocketAddr,
    cut: Arc<Notify>,
    _listening: JoinSet<()>,
}

impl CuttableWire {
    /// A wire to this address.
    pub async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let cut = Arc::new(Notify::new());
        let (mut listening, cutting) = (JoinSet::new(), cut.clone());
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let (cut, address) = (cutting.clone(), address.clone());
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(&address).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = cut.notified() => {}
                    }
                });
            }
        });
        Self { address: own, cut, _listening: listening }
    }

    /// Value for `GATEWAY_PROXY_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection. New ones can be made.
    pub fn is_cut(&self) {
        self.cut.notify_waiters();
    }
}
