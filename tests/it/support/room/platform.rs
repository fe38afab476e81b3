//! The gateway's view of the network: reading from a cursor, and one request after the other.

use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{
    BoxFuture, CancellationToken, DeletionProgress, EventBatch, Inbox, MediaId, MessageBody, MessageId,
    Place, PlaceLifetime, Platform, PlatformCapabilities, PlatformError, PlatformErrorKind, SendKey,
    ShowMode, Signal,
};
use tokio::time::Instant;

use super::Line;
use super::network::{Chat, Posted, Shown, State};
use super::requests::{Fault, Request, What};

/// How long every request takes. Without it two requests could never be under way together.
const LATENCY: Duration = Duration::from_millis(50);

/// Rooms with such names end with the process, as a pipe does.
const PIPE: &str = "pipe";

impl Platform for Chat {
    fn about(&self) -> PlatformCapabilities {
        self.about
    }

    fn run(
        &self,
        inbox: Arc<dyn Inbox>,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<(), PlatformError>> {
        self.state().inbox = Some(Arc::downgrade(&inbox));
        self.state().runs += 1;
        self.changed();
        Box::pin(async move {
            let opening = self.state().opening.take();
            if let Some(gate) = opening {
                gate.opened().await;
            }
            self.state().open = true;
            tokio::select! {
                ended = self.read(inbox) => ended,
                () = stop.cancelled() => Ok(()),
            }
        })
    }

    fn is_away(&self) -> bool {
        self.state().away
    }

    fn lasts(&self, place: &Place) -> PlaceLifetime {
        match place.room.as_str().starts_with(PIPE) {
            true => PlaceLifetime::Process,
            false => PlaceLifetime::Always,
        }
    }

    fn send<'a>(
        &'a self,
        place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>> {
        Box::pin(self.request(What::Send, place, key, body))
    }

    fn edit<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async move {
            if self.about.show == ShowMode::Once {
                return Err(PlatformErrorKind::Unsupported.into());
            }
            self.request(What::Edit(message.clone()), place, key, body).await.map(drop)
        })
    }

    fn delete<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        _key: &'a SendKey,
    ) -> BoxFuture<'a, Result<DeletionProgress, PlatformError>> {
        Box::pin(async move {
            if self.is_dead() {
                return Err(PlatformErrorKind::Rejected.into());
            }
            let refused = self.state().bucket.as_mut().and_then(|bucket| bucket.take().err());
            tokio::time::sleep(LATENCY).await;
            if let Some(after) = refused {
                return Err(PlatformErrorKind::Retry { after: Some(after) }.into());
            }
            let fault = self.state().deletion_fails.pop_front();
            if let Some(kind) = fault {
                return Err(kind.into());
            }
            if self.state().no_deletion_in.as_deref() == Some(place.room.as_str()) {
                return Err(PlatformErrorKind::Retry { after: None }.into());
            }
            let deletion = self.state().delete(message);
            self.changed();
            deletion
        })
    }

    fn react<'a>(
        &'a self,
        _place: &'a Place,
        message: &'a MessageId,
        mark: &'a str,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async move {
            if !self.about.react {
                return Err(PlatformErrorKind::Unsupported.into());
            }
            if self.is_dead() {
                return Err(PlatformErrorKind::Rejected.into());
            }
            let mut state = self.state();
            if !state.open {
                return Err(PlatformErrorKind::Retry { after: None }.into());
            }
            if let Some(kind) = state.reaction_fails.pop_front() {
                return Err(kind.into());
            }
            let mark = Shown::Mark(message.clone(), mark.to_owned());
            if !state.signals.contains(&mark) {
                state.signals.push(mark);
            }
            drop(state);
            self.changed();
            Ok(())
        })
    }

    fn signal<'a>(&'a self, place: &'a Place, signal: Signal) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.state().life != self.life {
                std::future::pending::<()>().await;
            }
            let mut state = self.state();
            match signal {
                Signal::Typing(on) => {
                    state.typing.insert(place.room.as_str().to_owned(), on);
                }
                Signal::Read(event) => state.signals.push(Shown::Read(event)),
            }
        })
    }

    fn fetch<'a>(&'a self, media: &'a MediaId, limit: u64) -> BoxFuture<'a, Result<Vec<u8>, PlatformError>> {
        Box::pin(async move {
            let fault = self.state().fetching.pop_front();
            match fault {
                Some(Fault::Answers(kind)) => return Err(kind.into()),
                Some(Fault::Waits(gate) | Fault::Late(gate)) => gate.opened().await,
                Some(Fault::LostAnswer) => return Err(PlatformErrorKind::Retry { after: None }.into()),
                None => {}
            }
            let content = self.state().files.get(media).cloned().ok_or(PlatformErrorKind::Gone)?;
            if content.len() as u64 > limit { Err(PlatformErrorKind::Rejected.into()) } else { Ok(content) }
        })
    }
}

