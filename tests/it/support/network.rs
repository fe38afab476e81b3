//! The other end of the test platform: a chat server in the test process, which outlives any gateway.
//!
//! It behaves as a real network does. Reading begins at the reader's cursor, and the event before the cursor comes
//! once more, because networks do that and a gateway must cope. A send key that was used before names the existing
//! message and changes nothing. Every text that a message ever showed is kept, so that a test can say what people saw
//! and when.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria::testing::network::{IncomingEvent, NetworkReply, NetworkRequest};
use talaria_platform::{
    AuthorTrust, EventAuthor, EventId, IncomingMessage, MessageBody, MessageId, Place, RoomEvent,
    RoomEventKind, RoomInfo,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A chat server. Dropping this ends it.
pub struct Network {
    socket: PathBuf,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

/// A message of the gateway, with every text that it ever showed.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The place where it is.
    pub place: Place,
    /// Its texts, oldest first; never empty.
    pub bodies: Vec<MessageBody>,
}

impl Shown {
    /// Its current text.
    pub fn body(&self) -> &MessageBody {
        &self.bodies[self.bodies.len() - 1]
    }

    /// Whether it answers this event.
    pub fn replies_to(&self, event: &EventId) -> bool {
        self.body().reply_to.as_ref() == Some(event)
    }
}

struct Shared {
    state: Mutex<State>,
    /// Counts changes; waiting tests look again at each.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// The people's events, in order. A cursor is the number of events before it.
    events: Vec<RoomEvent>,
    /// In the order in which they were first posted; a message's id is its index.
    messages: Vec<Shown>,
    sent: HashMap<String, usize>,
    edited: HashSet<String>,
    /// Keys of finished messages that were refused once; `None` if none are refused.
    turned_away: Option<HashSet<String>>,
    /// Whether sends and edits are never answered.
    silent: bool,
    /// Number of readers so far.
    readers: usize,
}

impl Network {
    /// Listens on a socket in `folder`.
    pub fn listen(folder: &Path) -> Self {
        let socket = folder.join("network.sock");
        let listener = UnixListener::bind(&socket).expect("a socket in a folder of the test's own");
        let shared = Arc::new(Shared { state: Mutex::default(), changes: watch::Sender::new(0) });
        let serving = shared.clone();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                // A gateway that dies takes its connections with it; that is no error here.
                tokio::spawn(async move { serve(&shared, stream).await.ok() });
            }
        });
        Self { socket, shared, listening }
    }

    /// The socket's path, for the gateway's configuration.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ann writes in a direct chat. Readers get it as soon as they have accepted the events before it.
    pub fn says(&self, room: &str, text: &str) -> EventId {
        self.says_as("@ann", room, true, text)
    }

    /// A person writes in a direct chat or in a room of several people.
    pub fn says_as(&self, who: &str, room: &str, direct: bool, text: &str) -> EventId {
        let mut state = self.shared.state();
        let id = EventId::new(format!("${}", state.events.len()));
        state.events.push(RoomEvent {
            id: id.clone(),
            place: Place::room(room),
            room: RoomInfo { name: None, direct },
            author: EventAuthor {
                id: who.into(),
                name: Some(who.trim_start_matches('@').to_owned()),
                trust: AuthorTrust::Network,
                bot: false,
                device: None,
            },
            secure: false,
            kind: RoomEventKind::Message(IncomingMessage::text(text)),
        });
        drop(state);
        self.shared.changed();
        id
    }

    /// From now on the first attempt to send a finished message fails, as on a busy network.
    pub fn takes_finished_messages_at_the_second_try(&self) {
        self.shared.state().turned_away = Some(HashSet::new());
    }

    /// From now on no send and no edit is answered.
    pub fn falls_silent(&self) {
        self.shared.state().silent = true;
    }

    /// Number of readers so far.
    pub fn readers(&self) -> usize {
        self.shared.state().readers
    }

    /// Waits until there were so many readers. `false` if `patience` runs out first.
    pub async fn is_read(&self, patience: Duration, readers: usize) -> bool {
        let mut changes = self.shared.changes.subscribe();
        let read = changes.wait_for(|_| self.shared.state().readers >= readers);
        tokio::time::timeout(patience, read).await.is_ok()
    }

    /// Every message of the gateway, in the order in which they were first posted.
    pub fn messages(&self) -> Vec<Shown> {
        self.shared.state().messages.clone()
    }

    /// Waits until the rooms show `wanted`. `false` if `patience` runs out first.
    pub async fn shows(&self, patience: Duration, wanted: impl Fn(&[Shown]) -> bool) -> bool {
        let mut changes = self.shared.changes.subscribe();
        let seen = changes.wait_for(|_| wanted(&self.shared.state().messages));
        tokio::time::timeout(patience, seen).await.is_ok()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Serves one connection: a reader while it lives, or one request with one response.
async fn serve(shared: &Shared, stream: UnixStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line)? {
        NetworkRequest::Read { cursor } => {
            shared.state().readers += 1;
            shared.changed();
            return hand_out(shared, stream, cursor).await;
        }
        NetworkRequest::Send { place, key, body } => shared.state().send(place, key.as_str(), body),
        NetworkRequest::Edit { message, key, body, .. } => shared.state().edit(&message, key.as_str(), body),
    };
    shared.changed();
    if shared.state().silent {
        return std::future::pending().await;
    }
    write_line(&mut stream, &answer).await
}

/// Sends events one by one, each when the one before it was acknowledged.
async fn hand_out(
    shared: &Shared,
    mut stream: BufReader<UnixStream>,
    cursor: Option<String>,
) -> std::io::Result<()> {
    let cursor: usize = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let mut changes = shared.changes.subscribe();
    for at in cursor.saturating_sub(1).. {
        // The first event is one that the reader has had, unless it has had none.
        let arrived = changes.wait_for(|_| shared.state().events.len() > at);
        // Also notices the end of the reader, otherwise each dead one would stay for ever.
        tokio::select! {
            arrived = arrived => if arrived.is_err() { return Ok(()) },
            _ = stream.fill_buf() => return Ok(()),
        }
        let event = shared.state().events[at].clone();
        write_line(&mut stream, &IncomingEvent { events: vec![event], cursor: (at + 1).to_string() }).await?;
        if stream.read_line(&mut String::new()).await? == 0 {
            return Ok(());
        }
    }
    Ok(())
}

impl State {
    fn send(&mut self, place: Place, key: &str, body: MessageBody) -> NetworkReply {
        if body.done && self.turned_away.as_mut().is_some_and(|keys| keys.insert(key.to_owned())) {
            return NetworkReply::Retry { after_ms: None };
        }
        let next = self.messages.len();
        let index = *self.sent.entry(key.to_owned()).or_insert(next);
        if index == next {
            self.messages.push(Shown { place, bodies: vec![body] });
        }
        NetworkReply::Message(MessageId::new(index.to_string()))
    }

    fn edit(&mut self, message: &MessageId, key: &str, body: MessageBody) -> NetworkReply {
        let index = message.as_str().parse::<usize>();
        let Some(shown) = index.ok().and_then(|index| self.messages.get_mut(index)) else {
            return NetworkReply::Gone;
        };
        if self.edited.insert(key.to_owned()) {
            shown.bodies.push(body);
        }
        NetworkReply::Message(message.clone())
    }
}

async fn write_line(stream: &mut BufReader<UnixStream>, what: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line).await
}
