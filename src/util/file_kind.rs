//! What a file is, by its content. Pure.
//!
//! Few kinds are known, and each by what its first bytes must be: whatever is not clearly one of them is a file like
//! any other, so that nothing is taken for more than it is.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A picture of a kind that models and chat networks take.
    Picture(&'static str),
    /// Speech or music.
    Sound(&'static str),
    /// A film, or sound in a container that films have too.
    Film(&'static str),
    /// UTF-8 that people can read.
    Text,
    /// Something else.
    Other(&'static str),
    /// Nothing.
    Empty,
}

impl FileKind {
    /// Judges a file.
    pub fn of(content: &[u8]) -> Self {
        match content {
            [] => Self::Empty,
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Self::Picture("image/png"),
            [0xff, 0xd8, 0xff, ..] => Self::Picture("image/jpeg"),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Picture("image/gif"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::Picture("image/webp"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Self::Sound("audio/wav"),
            [b'I', b'D', b'3', 2..=4, ..] => Self::Sound("audio/mpeg"),
            // A frame's first bits are all set; then come version and layer, of which MP3 has layer three.
            [0xff, 0xf2 | 0xf3 | 0xfa | 0xfb, ..] => Self::Sound("audio/mpeg"),
            [b'O', b'g', b'g', b'S', ..] => Self::Sound("audio/ogg"),
            [b'f', b'L', b'a', b'C', ..] => Self::Sound("audio/flac"),
            [_, _, _, _, b'f', b't', b'y', b'p', b'M', b'4', b'A', ..] => Self::Sound("audio/mp4"),
            [_, _, _, _, b'f', b't', b'y', b'p', ..] => Self::Film("video/mp4"),
            [0x1a, 0x45, 0xdf, 0xa3, ..] => Self::Film("video/webm"),
            [b'%', b'P', b'D', b'F', b'-', ..] => Self::Other("application/pdf"),
            [b'P', b'K', 3, 4, ..] => Self::Other("application/zip"),
            content if is_text(content) => Self::Text,
            _ => Self::Other("application/octet-stream"),
        }
    }

    /// Its MIME type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Picture(mime) | Self::Sound(mime) | Self::Film(mime) | Self::Other(mime) => mime,
            Self::Text => "text/plain",
            Self::Empty => "application/octet-stream",
        }
    }

    /// How the names of such files usually end, for one that has no name of its own.
    pub fn extension(self) -> &'static str {
        match self.mime() {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "audio/wav" => "wav",
            "audio/mpeg" => "mp3",
            "audio/ogg" => "ogg",
            "audio/flac" => "flac",
            "audio/mp4" => "m4a",
            "video/mp4" => "mp4",
            "video/webm" => "webm",
            "application/pdf" => "pdf",
            "application/zip" => "zip",
            "text/plain" => "txt",
            _ => "bin",
        }
    }
}

/// UTF-8 without control characters but those that text has. A file with a zero byte is no text.
fn is_text(content: &[u8]) -> bool {
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}');
    std::str::from_utf8(content).is_ok_and(|text| !text.contains(control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_content() {
        for (content, kind) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], FileKind::Picture("image/png")),
            (b"\xff\xd8\xff\xe0", FileKind::Picture("image/jpeg")),
            (b"GIF89a", FileKind::Picture("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", FileKind::Picture("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", FileKind::Sound("audio/wav")),
            (b"ID3\x04\0", FileKind::Sound("audio/mpeg")),
            (b"\xff\xfb\x90\x64", FileKind::Sound("audio/mpeg")),
            (b"OggS\0", FileKind::Sound("audio/ogg")),
            (b"\0\0\0\x20ftypM4A ", FileKind::Sound("audio/mp4")),
            (b"\0\0\0\x20ftypisom", FileKind::Film("video/mp4")),
            (b"%PDF-1.7", FileKind::Other("application/pdf")),
            (b"PK\x03\x04", FileKind::Other("application/zip")),
            (b"<svg onload=alert(1)>", FileKind::Text),
            ("Gr\u{fc}\u{df}e,\r\n\tAnn".as_bytes(), FileKind::Text),
            (b"\x89PNG", FileKind::Other("application/octet-stream")),
            (b"a\0b", FileKind::Other("application/octet-stream")),
            (b"\xc3\x28", FileKind::Other("application/octet-stream")),
            (b"", FileKind::Empty),
        ] {
            assert_eq!(FileKind::of(content), kind, "{content:?}");
            assert!(kind.mime().contains('/') && !kind.extension().is_empty());
        }
    }
}
