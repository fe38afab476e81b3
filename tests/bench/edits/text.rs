//! The texts of the simulated answers: generated, not recorded.

use std::time::Duration;

use super::SECOND;

#[derive(Clone, Copy)]
pub enum Kind {
    Steady,
    Bursty,
}

#[derive(Clone)]
pub struct Trace {
    pub name: &'static str,
    pub kind: Kind,
    /// When each token arrives after the first.
    pub tokens: Vec<Duration>,
    /// Length of each stretch of text between two halts.
    pub stretches: Vec<Duration>,
}

pub const TOKEN_CHARS: usize = 4;

pub fn traces() -> Vec<Trace> {
    vec![
        steady("10 s", 10, 30.0),
        steady("30 s", 30, 30.0),
        steady("120 s", 120, 30.0),
        steady("slow 60 s", 60, 3.0),
        bursty("3 tools", 3, 7),
        bursty("6 tools", 6, 11),
        bursty("12 tools", 12, 5),
    ]
}

pub fn steady(name: &'static str, seconds: u32, per_second: f64) -> Trace {
    let length = SECOND * seconds;
    Trace {
        name,
        kind: Kind::Steady,
        tokens: tokens(Duration::ZERO, length, per_second),
        stretches: vec![length],
    }
}

/// Stretches of 1 to 7 s of text with tool calls of 2 to 10 s between them.
pub fn bursty(name: &'static str, tools: u32, seed: u64) -> Trace {
    let mut state = seed;
    let mut draw = |from: f64, to: f64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_secs_f64(from + (to - from) * (state >> 40) as f64 / (1u64 << 24) as f64)
    };
    let mut trace = Trace { name, kind: Kind::Bursty, tokens: Vec::new(), stretches: Vec::new() };
    let mut at = Duration::ZERO;
    for _ in 0..=tools {
        let stretch = draw(1.0, 7.0);
        trace.tokens.extend(tokens(at, stretch, 40.0));
        trace.stretches.push(stretch);
        at += stretch + draw(2.0, 10.0);
    }
    trace
}

/// Evenly spread tokens, each up to half a distance late: tokens on an exact grid would favour an editor on that
/// grid.
pub fn tokens(from: Duration, length: Duration, per_second: f64) -> Vec<Duration> {
    let count = (length.as_secs_f64() * per_second).round() as u32;
    let late = |token: u32| {
        (length / count / 2).mul_f64(f64::from(token.wrapping_mul(2_654_435_769) >> 16) / 65_536.0)
    };
    (0..count).map(|token| from + length * token / count + late(token)).collect()
}
