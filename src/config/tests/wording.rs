//! Tests: the texts chosen by `language` and `words`, and the ones that are refused.

use super::*;
use crate::i18n::{TextCatalog, TextKey};

fn said(text: &str, phrase: impl Into<crate::i18n::LocalizedText>) -> String {
    Scene::new().file(text).load().unwrap().rules.words.say(&phrase.into())
}

#[test]
fn rooms_are_told_in_the_language_that_is_set() {
    assert_eq!(Scene::new().load().unwrap().rules.words, TextCatalog::default());
    assert_eq!(said("language: en", TextKey::Stopped), "(stopped)");
    assert_eq!(said("language: de", TextKey::Stopped), "(gestoppt)");
}

#[test]
fn an_unknown_language_is_refused_with_those_there_are() {
    insta::assert_snapshot!(Scene::new().file("log: {}\nlanguage: fr\n").errors(), @r"
    error: `language` is not one of those there are (talaria.yaml, line 2)

    hint: known languages: `en`, `de`
    ");
}

#[test]
fn one_text_is_said_differently_and_the_others_stay() {
    let file = "language: de\nwords:\n  queued_many: 'Noch {ahead}.'\n  unshown: ''\n";
    assert_eq!(said(file, TextKey::QueuedMany.with("ahead", 3_usize)), "Noch 3.");
    assert_eq!(said(file, TextKey::Unshown.with("turn", "0eeacd")), "");
    assert_eq!(said(file, TextKey::Stopped), "(gestoppt)");
    assert_eq!(said("words:\n  unshown:\n", TextKey::Unshown.with("turn", "0eeacd")), "");
}

/// The title says whether a command is sandboxed.
#[test]
fn a_question_must_have_its_title() {
    insta::assert_snapshot!(Scene::new().file("words: {ask: 'May it? {action} {code}'}").errors(), @"
    error: `words.ask` does not say what people must know (talaria.yaml, line 1)

    hint: put `{title}` into it
    ");
    assert!(Scene::new().file("words: {ask: '{title}? {action} {code}'}").load().is_ok());
}

#[test]
fn every_wrong_wording_is_named_with_its_line() {
    let file = "\
words:
  queued_mny: 'soon'
  gestoppt: 'x'
  queued_many: '{behind} first'
  stopped: '{why}'
  line_full: 'Full {limit'
  cut_short: ''
  ask: 'May it {title}? {{action}} {code}'
";
    insta::assert_snapshot!(Scene::new().file(file).errors(), @r"
    error: `words.ask` does not say what people must know (talaria.yaml, line 8)

    hint: put `{action}` into it

    error: `words.cut_short` cannot be silenced: it answers somebody, or is a part of other texts (talaria.yaml, line 7)

    hint: give it other words; `talaria words` says which texts can be silenced

    error: `words` has a key that is no text of ours (talaria.yaml, line 3)

    hint: `talaria words` lists every key with its text

    error: `words.line_full` has a brace that is not closed (talaria.yaml, line 6)

    hint: write `{{` for a brace

    error: `words.queued_many` has a gap that nothing fills (talaria.yaml, line 4)

    hint: it can have `{ahead}`; write `{{` for a brace

    error: `words` has a key that is no text of ours (talaria.yaml, line 2)

    hint: did you mean `queued_many`?

    error: `words.stopped` has a gap in braces, but nothing fills it (talaria.yaml, line 5)

    hint: write `{{` for a brace
    ");
}

#[test]
fn a_listed_text_can_be_pasted() {
    let listing = TextCatalog::of("de").unwrap().listing();
    let line = listing.lines().find(|line| line.contains("queued_many:")).unwrap();
    let file = format!("words:\n{}\n", line.replacen("# ", "", 1));
    assert_eq!(
        said(&file, TextKey::QueuedMany.with("ahead", 3_usize)),
        "Vorgemerkt: Vor der letzten kommen 3 Nachrichten. Sie werden der Reihe nach beantwortet; /stop beendet alle."
    );
}
