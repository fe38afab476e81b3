//! Opens many streams and checks the deltas: their delay, their order, and whether all of them came.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::others::KEY;
use crate::relay::allow_many_files;
use crate::rounds::{median, monotonic_micros};
use crate::{child, sse};

#[derive(Default)]
struct Seen {
    /// Delays of deltas since the last question, in µs.
    delays: Mutex<Vec<f64>>,
    /// Delay of the first delta of each stream.
    firsts: Mutex<Vec<f64>>,
    /// Time from the request of each stream to its first delta, in µs.
    waits: Mutex<Vec<f64>>,
    ended: AtomicUsize,
    /// Streams of which every delta came, once and in order.
    whole: AtomicUsize,
    /// Why other streams failed, and how often.
    wrong: Mutex<HashMap<String, usize>>,
}

/// Reads `streams` streams; with a number of `deltas` each must have exactly so many.
pub fn reader(words: &[String]) -> anyhow::Result<()> {
    allow_many_files();
    let number = |index: usize| words.get(index).map(|word| word.parse::<usize>()).transpose();
    let port = u16::try_from(number(1)?.context("the port")?)?;
    let streams = number(2)?.context("the streams")?;
    let deltas = number(3)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let seen = Arc::new(Seen::default());
    for _ in 0..streams {
        let seen = seen.clone();
        runtime.spawn(async move {
            let came = read(port, &seen).await;
            match came {
                Ok(count) if deltas.is_none_or(|wanted| wanted == count) => {
                    seen.whole.fetch_add(1, Ordering::Relaxed);
                }
                Ok(count) => seen.complain(format!("{count} deltas")),
                Err(error) => seen.complain(error.to_string()),
            }
            seen.ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    child::serve("ready", |question| match question {
        "median" => {
            seen.say_what_is_wrong();
            median(std::mem::take(&mut *seen.delays.lock())).to_string()
        }
        "first" => seen.firsts.lock().iter().copied().fold(0.0, f64::max).to_string(),
        "waited" => median(std::mem::take(&mut *seen.waits.lock())).to_string(),
        "ended" => seen.ended.load(Ordering::Relaxed).to_string(),
        "whole" => {
            seen.say_what_is_wrong();
            seen.whole.load(Ordering::Relaxed).to_string()
        }
        other => format!("`{other}` is no question"),
    })
}

impl Seen {
    fn say_what_is_wrong(&self) {
        let wrong = self.wrong.lock();
        if !wrong.is_empty() {
            crate::say(&format!("streams that ended badly: {wrong:?}"));
        }
    }

    fn complain(&self, why: String) {
        *self.wrong.lock().entry(why).or_default() += 1;
    }
}

/// Reads one stream to its end; returns the number of deltas. Fails if they came out of order.
async fn read(port: u16, seen: &Seen) -> anyhow::Result<usize> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"plan my week"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = monotonic_micros();
    stream.write_all(request.as_bytes()).await?;
    let (mut buffer, mut kept) = (vec![0; 16 * 1024], Vec::new());
    let (mut count, mut last) = (0, 0);
    loop {
        let length = stream.read(&mut buffer).await?;
        anyhow::ensure!(length > 0, "it broke off");
        let now = monotonic_micros();
        kept.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&kept).into_owned();
        anyhow::ensure!(
            count > 0 || !text.starts_with("HTTP/1.1 4") && !text.starts_with("HTTP/1.1 5"),
            "{text}"
        );
        // The last event repeats the whole text.
        let (deltas, over) = match text.split_once("\"finish_reason\":\"stop\"") {
            Some((before, _)) => (before.rsplit_once("\n\n").map_or("", |(whole, _)| whole), true),
            None => (text.as_str(), false),
        };
        let mut used = 0;
        for (sent, end) in sse::stamps(deltas) {
            anyhow::ensure!(sent > last, "a delta came out of order, or twice");
            let late = (now % sse::DAY).saturating_sub(sent) as f64;
            if count == 0 {
                seen.waits.lock().push((now - asked) as f64);
            }
            (if count == 0 { &seen.firsts } else { &seen.delays }).lock().push(late);
            (last, used, count) = (sent, end, count + 1);
        }
        if over {
            return Ok(count);
        }
        // Keeps the possible beginning of a delta that is cut in two.
        let keep = (text.len() - used).min(64);
        kept.drain(..kept.len().saturating_sub(keep));
    }
}
