//! Decides which text is the answer of a run that calls itself completed, and whether it is whole.
//!
//! hermes-agent calls a run completed, too, if it gave up: its output is then a sentence about the error instead of the
//! answer. An answer that a length limit has cut is completed as well, and the output is only the last message. Its session
//! knows better: an output that is not there and that no `finish_reason: stop` stands behind is no answer.

use super::event_taker::RunOutput;
use super::run_turn::FinalText;
use crate::agent::{AgentError, AgentErrorKind, AgentOutput, AgentTurn, TurnEnd, TurnEvent};
use crate::agents::proxy::ProxyAgent;
use crate::agents::proxy::transcript::{AnswerEnd, KeptAnswer};
use crate::i18n::TextKey;
use crate::openai::hashed_text::HashedText;
use crate::util::{clip, code_span, mask_secrets};

/// Bytes of an output that is not the answer, as far as a room shows it.
const ADDED: usize = 300;

/// What becomes of the text that is shown.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// The text to show in the place of the one so far.
    replaces: Option<String>,
    /// An output that is shown below the answer.
    added: Option<String>,
    end: RunVerdict,
}

/// How a run has ended.
#[derive(Debug, PartialEq, Eq)]
enum RunVerdict {
    Done,
    /// A length limit has cut the answer.
    Limit,
    /// The answer did not come to its end.
    CutShort,
}

impl ProxyAgent {
    /// Shows the whole text of a run that calls itself completed, and says how it ended.
    pub(super) async fn settle_text(
        &self,
        turn: &AgentTurn,
        prompt: &HashedText,
        FinalText { is_whole, output }: FinalText,
        out: &dyn AgentOutput,
    ) -> Result<TurnEnd, AgentError> {
        if is_whole && output == RunOutput::Said {
            return Ok(TurnEnd::Done);
        }
        let kept = self.last_answer(&turn.session, prompt).await;
        let Verdict { replaces, added, end } = judge(output, kept.as_ref());
        if let Some(text) = replaces {
            out.replace_text(&text);
        }
        if let Some(added) = added {
            let text = code_span(&mask_secrets(clip(&added, ADDED)), ADDED);
            out.emit(TurnEvent::Remark(TextKey::RunSaidInstead.with("text", text)));
        }
        match end {
            RunVerdict::Done => Ok(TurnEnd::Done),
            RunVerdict::Limit => Ok(TurnEnd::Limit),
            RunVerdict::CutShort => Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeReported)),
        }
    }
}

