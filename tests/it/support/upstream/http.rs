//! As much of HTTP/1.1 as is needed to read a request.

use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// When it was complete.
    pub at: Instant,
}

impl Request {
    /// The value of a header; `None` if it was not sent.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        super::json(&self.body)
    }

    /// The messages, as (role, content).
    pub fn messages(&self) -> Vec<(String, String)> {
        let body = self.json();
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let messages = body["messages"].as_array().expect("messages");
        messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }
}

/// The next request, or `None` if the other end has left.
pub async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let first = line(stream).await?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let line = line(stream).await?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, path, headers, body: Vec::new(), at: Instant::now() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).await.ok()?;
    request.at = Instant::now();
    Some(request)
}

async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    let read = stream.read_until(b'\n', &mut line).await.ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}
