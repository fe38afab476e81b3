//! A minimal IRC server for one client: hermes-agent's gateway needs no package for this chat network.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Longest wait. Only a failure takes this long; hermes-agent has to start first.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct IrcServer {
    port: u16,
    /// The client's messages to Ann, in order.
    said: watch::Receiver<Vec<String>>,
    joined: watch::Receiver<bool>,
    to_client: mpsc::UnboundedSender<String>,
    _listening: JoinSet<()>,
}

impl IrcServer {
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (saying, said) = watch::channel(Vec::new());
        let (joining, joined) = watch::channel(false);
        let (to_client, mut from_ann) = mpsc::unbounded_channel();
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = serve(stream, &saying, &joining, &mut from_ann).await;
            }
        });
        Self { port, said, joined, to_client, _listening: listening }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until the client has joined its channel.
    pub async fn is_joined(&self) {
        let mut joined = self.joined.clone();
        let came = tokio::time::timeout(PATIENCE, joined.wait_for(|joined| *joined)).await;
        assert!(came.is_ok(), "the client should have joined");
    }

    /// Ann writes to the client.
    pub fn ann_says(&self, text: &str) {
        self.to_client.send(format!(":ann!ann@test PRIVMSG hermes :{text}\r\n")).unwrap();
    }

    /// Waits until a message of the client contains this, and returns all its messages.
    pub async fn reads(&self, text: &str) -> Vec<String> {
        let mut said = self.said.clone();
        let came = said.wait_for(|said| said.iter().any(|line| line.contains(text)));
        let came = tokio::time::timeout(PATIENCE, came).await.map(|said| said.unwrap().clone());
        came.unwrap_or_else(|_| panic!("{text:?} should have been said in {:?}", self.said.borrow()))
    }
}

async fn serve(
    stream: TcpStream,
    saying: &watch::Sender<Vec<String>>,
    joining: &watch::Sender<bool>,
    from_ann: &mut mpsc::UnboundedReceiver<String>,
) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            Some(text) = from_ann.recv() => {
                writing.write_all(text.as_bytes()).await?;
                continue;
            }
        };
        let Some(line) = line else { return Ok(()) };
        let (command, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        match command {
            "USER" => writing.write_all(b":irc.test 001 hermes :Welcome\r\n").await?,
            "PING" => writing.write_all(format!("PONG {rest}\r\n").as_bytes()).await?,
            "JOIN" => {
                writing.write_all(format!(":hermes!hermes@test JOIN {rest}\r\n").as_bytes()).await?;
                joining.send_replace(true);
            }
            "PRIVMSG" => {
                let text = rest.split_once(" :").map_or("", |(_, text)| text).to_owned();
                saying.send_modify(|said| said.push(text));
            }
            _ => {}
        }
    }
}
