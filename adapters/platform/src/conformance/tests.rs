//! Proof that the suite passes a right adapter and catches wrong ones: a check that cannot fail is worth nothing. The
//! network is a list in memory; each [`Fault`] is one mistake that an adapter could make.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{ConformanceWorld, broken_rules, run_all};
use crate::{
    AuthorTrust, BoxFuture, CancellationToken, DeletionProgress, EventAuthor, EventBatch, EventId, Inbox,
    IncomingMessage, MessageBody, MessageId, Place, Platform, PlatformCapabilities, PlatformError,
    PlatformErrorKind, RateLimit, RoomEvent, RoomEventKind, RoomInfo, SendKey, ShowMode, Signal,
};

#[tokio::test(start_paused = true)]
async fn a_right_adapter_passes_whatever_it_can_do() {
    for show in [ShowMode::Edit { pause: Duration::ZERO }, ShowMode::Once] {
        for delete in [true, false] {
            run_all(async || Memory::new(show, delete, None)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_adapter_with_a_login_and_keys_for_everything_passes() {
    let edit = ShowMode::Edit { pause: Duration::ZERO };
    run_all(async || Memory { login: true, ..Memory::new(edit, true, None) }).await;
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_found_and_named() {
    for (fault, rule) in FAULTS {
        let edit = ShowMode::Edit { pause: Duration::ZERO };
        let show = if matches!(fault, Fault::EditsWithoutSayingSo) { ShowMode::Once } else { edit };
        let delete = !matches!(fault, Fault::DeletesWithoutSayingSo);
        let broken = broken_rules(async || Memory::new(show, delete, Some(*fault))).await;
        assert!(broken.iter().any(|broken| broken.contains(rule)), "{fault:?} gave {broken:#?}");
    }
}

/// One mistake an adapter could make.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    ChangesItsMind,
    TakesTooLittleText,
    NeverLetsARequestThrough,
    CutsLongText,
    PostsTwice,
    PostsTwiceAfterARestart,
    ReturnsAnotherId,
    PostsEditsAnew,
    KeepsTheBeginning,
    EditsWithoutSayingSo,
    DeletesWithoutSayingSo,
    FetchesWithoutSayingSo,
    ShowsTyping,
    HangsOnSignals,
    ReactsWithoutSayingSo,
    LosesMessages,
    DeliversTwice,
    EchoesOwnMessages,
    ForgetsTheId,
    NamesAnotherPlace,
    ForgetsToAddress,
    HasNoCursor,
    StartsAtTheEnd,
    DropsWhatWasRefused,
    EndsWellWhenRefused,
    GivesUpWhenRefused,
    IgnoresStop,
    FailsAtStop,
    RefusesLateSends,
}

/// Each mistake with words of the rule that the suite must name for it.
const FAULTS: &[(Fault, &str)] = &[
    (Fault::ChangesItsMind, "about must be constant"),
    (Fault::TakesTooLittleText, "at least 200"),
    (Fault::NeverLetsARequestThrough, "a rate must let one request through"),
    (Fault::CutsLongText, "shown whole and once"),
    (Fault::PostsTwice, "two messages are shown"),
    (Fault::PostsTwiceAfterARestart, "once over a restart"),
    (Fault::ReturnsAnotherId, "must return the message that is there"),
    (Fault::PostsEditsAnew, "an edit must show"),
    (Fault::KeepsTheBeginning, "begins otherwise"),
    (Fault::EditsWithoutSayingSo, "edit must be Unsupported"),
    (Fault::DeletesWithoutSayingSo, "delete must be Unsupported"),
    (Fault::FetchesWithoutSayingSo, "fetch must be Unsupported"),
    (Fault::ShowsTyping, "a signal must not change"),
    (Fault::HangsOnSignals, "signal took more than"),
    (Fault::ReactsWithoutSayingSo, "react must be Unsupported"),
    (Fault::LosesMessages, "must reach the inbox"),
    (Fault::DeliversTwice, "under 2 ids"),
    (Fault::EchoesOwnMessages, "our own messages"),
    (Fault::ForgetsTheId, "must have an id"),
    (Fault::NamesAnotherPlace, "named another"),
    (Fault::ForgetsToAddress, "marked as addressed"),
    (Fault::HasNoCursor, "no cursor came"),
    (Fault::StartsAtTheEnd, "go on from the accepted cursor"),
    (Fault::DropsWhatWasRefused, "must be offered again"),
    (Fault::EndsWellWhenRefused, "returned Ok"),
    (Fault::GivesUpWhenRefused, "returned Fatal"),
    (Fault::IgnoresStop, "after its stop token had fired took more"),
    (Fault::FailsAtStop, "must return Ok after its stop token"),
    (Fault::RefusesLateSends, "sends must work after run has ended"),
];

/// The network and the account on it, shared by every platform made from it.
struct Memory {
    show: ShowMode,
    delete: bool,
    fault: Option<Fault>,
    /// Whether there is a login: nothing works before `run` has reached a position, earlier messages count as
    /// history, and an edit whose key was used before changes nothing.
    login: bool,
    /// Every message so far, and whether we wrote it. The cursor is an index into it.
    said: watch::Sender<Vec<(String, bool)>>,
    posts: Arc<Mutex<Vec<Post>>>,
}

struct Post {
    key: SendKey,
    id: MessageId,
    text: Option<String>,
    /// Number of the platform that posted it, for the fault that forgets keys over a restart.
    by: usize,
}

impl Memory {
    fn new(show: ShowMode, delete: bool, fault: Option<Fault>) -> Self {
        let (said, posts) = (watch::Sender::default(), Arc::default());
        Self { show, delete, fault, login: false, said, posts }
    }
}

impl ConformanceWorld for Memory {
    fn platform(&self) -> Arc<dyn Platform> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        Arc::new(Adapter {
            show: self.show,
            delete: self.delete,
            fault: self.fault,
            login: self.login,
            open: AtomicBool::new(!self.login),
            edits: Mutex::default(),
            said: self.said.clone(),
            posts: Arc::clone(&self.posts),
            number: MADE.fetch_add(1, Ordering::Relaxed),
            asked: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        })
    }

    fn place(&self) -> Place {
        Place::room("lobby")
    }

    fn opens(&self) -> bool {
        self.login
    }

    fn person_says<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        self.said.send_modify(|said| said.push((text.to_owned(), false)));
        Box::pin(async {})
    }

    fn shown(&self) -> BoxFuture<'_, Vec<String>> {
        let shown = self.posts.lock().iter().filter_map(|post| post.text.clone()).collect();
        Box::pin(async { shown })
    }
}

struct Adapter {
    show: ShowMode,
    delete: bool,
    fault: Option<Fault>,
    login: bool,
    open: AtomicBool,
    edits: Mutex<Vec<SendKey>>,
    said: watch::Sender<Vec<(String, bool)>>,
    posts: Arc<Mutex<Vec<Post>>>,
    number: usize,
    asked: AtomicUsize,
    ended: AtomicUsize,
}

impl Adapter {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn events(&self, said: &[(String, bool)], from: usize) -> Vec<RoomEvent> {
        let mut events = Vec::new();
        for (n, (text, ours)) in said.iter().enumerate().skip(from) {
            if (*ours && !self.is(Fault::EchoesOwnMessages)) || self.is(Fault::LosesMessages) {
                continue;
            }
            let room = if self.is(Fault::NamesAnotherPlace) { "cellar" } else { "lobby" };
            let id = if self.is(Fault::ForgetsTheId) && n == 0 { String::new() } else { format!("${n}") };
            let mut message = IncomingMessage::text(text.as_str());
            message.addressed = !self.is(Fault::ForgetsToAddress);
            let event = RoomEvent {
                id: EventId::new(id),
                place: Place::room(room),
                room: RoomInfo::default(),
                author: EventAuthor {
                    id: "@ann".into(),
                    name: None,
                    trust: AuthorTrust::Network,
                    bot: false,
                    device: None,
                },
                secure: false,
                kind: RoomEventKind::Message(message),
            };
            if self.is(Fault::DeliversTwice) {
                events.push(RoomEvent { id: EventId::new(format!("again ${n}")), ..event.clone() });
            }
            events.push(event);
        }
        events
    }

    async fn read(&self, inbox: Arc<dyn Inbox>) -> Result<(), PlatformError> {
        let cursor = inbox.cursor().await.map_err(|error| PlatformError::new(RETRY, error))?;
        let mut said = self.said.subscribe();
        let mut position = cursor.as_deref().map_or(0, |cursor| cursor.parse().unwrap());
        if self.is(Fault::StartsAtTheEnd) && cursor.is_some() {
            position = said.borrow_and_update().len();
        }
        if self.login && cursor.is_none() {
            position = said.borrow_and_update().len();
            let batch = EventBatch { cursor: Some(position.to_string()), ..EventBatch::default() };
            inbox.accept(batch).await.map_err(|error| PlatformError::new(RETRY, error))?;
        }
        self.open.store(true, Ordering::Relaxed);
        loop {
            let now = said.wait_for(|said| said.len() > position).await.unwrap().clone();
            let cursor = (!self.is(Fault::HasNoCursor)).then(|| now.len().to_string());
            let batch = EventBatch { events: self.events(&now, position), cursor, ..EventBatch::default() };
            if let Err(error) = inbox.accept(batch).await {
                match self.fault {
                    Some(Fault::DropsWhatWasRefused) => {}
                    Some(Fault::EndsWellWhenRefused) => return Ok(()),
                    Some(Fault::GivesUpWhenRefused) => {
                        return Err(PlatformError::new(PlatformErrorKind::Fatal, error));
                    }
                    _ => return Err(PlatformError::new(RETRY, error)),
                }
            }
            position = now.len();
        }
    }

    fn post(&self, key: &SendKey, body: &MessageBody) -> MessageId {
        let mut posts = self.posts.lock();
        let known = posts.iter().find(|post| {
            let forgotten = self.is(Fault::PostsTwiceAfterARestart) && post.by != self.number;
            post.key == *key && !forgotten && !self.is(Fault::PostsTwice)
        });
        let fresh = MessageId::new(format!("m{}", posts.len()));
        match known {
            Some(_) if self.is(Fault::ReturnsAnotherId) => fresh,
            Some(post) => post.id.clone(),
            None => {
                let limit = if self.is(Fault::CutsLongText) { 4096 } else { usize::MAX };
                let text = Some(body.markdown.chars().take(limit).collect());
                posts.push(Post { key: key.clone(), id: fresh.clone(), text, by: self.number });
                self.said.send_modify(|said| said.push((body.markdown.clone(), true)));
                fresh
            }
        }
    }

    fn is_new(&self, key: &SendKey) -> bool {
        let mut edits = self.edits.lock();
        let new = !edits.contains(key);
        edits.push(key.clone());
        new
    }

    fn change(
        &self,
        message: &MessageId,
        to: impl FnOnce(&str) -> Option<String>,
    ) -> Result<(), PlatformError> {
        let mut posts = self.posts.lock();
        let post = posts.iter_mut().find(|post| post.id == *message).ok_or(PlatformErrorKind::Gone)?;
        post.text = to(post.text.as_deref().unwrap_or_default());
        Ok(())
    }
}

const RETRY: PlatformErrorKind = PlatformErrorKind::Retry { after: None };

impl Platform for Adapter {
    fn about(&self) -> PlatformCapabilities {
        let flips = self.is(Fault::ChangesItsMind) && self.asked.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let burst = if self.is(Fault::NeverLetsARequestThrough) { 0.5 } else { 10.0 };
        PlatformCapabilities {
            show: self.show,
            delete: self.delete,
            react: false,
            threads: flips,
            media: false,
            max_text: if self.is(Fault::TakesTooLittleText) { 140 } else { 60_000 },
            rate: Some(RateLimit { per_second: 1.0, burst }),
        }
    }

    fn run(
        &self,
        inbox: Arc<dyn Inbox>,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<(), PlatformError>> {
        Box::pin(async move {
            if self.is(Fault::IgnoresStop) {
                return self.read(inbox).await;
            }
            let ended = stop.run_until_cancelled(self.read(inbox)).await;
            self.ended.store(1, Ordering::Relaxed);
            match ended {
                Some(ended) => ended,
                None if self.is(Fault::FailsAtStop) => Err(RETRY.into()),
                None => Ok(()),
            }
        })
    }

    fn send<'a>(
        &'a self,
        _place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>> {
        Box::pin(async move {
            if self.is(Fault::RefusesLateSends) && self.ended.load(Ordering::Relaxed) == 1 {
                return Err(PlatformErrorKind::Gone.into());
            }
            if !self.open.load(Ordering::Relaxed) {
                return Err(RETRY.into());
            }
            Ok(self.post(key, body))
        })
    }

    fn edit<'a>(
        &'a self,
        _place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async move {
            if self.login && !self.is_new(key) {
                return Ok(());
            }
            if self.show == ShowMode::Once && !self.is(Fault::EditsWithoutSayingSo) {
                return Err(PlatformErrorKind::Unsupported.into());
            }
            if self.is(Fault::PostsEditsAnew) {
                self.post(&SendKey::new(body.markdown.as_str()), body);
                return Ok(());
            }
            self.change(message, |old| {
                let keep = self.is(Fault::KeepsTheBeginning) && !body.markdown.starts_with(old);
                Some(if keep { format!("{old}{}", body.markdown) } else { body.markdown.clone() })
            })
        })
    }

    fn delete<'a>(
        &'a self,
        _place: &'a Place,
        message: &'a MessageId,
        _key: &'a SendKey,
    ) -> BoxFuture<'a, Result<DeletionProgress, PlatformError>> {
        Box::pin(async move {
            if self.delete || self.is(Fault::DeletesWithoutSayingSo) {
                self.change(message, |_| None).map(|()| DeletionProgress::Complete)
            } else {
                Err(PlatformErrorKind::Unsupported.into())
            }
        })
    }

    fn react<'a>(
        &'a self,
        _place: &'a Place,
        _message: &'a MessageId,
        _mark: &'a str,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async {
            match self.is(Fault::ReactsWithoutSayingSo) {
                true => Ok(()),
                false => Err(PlatformErrorKind::Unsupported.into()),
            }
        })
    }

    fn signal<'a>(&'a self, _place: &'a Place, signal: Signal) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.is(Fault::HangsOnSignals) {
                std::future::pending::<()>().await;
            }
            if self.is(Fault::ShowsTyping) && signal == Signal::Typing(true) {
                let body = MessageBody::new(crate::BodyKind::Notice, "is typing");
                self.post(&SendKey::from("typing"), &body);
            }
        })
    }

    fn fetch<'a>(
        &'a self,
        _media: &'a crate::MediaId,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Vec<u8>, PlatformError>> {
        Box::pin(async {
            if self.is(Fault::FetchesWithoutSayingSo) {
                return Ok(Vec::new());
            }
            Err(PlatformErrorKind::Unsupported.into())
        })
    }
}
