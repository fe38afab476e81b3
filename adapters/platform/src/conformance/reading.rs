//! Rules about `run`: it loses no event, invents none, and ends when asked.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::{CheckResult, ConformanceWorld, MemoryInbox, cause_of, must, soon};
use crate::{
    BodyKind, CancellationToken, MessageBody, Platform, PlatformError, PlatformErrorKind, RoomEvent,
    RoomEventKind, SendKey, spawn_task,
};

/// A platform whose `run` is running. Dropping it ends the task, so a failed check leaves nothing behind.
pub(super) struct RunningReader {
    pub(super) platform: Arc<dyn Platform>,
    inbox: Arc<MemoryInbox>,
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<(), PlatformError>>,
}

impl RunningReader {
    /// Runs the platform of a world, as a process does at its start.
    pub(super) async fn begin(
        world: &dyn ConformanceWorld,
        inbox: &Arc<MemoryInbox>,
    ) -> Result<Self, String> {
        let mut reading = Self::start(world.platform(), inbox);
        if world.opens() {
            let open = inbox.until(|inbox| inbox.position().map(drop));
            tokio::select! {
                open = soon("run, before its first position,", open) => open?,
                ended = &mut reading.task => return Err(match ended {
                    Ok(Err(error)) => format!("run must open the account, but it failed: {}", cause_of(&error)),
                    Ok(Ok(())) | Err(_) => "run must go on until it is stopped, but it ended".to_owned(),
                }),
            }
        }
        Ok(reading)
    }

    fn start(platform: Arc<dyn Platform>, inbox: &Arc<MemoryInbox>) -> Self {
        let (stop, inbox) = (CancellationToken::new(), Arc::clone(inbox));
        let run = {
            let (platform, inbox, stop) = (Arc::clone(&platform), Arc::clone(&inbox), stop.clone());
            async move { platform.run(inbox, stop).await }
        };
        Self { platform, inbox, stop, task: AbortOnDropHandle::new(spawn_task("platform-under-test", run)) }
    }

    /// Waits for a message and answers it finally: some platforms read on only then.
    async fn hears(&self, world: &dyn ConformanceWorld, text: &str) -> Result<RoomEvent, String> {
        let first = |inbox: &MemoryInbox| inbox.messages(text).into_iter().next();
        let event = soon("", self.inbox.until(first)).await.map_err(
            |_| "what a person writes must reach the inbox with its text unchanged, but a message did not",
        )?;
        self.answer(world, &event).await?;
        Ok(event)
    }

    async fn answer(&self, world: &dyn ConformanceWorld, event: &RoomEvent) -> CheckResult {
        let mut body = MessageBody::new(BodyKind::Answer, "Understood.");
        body.reply_to = Some(event.id.clone());
        let key = SendKey::new(format!("conformance.{}", self.inbox.events().len()));
        let sent = soon("send", self.platform.send(&world.place(), &key, &body)).await?;
        sent.map(drop)
            .map_err(|error| format!("an answer must be sent, but send failed: {}", cause_of(&error)))
    }

    pub(super) async fn end(self) -> CheckResult {
        self.stop.cancel();
        let ended = soon("run after its stop token had fired", self.task).await?;
        must(matches!(ended, Ok(Ok(()))), "run must return Ok after its stop token has fired, but it did not")
    }
}

pub(super) async fn a_message_arrives_once(world: &dyn ConformanceWorld) -> CheckResult {
    let inbox = Arc::new(MemoryInbox::new());
    let reading = RunningReader::begin(world, &inbox).await?;

    world.person_says("the first message").await;
    let event = reading.hears(world, "the first message").await?;
    // By the time a later message is there, a duplicate of the first would have come too.
    world.person_says("the second message").await;
    reading.hears(world, "the second message").await?;

    let times = inbox.messages("the first message").len();
    must(times == 1, format!("one message must be one event, but it arrived under {times} ids"))?;
    let own = inbox.messages("Understood.").len();
    must(own == 0, "our own messages must be left out, but one came back as an event")?;
    must(!event.id.as_str().is_empty(), "every event must have an id, but it is empty")?;
    must(!event.author.id.as_str().is_empty(), "every event must have an author, but the id is empty")?;
    must(event.place == world.place(), "an event must name the place where it happened, but named another")?;
    let addressed = matches!(&event.kind, RoomEventKind::Message(message) if message.addressed);
    must(addressed, "a message that is meant for us must be marked as addressed, but it is not")?;
    reading.end().await
}

