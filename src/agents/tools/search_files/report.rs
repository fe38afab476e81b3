//! Collects the matches of a search, within the limits of a result.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use crate::agents::tools::RESULT_BYTES;
use crate::util::{clip, code_span};

/// Matching lines of one call. A model that needs more should narrow its search.
const MATCHES: usize = 200;

/// Bytes of the matches, so that the sentences after them fit into the result.
const REPORT_BYTES: usize = RESULT_BYTES - 1_024;

/// Characters of a line.
const LINE_CHARS: usize = 300;

/// Characters of a path.
const PATH_CHARS: usize = 300;

/// The matches so far.
#[derive(Default)]
pub(super) struct MatchReport {
    text: String,
    matches: usize,
    files_with_matches: usize,
    files_searched: usize,
    /// Files that could not be read, or have lines that are too long.
    files_skipped: usize,
    /// The limit that ended the search.
    stopped: Option<&'static str>,
}

impl MatchReport {
    /// Whether another match is wanted.
    pub(super) fn has_room(&self) -> bool {
        self.stopped.is_none()
    }

    /// Number of files that were searched.
    pub(super) fn files_searched(&self) -> usize {
        self.files_searched + self.files_skipped
    }

    pub(super) fn count_file(&mut self) {
        self.files_searched += 1;
    }

    pub(super) fn skip_file(&mut self) {
        self.files_skipped += 1;
    }

    /// Notes the limit that ends the search.
    pub(super) fn stop_early(&mut self, limit: &'static str) {
        self.stopped = Some(limit);
    }

    /// The result for the model.
    pub(super) fn describe(self, is_incomplete: bool) -> String {
        let mut result = self.text;
        if !result.is_empty() {
            result.push('\n');
        }
        let searched = self.files_searched;
        let _ = match self.matches {
            0 => write!(result, "No match in {searched} files."),
            matches => write!(
                result,
                "{matches} matching lines in {} files; {searched} files were searched.",
                self.files_with_matches
            ),
        };
        if self.files_skipped > 0 {
            let _ = write!(result, " {} files could not be searched.", self.files_skipped);
        }
        if let Some(limit) = self.stopped {
            let _ = write!(result, " The search ended early ({limit}): narrow it with `path` or `glob`.");
        }
        if is_incomplete {
            result.push_str(" Some folders were too large, too deep or not readable.");
        }
        result
    }

    fn add_line(&mut self, number: Option<u64>, mark: char, line: &[u8]) -> bool {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\n', '\r']);
        let shown = clip(line, LINE_CHARS);
        let more = if shown.len() < line.len() { "…" } else { "" };
        let _ = writeln!(self.text, "{}{mark} {shown}{more}", number.unwrap_or_default());
        if self.text.len() >= REPORT_BYTES {
            self.stopped = Some("too long a result");
        }
        self.has_room()
    }
}

/// Adds the matches of one file to a report.
pub(super) struct MatchSink<'a> {
    report: &'a mut MatchReport,
    file: &'a Path,
    has_heading: bool,
}

impl<'a> MatchSink<'a> {
    pub(super) fn new(report: &'a mut MatchReport, file: &'a Path) -> Self {
        Self { report, file, has_heading: false }
    }

    fn head(&mut self) {
        if !self.has_heading {
            self.has_heading = true;
            self.report.files_with_matches += 1;
            let gap = if self.report.text.is_empty() { "" } else { "\n" };
            let path = code_span(&self.file.to_string_lossy(), PATH_CHARS);
            let _ = writeln!(self.report.text, "{gap}{path}");
        }
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.head();
        self.report.matches += 1;
        if self.report.matches >= MATCHES {
            self.report.stop_early("too many matches");
        }
        let is_last = !self.report.has_room();
        let has_room = self.report.add_line(found.line_number(), ':', found.bytes());
        Ok(has_room && !is_last)
    }

    fn context(&mut self, _: &Searcher, near: &SinkContext<'_>) -> io::Result<bool> {
        self.head();
        Ok(self.report.add_line(near.line_number(), '-', near.bytes()))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.report.text.push_str("--\n");
        Ok(self.report.has_room())
    }
}
