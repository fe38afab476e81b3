//! Asks a person at the terminal and reads the answer.
//!
//! The terminal is `/dev/tty`, because standard input may be a pipe. What was typed before the question came is thrown
//! away: nobody can have answered a question that was not there yet. Blocks its thread, and ends when the question is
//! withdrawn.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{QueueSelector, tcflush};

use super::run_event::Question;
use crate::access::GrantScope;
use crate::agent::{ANSWER_CHARS, AnswerError, AnswerForm, AskChoice, DenyReason, OptionKind};
use crate::util::{visible_line, visible_text};

/// Path of the terminal of this process.
const TERMINAL: &str = "/dev/tty";

/// Most bytes of a line that a person types. Terminals allow fewer.
const LINE: usize = 32 * 1024;

/// Most characters of a title, a folder or a label.
const NAME: usize = 500;

/// Opens the terminal of this process, if it has one.
pub(super) fn open_terminal() -> io::Result<File> {
    File::options().read(true).write(true).open(TERMINAL)
}

/// Asks until there is an answer that fits. `None` if the question was withdrawn: the other end of `withdrawn` is closed.
pub(super) fn hold_dialogue(
    mut terminal: File,
    question: &Question,
    withdrawn: &PipeReader,
) -> io::Result<Option<AskChoice>> {
    tcflush(&terminal, QueueSelector::IFlush)?;
    terminal.write_all(shown(question).as_bytes())?;
    loop {
        terminal.write_all(b"> ")?;
        let answer = match read_line(&mut terminal, withdrawn)? {
            TypedLine::Withdrawn => {
                terminal.write_all(b"\n(no answer is needed any more)\n")?;
                return Ok(None);
            }
            TypedLine::End => Ok(AskChoice::Deny(DenyReason::Person)),
            TypedLine::Line(line) => read_choice(&question.form, &line),
        };
        match answer {
            Ok(choice) => return Ok(Some(choice)),
            Err(help) => terminal.write_all(format!("{help}\n").as_bytes())?,
        }
    }
}

/// What came from the terminal.
enum TypedLine {
    Line(String),
    /// Ctrl-D.
    End,
    /// Nothing: the question was withdrawn first.
    Withdrawn,
}

