use super::*;

fn form(options: &[(&str, &str, OptionKind)], takes_text: bool) -> AnswerForm {
    let option = |(id, label, kind): &(&str, &str, OptionKind)| AskOption {
        id: (*id).to_owned(),
        label: (*label).to_owned(),
        kind: *kind,
    };
    AnswerForm { options: options.iter().map(option).collect(), takes_text }
}

fn permission() -> AnswerForm {
    form(
        &[
            ("yes", "Allow", OptionKind::AllowOnce),
            ("ever", "Always allow", OptionKind::AllowAlways),
            ("no", "Reject", OptionKind::RejectOnce),
        ],
        false,
    )
}

fn option(id: &str) -> Result<AskChoice, AnswerError> {
    Ok(AskChoice::Option(id.to_owned()))
}

fn text(words: &str) -> Result<AskChoice, AnswerError> {
    Ok(AskChoice::Text(words.to_owned()))
}

#[test]
fn an_option_is_named_by_its_number_or_its_label() {
    for (words, id) in [
        ("1", "yes"),
        ("#2", "ever"),
        (" 03 ", "no"),
        ("allow", "yes"),
        ("ALWAYS  allow", "ever"),
        ("`Reject`", "no"),
    ] {
        assert_eq!(permission().read(words), option(id), "{words:?}");
    }
    for words in ["no", "0", "4", "#0", "#4", "allow it", "1 2", "-1", "1.", "18446744073709551617", "٢"] {
        assert_eq!(permission().read(words), Err(AnswerError::UnknownOption), "{words:?}");
    }
    // A label is also named by the characters that the room shows for it.
    let odd = form(&[("a", "use `x`\nnow", OptionKind::Answer), ("b", "b", OptionKind::Answer)], true);
    assert_eq!(odd.options_text(&TextCatalog::default()), "1. `use 'x'␊now`\n2. `b`");
    for words in ["use 'x'␊now", "`use 'x'␊now`", "use `x` now", "1"] {
        assert_eq!(odd.read(words), option("a"), "{words:?}");
    }
    for words in ["", " \n "] {
        assert_eq!(permission().read(words), Err(AnswerError::Empty), "{words:?}");
    }
}

#[test]
fn words_that_name_two_options_choose_none() {
    let numbers = form(&[("a", "2", OptionKind::Answer), ("b", "4", OptionKind::Answer)], true);
    assert_eq!(numbers.read("2"), Err(AnswerError::AmbiguousOption));
    assert_eq!(numbers.read("#2"), option("b"));
    assert_eq!(numbers.read("4"), option("b"));
    let alike = form(&[("a", "Yes", OptionKind::Answer), ("b", "yes", OptionKind::AllowOnce)], false);
    assert_eq!(alike.read("YES"), Err(AnswerError::AmbiguousOption));
    // The id of one option is the label of another one: rooms show labels only.
    let crossed = form(&[("no", "Yes", OptionKind::AllowOnce), ("yes", "No", OptionKind::RejectOnce)], false);
    assert_eq!(crossed.read("no"), option("yes"));
}

#[test]
fn other_words_are_a_text_only_where_a_text_is_welcome() {
    let colours = form(&[("r", "red", OptionKind::Answer)], true);
    assert_eq!(colours.read("red"), option("r"));
    assert_eq!(colours.read("red\nand 7 more"), text("red\nand 7 more"));
    assert_eq!(colours.read("7"), text("7"));
    assert_eq!(form(&[], true).read("#1"), text("#1"));
    let long = "ü".repeat(ANSWER_CHARS);
    assert_eq!(colours.write(&long), text(&long));
    assert_eq!(colours.read(&format!("{long}x")), Err(AnswerError::TooLong));
    assert_eq!(colours.write(" "), Err(AnswerError::Empty));
    assert_eq!(permission().write("why?"), Err(AnswerError::NoText));
}

