//! Tests what counts as reasoning, however the text is cut into chunks.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Thought(String),
}

/// Adds a part, joined with the one before if both are of one kind.
fn add(pieces: &mut Vec<Piece>, part: TextOrReasoning<'_>) {
    match (pieces.last_mut(), part) {
        (Some(Piece::Text(so_far)), TextOrReasoning::Text(more)) => so_far.push_str(more),
        (Some(Piece::Thought(so_far)), TextOrReasoning::Thought(more)) => so_far.push_str(more),
        (_, TextOrReasoning::Text(text)) => pieces.push(Piece::Text(text.into())),
        (_, TextOrReasoning::Thought(text)) => pieces.push(Piece::Thought(text.into())),
    }
}

fn filtered<'a>(chunks: impl IntoIterator<Item = &'a str>) -> Vec<Piece> {
    let mut filter = ReasoningFilter::default();
    let mut pieces = Vec::new();
    for chunk in chunks {
        filter.push(chunk, |part| add(&mut pieces, part));
    }
    filter.finish(|part| add(&mut pieces, part));
    pieces
}

fn answer(text: &str) -> String {
    let texts = filtered([text]).into_iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(text),
        Piece::Thought(_) => None,
    });
    texts.collect()
}

#[test]
fn a_block_at_the_start_is_thought_and_the_answer_begins_without_blank_lines() {
    assert_eq!(
        filtered(["<think>let me see</think>\n\nHello"]),
        [Piece::Thought("let me see".into()), Piece::Text("Hello".into())]
    );
}

#[test]
fn every_name_and_case_is_known_and_closes_only_its_own_block() {
    assert_eq!(answer("<Thinking>a</THINKING>b"), "b");
    assert_eq!(answer("<reasoning>a</reasoning> b"), "b");
    assert_eq!(answer("<think>a</thinking>b</think>c"), "c");
    assert_eq!(answer("<thinker>a</thinker>"), "<thinker>a</thinker>");
}

#[test]
fn blocks_may_follow_each_other_and_come_later() {
    assert_eq!(answer("<think>a</think>\n<think>b</think>\nOne\n  <think>c</think>two"), "One\n  two");
}

#[test]
fn a_tag_that_the_answer_talks_about_is_text() {
    for text in [
        "Models write <think>so</think> here.",
        "`<think>` opens a block",
        "```xml\n<think>code</think>\n```\nend",
        "~~~\n  <think>\n",
        "</think> alone",
        "a < b\n< c\n<",
    ] {
        assert_eq!(answer(text), text);
    }
}

#[test]
fn after_a_fence_blocks_count_again() {
    assert_eq!(answer("```\n<think>\n```\n<think>a</think>b"), "```\n<think>\n```\nb");
}

#[test]
fn an_unclosed_block_is_never_shown() {
    assert_eq!(filtered(["<think>a\n</thin"]), [Piece::Thought("a\n</thin".into())]);
}

#[test]
fn an_unfinished_tag_at_the_end_is_text() {
    assert_eq!(answer("hi\n<thinkin"), "hi\n<thinkin");
}

#[test]
fn only_what_may_become_a_tag_is_held_back() {
    let mut filter = ReasoningFilter::default();
    let mut seen = Vec::new();
    for chunk in ["  ", "<thi", "s", " <think>"] {
        filter.push(chunk, |part| seen.push(format!("{part:?}")));
        seen.push("|".into());
    }
    assert_eq!(
        seen.concat(),
        r#"Text("  ")||Text("<thi")Text("s")|Text(" <think>")|"#,
        "white space goes out at once, the tag waits until it is none"
    );
}

#[test]
fn a_finished_filter_is_as_new() {
    let mut filter = ReasoningFilter::default();
    filter.push("```\n<think>", |_| {});
    filter.finish(|_| {});
    filter.push("<think>", |part| panic!("{part:?}"));
}

/// Classifies the whole text at once, naively: `true` for reasoning, `false` for text, `None` for neither.
fn reference(input: &str) -> Vec<(Option<bool>, &str)> {
    let mut out = Vec::new();
    let mut shown = String::new();
    let mut rest = input;
    'blocks: loop {
        for (at, _) in rest.match_indices('<') {
            let before = format!("{shown}{}", &rest[..at]);
            let line = before.rsplit('\n').next().unwrap();
            let mut fences = FenceTracker::default();
            fences.push(&before);
            let lower = rest[at..].to_ascii_lowercase();
            let tag = TAGS.iter().find(|tag| lower.starts_with(tag.opens));
            let (Some(tag), true, None) = (tag, line.trim().is_empty(), fences.open()) else { continue };

            out.push((Some(false), &rest[..at]));
            let (open, inside) = rest[at..].split_at(tag.opens.len());
            out.push((None, open));
            let Some(end) = inside.to_ascii_lowercase().find(tag.closes) else {
                out.push((Some(true), inside));
                return out;
            };
            out.push((Some(true), &inside[..end]));
            let (close, after) = inside[end..].split_at(tag.closes.len());
            rest = after.trim_ascii_start();
            out.push((None, close));
            out.push((None, &after[..after.len() - rest.len()]));
            shown = before;
            continue 'blocks;
        }
        out.push((Some(false), rest));
        return out;
    }
}

fn bits() -> impl Strategy<Value = Vec<&'static str>> {
    let bits = vec![
        "<think>",
        "</think>",
        "<THINKING>",
        "</thinking>",
        "<reasoning>",
        "</reasoning>",
        "<",
        "/",
        "think",
        "ing",
        ">",
        "\n",
        "\n",
        " ",
        "```",
        "~~~",
        "`",
        "word",
        "ü",
    ];
    prop::collection::vec(prop::sample::select(bits), 0..40)
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_the_chunks(bits in bits(), cuts in prop::collection::vec(1usize..7, 1..20)) {
        let input = bits.concat();
        let expected = reference(&input);
        prop_assert_eq!(expected.iter().map(|(_, text)| *text).collect::<String>(), input.clone());
        let mut pieces = Vec::new();
        for (kind, text) in expected {
            match kind {
                Some(true) if !text.is_empty() => add(&mut pieces, TextOrReasoning::Thought(text)),
                Some(false) if !text.is_empty() => add(&mut pieces, TextOrReasoning::Text(text)),
                _ => {}
            }
        }

        let mut chunks = Vec::new();
        let mut rest = input.as_str();
        for cut in cuts.iter().cycle() {
            let (chunk, more) = rest.split_at(rest.ceil_char_boundary((*cut).min(rest.len())));
            chunks.push(chunk);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(filtered(chunks), pieces.clone());
        prop_assert_eq!(filtered([input.as_str()]), pieces);
    }

    #[test]
    fn text_without_a_bracket_passes_at_once(text in "[^<]*") {
        let mut passed = String::new();
        ReasoningFilter::default().push(&text, |part| match part {
            TextOrReasoning::Text(text) => passed.push_str(text),
            TextOrReasoning::Thought(thought) => panic!("{thought}"),
        });
        prop_assert_eq!(passed, text);
    }
}
