//! What the console itself says, in the words it is given.

/// The sentences; an empty one is not said. Made by whoever builds the console, because words for people live in
/// one catalogue and adapters do not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleTexts {
    /// To a person at a terminal, when it begins.
    pub greeting: String,
    /// When the input ends while an answer is still on its way.
    pub leaving: String,
    /// To somebody at a terminal who wants to leave in another way than the one there is.
    pub quit: String,
    /// In a pipe: stands between a streamed beginning and the different, whole answer that replaces it.
    pub replaced: String,
    /// At a terminal: stands behind an answer that still grows when the process ends.
    pub interrupted: String,
    /// About a line that is longer than [`LONGEST_LINE`](crate::LONGEST_LINE).
    pub too_long: String,
}
