//! A scripted agent server on a bare socket: it sends exactly the bytes a test wants, and remembers every request.
//!
//! Answers to `POST …/chat/completions` and `POST …/responses` are taken from a script in order; when it is empty the
//! answer is `ok` in the first of these protocols. Each request is recorded before it is answered, so a test that sees an
//! answer sees its request.

mod answer;
pub mod http;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::answer::{Answer, DONE, Gate, delta, event, finish};
pub use self::http::Request;

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Endings of the paths to which prompts are sent.
const PROMPTS: [&str; 2] = ["/chat/completions", "/responses"];

/// The server. Dropping it ends it with all of its connections.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinSet<()>,
}

struct Shared {
    script: Mutex<VecDeque<Answer>>,
    /// Answers prompts when the script is empty.
    responder: Mutex<fn(&Request) -> Answer>,
    /// Answer to `GET /v1/capabilities`.
    capabilities: Mutex<Answer>,
    /// Answers to other paths by their endings, in order; the last of each stays.
    others: Mutex<Vec<(String, VecDeque<Answer>)>>,
    seen: watch::Sender<Seen>,
}

/// Everything received so far.
#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    connections: usize,
}

impl Upstream {
    /// A server that has only chat completions.
    pub async fn plain() -> Self {
        Self::with_capabilities(Answer::unknown()).await
    }

    /// A server that promises never to run a key twice.
    pub async fn idempotent() -> Self {
        let features =
            r#"{"features":{"idempotency":true,"session_continuity_header":"X-Hermes-Session-Id"}}"#;
        Self::with_capabilities(Answer::status(200, features)).await
    }

    /// A server with this answer to `GET /v1/capabilities`.
    pub async fn with_capabilities(capabilities: Answer) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), capabilities)
    }

    /// A server at this address, with this answer to `GET /v1/capabilities`.
    pub async fn at(address: SocketAddr, capabilities: Answer) -> Self {
        Self::listening(TcpListener::bind(address).await.unwrap(), capabilities)
    }

    /// Ends with all of its connections, as a killed process does. Returns the address; connections to it are refused
    /// from now on.
    pub async fn dies(mut self) -> SocketAddr {
        self.listening.shutdown().await;
        self.address
    }

    fn listening(listener: TcpListener, capabilities: Answer) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::default(),
            responder: Mutex::new(|_| Answer::says(["ok"])),
            capabilities: Mutex::new(capabilities),
            others: Mutex::default(),
            seen: watch::Sender::new(Seen::default()),
        });
        let mut listening = JoinSet::new();
        listening.spawn(accept(listener, shared.clone()));
        Self { address, shared, listening }
    }

    /// The base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers the next prompt that no other answer is meant for.
    pub fn answers(&self, answer: Answer) -> &Self {
        self.shared.script.lock().push_back(answer);
        self
    }

    /// Drops the answers that are left in the script.
    pub fn forgets_answers(&self) {
        self.shared.script.lock().clear();
    }

    /// Answers every prompt by what it says, when the script is empty.
    pub fn answers_by(&self, responder: fn(&Request) -> Answer) -> &Self {
        *self.shared.responder.lock() = responder;
        self
    }

    /// Answers requests to a path with this ending, in order; the last answer stays.
    pub fn answers_at(&self, path: &str, answers: impl IntoIterator<Item = Answer>) -> &Self {
        let answers = (path.to_owned(), answers.into_iter().collect());
        self.shared.others.lock().insert(0, answers);
        self
    }

    /// Changes the answer to `GET /v1/capabilities`.
    pub fn now_says_of_itself(&self, capabilities: Answer) {
        *self.shared.capabilities.lock() = capabilities;
    }

    /// Every prompt so far.
    pub fn prompts(&self) -> Vec<Request> {
        self.shared
            .seen
            .borrow()
            .requests
            .iter()
            .filter(|request| is_prompt(&request.path))
            .cloned()
            .collect()
    }

    /// The only prompt so far.
    pub fn prompt(&self) -> Request {
        let mut prompts = self.prompts();
        assert_eq!(prompts.len(), 1, "one prompt was expected");
        prompts.remove(0)
    }

    /// The messages of every prompt so far, as (role, content).
    pub fn messages(&self) -> Vec<Vec<(String, String)>> {
        self.prompts().iter().map(Request::messages).collect()
    }

    /// How often its capabilities were requested.
    pub fn questions(&self) -> usize {
        self.requests_to("/v1/capabilities").len()
    }

    /// Every request to a path with this ending.
    pub fn requests_to(&self, path: &str) -> Vec<Request> {
        self.shared
            .seen
            .borrow()
            .requests
            .iter()
            .filter(|request| request.path.ends_with(path))
            .cloned()
            .collect()
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.seen.borrow().connections
    }

    /// Waits until this many prompts have come.
    pub async fn has_prompts(&self, count: usize) {
        self.has(count, "a prompt", |request| is_prompt(&request.path)).await;
    }

    /// Waits until this many requests have come to a path with this ending.
    pub async fn has_requests(&self, path: &str, count: usize) {
        self.has(count, path, |request| request.path.ends_with(path)).await;
    }

    async fn has(&self, count: usize, what: &str, is_meant: impl Fn(&Request) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let came =
            seen.wait_for(|seen| seen.requests.iter().filter(|request| is_meant(request)).count() >= count);
        let came = tokio::time::timeout(PATIENCE, came).await;
        came.unwrap_or_else(|_| panic!("{count} requests should have come: {what}")).unwrap();
    }
}

