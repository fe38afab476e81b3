//! Tests which text a split keeps and where it cuts.

use proptest::prelude::*;

use super::*;

const MAX: usize = 200;

fn words(bytes: usize) -> String {
    "word ".repeat(bytes / 5)
}

#[test]
fn a_text_that_fits_is_not_touched() {
    for text in ["hi", "  hi\n\n", "```\nopen"] {
        assert_eq!(split(text, MAX), [text]);
    }
    let full = "x".repeat(MAX);
    assert_eq!(split(&full, MAX), [full.as_str()]);
}

#[test]
fn nothing_to_read_makes_no_parts() {
    assert!(split("", MAX).is_empty());
    assert!(split(" \n", MAX).is_empty());
    assert!(split(&" \n".repeat(MAX), MAX).is_empty());
}

#[test]
fn a_blank_line_is_the_best_place() {
    let (one, two) = (words(100), words(150));
    let text = format!("{one}\n\n\n  {two}\n{two}");
    let parts = split(&text, MAX);
    assert_eq!(parts[0], one.trim_end());
    assert_eq!(parts[1], format!("  {}", two.trim_end()), "the indentation is kept");
}

#[test]
fn then_a_line_end_then_a_sentence_then_a_space() {
    let line = "l".repeat(150);
    assert_eq!(split(&format!("{line}\n{}", words(150)), MAX)[0], line);

    let sentence = format!("{}(word.)", words(120));
    assert_eq!(split(&format!("{sentence} {}", words(150)), MAX)[0], sentence);

    assert_eq!(split(&words(300), MAX)[0], words(200).trim_end());
    assert_eq!(split(&"字。".repeat(100), MAX)[0], "字。".repeat(33));
}

#[test]
fn a_good_place_far_back_is_not_taken() {
    let text = format!("short\n\n{}", words(300));
    assert_eq!(split(&text, MAX)[0].len(), 196);
}

#[test]
fn characters_that_are_shown_as_one_stay_together() {
    for cluster in ["e\u{301}", "👩\u{200d}👩\u{200d}👧", "👍🏽", "❤\u{fe0f}"] {
        for part in split(&format!("x{}", cluster.repeat(100)), MAX) {
            let bare = part.trim_start_matches('x');
            assert_eq!(bare, cluster.repeat(bare.len() / cluster.len()), "{cluster}");
        }
    }
    let endless = format!("e{}", "\u{301}".repeat(500));
    assert_eq!(split(&endless, MAX).concat(), endless);
}

#[test]
fn a_fence_is_closed_and_opened_again() {
    let code = "let x = 1;\n".repeat(40);
    let parts = split(&format!("Look:\n```rust\n{code}```\nDone."), MAX);
    assert_eq!(parts.len(), 3);
    assert!(parts[0].starts_with("Look:\n```rust\nlet"), "{}", parts[0]);
    assert!(parts[0].ends_with("let x = 1;\n```"), "{}", parts[0]);
    assert!(parts[1].starts_with("```rust\nlet x"), "{}", parts[1]);
    assert!(parts[2].ends_with("let x = 1;\n```\nDone."), "{}", parts[2]);
}

#[test]
fn code_is_kept_together_where_prose_can_be_cut() {
    let code = format!("```\n{}\n\n{}\n```", words(40), words(40));
    let prose = words(120);
    assert_eq!(split(&format!("{prose}\n{code}"), MAX), [prose.trim_end(), &code]);
}

#[test]
fn no_part_is_an_empty_code_block() {
    for before in 0..MAX {
        for code in [90, 150, 300] {
            let text = format!("{}\n```sh\n{}\n```\n{}", "p".repeat(before), "c".repeat(code), words(100));
            for part in split(&text, MAX) {
                assert!(!part.contains("```sh\n```"), "{before} {code}: {part}");
            }
        }
    }
}

#[test]
fn fence_lines_that_do_not_fit_are_cut_like_text() {
    for text in [
        format!("```{}\ncode\n```", "i".repeat(1000)),
        format!("{0}\ncode\n{0}", "`".repeat(1000)),
        format!("{0}\n{1}\n{0}", "`".repeat(60), "code\n".repeat(100)),
        "```".repeat(500),
    ] {
        check(&text, MAX).unwrap();
    }
}

