//! Recognises possible files in an answer: links to data URLs, bare data URLs, and `MEDIA:`. Pure.

/// Longest name of a link and longest path, in bytes: this much is held back until the kind is clear.
const LABEL: usize = 200;
const PATH: usize = 400;

/// Longest header of a data URL (media type and parameters), in bytes.
const HEADER: usize = 128;

/// Beginning of a data URL, and end of its header.
pub(super) const DATA: &str = "data:";
const BASE64: &str = ";base64,";

/// Kind of a text by its beginning.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PrefixVerdict<'a> {
    /// Text.
    No,
    /// Not decidable before more input comes.
    More,
    /// A data URL, whose data begins at byte `data`; `link` if it is inside a link.
    Url { name: &'a str, link: bool, data: usize },
    /// A file on the agent's machine, up to byte `end`.
    Path { path: &'a str, end: usize },
}

/// Classifies a text that begins with `[`, `![`, `M` or `data:`.
pub(super) fn verdict(text: &str) -> PrefixVerdict<'_> {
    match text.as_bytes().first() {
        Some(b'M') => media(text),
        Some(b'd' | b'D') => bare(text),
        Some(_) | None => link(text),
    }
}

/// Bytes at the end of a text that may be the beginning of `![` or `data:`.
pub(super) fn beginning(text: &str) -> usize {
    let ends = |with: &[u8]| {
        let at = text.len().checked_sub(with.len());
        at.and_then(|at| text.as_bytes().get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(with))
    };
    let data = DATA.as_bytes();
    match (1..data.len()).rev().find(|length| data.get(..*length).is_some_and(ends)) {
        Some(length) => length,
        None => usize::from(ends(b"!")),
    }
}

/// Kind of the text behind the data of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkTail {
    /// Not a link.
    No,
    /// Not decidable before more input comes.
    More,
    /// The link ends before this byte.
    Ends(usize),
}

/// Accepts white space, a closing angle bracket, a title in quotes, and the bracket that closes the link.
pub(super) fn tail(text: &str) -> LinkTail {
    let mut quote = None;
    let (mut angle, mut titled) = (false, false);
    for (at, byte) in text.bytes().enumerate().take(LABEL) {
        match (quote, byte) {
            (_, b'\n') => return LinkTail::No,
            (Some(open), byte) if open == byte => quote = None,
            (Some(_), _) | (None, b' ' | b'\t' | b'\r') => {}
            (None, b')') => return LinkTail::Ends(at + 1),
            (None, b'>') if !angle && !titled => angle = true,
            (None, b'"' | b'\'') if !titled => (quote, titled) = (Some(byte), true),
            (None, _) => return LinkTail::No,
        }
    }
    if text.len() < LABEL { LinkTail::More } else { LinkTail::No }
}

/// `data:…;base64,` on its own, in an HTML tag, or anywhere else.
fn bare(text: &str) -> PrefixVerdict<'_> {
    match header(text) {
        DataHeader::No => PrefixVerdict::No,
        DataHeader::More => PrefixVerdict::More,
        DataHeader::Ends(data) => PrefixVerdict::Url { name: "", link: false, data },
    }
}

/// `![name](data:…;base64,`
fn link(text: &str) -> PrefixVerdict<'_> {
    let Some(inner) = text.trim_start_matches('!').strip_prefix('[') else {
        return if text == "!" { PrefixVerdict::More } else { PrefixVerdict::No };
    };
    let end = match inner.find(['[', ']', '\n']) {
        Some(end) if end <= LABEL => end,
        None if inner.len() <= LABEL => return PrefixVerdict::More,
        Some(_) | None => return PrefixVerdict::No,
    };
    let (name, behind) = inner.split_at(end);
    if name.contains(BASE64) {
        // Base64 in a name must not be shown either: the name is examined by itself.
        return PrefixVerdict::No;
    }
    let opening = match behind.as_bytes() {
        [b']', b'(', b'<', ..] => 3,
        [b']', b'(', ..] => 2,
        [b']'] => return PrefixVerdict::More,
        _ => return PrefixVerdict::No,
    };
    let url = behind.get(opening..).unwrap_or_default();
    match header(url) {
        DataHeader::No => PrefixVerdict::No,
        DataHeader::More => PrefixVerdict::More,
        DataHeader::Ends(at) => PrefixVerdict::Url { name, link: true, data: text.len() - url.len() + at },
    }
}

/// `MEDIA:` and a data URL or a path.
fn media(text: &str) -> PrefixVerdict<'_> {
    const MEDIA: &str = "MEDIA:";
    let Some(url) = text.strip_prefix(MEDIA) else {
        return if MEDIA.starts_with(text) { PrefixVerdict::More } else { PrefixVerdict::No };
    };
    match header(url) {
        DataHeader::Ends(at) => PrefixVerdict::Url { name: "", link: false, data: MEDIA.len() + at },
        DataHeader::More => PrefixVerdict::More,
        DataHeader::No if url.starts_with(['/', '~', '`', '"', '.']) || url.starts_with("file:") => {
            match url.find(|c: char| c.is_ascii_whitespace()) {
                Some(end) if end <= PATH => match url.get(..end).unwrap_or_default() {
                    path if path.contains(BASE64) => PrefixVerdict::No,
                    path => PrefixVerdict::Path { path, end: MEDIA.len() + end },
                },
                None if url.len() <= PATH => PrefixVerdict::More,
                Some(_) | None => PrefixVerdict::No,
            }
        }
        DataHeader::No => PrefixVerdict::No,
    }
}

/// Result of reading the header of a data URL.
enum DataHeader {
    No,
    More,
    /// The data begins at this byte.
    Ends(usize),
}

fn header(url: &str) -> DataHeader {
    let begins = url.len().min(DATA.len());
    if !url.get(..begins).is_some_and(|begin| begin.eq_ignore_ascii_case(&DATA[..begins])) {
        return DataHeader::No;
    }
    let odd = |byte: u8| !byte.is_ascii_alphanumeric() && !b"/+.;:=_-\"".contains(&byte);
    // The comma is odd too, and ends the header. The search is bounded, because a text may contain many such
    // prefixes.
    match url.bytes().take(HEADER + 1).position(odd) {
        None if url.len() <= HEADER => DataHeader::More,
        Some(end) if url.as_bytes().get(end) == Some(&b',') => {
            let base64 = url.get(..=end).is_some_and(|header| header.to_ascii_lowercase().ends_with(BASE64));
            if base64 { DataHeader::Ends(end + 1) } else { DataHeader::No }
        }
        None | Some(_) => DataHeader::No,
    }
}
