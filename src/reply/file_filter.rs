//! Removes embedded files from a streamed answer.
//!
//! An agent embeds a file as a data URL, `![chart](data:image/png;base64,…)` or without a link, or behind
//! `MEDIA:`. People should never see base64, so the file is taken out while it streams, and its name stays in
//! its place. `MEDIA:` with a path names a file on the agent's machine: we never open it, and only its name
//! stays. Links to other places are left as they are. In code, none of this is a file. `grammar` decides what
//! is a file, `code_span` what is code within a line.
//!
//! Linear, and delays text by no more than the beginning of a link: text that cannot be a file is released at
//! once.

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

/// Most files taken out of one answer; of further ones only the name stays.
const FILES: usize = 10;

/// Largest file, in bytes. `TOTAL` limits all files of one answer together.
pub const FILE: usize = 8 * 1024 * 1024;
const TOTAL: usize = 16 * 1024 * 1024;

/// Stands before the name of a file in the text.
const SIGN: &str = "📎 ";

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A piece of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrFile<'a> {
    /// Belongs to the text.
    Text(&'a str),
    /// A file; the text around it names it.
    File(EnclosedFile),
    /// A file beyond the limit; the text around it names it.
    More,
}

/// A file embedded in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclosedFile {
    /// A safe base name.
    pub name: String,
    /// MIME type by content, and bytes; or why they are not available.
    pub content: Result<(&'static str, Vec<u8>), FileTrouble>,
}

/// Why a file that an answer names is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTrouble {
    /// The file, or all files together, exceed the limit.
    TooLarge,
    /// The content is not valid base64, or broke off.
    Broken,
    /// The content is a path on the agent's machine.
    Elsewhere,
}

/// Separates text and files, chunk by chunk. One per stream.
#[derive(Debug)]
pub struct FileFilter {
    state: FileFilterState,
    /// Beginning of a possible file; empty most of the time, and never long.
    held: String,
    /// State of the released text: whether it ends in a code block, or in code within a line.
    fences: FenceTracker,
    spans: SpanTracker,
    /// The released text ends with white space, or is empty.
    word_start: bool,
    /// Files so far, and the bytes of those that were taken out.
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
    /// Behind the data of a link, until its bracket closes. Input in between is held.
    Tail(DataUrl),
}

/// A data URL that is being read.
#[derive(Debug)]
struct DataUrl {
    name: String,
    /// Text to release if no data follows; empty for a link, which always ends with its bracket.
    announced: String,
    base64: String,
    /// Whether any data came, be it kept or not, and whether its padding has begun.
    begun: bool,
    padded: bool,
    /// The data continues like another URL; all of that is swallowed.
    odd: bool,
    /// Why the data is not kept.
    trouble: Option<FileTrouble>,
}

impl FileFilter {
    /// Reads the next chunk.
    pub fn push(&mut self, text: &str, mut on: impl FnMut(TextOrFile<'_>)) {
        if self.held.is_empty() {
            return self.read(text, &mut on);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.push_str(text);
        self.read(&joined, &mut on);
    }

    /// Ends the stream: releases held input.
    pub fn finish(&mut self, mut on: impl FnMut(TextOrFile<'_>)) {
        loop {
            let held = std::mem::take(&mut self.held);
            match std::mem::replace(&mut self.state, FileFilterState::Text) {
                FileFilterState::Text if held.is_empty() => return,
                FileFilterState::Text => {
                    // White space ends a path, and so does the end of the stream.
                    let end = match verdict(&format!("{held}\n")) {
                        PrefixVerdict::Path { path, end } if end <= held.len() => {
                            self.elsewhere(path, &mut on);
                            end
                        }
                        // The rest is text, but only its first character is certainly not part of a file.
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

    /// Reads text up to the beginning of a data URL. Returns the bytes read.
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
                // In the middle of a word it is not our `MEDIA:`.
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
                    // Data of files beyond the limit is not kept.
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

    /// Reads the data of a URL. Returns the bytes read.
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

    /// Reads up to the bracket that closes a link. Input that cannot be part of a link shows that it was none,
    /// and is text again.
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

    /// Ends a data URL, decodes it and hands it over.
    fn close(&mut self, data: DataUrl, on: &mut dyn FnMut(TextOrFile<'_>)) {
        if !data.begun && !data.is_link() {
            // The answer only mentioned the prefix.
            return self.emit(&data.announced, on);
        }
        self.count += 1;
        let content = match data.trouble {
            Some(trouble) => Err(trouble),
            // The URL may have been in angle brackets.
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

    /// Hands over the name of a file on the agent's machine.
    fn elsewhere(&mut self, path: &str, on: &mut dyn FnMut(TextOrFile<'_>)) {
        self.count += 1;
        let base = path.trim_end_matches(['/', '\\', '`', '"', '\'']).rsplit(['/', '\\']).next();
        let name = file_name(base.unwrap_or_default(), None, self.count);
        self.name(&name, on);
        self.hand_over(EnclosedFile { name, content: Err(FileTrouble::Elsewhere) }, on);
    }

    /// Hands over a file. Files beyond the limit are only counted: people need not be told about each.
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

    /// Whether the data ends before this byte. In a link it ends with the bracket; a bare one ends at a byte
    /// that no data URL contains, or behind its padding.
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
