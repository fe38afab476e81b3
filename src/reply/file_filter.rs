//! Takes the files out of a streamed answer.
//!
//! An agent puts a file into its text as a data URL, `![chart](data:image/png;base64,…)` or without any link, or behind
//! `MEDIA:`. Nobody should ever read base64, so the file is taken out as it comes and its name stays in its place.
//! `MEDIA:` with a path names a file on the agent's machine: nothing is opened for it, here least of all, and only the
//! name stays. Links to other places are left as they are. In code all of this is something the answer talks about.
//! What counts as a file is in `grammar`, what counts as code within a line in `code_span`.
//!
//! Linear, and late by no more than the beginning of a link: what cannot be a file any more goes out at once.

mod code_span;
mod grammar;
mod name;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use memchr::memchr3;

use self::code_span::SpanTracker;
use self::grammar::{DATA, LinkTail, PrefixVerdict, beginning, tail, verdict};
use self::name::file_name;
use super::fence::FenceTracker;
use crate::util::FileKind;

/// Files that are taken out of one answer; of the others only the name stays.
const FILES: usize = 10;

/// The largest file, and all of one answer together.
pub const FILE: usize = 8 * 1024 * 1024;
const TOTAL: usize = 16 * 1024 * 1024;

/// What comes before the name of a file in the text.
const SIGN: &str = "📎 ";

/// Base64 as programs write it, with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A piece of what came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrFile<'a> {
    /// Belongs to the text.
    Text(&'a str),
    /// A file; the text around it names it.
    File(EnclosedFile),
    /// One more than are taken; the text around it names it.
    More,
}

/// A file in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclosedFile {
    /// A safe base name.
    pub name: String,
    /// The file itself, with its MIME type by its content; or why there is none.
    pub content: Result<(&'static str, Vec<u8>), FileTrouble>,
}

/// Why a file that an answer names cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTrouble {
    /// It, or all of them together.
    TooLarge,
    /// It is no base64, or broke off.
    Broken,
    /// It is a path on the agent's machine.
    Elsewhere,
}

/// Tells text and files apart, chunk by chunk. One per stream.
#[derive(Debug)]
pub struct FileFilter {
    state: FileFilterState,
    /// The beginning of what may become a file; empty most of the time, and never long.
    held: String,
    /// The text that went out so far: whether it ends in a code block, or in code within a line.
    fences: FenceTracker,
    spans: SpanTracker,
    /// The text that went out ends with white space, or there is none.
    word_start: bool,
    /// Files that were taken out, and their bytes.
    count: usize,
    total: usize,
}

impl Default for FileFilter {
    fn default() -> Self {
        Self {
            state: FileFilterState::Text,
            held: String::new(),
            fences: FenceTracker::default(),
            spans: SpanTracker::default(),
            word_start: true,
            count: 0,
            total: 0,
        }
    }
}

#[derive(Debug)]
enum FileFilterState {
    Text,
    Data(DataUrl),
    /// Behind the data of a link, until its bracket closes. What came of that is held.
    Tail(DataUrl),
}

/// A data URL as far as it has come.
#[derive(Debug)]
struct DataUrl {
    name: String,
    /// What the text is if there is no data behind it; empty for a link, which ends with its bracket in any case.
    announced: String,
    base64: String,
    /// Whether any data came, be it kept or not, and whether its padding has begun.
    begun: bool,
    padded: bool,
    /// It goes on with what may be another URL; all of that is swallowed.
    odd: bool,
    /// Why it is not kept.
    trouble: Option<FileTrouble>,
}