#[test]
fn an_approval_chooses_the_only_option_that_allows_once() {
    let once = form(&[("yes", "Allow", OptionKind::AllowOnce), ("no", "No", OptionKind::RejectOnce)], false);
    assert_eq!(once.approve(GrantScope::Once), option("yes"));
    for scope in [GrantScope::Session, GrantScope::Always] {
        assert_eq!(once.approve(scope), Err(AnswerError::NeedsAnswer));
    }
    let ever = form(&[("ever", "Allow", OptionKind::AllowAlways)], false);
    for unclear in [permission(), ever, form(&[], true), form(&[("r", "red", OptionKind::Answer)], true)] {
        assert_eq!(unclear.approve(GrantScope::Once), Err(AnswerError::NeedsAnswer), "{unclear:?}");
    }
}

#[test]
fn an_approval_takes_neither_option_nor_text() {
    let approval = AnswerForm::default();
    for scope in GrantScope::ALL {
        assert_eq!(approval.approve(scope), Ok(AskChoice::Allow(scope)));
    }
    for answer in [approval.read("1"), approval.read(""), approval.choose("yes"), approval.write("yes")] {
        assert_eq!(answer, Err(AnswerError::IsApproval));
    }
}

#[test]
fn an_app_names_the_exact_id() {
    assert_eq!(permission().choose("yes"), option("yes"));
    for wrong in ["YES", "1", "#1", "Allow", "", "yes "] {
        assert_eq!(permission().choose(wrong), Err(AnswerError::UnknownOption), "{wrong:?}");
    }
}

#[test]
fn options_that_cannot_be_shown_or_told_apart_are_not_valid() {
    let many = |count: usize| {
        let option =
            |at: usize| AskOption { id: at.to_string(), label: "x".to_owned(), kind: OptionKind::Answer };
        AnswerForm { options: (0..count).map(option).collect(), takes_text: false }
    };
    let one = |id: &str, label: &str| form(&[(id, label, OptionKind::Answer)], false);
    for valid in
        [AnswerForm::default(), permission(), many(OPTIONS), one("a", &"ü".repeat(LABEL)), form(&[], true)]
    {
        assert!(valid.is_valid(), "{valid:?}");
    }
    for wrong in [
        many(OPTIONS + 1),
        one("a", &"ü".repeat(LABEL + 1)),
        one("a", " \n"),
        one("", "a"),
        one(&"x".repeat(OPTION_ID + 1), "a"),
        form(&[("a", "one", OptionKind::Answer), ("a", "two", OptionKind::Answer)], false),
    ] {
        assert!(!wrong.is_valid(), "{wrong:?}");
    }
}

#[test]
fn a_stored_reason_is_read_back() {
    for reason in DenyReason::ALL {
        assert_eq!(DenyReason::named(reason.name()), reason);
    }
    assert_eq!(DenyReason::named("other"), DenyReason::Person);
}

#[test]
fn an_option_has_the_same_kind_in_the_store_and_in_the_audit() {
    for kind in [
        OptionKind::Answer,
        OptionKind::AllowOnce,
        OptionKind::AllowAlways,
        OptionKind::RejectOnce,
        OptionKind::RejectAlways,
    ] {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
}

#[test]
fn what_may_be_allowed_once_only_is_allowed_for_no_longer() {
    let form = AnswerForm::once_only();
    assert!(form.is_once_only() && form.is_valid() && !form.is_approval());
    assert_eq!(form.approve(GrantScope::Once), Ok(AskChoice::Option("once".to_owned())));
    for scope in [GrantScope::Session, GrantScope::Always] {
        assert_eq!(form.approve(scope), Err(AnswerError::NeedsAnswer));
    }
    let mut other = AnswerForm::once_only();
    other.options[0].kind = OptionKind::AllowAlways;
    assert!(![AnswerForm::default(), permission(), other].iter().any(AnswerForm::is_once_only));
}
