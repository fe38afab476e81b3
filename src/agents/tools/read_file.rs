//! `read_file`: reads a page of lines of a text file in the workspace.
//!
//! The text is returned as it is, without line numbers: a model copies from it for `edit_file`. The whole file is read
//! once to count its lines, but only the page is kept in memory.

use std::fmt::Write as _;
use std::io::Read;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use talaria_platform::BoxFuture;

use super::arguments::{optional_count, subject_line};
use super::blocking::{CancelFlag, run_blocking};
use super::workspace::{Workspace, WorkspacePath};
use super::{AgentTool, RESULT_BYTES, ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::util::FileKind;

/// Lines of a page, unless the model asks for fewer or more.
const PAGE_LINES: usize = 2_000;

/// Bytes of a page, so that the sentences around it fit into the result.
const PAGE_BYTES: usize = RESULT_BYTES - 1_024;

/// Bytes of a file that are looked at. Beyond this its lines are not counted.
const FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;

/// The tool `read_file` of one agent.
pub struct ReadFileTool {
    workspace: Arc<Workspace>,
}

impl ReadFileTool {
    /// A tool for the files of this workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl AgentTool for ReadFileTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".to_owned(),
            description: "Reads a text file of the workspace, by default its first 2000 lines. The result says how many \
                          lines there are; read on with `offset`. Read a file before you edit it."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "Path relative to the workspace" },
                    "offset": { "type": "integer", "minimum": 1, "description": "Number of the first line, from 1" },
                    "limit": { "type": "integer", "minimum": 1, "description": "Number of lines" },
                },
                "required": ["path"],
            }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        subject_line(arguments, "path")
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async move {
            let path = self.workspace.resolve_file(required_text(call.arguments, "path")?)?;
            let first = optional_count(call.arguments, "offset", usize::MAX)?.unwrap_or(1).max(1);
            let lines = optional_count(call.arguments, "limit", usize::MAX)?.unwrap_or(PAGE_LINES).max(1);
            let workspace = self.workspace.clone();
            let read = move |cancel: &CancelFlag| {
                let (file, version) =
                    workspace.dir().open_file(path.as_path()).map_err(|problem| path.failure(&problem))?;
                let mut page = LinePage::new(first, lines);
                read_page(file, &path, &mut page, cancel)?;
                page.describe(&path, version.bytes())
            };
            run_blocking(call.stop, read).await.map(cap_result)
        })
    }
}

/// Reads a file to its end, or to [`FILE_BYTES`].
fn read_page(
    file: impl Read,
    path: &WorkspacePath,
    page: &mut LinePage,
    cancel: &CancelFlag,
) -> Result<(), ToolFailure> {
    let mut file = file.take(FILE_BYTES);
    let mut chunk = vec![0; CHUNK];
    loop {
        if cancel.is_set() {
            return Err(ToolFailure::Stopped);
        }
        let bytes = file.read(&mut chunk).map_err(|error| path.failure(&error.into()))?;
        let Some(content) = chunk.get(..bytes).filter(|content| !content.is_empty()) else {
            page.is_whole = file.limit() > 0;
            return Ok(());
        };
        page.read(content);
        if page.binary.is_some() {
            return Ok(());
        }
    }
}

/// The lines that were asked for, collected while a file is read.
struct LinePage {
    /// Number of the first line, from 1.
    first: usize,
    /// Number of the last line.
    last: usize,
    /// The lines so far.
    text: Vec<u8>,
    /// Length of `text` at the beginning of the line that is read now.
    line_start: usize,
    /// Number of the line that is read now, from 1.
    line: usize,
    /// Number of the last line in `text`.
    shown: usize,
    /// Whether no further line fits.
    is_full: bool,
    /// Whether the first line alone is longer than a page.
    is_cut: bool,
    /// The last byte that was read; `None` for an empty file.
    last_byte: Option<u8>,
    /// MIME type, if the file is not text.
    binary: Option<&'static str>,
    /// Whether the file was read to its end.
    is_whole: bool,
}