impl FileFilter {
    /// Reads on.
    pub fn push(&mut self, text: &str, mut on: impl FnMut(TextOrFile<'_>)) {
        if self.held.is_empty() {
            return self.read(text, &mut on);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.push_str(text);
        self.read(&joined, &mut on);
    }

    /// Nothing more comes.
    pub fn finish(&mut self, mut on: impl FnMut(TextOrFile<'_>)) {
        loop {
            let held = std::mem::take(&mut self.held);
            match std::mem::replace(&mut self.state, FileFilterState::Text) {
                FileFilterState::Text if held.is_empty() => return,
                FileFilterState::Text => {
                    // White space would end a path; so does the end.
                    let end = match verdict(&format!("{held}\n")) {
                        PrefixVerdict::Path { path, end } if end <= held.len() => {
                            self.elsewhere(path, &mut on);
                            end
                        }
                        // It is text, but only its first character is that for certain.
                        PrefixVerdict::No
                        | PrefixVerdict::More
                        | PrefixVerdict::Url { .. }
                        | PrefixVerdict::Path { .. } => {
                            let end = held.ceil_char_boundary(1);
                            self.emit(held.get(..end).unwrap_or_default(), &mut on);
                            end
                        }
                    };
                    self.read(held.get(end..).unwrap_or_default(), &mut on);
                }
                FileFilterState::Data(data) if data.is_link() => self.close(data.broken(), &mut on),
                FileFilterState::Data(data) => self.close(data, &mut on),
                FileFilterState::Tail(data) => {
                    self.close(data.broken(), &mut on);
                    self.read(&held, &mut on);
                }
            }
        }
    }

    fn read(&mut self, text: &str, on: &mut dyn FnMut(TextOrFile<'_>)) {
        let mut rest = text;
        while !rest.is_empty() {
            let used = match std::mem::replace(&mut self.state, FileFilterState::Text) {
                FileFilterState::Text => self.text(rest, on),
                FileFilterState::Data(data) => self.data(data, rest, on),
                FileFilterState::Tail(data) => self.tail(data, rest, on),
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    /// Reads text up to the beginning of a data URL. How many bytes that were.
    fn text(&mut self, text: &str, on: &mut dyn FnMut(TextOrFile<'_>)) -> usize {
        let (mut sent, mut from) = (0, 0);
        let bytes = text.as_bytes();
        while let Some(found) = bytes.get(from..).and_then(|rest| memchr3(b'[', b'M', b':', rest)) {
            let at = from + found;
            from = at + 1;
            let before = at.checked_sub(1).and_then(|before| bytes.get(before)).copied();
            let start = match (bytes.get(at), before) {
                (Some(b'['), Some(b'!')) if at > sent => at - 1,
                (Some(b'['), _) => at,
                (Some(b':'), _) => match (at + 1).checked_sub(DATA.len()) {
                    Some(start) if bytes[start..=at].eq_ignore_ascii_case(DATA.as_bytes()) => start,
                    Some(_) | None => continue,
                },
                // In the middle of a word it is none of ours.
                (_, Some(before)) if !before.is_ascii_whitespace() => continue,
                (_, None) if !self.word_start => continue,
                (_, _) => at,
            };
            let Some(candidate) = text.get(start..) else { continue };
            let verdict = verdict(candidate);
            if verdict == PrefixVerdict::No {
                continue;
            }
            self.emit(text.get(sent..start).unwrap_or_default(), on);
            sent = start;
            if self.fences.open().is_some() || self.spans.is_open() {
                continue;
            }
            match verdict {
                PrefixVerdict::No => {}
                PrefixVerdict::More => {
                    candidate.clone_into(&mut self.held);
                    return text.len();
                }
                PrefixVerdict::Url { name, link, data } => {
                    let announced = if link { "" } else { candidate.get(..data).unwrap_or_default() };
                    let mut data_url = DataUrl::new(name, announced);
                    // Beyond what is taken nothing is kept.
                    data_url.trouble = (self.count >= FILES).then_some(FileTrouble::TooLarge);
                    self.state = FileFilterState::Data(data_url);
                    return start + data;
                }
                PrefixVerdict::Path { path, end } => {
                    self.elsewhere(path, on);
                    return start + end;
                }
            }
        }
        let rest = text.get(sent..).unwrap_or_default();
        let (rest, held) = rest.split_at(rest.len() - beginning(rest));
        self.emit(rest, on);
        held.clone_into(&mut self.held);
        text.len()
    }

    /// Reads the data of a URL. How many bytes that were.
    fn data(&mut self, mut data: DataUrl, text: &str, on: &mut dyn FnMut(TextOrFile<'_>)) -> usize {
        let end = text.bytes().position(|byte| data.ends(byte));
        data.push(text.get(..end.unwrap_or(text.len())).unwrap_or_default());
        match end {
            None => {
                self.state = FileFilterState::Data(data);
                text.len()
            }
            Some(end) if data.is_link() => {
                self.state = FileFilterState::Tail(data);
                end
            }
            Some(end) => {
                self.close(data, on);
                end
            }
        }
    }

    /// Reads on to the bracket that closes a link. What does not belong into a link says that it was none, and is
    /// text again.
    fn tail(&mut self, data: DataUrl, text: &str, on: &mut dyn FnMut(TextOrFile<'_>)) -> usize {
        match tail(text) {
            LinkTail::More => {
                self.state = FileFilterState::Tail(data);
                text.clone_into(&mut self.held);
                text.len()
            }
            LinkTail::Ends(end) => {
                self.close(data, on);
                end
            }
            LinkTail::No => {
                self.close(data.broken(), on);
                0
            }
        }
    }

    /// A data URL is complete.
    fn close(&mut self, data: DataUrl, on: &mut dyn FnMut(TextOrFile<'_>)) {
        if !data.begun && !data.is_link() {
            // It was only spoken of.
            return self.emit(&data.announced, on);
        }
        self.count += 1;
        let content = match data.trouble {
            Some(trouble) => Err(trouble),
            // The URL may have stood in angle brackets.
            None => BASE64.decode(data.base64.trim_end_matches('>')).map_err(|_| FileTrouble::Broken),
        };
        let content = content.and_then(|content| match self.total + content.len() {
            _ if content.is_empty() => Err(FileTrouble::Broken),
            total if content.len() > FILE || total > TOTAL => Err(FileTrouble::TooLarge),
            total => {
                self.total = total;
                Ok(content)
            }
        });
        let kind = content.as_ref().ok().map(|content| FileKind::of(content));
        let name = file_name(&data.name, kind, self.count);
        self.name(&name, on);
        let content = content.map(|content| (kind.unwrap_or(FileKind::Empty).mime(), content));
        self.hand_over(EnclosedFile { name, content }, on);
    }

    /// A file on the agent's machine is named.
    fn elsewhere(&mut self, path: &str, on: &mut dyn FnMut(TextOrFile<'_>)) {
        self.count += 1;
        let base = path.trim_end_matches(['/', '\\', '`', '"', '\'']).rsplit(['/', '\\']).next();
        let name = file_name(base.unwrap_or_default(), None, self.count);
        self.name(&name, on);
        self.hand_over(EnclosedFile { name, content: Err(FileTrouble::Elsewhere) }, on);
    }

    /// Beyond so many they are only counted: nobody needs to be told of them one by one.
    fn hand_over(&self, file: EnclosedFile, on: &mut dyn FnMut(TextOrFile<'_>)) {
        on(if self.count <= FILES { TextOrFile::File(file) } else { TextOrFile::More });
    }

    fn name(&mut self, name: &str, on: &mut dyn FnMut(TextOrFile<'_>)) {
        self.emit(&format!("{SIGN}{name}"), on);
    }

    fn emit(&mut self, text: &str, on: &mut dyn FnMut(TextOrFile<'_>)) {
        if text.is_empty() {
            return;
        }
        self.fences.push(text);
        self.spans.push(text);
        self.word_start = text.ends_with(|c: char| c.is_ascii_whitespace());
        on(TextOrFile::Text(text));
    }
}

impl DataUrl {
    fn new(name: &str, announced: &str) -> Self {
        let (name, announced) = (name.to_owned(), announced.to_owned());
        Self {
            name,
            announced,
            base64: String::new(),
            begun: false,
            padded: false,
            odd: false,
            trouble: None,
        }
    }

    fn is_link(&self) -> bool {
        self.announced.is_empty()
    }

    fn broken(self) -> Self {
        Self { trouble: Some(FileTrouble::Broken), ..self }
    }

    /// Whether the data ends before this byte. In a link it ends with the bracket; one by itself with whatever no
    /// data URL holds, or what comes after its padding.
    fn ends(&mut self, byte: u8) -> bool {
        if self.is_link() {
            return byte.is_ascii_whitespace() || byte == b')';
        }
        if self.padded && byte != b'=' {
            return true;
        }
        self.padded = byte == b'=' && !self.odd;
        self.odd |= byte == b':';
        match self.odd {
            true => byte.is_ascii_whitespace() || b"\"'`<>()[]{}".contains(&byte),
            false => !byte.is_ascii_alphanumeric() && !b"+/=-_%".contains(&byte),
        }
    }

    fn push(&mut self, base64: &str) {
        self.begun |= !base64.is_empty();
        if self.trouble.is_some() {
            return;
        }
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'>');
        if !base64.bytes().all(known) {
            self.trouble = Some(FileTrouble::Broken);
        } else if self.base64.len() + base64.len() > FILE / 3 * 4 + 4 {
            self.trouble = Some(FileTrouble::TooLarge);
        } else {
            self.base64.push_str(base64);
            return;
        }
        self.base64 = String::new();
    }
}
