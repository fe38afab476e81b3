//! The rows of the table, and how it is printed.

use std::fmt::Write as _;

/// One line: a measured value and its limit.
pub struct Row {
    gate: &'static str,
    what: String,
    value: f64,
    limit: Limit,
}

/// The limit of a value.
#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
    Between(f64, f64),
}

/// Tolerance: values come from sums of rounded numbers.
const ROUNDING: f64 = 1e-6;

impl Row {
    pub fn at_most(gate: &'static str, what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self::new(gate, what.into(), value, Limit::AtMost(limit))
    }

    pub fn at_least(gate: &'static str, what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self::new(gate, what.into(), value, Limit::AtLeast(limit))
    }

    pub fn between(gate: &'static str, what: impl Into<String>, value: f64, from: f64, to: f64) -> Self {
        Self::new(gate, what.into(), value, Limit::Between(from, to))
    }

    fn new(gate: &'static str, what: String, value: f64, limit: Limit) -> Self {
        Self { gate, what, value, limit }
    }

    fn passes(&self) -> bool {
        self.limit.holds(self.value)
    }
}

impl Limit {
    /// A value that could not be computed meets no limit.
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit + ROUNDING,
            Self::AtLeast(limit) => value >= limit - ROUNDING,
            Self::Between(from, to) => value >= from - ROUNDING && value <= to + ROUNDING,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {}", number(limit)),
            Self::AtLeast(limit) => format!("≥ {}", number(limit)),
            Self::Between(from, to) => format!("{} – {}", number(from), number(to)),
        }
    }
}

/// The table as text, and whether nothing in it failed.
pub fn render(rows: &[Row]) -> (String, bool) {
    let head = ["gate", "what", "value", "limit", "pass"].map(str::to_owned);
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    });
    let mut text = String::new();
    for [gate, what, value, limit, pass] in &lines {
        let [a, b, c, d, _] = widths;
        let _ = writeln!(text, "{gate:a$}  {what:b$}  {value:>c$}  {limit:d$}  {pass}");
    }
    let failed = rows.iter().filter(|row| !row.passes()).count();
    let _ = writeln!(text, "\n{} rows, {failed} failed", rows.len());
    (text, failed == 0)
}

fn cells(row: &Row) -> [String; 5] {
    let verdict = if row.passes() { "pass" } else { "FAIL" };
    [row.gate.to_owned(), row.what.clone(), number(row.value), row.limit.text(), verdict.to_owned()]
}

/// Formats a number with three digits, which is the precision of these measurements, or as a whole number.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value}"),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
