//! `edit_file`: replaces an exact text in a file of the workspace.
//!
//! The file is changed as bytes, so everything around the replaced text stays as it is, also bytes that are not UTF-8.
//! Models write `\n`; in a file whose line ends are all CRLF, the old and the new text get CRLF too.

use std::sync::Arc;

use memchr::memmem;
use serde_json::{Map, Value, json};
use talaria_platform::BoxFuture;

use super::arguments::{optional_switch, subject_line};
use super::blocking::{CancelFlag, run_blocking};
use super::workspace::{Workspace, WorkspacePath};
use super::{AgentTool, ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::agents::confined_dir::ReplaceCondition;

/// Largest file that is edited, in bytes, before and after the change. It is in memory meanwhile.
const FILE_BYTES: usize = 16 * 1024 * 1024;

/// The tool `edit_file` of one agent.
pub struct EditFileTool {
    workspace: Arc<Workspace>,
}

impl EditFileTool {
    /// A tool for the files of this workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl AgentTool for EditFileTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit_file".to_owned(),
            description: "Replaces an exact text in a file of the workspace. `old_text` must occur exactly once, with \
                          the same white space: include enough lines around it. With `replace_all` every occurrence is \
                          replaced. Read the file first."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "Path relative to the workspace" },
                    "old_text": { "type": "string", "description": "The text to replace, exactly as in the file" },
                    "new_text": { "type": "string", "description": "The text in its place; empty to delete it" },
                    "replace_all": { "type": "boolean", "description": "Replace every occurrence" },
                },
                "required": ["path", "old_text", "new_text"],
            }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        subject_line(arguments, "path")
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async move {
            let path = self.workspace.resolve_file(required_text(call.arguments, "path")?)?;
            let edit = TextEdit {
                old: required_text(call.arguments, "old_text")?.to_owned(),
                new: required_text(call.arguments, "new_text")?.to_owned(),
                replace_all: optional_switch(call.arguments, "replace_all")?,
            };
            edit.check()?;
            let workspace = self.workspace.clone();
            let work = move |cancel: &CancelFlag| change(&workspace, &path, edit, cancel);
            run_blocking(call.stop, work).await.map(cap_result)
        })
    }
}

fn change(
    workspace: &Workspace,
    path: &WorkspacePath,
    edit: TextEdit,
    cancel: &CancelFlag,
) -> Result<String, ToolFailure> {
    let _change = workspace.begin_change();
    let limit = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX);
    let read = workspace.dir().read_file(path.as_path(), limit);
    let (content, version) = read.map_err(|problem| path.failure(&problem))?;
    let edited = edit.with_line_ends_of(&content).apply(&content, path)?;
    if edited.content.len() > FILE_BYTES {
        return Err(ToolFailure::failed(format!(
            "{path} would grow beyond {FILE_BYTES} bytes; nothing was changed"
        )));
    }
    let condition = ReplaceCondition::Unchanged(version);
    let replaced =
        workspace.dir().replace_file(path.as_path(), &edited.content, condition, &|| cancel.is_set());
    replaced.map_err(|problem| path.failure(&problem))?;
    Ok(match edited.count {
        1 => format!("Replaced the text in {path}, at line {}.", edited.line),
        count => format!("Replaced {count} occurrences in {path}, the first at line {}.", edited.line),
    })
}

/// A replacement, as the model wants it.
struct TextEdit {
    old: String,
    new: String,
    replace_all: bool,
}

/// A file after its edit.
#[derive(Debug)]
struct EditedFile {
    content: Vec<u8>,
    /// Number of replaced occurrences.
    count: usize,
    /// Line of the first one.
    line: usize,
}

impl TextEdit {
    fn check(&self) -> Result<(), ToolFailure> {
        if self.old.is_empty() {
            return Err(ToolFailure::failed("`old_text` is empty; use write_file to write a whole file"));
        }
        if self.old == self.new {
            return Err(ToolFailure::failed("`old_text` and `new_text` are equal; nothing was changed"));
        }
        Ok(())
    }

    /// The edit with CRLF, if every line of the file ends so.
    fn with_line_ends_of(self, content: &[u8]) -> Self {
        let lines = memchr::memchr_iter(b'\n', content).count();
        let is_crlf = lines > 0 && memmem::find_iter(content, b"\r\n").count() == lines;
        let crlf = |text: String| text.replace("\r\n", "\n").replace('\n', "\r\n");
        match is_crlf {
            true => Self { old: crlf(self.old), new: crlf(self.new), replace_all: self.replace_all },
            false => self,
        }
    }

