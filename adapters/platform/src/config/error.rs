//! The errors of a configuration, in words for the person who wrote it.

/// One fault to correct. `Display` gives the message alone; the command line adds `error:` and `hint:`.
///
/// Neither part ever contains a secret, nor text from the file that might be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    /// The fault and its position.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
}

impl ConfigError {
    /// An error without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Adds the next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
