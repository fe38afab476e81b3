//! `search_files`: searches the files of the workspace by a regular expression.
//!
//! ripgrep's own crates match lines and read `.gitignore`. The walk is ours (`FileWalk`): it lists and opens
//! everything below the open folder, follows no link, and opens only regular files.

mod report;
mod walk;

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use serde_json::{Map, Value, json};
use talaria_platform::BoxFuture;

use self::report::{MatchReport, MatchSink};
use self::walk::FileWalk;
use super::arguments::{optional_count, optional_text, subject_line};
use super::blocking::{CancelFlag, run_blocking};
use super::workspace::{Workspace, WorkspacePath};
use super::{AgentTool, ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::util::one_line;

/// Files that one call searches.
const FILES: usize = 20_000;

/// Bytes that one call reads.
const READ_BYTES: u64 = 256 * 1024 * 1024;

/// Time for one call. A model that needs longer should name a path.
const TIME: Duration = Duration::from_secs(10);

/// Longest pattern in bytes.
const PATTERN_BYTES: usize = 4_096;

/// Memory of a compiled pattern in bytes.
const REGEX_BYTES: usize = 4 * 1024 * 1024;

/// Memory for lines of one file. A file with a longer line is skipped.
const LINE_MEMORY: usize = 4 * 1024 * 1024;

/// Most context lines on each side of a match.
const CONTEXT_LINES: usize = 10;

/// The tool `search_files` of one agent.
pub struct SearchFilesTool {
    workspace: Arc<Workspace>,
}

impl SearchFilesTool {
    /// A tool for the files of this workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl AgentTool for SearchFilesTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "search_files".to_owned(),
            description: "Searches the text files of the workspace for a regular expression, line by line, and shows the \
                          matching lines with their numbers. Files that .gitignore names are skipped. `(?i)` at the \
                          beginning of the pattern ignores case."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "description": "Regular expression, in the syntax of ripgrep" },
                    "glob": { "type": "string", "description": "Only files that match, such as `*.rs` or `src/**/*.ts`" },
                    "path": { "type": "string", "description": "Only this folder or file, relative to the workspace" },
                    "context": { "type": "integer", "minimum": 0, "description": "Lines around each match" },
                },
                "required": ["pattern"],
            }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        subject_line(arguments, "pattern")
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async move {
            let pattern = required_text(call.arguments, "pattern")?;
            let search = FileSearch {
                matcher: compile(pattern)?,
                glob: optional_text(call.arguments, "glob")?.map(str::to_owned),
                context: optional_count(call.arguments, "context", CONTEXT_LINES)?.unwrap_or(0),
                path: self.workspace.resolve(optional_text(call.arguments, "path")?.unwrap_or("."))?,
            };
            let workspace = self.workspace.clone();
            let work = move |cancel: &CancelFlag| search.run(&workspace, cancel);
            run_blocking(call.stop, work).await.map(cap_result)
        })
    }
}

fn compile(pattern: &str) -> Result<RegexMatcher, ToolFailure> {
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES {
        return Err(ToolFailure::failed(format!("`pattern` must have 1 to {PATTERN_BYTES} bytes")));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.size_limit(REGEX_BYTES).dfa_size_limit(REGEX_BYTES).line_terminator(Some(b'\n'));
    builder.build(pattern).map_err(|error| {
        let why = one_line(&error.to_string(), 300);
        ToolFailure::failed(format!("`pattern` is no regular expression that can be used here: {why}"))
    })
}

/// A search, as the model wants it.
struct FileSearch {
    matcher: RegexMatcher,
    glob: Option<String>,
    context: usize,
    path: WorkspacePath,
}

impl FileSearch {
    fn run(&self, workspace: &Workspace, cancel: &CancelFlag) -> Result<String, ToolFailure> {
        let mut files = FileWalk::begin(workspace.dir(), &self.path, self.glob.as_deref())?;
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_MEMORY))
            .build();
        let budget = SearchBudget { until: Instant::now() + TIME, cancel };
        let (mut report, mut read) = (MatchReport::default(), 0);
        while report.has_room() {
            if cancel.is_set() {
                return Err(ToolFailure::Stopped);
            }
            if let Some(limit) = self.limit_reached(&files, &report, read, &budget) {
                report.stop_early(limit);
                break;
            }
            let Some(file) = files.next(&|| budget.is_over()) else { break };
            read +=
                self.search_file(workspace, &file, &mut searcher, &mut report, &budget, READ_BYTES - read);
        }
        if cancel.is_set() {
            return Err(ToolFailure::Stopped);
        }
        if report.has_room() && budget.is_over() {
            report.stop_early("it took too long");
        }
        Ok(report.describe(files.is_incomplete()))
    }

    fn limit_reached(
        &self,
        files: &FileWalk<'_>,
        report: &MatchReport,
        read: u64,
        budget: &SearchBudget<'_>,
    ) -> Option<&'static str> {
        if report.files_searched() >= FILES && !files.is_done() {
            Some("too many files")
        } else if read >= READ_BYTES {
            Some("too much text")
        } else if budget.is_over() {
            Some("it took too long")
        } else {
            None
        }
    }

    /// Searches one file; returns the number of bytes that were read. A file that cannot be read is counted.
    fn search_file(
        &self,
        workspace: &Workspace,
        file: &std::path::Path,
        searcher: &mut Searcher,
        report: &mut MatchReport,
        budget: &SearchBudget<'_>,
        limit: u64,
    ) -> u64 {
        let Ok((opened, _)) = workspace.dir().open_file(file) else {
            report.skip_file();
            return 0;
        };
        let mut reader = BudgetReader { inner: opened.take(limit), budget };
        let mut sink = MatchSink::new(report, file);
        let searched = searcher.search_reader(&self.matcher, &mut reader, &mut sink);
        match searched {
            Ok(()) => report.count_file(),
            Err(_) => report.skip_file(),
        }
        limit - reader.inner.limit()
    }
}

/// The time and the call that a search belongs to.
struct SearchBudget<'a> {
    until: Instant,
    cancel: &'a CancelFlag,
}

impl SearchBudget<'_> {
    fn is_over(&self) -> bool {
        self.cancel.is_set() || Instant::now() >= self.until
    }
}

/// Ends a file early when the budget is over.
struct BudgetReader<'a, R> {
    inner: io::Take<R>,
    budget: &'a SearchBudget<'a>,
}

impl<R: Read> Read for BudgetReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.budget.is_over() {
            true => Err(io::Error::other("the search is over")),
            false => self.inner.read(buffer),
        }
    }
}
