//! Reads the streams of the agent server, event by event.

use serde_json::Value;

/// One event as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {}", self.data))
    }

    /// The text of a delta, on the surfaces that have deltas.
    pub fn text(&self) -> Option<String> {
        let data: Value = serde_json::from_str(&self.data).ok()?;
        let text = data.pointer("/choices/0/delta/content").or_else(|| data.get("delta"))?;
        text.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// The kind of an event, wherever its surface puts it.
    pub fn kind(&self) -> String {
        let inside = || self.json()["event"].as_str().map(str::to_owned);
        match (&self.name, self.data.as_str()) {
            (Some(name), _) => name.clone(),
            (None, "[DONE]") => "done".to_owned(),
            (None, _) => inside().unwrap_or_else(|| "chunk".to_owned()),
        }
    }

    /// The event without its timestamp, which differs for every reader.
    pub fn timeless(&self) -> Self {
        let Ok(Value::Object(mut data)) = serde_json::from_str(&self.data) else { return self.clone() };
        data.remove("timestamp");
        Self { data: Value::Object(data).to_string(), ..self.clone() }
    }
}

/// A source of bytes.
pub trait Source {
    /// The next bytes; `None` at a proper end. `Err` if it breaks off.
    fn chunk(&mut self) -> impl Future<Output = Result<Option<Vec<u8>>, String>> + Send;
}

impl Source for reqwest::Response {
    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, String> {
        let chunk = reqwest::Response::chunk(self).await.map_err(|error| error.to_string())?;
        Ok(chunk.map(|bytes| bytes.to_vec()))
    }
}

impl Source for axum::body::BodyDataStream {
    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, String> {
        use futures_util::StreamExt as _;
        self.next().await.transpose().map(|b| b.map(|b| b.to_vec())).map_err(|error| error.to_string())
    }
}

/// A stream that is being read.
pub struct Stream<S = reqwest::Response> {
    source: S,
    buffer: Vec<u8>,
    /// Comments so far.
    pub comments: Vec<String>,
}

impl<S: Source> Stream<S> {
    pub fn of(source: S) -> Self {
        Self { source, buffer: Vec::new(), comments: Vec::new() }
    }

    /// The next event; `None` at a proper end.
    pub async fn try_next(&mut self) -> Result<Option<Event>, String> {
        loop {
            self.take_comments();
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Ok(Some(read(std::str::from_utf8(&block).unwrap())));
            }
            match self.source.chunk().await? {
                Some(bytes) => self.buffer.extend(bytes),
                None => {
                    assert!(self.buffer.is_empty(), "half an event before a proper end");
                    return Ok(None);
                }
            }
        }
    }

    /// Takes the comments off the front of the buffer. A comment is one line: after a blank line, decoders that keep
    /// the last id (OpenAI's for Python) pass on an empty event.
    fn take_comments(&mut self) {
        while self.buffer.starts_with(b":") {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else { return };
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let words = std::str::from_utf8(&line).unwrap().strip_prefix(": ").unwrap().trim_end();
            self.comments.push(words.to_owned());
        }
        assert!(
            !self.buffer.starts_with(b"\n"),
            "a blank line that ends no event, behind {:?}",
            self.comments
        );
    }

    /// The next event, which must come.
    pub async fn next(&mut self) -> Event {
        self.try_next().await.unwrap().expect("an event should have come")
    }

    /// The next event of this kind.
    pub async fn until(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next().await;
            if event.kind() == kind {
                return event;
            }
        }
    }

    /// Waits for text that contains this, and returns all text until then.
    pub async fn until_text(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        while !text.contains(wanted) {
            text.extend(self.next().await.text());
        }
        text
    }

    /// Everything up to the proper end.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.try_next().await.unwrap() {
            events.push(event);
        }
        events
    }

    /// Everything until it breaks off, which it must.
    pub async fn until_cut(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            match self.try_next().await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => panic!("it ended as if it were whole: {events:?}"),
                Err(_) => return events,
            }
        }
    }
}

/// Reads one event with its blank line.
fn read(block: &str) -> Event {
    let (mut id, mut name, mut data) = (None, None, Vec::new());
    for line in block.lines().filter(|line| !line.is_empty()) {
        match line.split_once(": ").unwrap() {
            ("id", value) => id = Some(value.to_owned()),
            ("event", value) => name = Some(value.to_owned()),
            ("data", value) => data.push(value.to_owned()),
            (field, value) => panic!("an event has the field {field:?} with {value:?}"),
        }
    }
    assert!(!data.is_empty(), "an event without data: {block:?}");
    Event { id, name, data: data.join("\n") }
}

/// The text of these events.
pub fn text_of(events: &[Event]) -> String {
    events.iter().filter_map(Event::text).collect()
}

/// The kinds of these events.
pub fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::kind).collect()
}
