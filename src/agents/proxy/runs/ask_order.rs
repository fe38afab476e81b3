//! Asks without ids: which of them an answer would be for.
//!
//! A server like hermes-agent gives its asks no ids, and an answer to its oldest one. So an approval may be sent only while
//! exactly one ask can be open there. As soon as there may be two (another one comes, or one waits there that came while
//! nobody read), every ask is denied, again and again until the server has said that none is open. Asks that come
//! meanwhile are denied too. An ask is over, even without an answer, when the tool call that it was about has ended.

/// Difference between the time of an ask and the time of the status that it leads to. hermes-agent takes both within
/// microseconds; its next ask comes after another request to its model.
const SAME_ASK: f64 = 0.1;

/// Whether these are the times of the same ask. Without both of them nobody knows.
pub fn is_same_ask(at: Option<f64>, asked_at: Option<f64>) -> bool {
    matches!((at, asked_at), (Some(at), Some(asked_at)) if (at - asked_at).abs() <= SAME_ASK)
}

/// The asks of one turn that have no id.
#[derive(Default)]
pub enum AskOrder {
    /// No ask is open.
    #[default]
    Empty,
    /// This one alone is open.
    One(OpenAsk),
    /// More than one ask may be open, so all are denied.
    Unsure {
        /// Number of reasons to deny everything so far. If it grew while the server was told to, it is told again.
        reasons: usize,
    },
}

/// An ask that may be answered.
pub struct OpenAsk {
    /// Our name for it.
    id: String,
    /// Id of the step that it is about, if one ran when it came.
    step: Option<String>,
    /// The server's time of it.
    asked_at: Option<f64>,
}

/// What follows when more than one ask may be open.
#[derive(Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is a new state of affairs: the server must be told to deny everything. With the ask that was open until now.
    Begins(Option<String>),
    /// The server is being told already.
    GoesOn,
}

impl AskOrder {
    /// Takes a new ask. `None` if it is the only one, and may be answered.
    pub fn place(&mut self, id: &str, step: Option<String>, asked_at: Option<f64>) -> Option<Doubt> {
        match self {
            Self::Empty => {
                *self = Self::One(OpenAsk { id: id.to_owned(), step, asked_at });
                None
            }
            Self::One(_) | Self::Unsure { .. } => Some(self.doubt()),
        }
    }

    /// From now on nobody knows which ask an answer would be for.
    pub fn doubt(&mut self) -> Doubt {
        let open = match std::mem::take(self) {
            Self::Unsure { reasons } => {
                *self = Self::Unsure { reasons: reasons + 1 };
                return Doubt::GoesOn;
            }
            Self::One(open) => Some(open.id),
            Self::Empty => None,
        };
        *self = Self::Unsure { reasons: 1 };
        Doubt::Begins(open)
    }

    /// Number of reasons for the doubt; zero without one.
    pub fn reasons(&self) -> usize {
        match self {
            Self::Unsure { reasons } => *reasons,
            Self::Empty | Self::One(_) => 0,
        }
    }

    /// The server said that no ask is open, after it was told to deny everything for this number of reasons. Returns
    /// whether that settles it.
    pub fn settle(&mut self, told: usize) -> bool {
        let settled = self.reasons() <= told;
        if settled && matches!(self, Self::Unsure { .. }) {
            *self = Self::Empty;
        }
        settled
    }

    /// Whether the only open ask is the one of this time.
    pub fn is_open_at(&self, at: Option<f64>) -> bool {
        matches!(self, Self::One(open) if is_same_ask(at, open.asked_at))
    }

    /// The server has got an answer. Returns the id of the ask that it was for.
    pub fn answered(&mut self) -> Option<String> {
        self.take_if(|_| true)
    }

    /// A step has ended. Returns the id of the ask that was about it.
    pub fn step_ended(&mut self, step: &str) -> Option<String> {
        self.take_if(|open| open.step.as_deref() == Some(step))
    }

    /// The ask with this id is over here.
    pub fn ended(&mut self, id: &str) {
        self.take_if(|open| open.id == id);
    }

    fn take_if(&mut self, is_meant: impl FnOnce(&OpenAsk) -> bool) -> Option<String> {
        match std::mem::take(self) {
            Self::One(open) if is_meant(&open) => Some(open.id),
            other => {
                *self = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &str) -> Option<String> {
        Some(id.to_owned())
    }

    fn begins(id: &str) -> Option<Doubt> {
        Some(Doubt::Begins(Some(id.to_owned())))
    }

    #[test]
    fn one_after_the_other_each_is_alone() {
        let mut order = AskOrder::default();
        assert_eq!(order.place("a", step("1"), Some(1.0)), None);
        assert!(order.is_open_at(Some(1.01)) && !order.is_open_at(Some(1.2)) && !order.is_open_at(None));
        assert_eq!(order.answered().as_deref(), Some("a"));
        assert_eq!(order.place("b", step("2"), None), None);
        assert!(!order.is_open_at(None), "without a time nobody knows");
        assert_eq!(order.step_ended("1"), None, "another call");
        assert_eq!(order.step_ended("2").as_deref(), Some("b"));
        assert_eq!(order.place("c", None, None), None);
        order.ended("b");
        assert_eq!(order.place("d", None, None), begins("c"));
    }

    #[test]
    fn after_two_at_once_none_may_be_answered_until_the_server_has_none() {
        let mut order = AskOrder::default();
        assert_eq!(order.place("a", None, None), None);
        assert_eq!(order.place("b", None, None), begins("a"));
        assert_eq!(order.answered(), None);
        assert_eq!(order.place("c", None, None), Some(Doubt::GoesOn));
        assert!(!order.settle(1), "the third one came later");
        assert_eq!(order.place("d", None, None), Some(Doubt::GoesOn));
        assert!(order.settle(order.reasons()));
        assert_eq!(order.place("e", None, None), None);
    }

    #[test]
    fn an_ask_that_nobody_saw_is_a_doubt_too() {
        let mut order = AskOrder::default();
        assert_eq!(order.doubt(), Doubt::Begins(None));
        assert_eq!(order.place("a", None, None), Some(Doubt::GoesOn));
    }
}
