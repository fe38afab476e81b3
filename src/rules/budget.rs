//! `budget:`, the tokens that people and agents may use.

/// Tokens of one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetConfig {
    /// Most tokens that one person, or one app, may use with all agents together.
    pub person: Option<u64>,
    /// Most tokens that all people together may use with one agent.
    pub agent: Option<u64>,
}