impl Chat {
    /// Runs one request from its start to its response.
    async fn request(
        &self,
        what: What,
        place: &Place,
        key: &SendKey,
        body: &MessageBody,
    ) -> Result<MessageId, PlatformError> {
        let mut request = Request {
            at: Instant::now(),
            what,
            place: place.clone(),
            key: key.clone(),
            body: body.clone(),
            refused: false,
        };
        if self.is_dead() {
            return Err(PlatformErrorKind::Rejected.into());
        }
        let _under_way = UnderWay::new(self, &request);
        let (fault, refused) = {
            let mut state = self.state();
            if let What::Edit(id) = &request.what
                && state.is_taken_back(id)
            {
                state.violations.push(format!("an edit of {id}, which we took back"));
            }
            let refused = state.bucket.as_mut().and_then(|bucket| bucket.take().err());
            request.refused = refused.is_some();
            state.requests.push(request.clone());
            (state.next_fault(&request.what), refused)
        };
        self.changed();
        tokio::time::sleep(LATENCY).await;
        if let Some(after) = refused {
            return Err(PlatformErrorKind::Retry { after: Some(after) }.into());
        }
        match fault {
            None => self.arrives(&request),
            Some(Fault::Answers(kind)) => Err(kind.into()),
            Some(Fault::LostAnswer) => {
                self.arrives(&request)?;
                Err(PlatformErrorKind::Retry { after: None }.into())
            }
            Some(Fault::Late(gate)) => {
                let chat = self.clone();
                tokio::spawn(async move {
                    gate.opened().await;
                    let _ = chat.arrives(&request);
                });
                std::future::pending().await
            }
            Some(Fault::Waits(gate)) => {
                gate.opened().await;
                self.arrives(&request)
            }
        }
    }

    /// Whether the gateway that holds this clone was killed. Its requests have no effect, and fail at once: otherwise
    /// a scene on the real clock would wait for a timeout.
    fn is_dead(&self) -> bool {
        self.state().life != self.life
    }

    /// Applies the effect of a request.
    fn arrives(&self, request: &Request) -> Result<MessageId, PlatformError> {
        let outcome = self.state().apply(request, &self.about);
        self.changed();
        outcome
    }

    async fn read(&self, inbox: Arc<dyn Inbox>) -> Result<(), PlatformError> {
        let lost = |error| PlatformError::new(PlatformErrorKind::Retry { after: None }, error);
        let mut next: usize = inbox.cursor().await.map_err(lost)?.and_then(|at| at.parse().ok()).unwrap_or(0);
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(kind) = self.state().reading_fails.pop_front() {
                return Err(kind.into());
            }
            let events: Vec<_> = self.state().events.get(next..).unwrap_or_default().to_vec();
            if events.is_empty() {
                let _ = changes.changed().await;
                continue;
            }
            next += events.len();
            let late = std::mem::take(&mut self.state().late);
            let batch = EventBatch { events, cursor: Some(next.to_string()), late, ..EventBatch::default() };
            inbox.accept(batch).await.map_err(lost)?;
            self.state().accepted = next;
            self.changed();
        }
    }
}

impl State {
    fn next_fault(&mut self, what: &What) -> Option<Fault> {
        let is_send = *what == What::Send;
        let at = self.faults.iter().position(|(for_send, _)| *for_send == is_send)?;
        self.faults.remove(at).map(|(_, fault)| fault)
    }

