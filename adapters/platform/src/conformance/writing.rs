//! Rules about `send`, `edit`, `delete`, `fetch`, `react` and `signal`: rooms show what they were sent, once, and a
//! call that is not announced returns `Unsupported`.

use std::sync::Arc;

use super::reading::RunningReader;
use super::{CheckResult, ConformanceWorld, MemoryInbox, SendKeySupport, cause_of, must, soon};
use crate::{
    BodyKind, DeletionProgress, EventId, MediaId, MessageBody, MessageId, Platform, PlatformError,
    PlatformErrorKind, SendKey, ShowMode, Signal,
};

/// Bytes of the longest text that the suite sends. Enough to overflow buffers of a usual size.
const LONG: usize = 20_000;

/// A platform in its world, with the calls of the trait in the form that the checks need.
struct PlatformWriter<'a> {
    world: &'a dyn ConformanceWorld,
    platform: Arc<dyn Platform>,
    /// Set for a world that opens its account; the account stays open while this lives.
    reading: Option<RunningReader>,
}

impl<'a> PlatformWriter<'a> {
    async fn new(world: &'a dyn ConformanceWorld) -> Result<Self, String> {
        if !world.opens() {
            return Ok(Self { world, platform: world.platform(), reading: None });
        }
        let reading = RunningReader::begin(world, &Arc::new(MemoryInbox::new())).await?;
        Ok(Self { world, platform: Arc::clone(&reading.platform), reading: Some(reading) })
    }

    /// Ends the platform as the end of a process does: nothing is left of it.
    async fn end(self) -> CheckResult {
        match self.reading {
            Some(reading) => reading.end().await,
            None => Ok(()),
        }
    }

    async fn send(&self, key: &str, body: &MessageBody) -> Result<MessageId, String> {
        let (place, key) = (self.world.place(), SendKey::from(key));
        let sent = soon("send", self.platform.send(&place, &key, body)).await?;
        sent.map_err(|error| format!("a message must be sent, but send failed: {}", cause_of(&error)))
    }

    async fn try_edit(
        &self,
        message: &MessageId,
        key: &str,
        body: &MessageBody,
    ) -> Result<Result<(), PlatformError>, String> {
        let (place, key) = (self.world.place(), SendKey::from(key));
        soon("edit", self.platform.edit(&place, message, &key, body)).await
    }

    async fn edit(&self, message: &MessageId, key: &str, body: &MessageBody) -> CheckResult {
        let edited = self.try_edit(message, key, body).await?;
        edited.map_err(|error| {
            format!("a message must be edited where that is announced, but: {}", cause_of(&error))
        })
    }

    /// Counts the messages with exactly this text.
    async fn count(&self, text: &str) -> usize {
        self.world.shown().await.iter().filter(|shown| *shown == text).count()
    }
}

pub(super) async fn about_is_constant_and_sane(world: &dyn ConformanceWorld) -> CheckResult {
    let platform = world.platform();
    let about = platform.about();
    must(about == platform.about(), "about must be constant, but two calls differ")?;
    must(about.max_text >= 200, "max_text must be at least 200 bytes, but it is less")?;
    let Some(rate) = about.rate else { return Ok(()) };
    let sane =
        rate.per_second.is_finite() && rate.per_second > 0.0 && rate.burst.is_finite() && rate.burst >= 1.0;
    must(sane, "a rate must let one request through and more later, but it never would")
}

pub(super) async fn a_done_answer_is_shown_whole(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    let long = words(writer.platform.about().max_text.min(LONG));
    writer.send("conformance.long", &answer(&long)).await?;
    let rule = "an answer of up to max_text bytes must be shown whole and once, but it was not";
    must(writer.world.shown().await == [long], rule)
}

pub(super) async fn one_key_posts_once(world: &dyn ConformanceWorld) -> CheckResult {
    if world.keys() == SendKeySupport::Never {
        return Ok(());
    }
    let writer = PlatformWriter::new(world).await?;
    let first = writer.send("conformance.a", &answer("As it was.")).await?;
    let again = writer.send("conformance.a", &answer("As it was.")).await?;
    must(writer.count("As it was.").await == 1, "the same key must post once, but two messages are shown")?;
    must(first == again, "the same key must return the message that is there, but the id is another")?;

    writer.send("conformance.a", &answer("As it might be.")).await?;
    let shown = writer.world.shown().await.len();
    must(shown == 1, "the same key must post once even with another body, but it posted again")?;

    writer.send("conformance.b", &answer("As it was.")).await?;
    let shown = writer.world.shown().await.len();
    must(shown == 2, "another key is another message even with the same words, but it was not posted")
}

pub(super) async fn one_key_posts_once_after_a_restart(world: &dyn ConformanceWorld) -> CheckResult {
    if world.keys() != SendKeySupport::Always {
        return Ok(());
    }
    let writer = PlatformWriter::new(world).await?;
    let first = writer.send("conformance.a", &answer("Only once.")).await?;
    writer.end().await?;
    let writer = PlatformWriter::new(world).await?;
    let again = writer.send("conformance.a", &answer("Only once.")).await?;
    let once = writer.count("Only once.").await == 1 && first == again;
    must(once, "the same key must post once over a restart, but a second message was made")
}