/// Compares the output of a run with what its session has. `kept`: `None` if the session could not be read.
fn judge(output: RunOutput, kept: Option<&KeptAnswer>) -> Verdict {
    // Words that may answer another question are never shown as the answer to this one.
    let kept = kept.filter(|kept| kept.end != AnswerEnd::Doubtful);
    let end = kept.map_or(AnswerEnd::Doubtful, |kept| kept.end);
    let done = match end {
        AnswerEnd::Cut => RunVerdict::Limit,
        AnswerEnd::Whole | AnswerEnd::Unproven | AnswerEnd::Doubtful => RunVerdict::Done,
    };
    let (text, is_shown, is_partly_shown) = match output {
        RunOutput::Said => return Verdict { replaces: None, added: None, end: done },
        RunOutput::Shown(text) => (text, true, false),
        RunOutput::Unsaid(text) => (text, false, false),
        RunOutput::Reported(text) => (text, false, true),
    };
    let has_words = !text.trim().is_empty();
    let whole = kept.and_then(|kept| kept.whole(&text));
    let is_proven = end == AnswerEnd::Whole;
    if let Some(whole) = whole.filter(|_| has_words || is_proven || is_shown) {
        let replaces = Some(whole).filter(|whole| !(is_shown && whole == text.trim()));
        return Verdict { replaces, added: None, end: done };
    }
    // A run that says nothing at all has no answer, and that is what the room is told.
    if is_proven || is_shown && !has_words || end == AnswerEnd::Doubtful && has_words {
        let replaces = Some(text).filter(|_| has_words && !is_shown);
        return Verdict { replaces, added: None, end: done };
    }
    let replaces = kept.and_then(KeptAnswer::text).filter(|_| is_partly_shown);
    match done {
        RunVerdict::Limit => Verdict { replaces, added: None, end: RunVerdict::Limit },
        RunVerdict::Done | RunVerdict::CutShort => {
            let added = Some(text).filter(|_| has_words && !is_shown);
            Verdict { replaces, added, end: RunVerdict::CutShort }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agents::proxy::transcript::UpstreamTranscript;

    const SORRY: &str = "Response truncated due to output length limit";

    /// The session after the question, if it is read.
    fn judged(output: RunOutput, answer: Option<Value>) -> Verdict {
        let kept = answer.and_then(|answer| {
            let mut data = vec![json!({ "role": "user", "content": "how much?" })];
            data.extend(answer.as_array().unwrap().iter().cloned());
            let transcript: UpstreamTranscript = serde_json::from_value(json!({ "data": data })).unwrap();
            transcript.last_answer(|text| text == "how much?")
        });
        judge(output, kept.as_ref())
    }

    fn verdict(replaces: Option<&str>, added: Option<&str>, end: RunVerdict) -> Verdict {
        Verdict { replaces: replaces.map(str::to_owned), added: added.map(str::to_owned), end }
    }

    fn said(text: &str, finish_reason: Option<&str>) -> Value {
        json!({ "role": "assistant", "content": text, "finish_reason": finish_reason })
    }

    #[test]
    fn a_sentence_about_an_error_takes_the_place_of_no_answer() {
        let unsaid = || RunOutput::Unsaid(SORRY.to_owned());
        for answer in
            [json!([]), json!([said("It is", None)]), json!([said("Let me look.", Some("tool_calls"))])]
        {
            let expected = verdict(None, Some(SORRY), RunVerdict::CutShort);
            assert_eq!(judged(unsaid(), Some(answer.clone())), expected, "{answer}");
            let shown = RunOutput::Shown(SORRY.to_owned());
            assert_eq!(judged(shown, Some(answer)), verdict(None, None, RunVerdict::CutShort));
        }
        let cut = json!([said("It is", Some("length"))]);
        assert_eq!(judged(unsaid(), Some(cut)), verdict(None, None, RunVerdict::Limit));
        let reported = RunOutput::Reported(SORRY.to_owned());
        let half = json!([said("Let me look.", Some("tool_calls"))]);
        let expected = verdict(Some("Let me look."), Some(SORRY), RunVerdict::CutShort);
        assert_eq!(judged(reported, Some(half)), expected);
    }

    #[test]
    fn an_output_that_the_session_has_or_nothing_speaks_against_is_the_answer() {
        let whole = json!([said("Let me look.", Some("tool_calls")), said("42.", Some("stop"))]);
        for output in [RunOutput::Unsaid("42.".to_owned()), RunOutput::Reported("42.".to_owned())] {
            let expected = verdict(Some("Let me look.\n\n42."), None, RunVerdict::Done);
            assert_eq!(judged(output, Some(whole.clone())), expected);
        }
        let unread = judged(RunOutput::Unsaid("42.".to_owned()), None);
        assert_eq!(unread, verdict(Some("42."), None, RunVerdict::Done));
        let stop = json!([said("It is 42.", Some("stop"))]);
        let other = judged(RunOutput::Unsaid("42, in other words.".to_owned()), Some(stop.clone()));
        assert_eq!(other, verdict(Some("42, in other words."), None, RunVerdict::Done));
        assert_eq!(
            judged(RunOutput::Shown("It is 42.".to_owned()), Some(stop)),
            verdict(None, None, RunVerdict::Done)
        );
        assert_eq!(judged(RunOutput::Shown(String::new()), None), verdict(None, None, RunVerdict::Done));
    }

    /// The session's last question is another one than ours.
    #[test]
    fn the_answer_to_another_question_takes_no_place() {
        let other = || {
            let question = json!({ "role": "user", "content": "and how many?" });
            Some(json!([question, said("Let me count.", Some("tool_calls")), said("Seven.", Some("stop"))]))
        };
        let text = || "42.".to_owned();
        for (output, expected) in [
            (RunOutput::Shown(String::new()), verdict(None, None, RunVerdict::Done)),
            (RunOutput::Shown(text()), verdict(None, None, RunVerdict::Done)),
            (RunOutput::Unsaid(String::new()), verdict(None, None, RunVerdict::CutShort)),
            (RunOutput::Unsaid(text()), verdict(Some("42."), None, RunVerdict::Done)),
            (RunOutput::Unsaid("Seven.".to_owned()), verdict(Some("Seven."), None, RunVerdict::Done)),
            (RunOutput::Reported(String::new()), verdict(None, None, RunVerdict::CutShort)),
            (RunOutput::Reported(text()), verdict(Some("42."), None, RunVerdict::Done)),
        ] {
            assert_eq!(judged(output, other()), expected);
        }
    }

    #[test]
    fn without_an_output_only_the_session_proves_that_an_answer_is_whole() {
        let nothing = || RunOutput::Unsaid(" ".to_owned());
        assert_eq!(judged(nothing(), None), verdict(None, None, RunVerdict::CutShort));
        assert_eq!(
            judged(nothing(), Some(json!([said("It is", None)]))),
            verdict(None, None, RunVerdict::CutShort)
        );
        let whole = judged(nothing(), Some(json!([said("It is 42.", Some("stop"))])));
        assert_eq!(whole, verdict(Some("It is 42."), None, RunVerdict::Done));
    }
}