    fn apply(&self, content: &[u8], path: &WorkspacePath) -> Result<EditedFile, ToolFailure> {
        let old = self.old.as_bytes();
        let places: Vec<_> = memmem::find_iter(content, old).collect();
        let Some(first) = places.first().copied() else {
            return Err(ToolFailure::failed(format!(
                "{path} does not contain `old_text`{}",
                self.hint(content)
            )));
        };
        let occurrences = overlapping(content, old);
        if occurrences > 1 && !self.replace_all {
            return Err(ToolFailure::failed(format!(
                "`old_text` occurs {occurrences} times in {path}; include more lines around it, or set `replace_all`. \
                 Nothing was changed"
            )));
        }
        // Checked before it is built: a short text that occurs often can become very long.
        let grown = places.len().saturating_mul(self.new.len());
        if content.len().saturating_add(grown) > FILE_BYTES + places.len().saturating_mul(old.len()) {
            return Err(ToolFailure::failed(format!(
                "{path} would grow beyond {FILE_BYTES} bytes; nothing was changed"
            )));
        }
        let mut edited = Vec::with_capacity(content.len());
        let mut done = 0;
        for place in &places {
            edited.extend_from_slice(content.get(done..*place).unwrap_or_default());
            edited.extend_from_slice(self.new.as_bytes());
            done = place + old.len();
        }
        edited.extend_from_slice(content.get(done..).unwrap_or_default());
        let before = content.get(..first).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        Ok(EditedFile { content: edited, count: places.len(), line })
    }

    /// Helps a model that has copied a text badly.
    fn hint(&self, content: &[u8]) -> String {
        let first = self.old.lines().map(str::trim).find(|line| !line.is_empty());
        match first.map(|line| overlapping(content, line.as_bytes())) {
            Some(count) if count > 0 => format!(
                "; its first line occurs {count} times, but white space or the lines after it differ. Read the file again"
            ),
            Some(_) | None => "; read the file again".to_owned(),
        }
    }
}

/// How often a text occurs, also where two occurrences share bytes.
fn overlapping(content: &[u8], text: &[u8]) -> usize {
    let finder = memmem::Finder::new(text);
    let (mut from, mut count) = (0, 0);
    while let Some(at) = content.get(from..).and_then(|rest| finder.find(rest)) {
        count += 1;
        from += at + 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(content: &[u8], old: &str, new: &str, replace_all: bool) -> Result<Vec<u8>, ToolFailure> {
        let folder = tempfile::tempdir().unwrap();
        let path = Workspace::open(folder.path()).unwrap().resolve("file").unwrap();
        let edit = TextEdit { old: old.to_owned(), new: new.to_owned(), replace_all };
        edit.check()?;
        edit.with_line_ends_of(content).apply(content, &path).map(|edited| edited.content)
    }

    fn words(result: Result<Vec<u8>, ToolFailure>) -> String {
        match result {
            Err(ToolFailure::Failed(words)) => words,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_exact_text_changes() {
        assert_eq!(edit(b"one two three", "two", "2", false).unwrap(), b"one 2 three");
        assert_eq!(edit(b"a b a b", "a", "c", true).unwrap(), b"c b c b");
        assert_eq!(edit(b"x\xffy z", "z", "", false).unwrap(), b"x\xffy ");
    }

    #[test]
    fn a_text_that_is_missing_or_ambiguous_is_refused_with_numbers() {
        assert!(words(edit(b"a b a", "a", "c", false)).contains("occurs 2 times"));
        assert!(words(edit(b"aaa", "aa", "c", false)).contains("occurs 2 times"));
        assert!(words(edit(b"a b", "c", "d", false)).contains("does not contain"));
        assert!(
            words(edit(b"  fn x() {\n    y\n", "fn x() {\n  y", "z", false))
                .contains("first line occurs 1 times")
        );
        assert!(words(edit(b"a", "", "b", false)).contains("empty"));
        assert!(words(edit(b"a", "a", "a", false)).contains("equal"));
    }

    #[test]
    fn line_ends_stay_as_they_are() {
        assert_eq!(edit(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", false).unwrap(), b"x\r\ny\r\nz\r\nc\r\n");
        assert_eq!(edit(b"a\r\nb\r\n", "a\r\nb", "x", false).unwrap(), b"x\r\n");
        assert_eq!(edit(b"a\nb\n", "a\nb", "x\ny", false).unwrap(), b"x\ny\n");
        assert_eq!(edit(b"a\r\nb\nc", "b\nc", "x\ny", false).unwrap(), b"a\r\nx\ny");
    }

    #[test]
    fn a_file_does_not_explode() {
        let many = vec![b'a'; 1024 * 1024];
        assert!(words(edit(&many, "a", &"b".repeat(1024), true)).contains("would grow"));
    }
}
