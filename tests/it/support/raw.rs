//! HTTP as bytes on the wire, for requests that no well-behaved client would send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bare connection to the server.
pub struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A response as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case; several values of one name are in one line.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Raw {
    pub async fn to(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// Sends bytes; `false` if the server has closed the connection already.
    pub async fn sends(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Closes the sending side.
    pub async fn is_done(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Waits until a part of the next response is there; leaves the rest unread.
    pub async fn is_answered(&mut self) {
        let came = tokio::time::timeout(PATIENCE, self.more()).await;
        assert_eq!(came, Ok(Some(())), "no answer came");
    }

    /// The next response; `None` if the connection ends before there is one.
    pub async fn answer(&mut self) -> Option<Answer> {
        let answer = tokio::time::timeout(PATIENCE, self.next_answer()).await;
        answer.unwrap_or_else(|_| panic!("no answer came, only {:?}", String::from_utf8_lossy(&self.read)))
    }

    /// Whether the connection ends without another response.
    pub async fn is_closed(&mut self) -> bool {
        self.answer().await.is_none()
    }

    async fn next_answer(&mut self) -> Option<Answer> {
        let end = loop {
            match memchr::memmem::find(&self.read, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => self.more().await?,
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = BTreeMap::<String, String>::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
            let known = headers.entry(name.to_owned()).or_default();
            *known = if known.is_empty() { value.to_owned() } else { format!("{known}, {value}") };
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            self.more().await?;
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        Some(Answer { status, headers, body })
    }

    async fn more(&mut self) -> Option<()> {
        let mut room = [0; 4096];
        let read = self.stream.read(&mut room).await.unwrap_or_default();
        self.read.extend_from_slice(&room[..read]);
        (read > 0).then_some(())
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of the error; checks that the error has all its fields.
    #[track_caller]
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{self:?}");
        assert!(error.get("param").is_some(), "{self:?}");
        error["code"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The response without its `Date`.
    pub fn undated(mut self) -> Self {
        self.headers.remove("date");
        self
    }
}