    fn apply(&mut self, request: &Request, about: &PlatformCapabilities) -> Result<MessageId, PlatformError> {
        let body = &request.body;
        let blank = body.markdown.trim().is_empty();
        let (one_file, odd) = (body.files.len() == 1 && blank, !body.files.is_empty() && !about.media);
        if body.markdown.len() > about.max_text || (blank && !one_file) || odd {
            self.violations.push(format!("a text of {} bytes", body.markdown.len()));
            return Err(PlatformErrorKind::Rejected.into());
        }
        match &request.what {
            What::Send => {
                let room = request.place.room.as_str().to_owned();
                let number = match self.keys.get(&request.key) {
                    Some(&number) => number,
                    None => {
                        let number = self.messages.len();
                        let revisions = vec![body.markdown.clone()];
                        self.messages.push(Posted {
                            room: room.clone(),
                            body: body.clone(),
                            revisions,
                            readable_edits: 0,
                            deleted: false,
                            taken_back: false,
                        });
                        self.keys.insert(request.key.clone(), number);
                        self.timelines.entry(room).or_default().push(Line::Ours(number));
                        number
                    }
                };
                Ok(MessageId::new(format!("m{number}")))
            }
            What::Edit(id) => {
                // An edit that was under way when we deleted the message stays readable.
                if self.is_taken_back(id) {
                    self.posted(id)?.readable_edits += 1;
                    return Ok(id.clone());
                }
                let message = self.find(id)?;
                let before = std::mem::replace(&mut message.body, body.clone());
                message.revisions.push(body.markdown.clone());
                message.readable_edits += 1;
                let shrinks = !body.done && !body.markdown.starts_with(&before.markdown);
                if about.show == ShowMode::Append && shrinks {
                    self.violations
                        .push(format!("{:?} does not begin with {:?}", body.markdown, before.markdown));
                }
                Ok(id.clone())
            }
        }
    }

    /// Deletes as Matrix does: the message first, then one edit with each call, and late edits are looked for.
    fn delete(&mut self, id: &MessageId) -> Result<DeletionProgress, PlatformError> {
        let message = self.posted(id)?;
        match message.taken_back {
            true => message.readable_edits = message.readable_edits.saturating_sub(1),
            false if message.deleted => return Err(PlatformErrorKind::Gone.into()),
            false => {
                (message.deleted, message.taken_back) = (true, true);
                return Ok(DeletionProgress::More);
            }
        }
        Ok(if message.readable_edits > 0 { DeletionProgress::More } else { DeletionProgress::Complete })
    }

    fn is_taken_back(&mut self, id: &MessageId) -> bool {
        self.posted(id).is_ok_and(|message| message.taken_back)
    }

    fn find(&mut self, id: &MessageId) -> Result<&mut Posted, PlatformError> {
        self.posted(id).ok().filter(|message| !message.deleted).ok_or_else(|| PlatformErrorKind::Gone.into())
    }

    /// A message, whether it is still there or not.
    fn posted(&mut self, id: &MessageId) -> Result<&mut Posted, PlatformError> {
        let number = id.as_str().strip_prefix('m').and_then(|number| number.parse::<usize>().ok());
        number.and_then(|number| self.messages.get_mut(number)).ok_or_else(|| PlatformErrorKind::Gone.into())
    }
}

/// A request without a response yet. There may be only one for a message.
struct UnderWay<'a> {
    chat: &'a Chat,
    about: String,
}

impl<'a> UnderWay<'a> {
    fn new(chat: &'a Chat, request: &Request) -> Self {
        let mut state = chat.state();
        let about = match &request.what {
            What::Send => {
                let known = state.keys.get(&request.key).map(|number| format!("m{number}"));
                known.unwrap_or_else(|| request.key.to_string())
            }
            What::Edit(id) => id.to_string(),
        };
        if state.under_way.contains(&about) {
            state.violations.push(format!("two requests at a time for {about}"));
        }
        state.under_way.push(about.clone());
        Self { chat, about }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.chat.state();
        if let Some(at) = state.under_way.iter().position(|about| *about == self.about) {
            state.under_way.remove(at);
        }
    }
}
