//! Compares the parser with the reference, and tests its limits.

use proptest::collection::vec;
use proptest::prelude::*;

use super::reference::{CASES, check_cases, check_random, naive, real};
use super::{LIMIT, SseParser, TooLong};

#[test]
fn every_case_of_the_standard_is_read_right_in_any_chunks() {
    assert!(CASES.len() >= 39);
    assert_eq!(check_cases(), Vec::<String>::new());
}

#[test]
fn random_streams_are_read_like_the_reference() {
    assert_eq!(check_random(5_000, 1), Vec::<String>::new());
}

/// Random bytes, mostly those that matter to a parser.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let telling = prop::sample::select(b"\r\r\n\n\n::  datatevnid0\0\xEF\xBB\xBF\xC3\xA9".to_vec());
    let field = prop::sample::select(vec!["data: ", "data:", "data", "event:", "id: ", "\n\n", "\r\n\r\n"]);
    let piece = prop_oneof![
        5 => telling.prop_map(|byte| vec![byte]),
        4 => field.prop_map(|field| field.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn cut<'a>(stream: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = stream;
    let mut chunks = Vec::new();
    for &length in lengths {
        let (chunk, tail) = rest.split_at(length.min(rest.len()));
        chunks.push(chunk);
        rest = tail;
    }
    chunks.push(rest);
    chunks
}

/// Whether the data of an event and the line after it ever exceed `limit` together.
fn exceeds(stream: &[u8], limit: usize) -> bool {
    // One character for each byte, so that lengths are those of bytes.
    let latin: String = stream.iter().map(|&byte| char::from(byte)).collect();
    let unified = latin.replace("\r\n", "\n").replace('\r', "\n");
    let mut data = 0;
    for (number, line) in unified.split('\n').enumerate() {
        if data + line.chars().count() > limit {
            return true;
        }
        let line = if number == 0 { line.strip_prefix("\u{EF}\u{BB}\u{BF}").unwrap_or(line) } else { line };
        match line.split_once(':').unwrap_or((line, "")) {
            ("data", value) => data += value.strip_prefix(' ').unwrap_or(value).chars().count() + 1,
            _ if line.is_empty() => data = 0,
            _ => {}
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_do_not_change_what_is_read(stream in stream(), lengths in vec(0..20_usize, 0..40)) {
        prop_assert_eq!(real(LIMIT, cut(&stream, &lengths)), Ok(naive(&stream)));
    }

    #[test]
    fn chunks_do_not_change_what_is_too_long(
        stream in stream(),
        lengths in vec(0..20_usize, 0..40),
        limit in 0..24_usize,
    ) {
        let expected = if exceeds(&stream, limit) { Err(TooLong { limit }) } else { Ok(naive(&stream)) };
        prop_assert_eq!(real(limit, cut(&stream, &lengths)), expected.clone());
        prop_assert_eq!(real(limit, [&stream[..]]), expected);
    }

    #[test]
    fn text_survives_being_cut_inside_a_character(text in "[^\r\n]{1,40}") {
        let stream = format!("data: {text}\n\n");
        let heard = real(LIMIT, stream.as_bytes().chunks(1)).unwrap();
        prop_assert_eq!(&heard.events[0].1, &text);
    }
}

#[test]
fn an_event_inside_one_chunk_is_not_copied() {
    let chunk = b"data: hello\n\n";
    let mut parser = SseParser::default();
    let mut events = parser.feed(chunk);
    let event = events.next_event().unwrap().unwrap();
    assert!(chunk.as_ptr_range().contains(&event.data.as_ptr()));
}

#[test]
fn an_event_is_there_as_soon_as_its_blank_line_ends() {
    let mut parser = SseParser::default();
    let mut events = parser.feed(b"data: a\r\n\r");
    assert_eq!(events.next_event().unwrap().unwrap().data, b"a");
}

#[test]
fn comments_are_noticed_for_the_rest_of_the_stream() {
    let mut parser = SseParser::default();
    for (chunk, seen) in [("data: a\n\n", false), (":", false), (" alive\n", true), ("data: b\n\n", true)] {
        let mut events = parser.feed(chunk.as_bytes());
        while events.next_event().unwrap().is_some() {}
        assert_eq!(parser.saw_comment(), seen, "after {chunk:?}");
    }
}

#[test]
fn an_endless_line_fails_at_the_limit_and_keeps_no_more_than_it() {
    for size in [1, 7, 1_400, 16_384] {
        let limit = 100_000;
        let mut parser = SseParser::new(limit);
        let chunk = vec![b'x'; size];
        let mut taken = 0;
        while parser.feed(&chunk).next_event().is_ok() {
            taken += size;
            assert!(parser.kept.capacity() <= limit);
        }
        assert!(taken <= limit && taken + size > limit, "{taken} bytes in chunks of {size}");
        assert!(parser.kept.capacity() <= limit);
    }
}

#[test]
fn an_event_of_endlessly_many_lines_fails_at_the_limit() {
    let mut parser = SseParser::new(1_000);
    let fed = (0..).take_while(|_| parser.feed(b"data: 12345\n").next_event().is_ok()).count();
    // Each line leaves six bytes, and the last must fit together with its field name.
    assert_eq!(fed, (1_000 - 11) / 6 + 1);
}

#[test]
fn small_events_never_add_up_to_the_limit() {
    let mut parser = SseParser::new(32);
    for _ in 0..100 {
        for chunk in ["data: 123", "45\n", "\ndata: 1\n\n: alive\n"] {
            let mut events = parser.feed(chunk.as_bytes());
            while events.next_event().unwrap().is_some() {}
        }
    }
}

#[test]
fn after_an_error_nothing_more_is_read() {
    let mut parser = SseParser::new(8);
    assert!(parser.feed(b"data: 123456789").next_event().is_err());
    assert_eq!(parser.feed(b"\n\ndata: 1\n\n").next_event(), Err(TooLong { limit: 8 }));
}

#[test]
fn only_an_event_with_a_file_may_be_longer() {
    let feed = |data: &str, chunk: usize| {
        let mut parser = SseParser::new(100).with_files(1000);
        let stream = format!("data: {data}\n\ndata: after\n\n");
        let mut seen = Vec::new();
        for chunk in stream.as_bytes().chunks(chunk) {
            let mut events = parser.feed(chunk);
            while let Some(event) = events.next_event()? {
                seen.push(event.data.len());
            }
        }
        Ok::<_, TooLong>(seen)
    };
    let picture = |length| format!("![x](data:image/png;base64,{}", "A".repeat(length));
    for chunk in [10_000, 50, 7] {
        assert_eq!(feed(&picture(900), chunk), Ok(vec![927, 5]), "{chunk}");
        assert_eq!(feed(&picture(1000), chunk), Err(TooLong { limit: 1000 }), "{chunk}");
        assert_eq!(feed(&"A".repeat(900), chunk), Err(TooLong { limit: 100 }), "{chunk}");
        // The higher limit does not apply to the next event.
        let two = format!("{}\n\ndata: {}", picture(900), "A".repeat(900));
        assert_eq!(feed(&two, chunk), Err(TooLong { limit: 100 }), "{chunk}");
    }
}

/// Independent of how much of the event has arrived, and of how it was cut.
#[test]
fn a_limit_may_be_raised_for_one_event_when_it_is_reached() {
    let long = "x".repeat(900);
    let stream = format!("data: 1\n\ndata: begin{long}\n\ndata: 2\n\ndata: other{long}\n\n");
    for chunk in [1, 7, 200, 10_000] {
        let mut parser = SseParser::new(100);
        let (mut seen, mut asked) = (Vec::new(), Vec::new());
        for chunk in stream.as_bytes().chunks(chunk) {
            let mut events = parser.feed(chunk);
            loop {
                match events.next_event() {
                    Ok(Some(event)) => seen.push(event.data.len()),
                    Ok(None) => break,
                    Err(TooLong { limit: 100 }) => {
                        asked.push(String::from_utf8(events.beginning(11)).unwrap());
                        if asked.len() > 1 {
                            break;
                        }
                        assert!(events.raise(1000) && !events.raise(1000));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            if asked.len() > 1 {
                break;
            }
        }
        assert_eq!(
            (seen, asked),
            (vec![1, 905, 1], vec!["data: begin".to_owned(), "data: other".to_owned()]),
            "{chunk}"
        );
    }
}

#[test]
fn the_room_of_a_long_event_is_given_back() {
    let mut parser = SseParser::new(3 * LIMIT);
    let stream = format!("data: {}\n\ndata: 1\n\ndata: 2\n", "x".repeat(2 * LIMIT));
    for chunk in stream.as_bytes().chunks(16_384) {
        let mut events = parser.feed(chunk);
        while events.next_event().unwrap().is_some() {}
    }
    assert!(parser.kept.capacity() <= LIMIT, "{}", parser.kept.capacity());
}
