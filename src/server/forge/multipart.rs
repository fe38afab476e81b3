//! Reads `multipart/form-data` piece by piece, however the pieces are cut. Pure.
//!
//! Written here because the whole of it is one search for a delimiter: the usual crate brings five others, and buffers by its
//! own rules. A part is never held in memory: its bytes are handed on as they come.

use memchr::memmem;

/// Most bytes of the head of a part.
const HEAD: usize = 8 * 1024;

/// Most parts of a body.
const PARTS: usize = 16;

/// Longest boundary, by the standard.
const BOUNDARY: usize = 70;

/// What the parser has found.
#[derive(Debug, PartialEq, Eq)]
pub enum MultipartPiece<'a> {
    /// A part begins.
    Begin(PartHead),
    /// More bytes of the part.
    Data(&'a [u8]),
    /// The part has ended.
    End,
}

/// Name of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartHead {
    /// Name of the form's field.
    pub name: String,
    /// Name of the file, if the part is one.
    pub file_name: Option<String>,
}

/// The body is not what it says. Displayed as a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    /// The head of a part is wrong or too long.
    #[error("The form is not understood: a part of it has no proper head")]
    Head,
    /// There are too many parts.
    #[error("The form has too many parts")]
    TooManyParts,
    /// The body ended in the middle.
    #[error("The form broke off before its end")]
    Unfinished,
}

/// A parser for one body.
pub struct MultipartParser {
    /// `\r\n--boundary`
    delimiter: Vec<u8>,
    /// Bytes that may be the beginning of a delimiter or of a head.
    buffer: Vec<u8>,
    state: ParserState,
    parts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParserState {
    /// Before the first delimiter.
    Preamble,
    /// Behind a delimiter: the end of its line comes, or `--`.
    Delimiter,
    /// In the head of a part.
    Head,
    /// In the bytes of a part.
    Data,
    /// Behind the last delimiter: nothing counts any more.
    Done,
}

impl MultipartParser {
    /// A parser for a body with this `Content-Type`; `None` if that names no form or no boundary.
    pub fn new(content_type: &str) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameter(parameters, "boundary")?;
        let fits = (1..=BOUNDARY).contains(&boundary.len())
            && boundary.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !fits {
            return None;
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter has no line end before it.
        Some(Self { delimiter, buffer: b"\r\n".to_vec(), state: ParserState::Preamble, parts: 0 })
    }

    /// Takes the next bytes of the body and reports what is in them.
    pub fn push<E: From<MultipartError>>(
        &mut self,
        bytes: &[u8],
        mut on: impl FnMut(MultipartPiece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.buffer.extend_from_slice(bytes);
        let buffer = std::mem::take(&mut self.buffer);
        let mut at = 0;
        loop {
            let rest = &buffer[at..];
            match self.state {
                ParserState::Preamble | ParserState::Data => {
                    let found = memmem::find(rest, &self.delimiter);
                    // A delimiter may begin in the last bytes.
                    let sure = found.unwrap_or_else(|| rest.len().saturating_sub(self.delimiter.len() - 1));
                    let is_data = self.state == ParserState::Data;
                    if is_data && sure > 0 {
                        on(MultipartPiece::Data(&rest[..sure]))?;
                    }
                    at += sure;
                    if found.is_none() {
                        break;
                    }
                    at += self.delimiter.len();
                    if is_data {
                        on(MultipartPiece::End)?;
                    }
                    self.state = ParserState::Delimiter;
                }
                ParserState::Delimiter => {
                    if rest.starts_with(b"--") {
                        self.state = ParserState::Done;
                        continue;
                    }
                    let Some(end) = memmem::find(rest, b"\r\n") else {
                        if rest.len() > HEAD {
                            return Err(MultipartError::Head.into());
                        }
                        break;
                    };
                    if !rest[..end].iter().all(|byte| matches!(byte, b' ' | b'\t')) {
                        return Err(MultipartError::Head.into());
                    }
                    // The line end stays: every line of the head has one before it.
                    at += end;
                    self.state = ParserState::Head;
                }
                ParserState::Head => {
                    let Some(end) = memmem::find(rest, b"\r\n\r\n") else {
                        if rest.len() > HEAD {
                            return Err(MultipartError::Head.into());
                        }
                        break;
                    };
                    if end > HEAD {
                        return Err(MultipartError::Head.into());
                    }
                    self.parts += 1;
                    if self.parts > PARTS {
                        return Err(MultipartError::TooManyParts.into());
                    }
                    let head = PartHead::read(&rest[..end]).ok_or(MultipartError::Head)?;
                    on(MultipartPiece::Begin(head))?;
                    at += end + b"\r\n\r\n".len();
                    self.state = ParserState::Data;
                }
                ParserState::Done => {
                    at = buffer.len();
                    break;
                }
            }
        }
        self.buffer = buffer[at..].to_vec();
        Ok(())
    }

    /// Checks that the body has ended where it says.
    pub fn finish(&self) -> Result<(), MultipartError> {
        if self.state == ParserState::Done { Ok(()) } else { Err(MultipartError::Unfinished) }
    }
}

impl PartHead {
    fn read(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let disposition = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        })?;
        let (kind, parameters) = disposition.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return None;
        }
        Some(Self { name: parameter(parameters, "name")?, file_name: parameter(parameters, "filename") })
    }
}

