//! Ports for processes that must find the same one again after they died.

use std::net::TcpListener;

/// A port at which nobody listens. Below the ports that the system assigns by itself, otherwise another test's client
/// could take it while its process is dead.
pub fn free_port() -> u16 {
    let mut random = [0; 2];
    loop {
        talaria::util::random_bytes(&mut random).unwrap();
        let port = 10_000 + u16::from_le_bytes(random) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
