//! Writes for a script: answers to standard output, everything else to standard error.

use std::borrow::Cow;
use std::io::{self, Write};

use talaria_platform::{BodyKind, MessageBody, MessageId};

use crate::ConsoleOutput;
use crate::sanitize::clean;

/// Two streams without any decoration.
pub struct PipeOutput {
    output: ConsoleOutput,
    /// Printed between the beginning of an answer and the whole one that replaces it; may be empty.
    replaced: String,
    /// The answer whose line has not ended yet.
    open: Option<WrittenAnswer>,
}

/// Record of the written part of an answer. A digest instead of the text, which may be long and is only compared.
struct WrittenAnswer {
    message: MessageId,
    /// Bytes written.
    length: usize,
    /// The [`digest`] of the bytes written.
    digest: u64,
}

impl PipeOutput {
    pub fn new(output: ConsoleOutput, replaced: String) -> Self {
        Self { output, replaced, open: None }
    }

    /// Writes the part of a body that is not written yet. Fails only if standard output does: with a closed standard
    /// error notices are lost, answers are not.
    pub fn show(&mut self, message: &MessageId, body: &MessageBody) -> io::Result<()> {
        match body.kind {
            BodyKind::Answer => self.answer(message, body),
            BodyKind::Notice | BodyKind::Ask => {
                self.notice(&body.markdown);
                Ok(())
            }
        }
    }

    /// Writes a line of the gateway to standard error, as far as possible.
    pub fn notice(&mut self, text: &str) {
        let text = clean(text);
        let written = writeln!(self.output.notices, "{}", text.trim_end_matches('\n'));
        if let Err(error) = written.and_then(|()| self.output.notices.flush()) {
            tracing::debug!(%error, "standard error cannot be written");
        }
    }

    fn answer(&mut self, message: &MessageId, body: &MessageBody) -> io::Result<()> {
        let (text, remark) = match &body.remark {
            Some(remark) => (body.markdown.get(..remark.after), Some(remark.words.as_str())),
            None => (Some(body.markdown.as_str()), None),
        };
        let text = text.unwrap_or(&body.markdown).trim_end_matches('\n');
        if self.open.as_ref().is_some_and(|open| open.message != *message) {
            self.end_line()?;
        }
        let new = match &self.open {
            Some(open) => {
                text.split_at_checked(open.length).filter(|(old, _)| digest(START, old) == open.digest)
            }
            None => Some(("", text)),
        };
        match new {
            Some((_, new)) => self.write(message, new)?,
            None => {
                self.end_line()?;
                let replaced = std::mem::take(&mut self.replaced);
                if !replaced.is_empty() {
                    self.notice(&replaced);
                }
                self.replaced = replaced;
                self.write(message, text)?;
            }
        }
        if body.done {
            self.end_line()?;
        }
        self.output.answers.flush()?;
        if let Some(words) = remark {
            self.notice(words);
        }
        Ok(())
    }

    fn write(&mut self, message: &MessageId, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let open = self.open.get_or_insert_with(|| WrittenAnswer {
            message: message.clone(),
            length: 0,
            digest: START,
        });
        open.length += text.len();
        open.digest = digest(open.digest, text);
        // A program gets every byte; a terminal at the end of a pipe would obey control characters.
        let text = if self.output.terminal { Cow::Owned(clean(text)) } else { Cow::Borrowed(text) };
        self.output.answers.write_all(text.as_bytes())
    }

    fn end_line(&mut self) -> io::Result<()> {
        match self.open.take() {
            Some(_) => self.output.answers.write_all(b"\n"),
            None => Ok(()),
        }
    }
}

/// The digest of no bytes.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a of a text, continued from the digest of the text before it. A collision gains nobody anything: it would
/// only hide that an answer was replaced.
fn digest(before: u64, text: &str) -> u64 {
    text.bytes().fold(before, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
