//! The asks of a run: which wait, which one a person is asked now, and what becomes of those that nobody can be asked.

use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::io::{self, PipeWriter};
use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};

use super::run_event::Question;
use super::terminal_dialogue::{hold_dialogue, open_terminal};
use crate::agent::{AskChoice, DenyReason};

/// Most asks of one run that are heard. Servers refuse sooner; this bounds the memory that one can fill.
const MOST: usize = 500;

/// Asks of one run.
pub(super) struct TerminalQuestions {
    /// Nobody is asked; the answer is no.
    denies: bool,
    /// Ids of all asks that came.
    known: HashSet<String>,
    waiting: VecDeque<Question>,
    /// The ask that a person sees now.
    open: Option<OpenDialogue>,
}

struct OpenDialogue {
    question: Arc<Question>,
    dialogue: JoinHandle<io::Result<Option<AskChoice>>>,
    /// Dropping it withdraws the question.
    _withdraw: PipeWriter,
}

/// The next step with the asks that wait.
pub(super) enum NextQuestion {
    /// Nothing waits, or a person is being asked already.
    Nothing,
    /// A person is asked from now on.
    Begun,
    /// Nobody can be asked, for this reason.
    Denied(Arc<Question>, &'static str),
}

impl TerminalQuestions {
    pub(super) fn new(denies: bool) -> Self {
        Self { denies, known: HashSet::new(), waiting: VecDeque::new(), open: None }
    }

    /// Takes an ask, unless it came before.
    pub(super) fn push(&mut self, question: Question) {
        if self.known.len() < MOST && self.known.insert(question.id.clone()) {
            self.waiting.push_back(question);
        }
    }

    /// The ask has an answer, from here or from elsewhere. Returns it if a person is still being asked.
    pub(super) fn withdraw(&mut self, id: &str) -> Option<Arc<Question>> {
        self.waiting.retain(|question| question.id != id);
        self.open.take_if(|open| open.question.id == id).map(|open| open.question)
    }

    /// All asks are over.
    pub(super) fn withdraw_all(&mut self) {
        self.waiting.clear();
        self.open = None;
    }

    /// Asks the next question, if none is open.
    pub(super) fn begin_next(&mut self) -> NextQuestion {
        if self.open.is_some() {
            return NextQuestion::Nothing;
        }
        let Some(question) = self.waiting.pop_front().map(Arc::new) else { return NextQuestion::Nothing };
        if self.denies {
            return NextQuestion::Denied(question, "--deny says so");
        }
        if !(question.form.is_approval() || question.form.is_valid()) || question.detail.trim().is_empty() {
            return NextQuestion::Denied(question, "it cannot be shown in full");
        }
        let (Ok(terminal), Ok((withdrawn, withdraw))) = (open_terminal(), io::pipe()) else {
            return NextQuestion::Denied(question, "there is no terminal to ask at");
        };
        let asked = question.clone();
        let dialogue = spawn_blocking(move || hold_dialogue(terminal, &asked, &withdrawn));
        self.open = Some(OpenDialogue { question, dialogue, _withdraw: withdraw });
        NextQuestion::Begun
    }

    /// The answer of the person who is being asked; never, if nobody is. May be dropped and called again.
    pub(super) async fn answered(&mut self) -> (Arc<Question>, AskChoice) {
        let Some(open) = &mut self.open else { return pending().await };
        // A terminal that cannot be read has nobody who could allow anything.
        let choice = (&mut open.dialogue).await.ok().and_then(Result::ok).flatten();
        let choice = choice.unwrap_or(AskChoice::Deny(DenyReason::Gone));
        let question = open.question.clone();
        self.open = None;
        (question, choice)
    }
}
