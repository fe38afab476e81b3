//! Our part of config.toml: finds it, takes it out and puts it in.
//!
//! The part stands between two marker lines, directly before the first table and the comment above it, so that it can
//! begin with root keys. It owns exactly one line break: the one behind it, or the one before it if the user's last
//! line had none. So the user's bytes come back when it is taken out.
//!
//! codex itself edits the file and puts new keys and servers wherever its library does, also between the markers.
//! Therefore the part lists the entries that are ours, and everything else in it is the user's: it is moved out.

use std::collections::BTreeSet;

use toml_edit::{Document, Item};

use super::entry_name::EntryName;
use super::statements::{BYTE_ORDER_MARK, StatementKind, TomlStatement, statements};

/// Beginning of the line before our part. The rest of the line may change with the version.
pub(super) const BEGIN: &str = "# >>> talaria >>>";

/// Beginning of the line behind our part.
pub(super) const END: &str = "# <<< talaria <<<";

/// Beginning of the line that lists our entries.
const ENTRIES: &str = "# entries: ";

/// Words behind [`BEGIN`], for people who read the file.
const NOTE: &str =
    " Talaria writes this part again. Your own settings are safe above it, and tables below it.";

/// Fault of the markers, or of the text between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFault {
    /// A marker stands there without the other one.
    Unpaired,
    /// A marker stands there twice.
    Repeated,
    /// The text between the markers is no TOML.
    Damaged,
}

/// A file without our part, and that part.
#[derive(Debug, Default)]
pub(super) struct SplitFile {
    /// The user's bytes.
    pub rest: String,
    /// Keys directly behind our last table, which TOML counts to that one. In `rest` they are root keys.
    pub behind: Vec<String>,
    /// Our part as it was.
    pub block: OldBlock,
}

/// Our part as it was found; empty if there was none.
#[derive(Debug, Default)]
pub(super) struct OldBlock {
    /// Entries that the part says are ours.
    pub entries: BTreeSet<EntryName>,
    /// The text between the markers.
    pub inner: String,
    /// Parts of it that are not ours.
    pub moved: MovedParts,
}

/// Text of the user's that was found between the markers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MovedParts {
    /// Root keys, whole lines.
    pub root: String,
    /// Tables, whole lines.
    pub tables: String,
    /// Keys of both.
    pub names: Vec<String>,
}

/// Takes our part out of a file.
pub(super) fn split_file(text: &str) -> Result<SplitFile, BlockFault> {
    let all = statements(text);
    let markers = |start: &str| {
        let is_marker = |found: &&TomlStatement| {
            found.kind == StatementKind::Comment && text[found.range.clone()].trim_start().starts_with(start)
        };
        all.iter().filter(is_marker).map(|found| found.range.clone()).collect::<Vec<_>>()
    };
    let (begin, end) = match (&*markers(BEGIN), &*markers(END)) {
        ([], []) => return Ok(SplitFile { rest: text.to_owned(), ..SplitFile::default() }),
        ([begin], [end]) if begin.end <= end.start => (begin.clone(), end.clone()),
        ([] | [_], [] | [_]) => return Err(BlockFault::Unpaired),
        _ => return Err(BlockFault::Repeated),
    };
    let (above, below) = (&text[..begin.start], &text[end.end..]);
    // The last line of the file has no line break: then ours is the one before the part.
    let above = match text[end.clone()].ends_with('\n') {
        true => above,
        false => above.strip_suffix("\r\n").or_else(|| above.strip_suffix('\n')).unwrap_or(above),
    };
    let block = OldBlock::read(&text[begin.end..end.start])?;
    let behind =
        match all.iter().any(|found| found.kind == StatementKind::Header && found.range.end <= end.start) {
            true => keys_before_a_table(below),
            false => Vec::new(),
        };
    Ok(SplitFile { rest: format!("{above}{below}"), behind, block })
}

/// The keys that stand before the first table.
fn keys_before_a_table(text: &str) -> Vec<String> {
    let all = statements(text);
    let keys = all.iter().take_while(|found| found.kind != StatementKind::Header);
    let keys = keys.filter(|found| found.kind == StatementKind::KeyValue);
    keys.map(|found| path_of(&text[found.range.clone()]).join(".")).collect()
}

