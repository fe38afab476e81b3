//! A chat network over a Unix socket; the test at the other end outlives this process.
//!
//! Every request is one connection with one JSON line each way; reading is one connection on which batches
//! arrive and are acknowledged. The other end honours send keys, as a real network does: kill tests need that,
//! because a terminal cannot take a line back.

mod commands;
mod config;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use talaria_platform::{
    BoxFuture, CancellationToken, EventBatch, Inbox, MessageBody, MessageId, OperatorRequest, Place,
    Platform, PlatformCapabilities, PlatformError, PlatformErrorKind, RequestRefusal, RoomEvent, SendKey,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

pub use config::{TestConfig, TestKind};

/// Requests of the platform.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in the contract")]
pub enum NetworkRequest {
    Read { cursor: Option<String> },
    Send { place: Place, key: SendKey, body: MessageBody },
    Edit { place: Place, message: MessageId, key: SendKey, body: MessageBody },
}

/// Responses to a send or an edit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in the contract")]
pub enum NetworkReply {
    Message(MessageId),
    Retry { after_ms: Option<u64> },
    Gone,
    Rejected,
    Fatal,
}

/// Batch on the reading connection; acknowledged with a line when it is on disk.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in the contract")]
pub struct IncomingEvent {
    pub events: Vec<RoomEvent>,
    pub cursor: String,
}

/// The platform for tests.
pub struct TestNetwork {
    config: TestConfig,
}

impl TestNetwork {
    /// A network at the configured socket. Not connected yet.
    pub fn new(config: TestConfig) -> Self {
        Self { config }
    }

    async fn connect(&self, request: &NetworkRequest) -> std::io::Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.config.socket).await?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        Ok(BufReader::new(stream))
    }

    async fn ask(&self, request: NetworkRequest) -> Result<MessageId, PlatformError> {
        let answer = async {
            let mut stream = self.connect(&request).await?;
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            std::io::Result::Ok(serde_json::from_str::<NetworkReply>(&line)?)
        };
        match answer
            .await
            .map_err(|error| PlatformError::new(PlatformErrorKind::Retry { after: None }, error))?
        {
            NetworkReply::Message(message) => Ok(message),
            NetworkReply::Retry { after_ms } => {
                Err(PlatformErrorKind::Retry { after: after_ms.map(Duration::from_millis) }.into())
            }
            NetworkReply::Gone => Err(PlatformErrorKind::Gone.into()),
            NetworkReply::Rejected => Err(PlatformErrorKind::Rejected.into()),
            NetworkReply::Fatal => Err(PlatformErrorKind::Fatal.into()),
        }
    }

    async fn read(&self, inbox: Arc<dyn Inbox>) -> Result<(), PlatformError> {
        let lost =
            |error: std::io::Error| PlatformError::new(PlatformErrorKind::Retry { after: None }, error);
        let refused = |error| PlatformError::new(PlatformErrorKind::Retry { after: None }, error);
        let cursor = inbox.cursor().await.map_err(refused)?;
        let mut stream = self.connect(&NetworkRequest::Read { cursor }).await.map_err(lost)?;
        let mut line = String::new();
        while stream.read_line(&mut line).await.map_err(lost)? > 0 {
            let incoming: IncomingEvent = serde_json::from_str(&line).map_err(|error| lost(error.into()))?;
            let batch = EventBatch {
                events: incoming.events,
                cursor: Some(incoming.cursor),
                ..EventBatch::default()
            };
            inbox.accept(batch).await.map_err(refused)?;
            stream.write_all(b"\n").await.map_err(lost)?;
            line.clear();
        }
        Ok(())
    }
}

impl Platform for TestNetwork {
    fn about(&self) -> PlatformCapabilities {
        PlatformCapabilities {
            show: self.config.show,
            delete: false,
            react: false,
            threads: true,
            media: false,
            max_text: self.config.max_text,
            rate: self.config.rate,
        }
    }

    fn run(
        &self,
        inbox: Arc<dyn Inbox>,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<(), PlatformError>> {
        Box::pin(async move {
            tokio::select! {
                ended = self.read(inbox) => ended,
                () = stop.cancelled() => Ok(()),
            }
        })
    }

    fn send<'a>(
        &'a self,
        place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>> {
        Box::pin(self.ask(NetworkRequest::Send {
            place: place.clone(),
            key: key.clone(),
            body: body.clone(),
        }))
    }

    fn answer_operator<'a>(
        &'a self,
        request: OperatorRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<u8>, RequestRefusal>> {
        Box::pin(commands::answer(&self.config, request))
    }

    fn edit<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        let request = NetworkRequest::Edit {
            place: place.clone(),
            message: message.clone(),
            key: key.clone(),
            body: body.clone(),
        };
        Box::pin(async move { self.ask(request).await.map(|_| ()) })
    }
}
