//! A platform in memory, with the real core around it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use talaria::access::AccessLists;
use talaria::agent::{AgentRegistry, AgentTable, SharedAgent};
use talaria::config::StepsSetting;
use talaria::delivery::DisplaySettings;
use talaria::gateway::{Gateway, GatewayParts};
use talaria::ids::AgentName;
use talaria::pace::EDITS;
use talaria::rules::{AccountRules, AgentPolicy, AgentRules, LiveRules, Rules};
use talaria::store::{Store, StoreThreads};
use talaria::turns::TurnSettings;
use talaria_platform::{
    AccountId, AuthorTrust, BoxFuture, CancellationToken, EventAuthor, EventBatch, EventId, Inbox,
    IncomingMessage, MessageBody, MessageId, Place, Platform, PlatformCapabilities, PlatformError,
    PlatformErrorKind, RoomEvent, RoomEventKind, RoomInfo, SendKey, ShowMode, UserId,
};

/// Bytes of a message, about as many as fit on a network with encryption.
const MAX_TEXT: usize = 16 * 1024;

/// Rooms with one person in each, who asks once. Sends and edits succeed at once and are only counted.
pub struct Rooms {
    count: usize,
    show: ShowMode,
    /// Fired to let everybody ask, all in one batch.
    pub ask: CancellationToken,
    /// Edits of growing answers so far.
    pub edits: AtomicUsize,
    /// Bytes of finished answers so far, without spaces: a split may remove some.
    pub finished: AtomicUsize,
}

impl Rooms {
    pub fn new(count: usize, show: ShowMode) -> Arc<Self> {
        let ask = CancellationToken::new();
        Arc::new(Self { count, show, ask, edits: AtomicUsize::new(0), finished: AtomicUsize::new(0) })
    }

    fn shown(&self, body: &MessageBody) {
        match body.done {
            true => self.finished.fetch_add(inked(&body.markdown), Ordering::Relaxed),
            false => self.edits.fetch_add(1, Ordering::Relaxed),
        };
    }
}

impl Platform for Rooms {
    fn about(&self) -> PlatformCapabilities {
        let max_text = if self.show == ShowMode::Append { usize::MAX / 2 } else { MAX_TEXT };
        PlatformCapabilities {
            show: self.show,
            delete: false,
            react: false,
            threads: false,
            media: false,
            max_text,
            rate: None,
        }
    }

    fn run(
        &self,
        inbox: Arc<dyn Inbox>,
        _stop: CancellationToken,
    ) -> BoxFuture<'_, Result<(), PlatformError>> {
        Box::pin(async move {
            self.ask.cancelled().await;
            let events = (0..self.count).map(question).collect();
            let accepted = inbox.accept(EventBatch { events, ..EventBatch::default() }).await;
            accepted.map_err(|error| PlatformError::new(PlatformErrorKind::Fatal, error))
        })
    }

    fn send<'a>(
        &'a self,
        _: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>> {
        self.shown(body);
        Box::pin(async { Ok(MessageId::new(key.as_str())) })
    }

    fn edit<'a>(
        &'a self,
        _: &'a Place,
        _: &'a MessageId,
        _: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        self.shown(body);
        Box::pin(async { Ok(()) })
    }
}

/// Number of bytes that are not spaces.
pub fn inked(text: &str) -> usize {
    text.split_whitespace().map(str::len).sum()
}

fn question(room: usize) -> RoomEvent {
    RoomEvent {
        id: EventId::new("question"),
        place: Place::room(format!("room {room}")),
        room: RoomInfo { name: None, direct: true },
        // A person for each room: one who asks in a thousand rooms at once would be refused.
        author: EventAuthor {
            id: UserId::new(format!("ann {room}")),
            name: None,
            trust: AuthorTrust::Verified,
            bot: false,
            device: None,
        },
        secure: true,
        kind: RoomEventKind::Message(IncomingMessage::text("plan my week")),
    }
}

/// Starts the real core around the rooms, if there are any, with its database in `folder`.
pub async fn gateway(
    folder: &Path,
    rooms: Option<Arc<Rooms>>,
    agent: impl FnOnce(&Store) -> anyhow::Result<SharedAgent>,
) -> anyhow::Result<(Gateway, StoreThreads)> {
    let (store, threads) = Store::open(&folder.join("talaria.db"))?;
    let everybody = AccountRules::listed(AccessLists { allow_all: true, ..AccessLists::default() });
    let parts = GatewayParts {
        agents: AgentRegistry::new(AgentTable::new(AgentName::proxy(), agent(&store)?)),
        store,
        platforms: rooms.map(|rooms| (AccountId::new("rooms"), rooms as _)).into_iter().collect(),
        settings: TurnSettings {
            context: String::new(),
            names: false,
            files: false,
            history_messages: 50,
            history_bytes: 1 << 20,
            retry_for: Duration::ZERO,
            retry_scripts_for: Duration::ZERO,
            turn_bytes: 16 << 20,
            stop_grace: Duration::from_secs(1),
            ask_for: Duration::from_secs(300),
            review: talaria::config::ReviewConfig::default(),
        },
        display: DisplaySettings { steps: StepsSetting::Line, edits: EDITS, reactions: false },
        live: LiveRules::new(Rules {
            accounts: [(AccountId::new("rooms"), Arc::new(everybody))].into(),
            agents: AgentRules {
                by_name: [(AgentName::proxy(), AgentPolicy::default())].into(),
                ..AgentRules::default()
            },
            ..Rules::default()
        }),
        skills: None,
        switches: talaria::agents::runtime_switch::SwitchTable::default(),
    };
    let gateway = Gateway::start(parts).await.map_err(|refused| refused.error)?;
    Ok((gateway, threads))
}
