//! Texts that the console prints itself.

/// The console's sentences; it skips an empty one. Filled in by the core, because texts for people are in one
/// catalogue and adapters do not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleTexts {
    /// Printed to a person at a terminal, before the first prompt.
    pub greeting: String,
    /// Printed when the input ends while an answer is still on its way.
    pub leaving: String,
    /// Printed to a person at a terminal who types `/quit` or `/exit`, with the way that does work.
    pub quit: String,
    /// In a pipe: printed between a streamed beginning and the different, whole answer that replaces it.
    pub replaced: String,
    /// At a terminal: printed behind an answer that still grows when the process ends.
    pub interrupted: String,
    /// Printed for a line that is longer than [`LONGEST_LINE`](crate::LONGEST_LINE).
    pub too_long: String,
}
