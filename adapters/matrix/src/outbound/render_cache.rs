//! Caches the HTML of answers that grow.
//!
//! Each edit shows a longer text, and rendering all of it each time would cost the square of its length. The text
//! before the last block does not change when more text follows, so only the rest is rendered again. (With one
//! exception: the end of a text may give the address of a link at its beginning. The finished answer is rendered
//! anew, so there it is a link.)

use std::collections::HashMap;

use parking_lot::Mutex;
use talaria_platform::MessageId;

use super::html::{self, RenderedHtml};

/// Answers that may grow at once before some are rendered from their beginning. Each holds its text twice.
const MOST: usize = 64;

/// The growing answers of an account.
#[derive(Default)]
pub(crate) struct RenderCache {
    open: Mutex<HashMap<MessageId, RenderedDraft>>,
}

impl RenderCache {
    /// Renders the text of a message; `None` if it needs no HTML. The last call for an answer has `done` set.
    pub fn render(&self, message: &MessageId, markdown: &str, done: bool) -> Option<String> {
        let mut draft = self.open().remove(message).unwrap_or_default();
        if done {
            return html::render(markdown);
        }
        let html = draft.render(markdown);
        let mut open = self.open();
        if open.len() >= MOST {
            // Most likely that answer broke off and never got its final text.
            let any = open.keys().next().cloned();
            any.map(|any| open.remove(&any));
        }
        open.insert(message.clone(), draft);
        html
    }

    fn open(&self) -> parking_lot::MutexGuard<'_, HashMap<MessageId, RenderedDraft>> {
        self.open.lock()
    }
}

/// One growing answer.
#[derive(Default)]
pub(super) struct RenderedDraft {
    /// The text before the last block.
    text: String,
    /// HTML of `text`.
    done: RenderedHtml,
}

impl RenderedDraft {
    /// Renders a text that most likely begins like the one before.
    pub fn render(&mut self, markdown: &str) -> Option<String> {
        if !markdown.starts_with(&self.text) {
            *self = Self::default();
        }
        let rest = &markdown[self.text.len()..];
        let RenderedHtml { html, formatted, blocks, paragraphs, last, overflown } = html::write(rest);
        let mut whole = String::with_capacity(self.done.html.len() + html.len());
        whole.push_str(&self.done.html);
        whole.push_str(&html);
        let whole = RenderedHtml {
            html: whole,
            formatted: self.done.formatted || formatted,
            blocks: self.done.blocks + blocks,
            paragraphs: self.done.paragraphs + paragraphs,
            last: None,
            overflown: self.done.overflown || overflown,
        };
        if let Some(mark) = last {
            self.text.push_str(&rest[..mark.markdown]);
            self.done.html.push_str(&html[..mark.html]);
            self.done.blocks += mark.blocks;
            self.done.paragraphs += mark.paragraphs;
            // Set a little early, because the formatting may be in the part that is not kept yet; it hardly ever
            // becomes untrue.
            self.done.formatted |= formatted && mark.blocks > 0;
            self.done.overflown |= overflown;
        }
        html::finish(whole)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Markdown as models write it, good and bad.
    const ANSWER: &str = "\
# A title

Some *words* with `code`
and another line.

- one
- two

  still two
    - three
* another list
1. first
2. second

```rust
fn main() {

    println!(\"- not a list\");
}
```
| a | b |
|---|---|
| 1 | 2 |

> a quote
that goes on

Setext
------
  - indented
  - list

***
<div>
raw
</div>

    code, indented

The end.";

    #[test]
    fn an_answer_that_grows_looks_as_if_it_were_rendered_at_once() {
        let mut draft = RenderedDraft::default();
        for end in 0..=ANSWER.len() {
            let text = &ANSWER[..end];
            assert_eq!(draft.render(text), html::render(text), "{text:?}");
        }
        assert!(draft.text.len() > ANSWER.len() / 2, "most of it is done");
    }

    #[test]
    fn an_answer_that_changes_its_beginning_is_rendered_anew() {
        let mut draft = RenderedDraft::default();
        draft.render("**a**\n\nb\n\nc\n");
        assert_eq!(draft.render("**b**\n\nb"), html::render("**b**\n\nb"));
    }

    #[test]
    fn a_draft_goes_with_its_end_and_others_are_bounded() {
        let drafts = RenderCache::default();
        for number in 0..2 * MOST {
            drafts.render(&MessageId::new(format!("${number}")), "*a*\n\nb\n", false);
        }
        assert_eq!(drafts.open().len(), MOST);
        let one = drafts.open().keys().next().cloned().unwrap();
        assert_eq!(drafts.render(&one, "*b*", true).as_deref(), Some("<em>b</em>"));
        assert_eq!(drafts.open().len(), MOST - 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn whatever_grows_looks_as_if_it_were_rendered_at_once(
            lines in proptest::collection::vec(
                (
                    prop_oneof![
                        Just(""), Just("- "), Just("* "), Just("1. "), Just("> "), Just("    "), Just("  "),
                        Just("```\n"), Just("# "), Just("---"), Just("==="), Just("| a | b |\n|---|---|\n"),
                        Just("***"), Just("<div>"), Just("<b"), Just("~~~"), Just("2)"), Just("\t"),
                    ],
                    "[a-c*_` |<>#-]{0,6}",
                ),
                0..14,
            ),
            step in 1usize..9,
        ) {
            let text: String = lines.iter().map(|(start, rest)| format!("{start}{rest}\n")).collect();
            let mut draft = RenderedDraft::default();
            let mut end = 0;
            while end < text.len() {
                end = (end + step).min(text.len());
                let shown = &text[..end];
                // Noticing formatting a little early is harmless.
                if let Some(html) = html::render(shown) {
                    prop_assert_eq!(draft.render(shown), Some(html), "{:?}", shown);
                } else {
                    draft.render(shown);
                }
            }
        }
    }
}