#[test]
fn code_lines_keep_their_order_and_no_line_is_added() {
    let code = format!("{}\n{}", "a".repeat(90), "b".repeat(300));
    let parts = split(&format!("```\n{}\n```", code.repeat(3)), MAX);
    assert!(parts.iter().all(|part| !part.contains("\n\n")), "{parts:#?}");
}

#[test]
fn a_long_language_is_not_repeated() {
    let text = format!("```{}\n{}```", "i".repeat(100), "code\n".repeat(100));
    assert!(split(&text, MAX)[1].starts_with("```\ncode\n"));
}

#[test]
fn the_beginning_says_that_more_follows() {
    assert_eq!(beginning("one two three four", 15), "one two …");
    let code = beginning(&format!("```rust\n{}", "let x;\n".repeat(100)), MAX);
    assert!(code.ends_with("let x;\n```\n…"), "{code}");
    assert!(code.len() <= MAX);
}

/// A cut reads at most `max` bytes and the white space that it drops, so the number of cuts measures the work.
#[test]
fn the_work_grows_in_step_with_the_text() {
    for unit in ["x", "word ", "a.\n\n", "\n", " ", "\u{a0}", "`", "```\n", "```sh\ncode\n", "e\u{301}", "🇫🇷"]
    {
        for max in [MAX, 1000] {
            let text = unit.repeat(100_000 / unit.len());
            let (mut rest, mut fence, mut cuts) = (text.trim_end(), None, 0);
            while rest.len() > max {
                let cut = cut(rest, fence.as_ref(), max);
                (rest, fence, cuts) = (cut.rest, cut.fence, cuts + 1);
            }
            assert!(cuts <= 8 * text.len() / max, "{cuts} cuts for {unit:?} at {max}");
        }
    }
}

/// Checks the promises of this module for one text.
fn check(text: &str, max: usize) -> Result<(), TestCaseError> {
    let pieces = pieces(text, max);
    let mut end = 0;
    let mut fence = None;
    for (n, piece) in pieces.iter().enumerate() {
        let start = piece.text.as_ptr() as usize - text.as_ptr() as usize;
        let gap = &text[end..start];
        prop_assert!(gap.trim().is_empty(), "lost {gap:?}");
        if fence.is_some() && piece.reopened == fence {
            // One line end, or a whole part of white space that was left out.
            prop_assert!(["", "\n"].contains(&gap) || gap.len() >= max / 8, "lost {gap:?} in code");
        }
        end = start + piece.text.len();
        fence.clone_from(&piece.closed);

        let part = piece.render();
        prop_assert!(part.len() <= max, "{} bytes", part.len());
        prop_assert!(!part.trim().is_empty());
        let mut fences = tracker(None);
        fences.push(&part);
        let left_open =
            n + 1 < pieces.len() && fences.open().is_some_and(|fence| closing_len(fence, max) > 0);
        prop_assert!(!left_open, "open: {part:?}");
    }
    prop_assert!(text[end..].trim().is_empty());
    let parts: Vec<_> = pieces.iter().map(SplitPart::render).collect();
    prop_assert_eq!(split(text, max), parts);
    Ok(())
}

fn markdown() -> impl Strategy<Value = String> {
    let bits = vec![
        "```",
        "```rust",
        "~~~",
        "~~~~",
        "`",
        "\n",
        "\n",
        "\n\n",
        " ",
        "    ",
        "\u{a0}",
        "word",
        "word",
        "end. ",
        "字。",
        "ü",
        "e\u{301}",
        "🇫🇷",
        "\u{200d}",
        "a line of words that is rather long, as they often are",
    ];
    let run = (prop::sample::select(bits), prop_oneof![8 => 1usize..4, 1 => 50usize..300]);
    prop::collection::vec(run, 0..60)
        .prop_map(|runs| runs.into_iter().map(|(bit, times)| bit.repeat(times)).collect())
}

proptest! {
    #[test]
    fn nothing_is_lost_and_every_part_fits(text in markdown(), max in MAX..500) {
        check(&text, max)?;
    }

    #[test]
    fn any_text_survives(text in "(?s).{0,900}") {
        check(&text, MAX)?;
    }

    #[test]
    fn prose_joined_is_the_text_but_for_white_space(text in "[a-zé.\n ]{0,900}") {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        prop_assert_eq!(bare(&split(&text, MAX).concat()), bare(&text));
    }

    #[test]
    fn the_beginning_fits(text in markdown(), max in 90usize..500) {
        prop_assert!(beginning(&text, max).len() <= max);
    }
}