impl OldBlock {
    /// Reads the text between the markers.
    fn read(inner: &str) -> Result<Self, BlockFault> {
        if Document::parse(inner).is_err() {
            return Err(BlockFault::Damaged);
        }
        let all = statements(inner);
        let listing = all.iter().find(|found| {
            found.kind == StatementKind::Comment && inner[found.range.clone()].starts_with(ENTRIES)
        });
        let listed = listing.and_then(|found| inner[found.range.clone()].strip_prefix(ENTRIES)).unwrap_or("");
        let entries: BTreeSet<_> = listed.trim().split(", ").filter_map(EntryName::parse).collect();
        let mut moved = MovedParts::default();
        for section in sections(inner, &all, listing) {
            let path = section.path.iter().map(String::as_str);
            if EntryName::of_path(path).is_some_and(|name| entries.contains(&name)) {
                continue;
            }
            let part = if section.is_table { &mut moved.tables } else { &mut moved.root };
            part.push_str(&inner[section.range]);
            moved.names.push(section.path.join("."));
        }
        Ok(Self { entries, inner: inner.to_owned(), moved })
    }
}

impl MovedParts {
    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// A root key, or a table with all its keys; with the comments above it.
struct BlockSection {
    path: Vec<String>,
    is_table: bool,
    range: std::ops::Range<usize>,
}

/// Sections of the text between the markers.
fn sections(inner: &str, all: &[TomlStatement], listing: Option<&TomlStatement>) -> Vec<BlockSection> {
    let mut found: Vec<BlockSection> = Vec::new();
    let mut start = 0;
    for statement in all {
        if Some(statement) == listing {
            start = statement.range.end;
        }
        if statement.is_trivia() {
            // It belongs to the statement that follows.
            continue;
        }
        let is_header = statement.kind == StatementKind::Header;
        match found.last_mut() {
            Some(table) if table.is_table && !is_header => table.range.end = statement.range.end,
            Some(_) | None => found.push(BlockSection {
                path: path_of(&inner[statement.range.clone()]),
                is_table: is_header,
                range: start..statement.range.end,
            }),
        }
        start = statement.range.end;
    }
    if let Some(last) = found.last_mut() {
        last.range.end = inner.len();
    }
    found
}

/// The key that a header or a single statement defines.
fn path_of(statement: &str) -> Vec<String> {
    let mut path = Vec::new();
    let Ok(document) = Document::parse(statement) else { return path };
    let mut table = document.as_table();
    loop {
        let mut entries = table.iter();
        let (Some((key, item)), None) = (entries.next(), entries.next()) else { return path };
        path.push(key.to_owned());
        table = match item {
            Item::Table(next) => next,
            Item::ArrayOfTables(elements) => match elements.iter().next() {
                Some(next) => next,
                None => return path,
            },
            Item::Value(_) | Item::None => return path,
        };
    }
}

/// The lines of our part, without a line break at the end. `body` holds the entries as TOML.
pub(super) fn render_block(entries: &BTreeSet<EntryName>, body: &str) -> String {
    let names: Vec<_> = entries.iter().map(EntryName::to_string).collect();
    format!("{BEGIN}{NOTE}\n{ENTRIES}{}\n{}\n{END}", names.join(", "), body.trim())
}

/// The user's text with our part in it, if there is one.
pub(super) fn join_file(rest: &str, moved: &MovedParts, block: Option<&str>) -> String {
    let (above, below) = rest.split_at(first_table(rest));
    let line_break = match rest.find('\n') {
        Some(at) if rest[..at].ends_with('\r') => "\r\n",
        Some(_) | None => "\n",
    };
    let mut text = above.to_owned();
    let mut is_open = !matches!(above, "" | BYTE_ORDER_MARK) && !above.ends_with('\n');
    if is_open && !moved.is_empty() {
        text.push_str(line_break);
        is_open = false;
    }
    text.push_str(&moved.root);
    if let Some(block) = block {
        let block = block.replace('\n', line_break);
        let parts = if is_open { [line_break, &block] } else { [&*block, line_break] };
        text.extend(parts);
    }
    text.push_str(&moved.tables);
    text.push_str(below);
    text
}

/// The position of the first table's header and the comment lines right above it, or the end.
fn first_table(text: &str) -> usize {
    let all = statements(text);
    let Some(header) = all.iter().position(|found| found.kind == StatementKind::Header) else {
        return text.len();
    };
    let comments =
        all[..header].iter().rev().take_while(|found| found.kind == StatementKind::Comment).count();
    all[header - comments].range.start
}
