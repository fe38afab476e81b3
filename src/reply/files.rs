//! Takes the files out of a streamed answer.
//!
//! An agent puts a file into its text as a data URL, `![chart](data:image/png;base64,…)`, or behind `MEDIA:`. Nobody
//! should ever read base64, so the file is taken out as it comes and its name stays in its place. `MEDIA:` with a path
//! names a file on the agent's machine: nothing is opened for it, here least of all, and only the name stays. Links to
//! other places are left as they are. In a code fence all of this is something the answer talks about.
//!
//! Linear, and late by no more than the beginning of a link: what cannot be a file any more goes out at once.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use memchr::memchr2;

use super::fence::FenceTracker;
use super::one_line;
use crate::media::kind::Kind;

/// Files that are taken out of one answer; of the others only the name stays.
const FILES: usize = 10;

/// The largest file, and all of one answer together.
const FILE: usize = 8 * 1024 * 1024;
const TOTAL: usize = 16 * 1024 * 1024;

/// The longest name of a link and the longest path, in bytes: so much is held back until it is clear what it is.
const LABEL: usize = 200;
const PATH: usize = 400;

/// The longest description of what a data URL holds.
const HEADER: usize = 128;

/// Characters of a file's name.
const NAME: usize = 60;

/// What comes before the name of a file in the text.
const SIGN: &str = "📎 ";

/// Base64 as programs write it, with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A piece of what came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Belongs to the text.
    Text(&'a str),
    /// A file; the text around it names it.
    File(Enclosed),
}

/// A file in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosed {
    /// A safe base name.
    pub name: String,
    /// The file itself, with its MIME type by its content; or why there is none.
    pub content: Result<(&'static str, Vec<u8>), Trouble>,
}

/// Why a file that an answer names cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It, or all of them together.
    TooLarge,
    /// There are more than are taken.
    TooMany,
    /// It is no base64, or broke off.
    Broken,
    /// It is a path on the agent's machine.
    Elsewhere,
}

/// Tells text and files apart, chunk by chunk. One per stream.
#[derive(Debug)]
pub struct FileFilter {
    state: State,
    /// The beginning of what may become a file; empty most of the time, and never long.
    held: String,
    /// The text that went out so far.
    fences: FenceTracker,
    /// The text that went out ends with white space, or there is none.
    word_start: bool,
    /// Files that were taken out, and their bytes.
    count: usize,
    total: usize,
}

impl Default for FileFilter {
    fn default() -> Self {
        Self {
            state: State::Text,
            held: String::new(),
            fences: FenceTracker::default(),
            word_start: true,
            count: 0,
            total: 0,
        }
    }
}

#[derive(Debug)]
enum State {
    Text,
    Data(Data),
    /// Behind the data of a link, until its bracket closes: a title, or white space.
    Tail(Data),
}

/// A data URL as far as it has come.
#[derive(Debug)]
struct Data {
    name: String,
    /// Whether a bracket ends it; white space does otherwise.
    link: bool,
    base64: String,
    trouble: Option<Trouble>,
}