pub(super) async fn a_restart_loses_nothing(world: &dyn ConformanceWorld) -> CheckResult {
    if !world.resumes() {
        return Ok(());
    }
    let inbox = Arc::new(MemoryInbox::new());
    let reading = RunningReader::begin(world, &inbox).await?;
    world.person_says("before the restart").await;
    reading.hears(world, "before the restart").await?;
    reading.end().await?;
    must(inbox.position().is_some(), "a batch must carry the position after it, but no cursor came")?;

    world.person_says("while nobody read").await;
    let reading = RunningReader::begin(world, &inbox).await?;
    reading.hears(world, "while nobody read").await.map_err(
        |_| "reading must go on from the accepted cursor, but what was said before a restart was lost",
    )?;
    let times = inbox.messages("before the restart").len();
    must(times == 1, "an event must keep its id over a restart, but it came again under another one")?;
    reading.end().await
}

pub(super) async fn a_failing_store_loses_nothing(world: &dyn ConformanceWorld) -> CheckResult {
    let inbox = Arc::new(MemoryInbox::new());
    let mut reading = RunningReader::begin(world, &inbox).await?;
    // The first message proves that reading has begun, so that only `accept` fails.
    world.person_says("while all is well").await;
    reading.hears(world, "while all is well").await?;

    inbox.fail();
    world.person_says("while the store fails").await;
    let offered = inbox.until(|inbox| inbox.refused("while the store fails").then_some(()));
    let ended = tokio::select! {
        offered = soon("accept", offered) => offered.map(|()| None)?,
        ended = &mut reading.task => Some(ended),
    };
    inbox.recover();

    // Two ways are right: `run` gives up with an error and is started again, or it keeps trying.
    let again = |inbox: &MemoryInbox| inbox.messages("while the store fails").into_iter().next();
    let ended = match ended {
        Some(ended) => Some(ended),
        None => tokio::select! {
            biased;
            _ = inbox.until(again) => None,
            ended = &mut reading.task => Some(ended),
            () = tokio::time::sleep(super::PATIENCE) => None,
        },
    };
    if let Some(ended) = ended {
        let kind = match ended {
            Ok(Err(error)) => error.kind(),
            Ok(Ok(())) => {
                return Err("when accept fails run must return the error, but it returned Ok".into());
            }
            Err(_) => return Err("run must not panic when accept fails, but it did".into()),
        };
        let rule = "a failing store is no reason to give the account up, but run returned Fatal";
        must(kind != PlatformErrorKind::Fatal, rule)?;
        reading = RunningReader::start(Arc::clone(&reading.platform), &inbox);
    }
    reading
        .hears(world, "while the store fails")
        .await
        .map_err(|_| "a batch that was not accepted must be offered again, but a message was lost with it")?;
    reading.end().await
}

pub(super) async fn stop_ends_the_reading(world: &dyn ConformanceWorld) -> CheckResult {
    let inbox = Arc::new(MemoryInbox::new());
    let reading = RunningReader::begin(world, &inbox).await?;
    world.person_says("one more thing").await;
    let event = reading.hears(world, "one more thing").await?;
    let platform = Arc::clone(&reading.platform);
    reading.end().await?;

    let mut body = MessageBody::new(BodyKind::Answer, "The last word.");
    body.reply_to = Some(event.id);
    let key = SendKey::new("conformance.last");
    let sent = soon("send after the end of run", platform.send(&world.place(), &key, &body)).await?;
    let shown = world.shown().await.iter().any(|text| text == "The last word.");
    must(sent.is_ok() && shown, "sends must work after run has ended, but an answer was not shown")
}
