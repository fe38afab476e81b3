//! Reads the size of a picture from its first bytes, so that clients can reserve space before it has loaded.

/// Width and height; `None` if they are not easy to find.
pub(super) fn size(content: &[u8]) -> Option<(u32, u32)> {
    let size = match content {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => {
            (big(content, 16, 4)?, big(content, 20, 4)?)
        }
        [b'G', b'I', b'F', b'8', ..] => (little(content, 6, 2)?, little(content, 8, 2)?),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp(content)?,
        [0xff, 0xd8, ..] => jpeg(content)?,
        _ => return None,
    };
    (size.0 > 0 && size.1 > 0).then_some(size)
}

/// Reads the first frame header; the segments before it say how long they are.
fn jpeg(content: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *content.get(at)? != 0xff {
            return None;
        }
        match *content.get(at + 1)? {
            // Padding.
            0xff => at += 1,
            // Start of frame; the numbers left out between them are tables.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big(content, at + 7, 2)?, big(content, at + 5, 2)?));
            }
            _ => at += 2 + (big(content, at + 2, 2)? as usize).max(2),
        }
    }
}

fn webp(content: &[u8]) -> Option<(u32, u32)> {
    match content.get(12..16)? {
        b"VP8 " => Some((little(content, 26, 2)? & 0x3fff, little(content, 28, 2)? & 0x3fff)),
        b"VP8L" => {
            let bits = little(content, 21, 4)?;
            Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(content, 24, 3)? + 1, little(content, 27, 3)? + 1)),
        _ => None,
    }
}

fn big(content: &[u8], at: usize, bytes: usize) -> Option<u32> {
    Some(content.get(at..at + bytes)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn little(content: &[u8], at: usize, bytes: usize) -> Option<u32> {
    Some(content.get(at..at + bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_size_is_read_from_the_first_bytes() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x06";
        assert_eq!(size(png), Some((640, 480)));
        assert_eq!(size(b"GIF89a\x80\x02\xe0\x01"), Some((640, 480)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc4\0\x02\xff\xc2\0\x11\x08\x01\xe0\x02\x80\x03";
        assert_eq!(size(jpeg), Some((640, 480)));
        let webp = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
        assert_eq!(size(webp), Some((640, 480)));
        assert_eq!(size(b"<svg width='5'/>"), None);
    }

    proptest! {
        #[test]
        fn nonsense_has_no_size_and_does_no_harm(
            start in prop_oneof![
                Just(&b"\xff\xd8\xff"[..]), Just(&b"\x89PNG\r\n\x1a\n"[..]), Just(&b"RIFF....WEBPVP8 "[..]), Just(&b"GIF8"[..])
            ],
            rest in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            size(&[start, &rest].concat());
        }
    }
}