/// What the beginning of a text is.
#[derive(Debug, PartialEq, Eq)]
enum Verdict<'a> {
    /// Text.
    No,
    /// That depends on what comes.
    More,
    /// A data URL, whose data begins at this byte.
    Url { name: &'a str, link: bool, data: usize },
    /// A file elsewhere, up to this byte.
    Path { path: &'a str, end: usize },
}

impl FileFilter {
    /// Reads on.
    pub fn push(&mut self, text: &str, mut on: impl FnMut(Piece<'_>)) {
        if self.held.is_empty() {
            return self.read(text, &mut on);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.push_str(text);
        self.read(&joined, &mut on);
    }

    /// Nothing more comes.
    pub fn finish(&mut self, mut on: impl FnMut(Piece<'_>)) {
        let held = std::mem::take(&mut self.held);
        // White space would end a path; so does the end.
        match verdict(&format!("{held}\n")) {
            Verdict::Path { path, end } if end <= held.len() => {
                self.elsewhere(path, &mut on);
                self.emit(held.get(end..).unwrap_or_default(), &mut on);
            }
            Verdict::No | Verdict::More | Verdict::Url { .. } | Verdict::Path { .. } => {
                self.emit(&held, &mut on)
            }
        }
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text => {}
            State::Data(data) if !data.link => self.close(data, &mut on),
            State::Data(data) | State::Tail(data) => {
                self.close(Data { trouble: Some(Trouble::Broken), ..data }, &mut on);
            }
        }
    }

    fn read(&mut self, text: &str, on: &mut dyn FnMut(Piece<'_>)) {
        let mut rest = text;
        while !rest.is_empty() {
            let used = match std::mem::replace(&mut self.state, State::Text) {
                State::Text => self.text(rest, on),
                State::Data(data) => self.data(data, rest, on),
                State::Tail(data) => self.tail(data, rest, on),
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    /// Reads text up to the beginning of a data URL. How many bytes that were.
    fn text(&mut self, text: &str, on: &mut dyn FnMut(Piece<'_>)) -> usize {
        let (mut sent, mut from) = (0, 0);
        let bytes = text.as_bytes();
        while let Some(found) = bytes.get(from..).and_then(|rest| memchr2(b'[', b'M', rest)) {
            let at = from + found;
            from = at + 1;
            let before = at.checked_sub(1).and_then(|before| bytes.get(before)).copied();
            let start = match (bytes.get(at), before) {
                (Some(b'['), Some(b'!')) if at > sent => at - 1,
                (Some(b'['), _) => at,
                // In the middle of a word it is none of ours.
                (_, Some(before)) if !before.is_ascii_whitespace() => continue,
                (_, None) if !self.word_start => continue,
                (_, _) => at,
            };
            let Some(candidate) = text.get(start..) else { continue };
            let verdict = verdict(candidate);
            if verdict == Verdict::No {
                continue;
            }
            self.emit(text.get(sent..start).unwrap_or_default(), on);
            sent = start;
            if self.fences.open().is_some() {
                continue;
            }
            match verdict {
                Verdict::No => {}
                Verdict::More => {
                    candidate.clone_into(&mut self.held);
                    return text.len();
                }
                Verdict::Url { name, link, data } => {
                    let trouble = (self.count >= FILES).then_some(Trouble::TooMany);
                    let name = name.to_owned();
                    self.state = State::Data(Data { name, link, base64: String::new(), trouble });
                    return start + data;
                }
                Verdict::Path { path, end } => {
                    self.elsewhere(path, on);
                    return start + end;
                }
            }
        }
        let rest = text.get(sent..).unwrap_or_default();
        match rest.strip_suffix('!') {
            // It may be the first half of a picture's beginning.
            Some(rest) => {
                self.emit(rest, on);
                "!".clone_into(&mut self.held);
            }
            None => self.emit(rest, on),
        }
        text.len()
    }

    /// Reads the data of a URL. How many bytes that were.
    fn data(&mut self, mut data: Data, text: &str, on: &mut dyn FnMut(Piece<'_>)) -> usize {
        let end = text.bytes().position(|byte| byte.is_ascii_whitespace() || (data.link && byte == b')'));
        data.push(text.get(..end.unwrap_or(text.len())).unwrap_or_default());
        match end {
            None => {
                self.state = State::Data(data);
                text.len()
            }
            Some(end) if data.link => {
                self.state = State::Tail(data);
                end
            }
            Some(end) => {
                self.close(data, on);
                end
            }
        }
    }

    /// Reads on to the bracket that closes a link. A line end before it says that the link is none.
    fn tail(&mut self, data: Data, text: &str, on: &mut dyn FnMut(Piece<'_>)) -> usize {
        match text.bytes().position(|byte| matches!(byte, b')' | b'\n')) {
            None => {
                self.state = State::Tail(data);
                text.len()
            }
            Some(end) if text.as_bytes().get(end) == Some(&b')') => {
                self.close(data, on);
                end + 1
            }
            Some(end) => {
                self.close(Data { trouble: Some(Trouble::Broken), ..data }, on);
                end
            }
        }
    }

    /// A data URL is complete.
    fn close(&mut self, data: Data, on: &mut dyn FnMut(Piece<'_>)) {
        self.count += 1;
        let content = match data.trouble {
            Some(trouble) => Err(trouble),
            // The URL may have stood in angle brackets.
            None => BASE64.decode(data.base64.trim_end_matches('>')).map_err(|_| Trouble::Broken),
        };
        let content = content.and_then(|content| match self.total + content.len() {
            _ if content.is_empty() => Err(Trouble::Broken),
            total if content.len() > FILE || total > TOTAL => Err(Trouble::TooLarge),
            total => {
                self.total = total;
                Ok(content)
            }
        });
        let kind = content.as_ref().ok().map(|content| Kind::of(content));
        let name = file_name(&data.name, kind, self.count);
        self.name(&name, on);
        let content = content.map(|content| (kind.unwrap_or(Kind::Empty).mime(), content));
        on(Piece::File(Enclosed { name, content }));
    }

    /// A file on the agent's machine is named.
    fn elsewhere(&mut self, path: &str, on: &mut dyn FnMut(Piece<'_>)) {
        self.count += 1;
        let base = path.trim_end_matches(['/', '\\', '`', '"', '\'']).rsplit(['/', '\\']).next();
        let name = file_name(base.unwrap_or_default(), None, self.count);
        self.name(&name, on);
        // Beyond this nobody needs to be told one by one.
        if self.count <= FILES {
            on(Piece::File(Enclosed { name, content: Err(Trouble::Elsewhere) }));
        }
    }

    fn name(&mut self, name: &str, on: &mut dyn FnMut(Piece<'_>)) {
        self.emit(&format!("{SIGN}{name}"), on);
    }

    fn emit(&mut self, text: &str, on: &mut dyn FnMut(Piece<'_>)) {
        if text.is_empty() {
            return;
        }
        self.fences.push(text);
        self.word_start = text.ends_with(|c: char| c.is_ascii_whitespace());
        on(Piece::Text(text));
    }
}

impl Data {
    fn push(&mut self, base64: &str) {
        if self.trouble.is_some() {
            return;
        }
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'>');
        if !base64.bytes().all(known) {
            self.trouble = Some(Trouble::Broken);
        } else if self.base64.len() + base64.len() > FILE / 3 * 4 + 4 {
            self.trouble = Some(Trouble::TooLarge);
        } else {
            self.base64.push_str(base64);
            return;
        }
        self.base64 = String::new();
    }
}

/// What a text that begins with `[`, `![` or `M` is.
fn verdict(text: &str) -> Verdict<'_> {
    if text.starts_with('M') { media(text) } else { link(text) }
}

/// `![name](data:…;base64,`
fn link(text: &str) -> Verdict<'_> {
    let Some(inner) = text.trim_start_matches('!').strip_prefix('[') else {
        return if text == "!" { Verdict::More } else { Verdict::No };
    };
    let end = match inner.find(['[', ']', '\n']) {
        Some(end) if end <= LABEL => end,
        None if inner.len() <= LABEL => return Verdict::More,
        Some(_) | None => return Verdict::No,
    };
    let (name, behind) = inner.split_at(end);
    let opening = match behind.as_bytes() {
        [b']', b'(', b'<', ..] => 3,
        [b']', b'(', ..] => 2,
        [b']'] => return Verdict::More,
        _ => return Verdict::No,
    };
    let url = behind.get(opening..).unwrap_or_default();
    match header(url) {
        Header::No => Verdict::No,
        Header::More => Verdict::More,
        Header::Ends(at) => Verdict::Url { name, link: true, data: text.len() - url.len() + at },
    }
}

/// `MEDIA:` and a data URL or a path.
fn media(text: &str) -> Verdict<'_> {
    const MEDIA: &str = "MEDIA:";
    let Some(url) = text.strip_prefix(MEDIA) else {
        return if MEDIA.starts_with(text) { Verdict::More } else { Verdict::No };
    };
    match header(url) {
        Header::Ends(at) => Verdict::Url { name: "", link: false, data: MEDIA.len() + at },
        Header::More => Verdict::More,
        Header::No if url.starts_with(['/', '~', '`', '"', '.']) || url.starts_with("file:") => {
            match url.find(|c: char| c.is_ascii_whitespace()) {
                Some(end) if end <= PATH => {
                    Verdict::Path { path: url.get(..end).unwrap_or_default(), end: MEDIA.len() + end }
                }
                None if url.len() <= PATH => Verdict::More,
                Some(_) | None => Verdict::No,
            }
        }
        Header::No => Verdict::No,
    }
}

/// What stands before the data of a URL.
enum Header {
    No,
    More,
    /// The data begins here.
    Ends(usize),
}

fn header(url: &str) -> Header {
    const DATA: &str = "data:";
    let begins = url.len().min(DATA.len());
    if !url.get(..begins).is_some_and(|begin| begin.eq_ignore_ascii_case(&DATA[..begins])) {
        return Header::No;
    }
    let odd = |c: char| !c.is_ascii_alphanumeric() && !"/+.;:=_-\"".contains(c);
    // The comma is odd too, and ends it.
    match url.find(odd) {
        None if url.len() <= HEADER => Header::More,
        Some(end) if end <= HEADER && url[end..].starts_with(',') => {
            let base64 = url[..end].to_ascii_lowercase().ends_with(";base64");
            if base64 { Header::Ends(end + 1) } else { Header::No }
        }
        None | Some(_) => Header::No,
    }
}

/// A name that is safe in a file system, in a line of Markdown and for people, with an end that says what the file is.
fn file_name(given: &str, kind: Option<Kind>, number: usize) -> String {
    let safe = |c: char| if c.is_alphanumeric() || " .-_".contains(c) { c } else { '_' };
    let name: String = one_line(given, NAME).chars().map(safe).collect();
    let name = name.trim_matches(['.', ' ', '_']);
    let name = if name.is_empty() { format!("file-{number}") } else { name.to_owned() };
    let Some(kind) = kind else { return name };
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let fits = match (kind, ending.as_deref()) {
        // Many kinds of text and of archives have names of their own.
        (Kind::Text | Kind::Other("application/zip" | "application/octet-stream"), Some(ending)) => {
            (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }
        (Kind::Picture("image/jpeg"), Some("jpeg")) => true,
        (kind, ending) => ending == Some(kind.extension()),
    };
    if fits { name } else { format!("{name}.{}", kind.extension()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file of eight bytes that is a picture by its content, as base64.
    const PNG: &str = "iVBORw0KGgo=";

    fn filtered<'a>(chunks: impl IntoIterator<Item = &'a str>) -> (String, Vec<Enclosed>) {
        let (mut text, mut files) = (String::new(), Vec::new());
        let mut take = |piece: Piece<'_>| match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::File(file) => files.push(file),
        };
        let mut filter = FileFilter::default();
        for chunk in chunks {
            filter.push(chunk, &mut take);
        }
        filter.finish(&mut take);
        (text, files)
    }

    fn names(files: &[Enclosed]) -> Vec<(&str, Result<&'static str, Trouble>)> {
        let mime = |file: &Enclosed| file.content.as_ref().map(|(mime, _)| *mime).map_err(|trouble| *trouble);
        files.iter().map(|file| (file.name.as_str(), mime(file))).collect()
    }

    #[test]
    fn a_file_is_taken_out_and_its_name_stays() {
        let (text, files) = filtered([&*format!("Here: ![the chart](data:image/png;base64,{PNG}) Good?")]);
        assert_eq!(text, "Here: 📎 the chart.png Good?");
        assert_eq!(names(&files), [("the chart.png", Ok("image/png"))]);
        assert_eq!(files[0].content.as_ref().unwrap().1, b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn files_are_what_they_hold_and_not_what_they_say() {
        for (given, name, mime) in [
            (format!("[a.pdf](data:application/pdf;base64,{PNG})"), "a.pdf.png", "image/png"),
            (format!("[](DATA:;base64,{PNG})"), "file-1.png", "image/png"),
            (format!("![x](<data:image/png;base64,{PNG}> \"a title\")"), "x.png", "image/png"),
            (format!("MEDIA:data:image/png;base64,{PNG}"), "file-1.png", "image/png"),
            ("[../../.ssh/id](data:text/html;base64,PGI+)".to_owned(), "ssh_id.txt", "text/plain"),
            ("[list.csv](data:text/csv;base64,YSxi)".to_owned(), "list.csv", "text/plain"),
        ] {
            let (text, files) = filtered([given.as_str()]);
            assert_eq!(names(&files), [(name, Ok(mime))], "{given}");
            assert_eq!(text, format!("📎 {name}"), "{given}");
        }
    }

    #[test]
    fn what_is_no_file_stays_as_it_is() {
        for text in [
            "[a](https://example.org/a.png) ![b](http://b) [c] [d](e) ![](",
            "![x](data:image/svg+xml,%3Csvg%3E)",
            "MEDIA: the plural of medium. MEDIAN. M MEDIA",
            "See NOMEDIA:/tmp/x, ok!",
            "[a\nb](data:x;base64,eA==)",
            "```\n![x](data:image/png;base64,iVBORw0KGgo=)\nMEDIA:/tmp/x\n```\n",
            "![",
            "!",
        ] {
            assert_eq!(filtered([text]), (text.to_owned(), Vec::new()), "{text}");
        }
    }

    #[test]
    fn a_path_is_named_and_never_opened() {
        let (text, files) =
            filtered(["Done.\nMEDIA:/etc/secret/my_chart.png\nMEDIA:~/x\nMEDIA:../../etc/passwd"]);
        assert_eq!(text, "Done.\n📎 my_chart.png\n📎 x\n📎 passwd");
        assert!(files.iter().all(|file| file.content == Err(Trouble::Elsewhere)), "{files:?}");
        assert_eq!(files.len(), 3);
    }

    #[test]
    fn broken_and_endless_files_leave_only_their_name() {
        for (given, trouble) in [
            ("![x](data:image/png;base64,iVBORw0K", Trouble::Broken),
            ("![x](data:image/png;base64,<script>)", Trouble::Broken),
            ("![x](data:image/png;base64,)", Trouble::Broken),
            ("![x](data:image/png;base64,iVBO\n", Trouble::Broken),
        ] {
            let (text, files) = filtered([given]);
            assert_eq!(names(&files), [("x", Err(trouble))], "{given}");
            assert_eq!(text.trim(), "📎 x");
        }
        let endless = "A".repeat(1 << 20);
        let chunks = std::iter::once("![x](data:;base64,").chain(std::iter::repeat_n(&*endless, 20));
        let (text, files) = filtered(chunks.chain([") end"]));
        assert_eq!((text.as_str(), names(&files)), ("📎 x end", vec![("x", Err(Trouble::TooLarge))]));
        let many = format!("[x](data:;base64,{PNG}) ").repeat(12);
        let (_, files) = filtered([&*many]);
        assert_eq!(files.iter().filter(|file| file.content.is_ok()).count(), FILES);
        assert_eq!(files.last().unwrap().content, Err(Trouble::TooMany));
    }

    proptest! {
        /// However a text is cut, the same comes out of it, and base64 never does.
        #[test]
        fn the_cuts_do_not_matter(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "![a](data:image/png;base64,iVBORw0KGgo=)", "[b](data:;base64,iVBORw0KGgo=", ")", "!", "[", "]",
                    "(", "MEDIA:", "/tmp/x", " ", "\n", "text", "```\n", "ä", "data:", ";base64,",
                ]),
                0..12,
            ),
            cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let whole = parts.concat();
            let mut chunks = Vec::new();
            let (mut rest, mut cuts) = (whole.as_str(), cuts.iter().cycle());
            while !rest.is_empty() {
                let end = rest.ceil_char_boundary(*cuts.next().unwrap());
                let (chunk, more) = rest.split_at(end);
                chunks.push(chunk);
                rest = more;
            }
            prop_assert_eq!(filtered(chunks), filtered([&*whole]));
        }
    }
}