impl LinePage {
    fn new(first: usize, lines: usize) -> Self {
        Self {
            first,
            last: first.saturating_add(lines - 1),
            text: Vec::new(),
            line_start: 0,
            line: 1,
            shown: 0,
            is_full: false,
            is_cut: false,
            last_byte: None,
            binary: None,
            is_whole: true,
        }
    }

    fn read(&mut self, content: &[u8]) {
        if self.last_byte.is_none() {
            self.binary = binary_kind(content);
        }
        for piece in content.split_inclusive(|byte| *byte == b'\n') {
            let is_wanted = (self.first..=self.last).contains(&self.line) && !self.is_full;
            if is_wanted {
                self.keep(piece);
            }
            if piece.ends_with(b"\n") {
                self.line += 1;
                self.line_start = self.text.len();
            }
        }
        self.last_byte = content.last().copied();
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = PAGE_BYTES - self.text.len();
        match piece.get(..room.min(piece.len())) {
            Some(fits) if fits.len() == piece.len() => {
                self.text.extend_from_slice(piece);
                self.shown = self.line;
            }
            Some(fits) if self.line == self.first => {
                self.text.extend_from_slice(fits);
                (self.shown, self.is_cut, self.is_full) = (self.line, true, true);
            }
            Some(_) | None => {
                self.text.truncate(self.line_start);
                (self.shown, self.is_full) = (self.line - 1, true);
            }
        }
    }

    /// Number of lines that were read. A last line without a line end counts.
    fn total(&self) -> usize {
        match self.last_byte {
            None => 0,
            Some(b'\n') => self.line - 1,
            Some(_) => self.line,
        }
    }

    fn describe(&self, path: &WorkspacePath, bytes: u64) -> Result<String, ToolFailure> {
        if let Some(kind) = self.binary {
            return Ok(format!("{path} is a binary file ({kind}, {bytes} bytes), which is not shown."));
        }
        let total = self.total();
        if total == 0 {
            return Ok(format!("{path} is empty."));
        }
        if self.shown == 0 {
            return Err(ToolFailure::failed(format!("{path} has only {total} lines")));
        }
        let count = if self.is_whole { total.to_string() } else { format!("more than {total}") };
        let mut result = format!("{path}: lines {} to {} of {count}", self.first, self.shown);
        let text = String::from_utf8_lossy(&self.text);
        if text.contains("\r\n") {
            result.push_str("; its line ends are CRLF, which edit_file keeps");
        }
        if matches!(text, std::borrow::Cow::Owned(_)) {
            result.push_str("; bytes that are not UTF-8 are shown as \u{fffd}");
        }
        result.push_str("\n\n");
        result.push_str(&text.replace("\r\n", "\n"));
        if !result.ends_with('\n') {
            result.push('\n');
        }
        if self.is_cut {
            let _ = writeln!(result, "[line {} is longer than a page and was cut here]", self.shown);
        }
        if self.shown < total || !self.is_whole {
            let more = total - self.shown;
            let more = if self.is_whole { more.to_string() } else { format!("more than {more}") };
            let _ = writeln!(result, "[{more} more lines; read on with offset {}]", self.shown + 1);
        }
        Ok(result)
    }
}

/// MIME type of a file that is not text, by its beginning.
fn binary_kind(beginning: &[u8]) -> Option<&'static str> {
    match FileKind::of(beginning) {
        FileKind::Text | FileKind::Empty => None,
        kind @ (FileKind::Picture(_) | FileKind::Sound(_) | FileKind::Film(_)) => Some(kind.mime()),
        // Also text with a wrong byte, or with a character that is cut by the end of the chunk: that has no zero byte.
        kind @ FileKind::Other("application/octet-stream") => beginning.contains(&0).then(|| kind.mime()),
        FileKind::Other(mime) => Some(mime),
    }
}