/// An address that is taken but at which nobody listens: connections are refused.
pub struct Nobody(TcpSocket);

impl Nobody {
    /// Takes an address.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    /// The URL at which nobody listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Starts to listen there.
    pub fn becomes_a_listener(self) -> TcpListener {
        self.0.listen(16).unwrap()
    }

    /// Starts a server there that has only chat completions.
    pub fn becomes_an_upstream(self) -> Upstream {
        Upstream::listening(self.becomes_a_listener(), Answer::unknown())
    }
}

/// An address at which connections are neither accepted nor refused, as behind a silent firewall.
pub struct BlackHole {
    listener: TcpListener,
    _fillers: Vec<TcpStream>,
}

impl BlackHole {
    /// Fills a listener's queue; the system ignores connections after that.
    pub async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut fillers = Vec::new();
        while let Ok(filler) =
            tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
        {
            fillers.push(filler.unwrap());
        }
        Self { listener, _fillers: fillers }
    }

    /// The URL at which nothing happens.
    pub fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        shared.seen.send_modify(|seen| seen.connections += 1);
        connections.spawn(serve(stream, shared.clone()));
    }
}

/// Answers the requests of one connection, until it ends.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = tokio::io::BufReader::new(stream);
    while let Some(request) = http::read(&mut stream).await {
        let path = request.path.clone();
        shared.seen.send_modify(|seen| seen.requests.push(request.clone()));
        let answer = if is_prompt(&path) {
            let scripted = shared.script.lock().pop_front();
            scripted.unwrap_or_else(|| (*shared.responder.lock())(&request))
        } else if path.ends_with("/v1/capabilities") {
            shared.capabilities.lock().clone()
        } else {
            shared.other(&path)
        };
        if answer.play(stream.get_mut()).await.is_break() {
            return;
        }
    }
}

impl Shared {
    /// The answer for any other path.
    fn other(&self, path: &str) -> Answer {
        let mut others = self.others.lock();
        match others.iter_mut().find(|(end, _)| path.ends_with(end.as_str())) {
            Some((_, answers)) if answers.len() > 1 => answers.pop_front().unwrap(),
            Some((_, answers)) => answers[0].clone(),
            None => Answer::status(200, "{}"),
        }
    }
}

fn is_prompt(path: &str) -> bool {
    PROMPTS.iter().any(|end| path.ends_with(end))
}

/// Reads a body that must be JSON.
pub fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("the body should be JSON")
}