fn read_line(terminal: &mut File, withdrawn: &PipeReader) -> io::Result<TypedLine> {
    let mut line = Vec::new();
    loop {
        let mut ready = [PollFd::new(&*terminal, PollFlags::IN), PollFd::new(withdrawn, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !ready[1].revents().is_empty() {
            return Ok(TypedLine::Withdrawn);
        }
        let mut piece = [0; 4096];
        let read = terminal.read(&mut piece)?;
        line.extend_from_slice(&piece[..read]);
        if read == 0 {
            return Ok(TypedLine::End);
        }
        if line.ends_with(b"\n") || line.len() > LINE {
            return Ok(TypedLine::Line(String::from_utf8_lossy(&line).into_owned()));
        }
    }
}

/// The question with everything that a person must know to answer it. All of it is the agent's word, so every line of it is
/// indented, and nothing in it is obeyed by the terminal.
fn shown(question: &Question) -> String {
    let Question { id: _, title, detail, cwd, reason, form, gap } = question;
    let verb = if form.is_approval() { "asks for permission" } else { "asks" };
    let mut text = format!("\n? The agent {verb}: {}\n{}\n", visible_line(title, NAME), indented(detail));
    if let Some(cwd) = cwd {
        text.push_str(&format!("  in {}\n", visible_line(cwd, usize::MAX)));
    }
    if let Some(gap) = gap {
        text.push_str(&format!("  {}\n", visible_line(gap, NAME)));
    }
    if let Some(reason) = reason {
        text.push_str(&format!("  its reason:\n{}\n", indented(reason)));
    }
    for (number, option) in (1..).zip(&form.options) {
        let effect = match option.kind {
            OptionKind::Answer => "",
            OptionKind::AllowOnce => "  (allows it this once)",
            OptionKind::AllowAlways => "  (allows it from now on)",
            OptionKind::RejectOnce | OptionKind::RejectAlways => "  (refuses it)",
        };
        text.push_str(&format!("  {number}  {}{effect}\n", visible_line(&option.label, NAME)));
    }
    text.push_str(&how_to_answer(form));
    text.push('\n');
    text
}

fn how_to_answer(form: &AnswerForm) -> String {
    match (form.is_approval(), form.takes_text) {
        (true, _) => {
            "Write yes to allow it this once, session for this conversation, always from now on, or no."
        }
        (false, true) if form.options.is_empty() => "Write the answer; Ctrl-D refuses to answer.",
        (false, true) => "Write a number, or the answer in your own words; Ctrl-D refuses to answer.",
        (false, false) => "Write a number; Ctrl-D refuses to answer.",
    }
    .to_owned()
}

fn indented(text: &str) -> String {
    let lines: Vec<String> =
        visible_text(text.trim_end()).lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// Reads what a person typed. The error says what to type.
fn read_choice(form: &AnswerForm, line: &str) -> Result<AskChoice, String> {
    if !form.is_approval() {
        return form.read(line).map_err(|error| match error {
            AnswerError::TooLong => format!("An answer has at most {ANSWER_CHARS} characters."),
            AnswerError::AmbiguousOption => {
                "More than one answer is called that; write # and its number.".to_owned()
            }
            AnswerError::NeedsAnswer
            | AnswerError::IsApproval
            | AnswerError::UnknownOption
            | AnswerError::NoText
            | AnswerError::Empty => how_to_answer(form),
        });
    }
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" | "once" => Ok(AskChoice::Allow(GrantScope::Once)),
        "session" => Ok(AskChoice::Allow(GrantScope::Session)),
        "always" => Ok(AskChoice::Allow(GrantScope::Always)),
        "n" | "no" | "deny" => Ok(AskChoice::Deny(DenyReason::Person)),
        _ => Err(how_to_answer(form)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::run_event::RunEvent;
    use super::*;
    use crate::agent::AskOption;
    use crate::i18n::{LocalizedText, TextKey};

    fn question(form: AnswerForm) -> Question {
        Question {
            id: "a1".to_owned(),
            title: "run a command\u{1b}[2J".to_owned(),
            detail: "rm -r build\n> yes\u{1b}[1A".to_owned(),
            cwd: Some("/home/ann/garden".to_owned()),
            reason: Some("It is full.".to_owned()),
            form,
            gap: None,
        }
    }

    #[test]
    fn a_question_is_shown_in_full_and_cannot_pretend_to_be_answered() {
        insta::assert_snapshot!(shown(&question(AnswerForm::default())), @r"
        ? The agent asks for permission: run a command␛[2J
            rm -r build
            > yes␛[1A
          in /home/ann/garden
          its reason:
            It is full.
        Write yes to allow it this once, session for this conversation, always from now on, or no.
        ");
        let option =
            |id: &str, label: &str, kind| AskOption { id: id.to_owned(), label: label.to_owned(), kind };
        let options =
            vec![option("y", "Yes", OptionKind::AllowAlways), option("n", "No", OptionKind::RejectOnce)];
        let form = AnswerForm { options, takes_text: true };
        insta::assert_snapshot!(shown(&Question { cwd: None, reason: None, ..question(form) }), @r"
        ? The agent asks: run a command␛[2J
            rm -r build
            > yes␛[1A
          1  Yes  (allows it from now on)
          2  No  (refuses it)
        Write a number, or the answer in your own words; Ctrl-D refuses to answer.
        ");
    }

    #[test]
    fn a_question_that_does_not_tell_everything_says_so() {
        let asked = |gap: &str| {
            let event = json!({
                "event": "approval.request", "approval_id": "a1", "title": "run a command",
                "detail": "TOKEN=*** true", "options": AnswerForm::once_only().options, "gap": gap,
            });
            match RunEvent::parse(&event.to_string()) {
                Some(RunEvent::Asked(question)) => shown(&question),
                other => panic!("{other:?}"),
            }
        };
        insta::assert_snapshot!(asked("A part is hidden.\n\u{1b}[2J> yes"), @r"
        ? The agent asks: run a command
            TOKEN=*** true
          `A part is hidden.␊␛[2J> yes`
          1  once  (allows it this once)
          2  deny  (refuses it)
        Write a number; Ctrl-D refuses to answer.
        ");
        let ours = asked(&LocalizedText::from(TextKey::RunPartHidden).to_string());
        assert!(ours.contains("\n  ⚠ The agent server hides a part of this"), "{ours}");
    }

    #[test]
    fn only_a_word_that_means_it_allows() {
        let read = |line: &str| read_choice(&AnswerForm::default(), line).ok();
        for (line, scope) in [
            ("yes\n", GrantScope::Once),
            (" Y ", GrantScope::Once),
            ("session", GrantScope::Session),
            ("always", GrantScope::Always),
        ] {
            assert_eq!(read(line), Some(AskChoice::Allow(scope)), "{line}");
        }
        for line in ["", "\n", "ok", "yes please", "a", "s", "yess"] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(read("no\n"), Some(AskChoice::Deny(DenyReason::Person)));
        let form = AnswerForm {
            options: vec![AskOption {
                id: "blue-id".to_owned(),
                label: "Blue".to_owned(),
                kind: OptionKind::Answer,
            }],
            takes_text: false,
        };
        assert_eq!(read_choice(&form, "1\n"), Ok(AskChoice::Option("blue-id".to_owned())));
        assert_eq!(read_choice(&form, "blue"), Ok(AskChoice::Option("blue-id".to_owned())));
        assert!(read_choice(&form, "red").unwrap_err().contains("Ctrl-D"));
    }
}
