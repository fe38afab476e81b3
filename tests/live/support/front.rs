//! A proxy before a homeserver that fails for chosen requests, like a homeserver that has lost a row.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Method;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::PATIENCE;
use super::homeserver::Homeserver;
use crate::it::upstream::http::{self, Request};

/// The proxy. Dropping it ends it with all of its connections.
pub struct Front {
    /// Its own address.
    pub url: String,
    shared: Arc<Shared>,
    _listening: JoinSet<()>,
}

struct Shared {
    homeserver: String,
    http: reqwest::Client,
    /// How requests fail whose path contains all of these.
    stumbles: Mutex<Option<(Stumble, Vec<String>)>>,
    /// The paths that were refused by the rate limit.
    refused: Mutex<HashSet<String>>,
}

/// How a request fails.
#[derive(Clone, Copy, Debug)]
pub enum Stumble {
    /// With status 500.
    Error,
    /// Without any response.
    Silence,
    /// With a rate limit, the first time.
    TooMany,
}

impl Front {
    /// A proxy that passes everything on.
    pub async fn of(homeserver: &Homeserver) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            homeserver: homeserver.url.clone(),
            http: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
            stumbles: Mutex::default(),
            refused: Mutex::default(),
        });
        let mut listening = JoinSet::new();
        listening.spawn(accept(listener, shared.clone()));
        Self { url, shared, _listening: listening }
    }

    /// From now on requests fail whose path contains all of these.
    pub fn stumbles_over(&self, parts: &[&str], how: Stumble) {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        *self.shared.stumbles.lock() = Some((how, parts));
    }

    /// Number of requests that the rate limit refused.
    pub fn refused(&self) -> usize {
        self.shared.refused.lock().len()
    }

    /// From now on no request fails.
    pub fn recovers(&self) {
        *self.shared.stumbles.lock() = None;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, shared.clone()));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = http::read(&mut stream).await {
        let (status, kind, body) = shared.answer(request).await;
        let length = body.len();
        let head = format!("HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        let sent = [head.into_bytes(), body].concat();
        if stream.write_all(&sent).await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// The status, the type and the bytes of the response.
    async fn answer(&self, request: Request) -> (u16, String, Vec<u8>) {
        let error = |status, error: String| {
            let body = serde_json::json!({ "errcode": "M_UNKNOWN", "error": error });
            (status, "application/json".to_owned(), body.to_string().into_bytes())
        };
        match self.stumble(&request.path) {
            Some(Stumble::Error) => return error(500, "Internal server error".to_owned()),
            Some(Stumble::Silence) => std::future::pending().await,
            Some(Stumble::TooMany) => {
                let body = r#"{"errcode":"M_LIMIT_EXCEEDED","error":"slower","retry_after_ms":500}"#;
                return (429, "application/json".to_owned(), body.into());
            }
            None => {}
        }
        let method = Method::from_bytes(request.method.as_bytes()).unwrap();
        let mut onward = self.http.request(method, format!("{}{}", self.homeserver, request.path));
        for name in ["authorization", "content-type"] {
            if let Some(value) = request.header(name) {
                onward = onward.header(name, value.to_owned());
            }
        }
        match onward.body(request.body).send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok());
                let kind = kind.unwrap_or("application/octet-stream").to_owned();
                (status, kind, answer.bytes().await.map(|bytes| bytes.to_vec()).unwrap_or_default())
            }
            Err(away) => error(502, away.to_string()),
        }
    }

    fn stumble(&self, path: &str) -> Option<Stumble> {
        let stumbles = self.stumbles.lock();
        let (how, parts) = stumbles.as_ref()?;
        let how = parts.iter().all(|part| path.contains(part.as_str())).then_some(*how)?;
        let is_over = matches!(how, Stumble::TooMany) && !self.refused.lock().insert(path.to_owned());
        (!is_over).then_some(how)
    }
}
