//! Asks without ids: which of them an answer would be for.
//!
//! A server like hermes-agent gives its asks no ids, and an answer to its oldest one. So at most one ask may be open here.
//! If another one comes meanwhile, an answer could reach either, and both are denied. An ask is over, even without an
//! answer, when the tool call that it was about has ended.

/// The asks of one turn that have no id.
#[derive(Default)]
pub struct AskOrder {
    /// At most one. Set by `place`; cleared when it is answered, when its call has ended, and when another one comes.
    open: Option<OpenAsk>,
}

struct OpenAsk {
    /// Our name for it.
    id: String,
    /// Id of the step that it is about, if one ran when it came.
    step: Option<String>,
}

/// Place of a new ask among the others.
#[derive(Debug, PartialEq, Eq)]
pub enum AskPlace {
    /// It is the only one.
    Alone,
    /// The ask with this id is open too.
    Beside(String),
}

impl AskOrder {
    /// Takes a new ask. Beside another one neither of them is open any more.
    pub fn place(&mut self, id: &str, step: Option<String>) -> AskPlace {
        match self.open.take() {
            None => {
                self.open = Some(OpenAsk { id: id.to_owned(), step });
                AskPlace::Alone
            }
            Some(other) => AskPlace::Beside(other.id),
        }
    }

    /// The server has got an answer. Returns the id of the ask that it was for.
    pub fn answered(&mut self) -> Option<String> {
        self.open.take().map(|ask| ask.id)
    }

    /// A step has ended. Returns the id of the ask that was about it.
    pub fn step_ended(&mut self, step: &str) -> Option<String> {
        let open = self.open.take_if(|ask| ask.step.as_deref() == Some(step));
        open.map(|ask| ask.id)
    }

    /// The ask with this id is over here.
    pub fn ended(&mut self, id: &str) {
        self.open.take_if(|ask| ask.id == id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &str) -> Option<String> {
        Some(id.to_owned())
    }

    #[test]
    fn one_after_the_other_each_is_alone() {
        let mut order = AskOrder::default();
        assert_eq!(order.place("a", step("1")), AskPlace::Alone);
        assert_eq!(order.answered().as_deref(), Some("a"));
        assert_eq!(order.place("b", step("2")), AskPlace::Alone);
        assert_eq!(order.step_ended("1"), None, "another call");
        assert_eq!(order.step_ended("2").as_deref(), Some("b"));
        assert_eq!(order.place("c", None), AskPlace::Alone);
        order.ended("b");
        assert_eq!(order.place("d", None), AskPlace::Beside("c".to_owned()));
    }

    #[test]
    fn of_two_at_once_none_is_open() {
        let mut order = AskOrder::default();
        order.place("a", None);
        assert_eq!(order.place("b", None), AskPlace::Beside("a".to_owned()));
        assert_eq!(order.answered(), None);
        assert_eq!(order.place("c", None), AskPlace::Alone);
    }
}