pub(super) async fn an_answer_grows_as_announced(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    match writer.platform.about().show {
        ShowMode::Edit { .. } | ShowMode::Append => {
            let id = writer.send("conformance.a", &growing("It grows")).await?;
            // Each edit has a key of its own: a network that knows keys would drop the second edit as a repetition.
            for (key, text) in
                [("conformance.a.1", "It grows and"), ("conformance.a.2", "It grows and grows")]
            {
                writer.edit(&id, key, &growing(text)).await?;
                must(
                    writer.world.shown().await == [text],
                    "an edit must show the whole new text, but it did not",
                )?;
            }
            for _ in 0..2 {
                writer.edit(&id, "conformance.a.3", &answer("It grows and grows up.")).await?;
            }
            let rule = "the last edit must show the whole answer, once, even when repeated, but it did not";
            must(writer.world.shown().await == ["It grows and grows up."], rule)
        }
        ShowMode::Once => {
            let id = writer.send("conformance.a", &answer("It is done.")).await?;
            let edited = writer.try_edit(&id, "conformance.a.1", &answer("It is not.")).await?;
            must(is_unsupported(&edited), "edit must be Unsupported where show is Once, but it is not")?;
            must(
                writer.count("It is done.").await == 1,
                "an unsupported edit must change nothing, but it did",
            )
        }
    }
}

pub(super) async fn the_end_may_replace_the_beginning(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    let rule = "a done body must be shown whole even when it begins otherwise than before, but it was not";
    match writer.platform.about().show {
        ShowMode::Edit { .. } => {
            let id = writer.send("conformance.a", &growing("A first thought")).await?;
            writer.edit(&id, "conformance.a.1", &answer("The last word.")).await?;
            must(writer.world.shown().await == ["The last word."], rule)
        }
        ShowMode::Append => {
            // Printed text stays, so the answer follows it.
            let id = writer.send("conformance.a", &growing("A first thought")).await?;
            writer.edit(&id, "conformance.a.1", &answer("The last word.")).await?;
            must(writer.world.shown().await.last().is_some_and(|text| text == "The last word."), rule)
        }
        ShowMode::Once => Ok(()),
    }
}

/// More calls than the deletion of one message without edits may take.
const DELETIONS: usize = 8;

pub(super) async fn delete_does_as_announced(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    let id = writer.send("conformance.a", &answer("Here for now.")).await?;
    let (place, key) = (world.place(), SendKey::from("conformance.a.1"));
    let mut deleted = soon("delete", writer.platform.delete(&place, &id, &key)).await?;
    for _ in 0..DELETIONS {
        if matches!(deleted, Ok(DeletionProgress::More)) {
            deleted = soon("delete", writer.platform.delete(&place, &id, &key)).await?;
        }
    }
    must(!matches!(deleted, Ok(DeletionProgress::More)), "a deletion must come to an end, but it does not")?;
    let left = writer.count("Here for now.").await;
    if writer.platform.about().delete {
        must(
            deleted.is_ok() && left == 0,
            "a deleted message must be gone where delete is announced, but it is not",
        )
    } else {
        must(
            is_unsupported(&deleted),
            "delete must be Unsupported where it is not announced, but it is not",
        )?;
        must(left == 1, "an unsupported delete must change nothing, but it did")
    }
}

pub(super) async fn fetch_does_as_announced(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    let platform = &writer.platform;
    let fetched = soon("fetch", platform.fetch(&MediaId::from("conformance"), 1)).await?;
    if platform.about().media {
        // Only the network knows which files exist, but an unknown file must fail everywhere.
        must(fetched.is_err(), "fetching a file that does not exist must fail, but it did not")
    } else {
        must(
            is_unsupported(&fetched),
            "fetch must be Unsupported where media is not announced, but it is not",
        )
    }
}

pub(super) async fn react_does_as_announced(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    let (platform, place) = (&writer.platform, world.place());
    let id = writer.send("conformance.a", &answer("Still the same.")).await?;
    // Twice, as the core does after a lost response.
    for _ in 0..2 {
        let marked = soon("react", platform.react(&place, &id, "👀")).await?;
        match platform.about().react {
            true => must(marked.is_ok(), "a message of ours must take a mark, also again, but it did not")?,
            false => must(
                is_unsupported(&marked),
                "react must be Unsupported where it is not announced, but it is not",
            )?,
        }
    }
    let rule = "a mark must not change or add a message, but what is shown differs";
    must(writer.world.shown().await == ["Still the same."], rule)
}

pub(super) async fn signals_are_harmless(world: &dyn ConformanceWorld) -> CheckResult {
    let writer = PlatformWriter::new(world).await?;
    let place = world.place();
    writer.send("conformance.a", &answer("Still the same.")).await?;
    let read = Signal::Read(EventId::from("conformance"));
    for signal in [Signal::Typing(true), read, Signal::Typing(false)] {
        soon("signal", writer.platform.signal(&place, signal)).await?;
    }
    let rule = "a signal must not change or add a message, but what is shown differs";
    must(writer.world.shown().await == ["Still the same."], rule)
}

fn answer(text: &str) -> MessageBody {
    MessageBody::new(BodyKind::Answer, text)
}

fn growing(text: &str) -> MessageBody {
    MessageBody { done: false, ..answer(text) }
}

/// Makes one line of plain words, exactly `length` bytes long and different everywhere, so that a check notices a
/// missing piece wherever it is.
fn words(length: usize) -> String {
    let mut text: String = (0..=length / 6).map(|n| format!("w{n:04} ")).collect();
    text.truncate(length.saturating_sub(1));
    // No space at the end, because a network might trim it.
    text.push('.');
    text
}

fn is_unsupported<T>(result: &Result<T, PlatformError>) -> bool {
    matches!(result, Err(error) if error.kind() == PlatformErrorKind::Unsupported)
}
