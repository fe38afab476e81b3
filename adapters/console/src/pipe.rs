//! What a script gets: the answers on one stream, everything else on the other.

use std::borrow::Cow;
use std::io::{self, Write};

use talaria_platform::{Body, BodyKind};

use crate::Output;
use crate::clean::clean;

/// Two streams without any decoration.
pub struct Pipe {
    output: Output,
}

impl Pipe {
    pub fn new(output: Output) -> Self {
        Self { output }
    }

    /// Writes a whole body. Only a failure of the answers is one: whoever closed standard error does
    /// not want to read it.
    pub fn show(&mut self, body: &Body) -> io::Result<()> {
        match body.kind {
            BodyKind::Answer => self.answer(&body.markdown),
            BodyKind::Notice | BodyKind::Ask => {
                self.notice(&body.markdown);
                Ok(())
            }
        }
    }

    /// Writes a line of ours to standard error, as far as possible.
    pub fn notice(&mut self, text: &str) {
        let text = clean(text);
        let written = writeln!(self.output.notices, "{}", text.trim_end_matches('\n'));
        if let Err(error) = written.and_then(|()| self.output.notices.flush()) {
            tracing::debug!(%error, "standard error cannot be written");
        }
    }

    fn answer(&mut self, text: &str) -> io::Result<()> {
        // A program gets every byte; a terminal at the end of a pipe is as gullible as any other.
        let text = if self.output.terminal { Cow::Owned(clean(text)) } else { Cow::Borrowed(text) };
        writeln!(self.output.answers, "{}", text.trim_end_matches('\n'))?;
        self.output.answers.flush()
    }
}
