//! The simulated networks, and the lower bound for any editor on each.

use std::time::Duration;

use talaria_platform::RateLimit;

use super::SECOND;
use super::text::Trace;

pub struct Network {
    pub name: &'static str,
    pub bucket: Option<RateLimit>,
    pub pause: Duration,
}

pub const SYNAPSE: &str = "0.2/s burst 10 (Synapse)";

pub fn networks() -> Vec<Network> {
    let bucket = |per_second, burst| Some(RateLimit { per_second, burst });
    let half = SECOND / 2;
    vec![
        Network { name: SYNAPSE, bucket: bucket(0.2, 10.0), pause: SECOND },
        Network { name: "0.5/s burst 5", bucket: bucket(0.5, 5.0), pause: half },
        Network { name: "1/s burst 10", bucket: bucket(1.0, 10.0), pause: half },
        Network { name: "5/s burst 20", bucket: bucket(5.0, 20.0), pause: SECOND },
        Network { name: "no limit", bucket: None, pause: SECOND },
    ]
}

/// Wrong beliefs about the bucket, with one number wrong at a time.
pub fn wrong_beliefs(truth: Option<RateLimit>) -> Vec<(&'static str, Option<RateLimit>)> {
    let Some(RateLimit { per_second, burst }) = truth else { return Vec::new() };
    vec![
        ("no limit", None),
        ("5 x the rate", Some(RateLimit { per_second: 5.0 * per_second, burst })),
        ("5 x the burst", Some(RateLimit { per_second, burst: 5.0 * burst })),
    ]
}

pub fn bound(trace: &Trace, network: &Network, trip: Duration) -> f64 {
    let text: f64 = trace.stretches.iter().map(Duration::as_secs_f64).sum();
    let length = trace.tokens[trace.tokens.len() - 1].as_secs_f64();
    let pause = network.pause.max(trip).as_secs_f64();
    // The best under the pause alone: whole pauses, and the remainder of each stretch at its beginning.
    let squares = |stretch: f64| (stretch / pause).floor() * pause * pause + (stretch % pause).powi(2);
    let by_pause: f64 =
        trace.stretches.iter().map(|stretch| squares(stretch.as_secs_f64())).sum::<f64>() / text;
    let by_bucket = network.bucket.map_or(0.0, |rate| text / (rate.burst + rate.per_second * length));
    by_bucket.max(by_pause) / 2.0 + trip.as_secs_f64()
}