/// The value of a parameter, with or without quotes.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (name, behind) = rest.split_once('=')?;
        let name = name.trim_matches([' ', ';', '\t']);
        let behind = behind.trim_start();
        let (value, after) = match behind.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                (behind[..end].trim().to_owned(), &behind[end..])
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after;
    }
}

/// The text up to the closing quote, and what follows that. `\"` is a quote; any other backslash is one, as browsers send it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                characters.next();
            }
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name, name of the file and bytes of a part.
    type ReadPart = (String, Option<String>, Vec<u8>);

    /// The parts of a form that comes in pieces of these lengths.
    fn read(content_type: &str, body: &[u8], cuts: &[usize]) -> Result<Vec<ReadPart>, MultipartError> {
        let mut parser = MultipartParser::new(content_type).ok_or(MultipartError::Head)?;
        let mut parts: Vec<ReadPart> = Vec::new();
        let mut open = false;
        let mut rest = body;
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*cuts.next().unwrap_or(&rest.len())).clamp(1, rest.len()));
            rest = after;
            parser.push::<MultipartError>(piece, |piece| {
                match piece {
                    MultipartPiece::Begin(head) => {
                        assert!(!open);
                        open = true;
                        parts.push((head.name, head.file_name, Vec::new()));
                    }
                    MultipartPiece::Data(bytes) => {
                        assert!(open && !bytes.is_empty());
                        parts.last_mut().unwrap().2.extend_from_slice(bytes);
                    }
                    MultipartPiece::End => {
                        assert!(open);
                        open = false;
                    }
                }
                Ok(())
            })?;
            // What waits is bounded, however long the part is.
            assert!(parser.buffer.len() <= HEAD + parser.delimiter.len());
        }
        parser.finish()?;
        Ok(parts)
    }

    fn form(boundary: &str, parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, file, content) in parts {
            let file =
                file.map(|file| format!("; filename=\"{file}\"\r\nContent-Type: x/y")).unwrap_or_default();
            let head =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        body
    }

    #[test]
    fn a_form_is_read_with_its_names() {
        let body = form(
            "xyz",
            &[
                ("ttl_secs", None, b"60"),
                ("file", Some("a \\\"b\\\".txt"), b"one\r\n--xy\r\ntwo"),
                ("empty", None, b""),
            ],
        );
        let kind = "multipart/form-data; boundary=xyz";
        let parts = read(kind, &body, &[]).unwrap();
        let expected = [
            ("ttl_secs".to_owned(), None, b"60".to_vec()),
            ("file".to_owned(), Some("a \"b\".txt".to_owned()), b"one\r\n--xy\r\ntwo".to_vec()),
            ("empty".to_owned(), None, Vec::new()),
        ];
        assert_eq!(parts, expected);
        // With words around it, as the standard allows.
        let around = [b"preamble\r\n".as_slice(), &body, b"epilogue --xyz"].concat();
        assert_eq!(read(kind, &around, &[3]).unwrap(), expected);
        assert_eq!(read("Multipart/Form-Data; charset=x; boundary=\"xyz\"", &body, &[1]).unwrap(), expected);
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for kind in [
            "",
            "multipart/form-data",
            "application/json; boundary=x",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\u{e4}",
        ] {
            assert!(MultipartParser::new(kind).is_none(), "{kind}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        assert!(MultipartParser::new(&long).is_none());
        let kind = "multipart/form-data; boundary=x";
        let whole = form("x", &[("file", Some("a"), b"content")]);
        for cut in 0..whole.len() - 3 {
            assert_eq!(read(kind, &whole[..cut], &[]), Err(MultipartError::Unfinished), "{cut}");
        }
        for (body, error) in [
            (b"--x\r\n\r\ncontent\r\n--x--".to_vec(), MultipartError::Head),
            (b"--xy\r\n\r\n".to_vec(), MultipartError::Head),
            (b"--x\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\n".to_vec(), MultipartError::Head),
            ([b"--x\r\n".as_slice(), &[b'a'; 2 * HEAD]].concat(), MultipartError::Head),
            (form("x", &[("a", None, b"1".as_slice()); 17]), MultipartError::TooManyParts),
        ] {
            assert_eq!(read(kind, &body, &[]), Err(error));
        }
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_matter(
            contents in prop::collection::vec(prop::collection::vec(prop::sample::select(b"\r\n-xa".to_vec()), 0..60), 1..4),
            cuts in prop::collection::vec(1_usize..9, 1..20),
        ) {
            let boundary = "xax";
            let parts: Vec<_> = contents.iter().map(|content| ("a", None, content.as_slice())).collect();
            prop_assume!(contents.iter().all(|content| {
                let behind_head = [b"\r\n".as_slice(), content].concat();
                memmem::find(&behind_head, b"\r\n--xax").is_none()
            }));
            let read = read("multipart/form-data; boundary=xax", &form(boundary, &parts), &cuts).unwrap();
            let contents: Vec<_> = contents.iter().map(|content| ("a".to_owned(), None, content.clone())).collect();
            prop_assert_eq!(read, contents);
        }

        #[test]
        fn no_bytes_make_it_fail(body: Vec<u8>, cuts in prop::collection::vec(1_usize..9, 1..5)) {
            let _ = read("multipart/form-data; boundary=x", &body, &cuts);
        }
    }
}
