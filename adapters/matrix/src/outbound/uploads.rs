//! Uploads that outlive the request they are for.
//!
//! The core waits half a minute for a message, and a large file over a slow line takes longer. So an upload continues
//! by itself, and when the core sends the message again it finds the result.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{PlatformError, PlatformErrorKind, SendKey, spawn_task};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::content::FileContent;
use crate::encrypted_rooms::SendMode;

/// Longest time that one attempt waits for its upload; the message itself has to be sent, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// Uploads that are remembered. The core sends one message after the other in a room, so this is many rooms.
const MOST: usize = 32;

/// Key of an upload. An upload for a plaintext room is never used for an encrypted one.
type UploadPurpose = (SendKey, SendMode);

/// The uploads of an account that no message shows yet.
#[derive(Default)]
pub(crate) struct PendingUploads {
    open: Mutex<HashMap<UploadPurpose, UploadState>>,
}

enum UploadState {
    Running(JoinHandle<Result<FileContent<'static>, PlatformError>>),
    Done(FileContent<'static>),
}

impl PendingUploads {
    /// The description of an uploaded file. Starts the upload unless an earlier attempt did, and waits for it.
    pub(super) async fn content<W>(
        &self,
        key: &SendKey,
        speech: SendMode,
        begin: impl FnOnce() -> W,
    ) -> Result<FileContent<'static>, PlatformError>
    where
        W: Future<Output = Result<FileContent<'static>, PlatformError>> + Send + 'static,
    {
        let purpose = (key.clone(), speech);
        let known = self.open().remove(&purpose);
        let content = match known {
            Some(UploadState::Done(content)) => content,
            running => {
                let mut running = match running {
                    Some(UploadState::Running(running)) => running,
                    Some(UploadState::Done(_)) | None => spawn_task("upload-a-file", begin()),
                };
                match timeout(PATIENCE, &mut running).await {
                    Ok(ended) => ended.map_err(again)??,
                    Err(late) => {
                        self.keep(purpose, UploadState::Running(running));
                        return Err(again(late));
                    }
                }
            }
        };
        self.keep(purpose, UploadState::Done(content.clone()));
        Ok(content)
    }

    /// Forgets an upload when its message was sent.
    pub(super) fn forget(&self, key: &SendKey, speech: SendMode) {
        self.open().remove(&(key.clone(), speech));
    }

    fn keep(&self, purpose: UploadPurpose, upload: UploadState) {
        let mut open = self.open();
        if open.len() >= MOST
            && let Some(any) = open.keys().next().cloned()
            && let Some(UploadState::Running(task)) = open.remove(&any)
        {
            task.abort();
        }
        open.insert(purpose, upload);
    }

    fn open(&self) -> MutexGuard<'_, HashMap<UploadPurpose, UploadState>> {
        self.open.lock()
    }
}

impl Drop for PendingUploads {
    fn drop(&mut self) {
        for upload in self.open().values() {
            if let UploadState::Running(task) = upload {
                task.abort();
            }
        }
    }
}

fn again(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Retry { after: None }, error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::Value;

    use super::*;

    fn content() -> FileContent<'static> {
        FileContent { msgtype: "m.file", name: "a".into(), info: Value::Null, source: ("url", Value::Null) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_upload_is_made_once_however_often_its_message_is_tried() {
        let uploads = PendingUploads::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let key = SendKey::new("a");
        let count = begun.clone();
        let slow = || {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_secs(50)).await;
                Ok(content())
            }
        };
        for _ in 0..2 {
            let late = uploads.content(&key, SendMode::Encrypted, slow).await;
            assert_eq!(late.err().map(|error| error.kind()), Some(PlatformErrorKind::Retry { after: None }));
        }
        for _ in 0..2 {
            assert!(
                uploads.content(&key, SendMode::Encrypted, slow).await.is_ok(),
                "and again until it is sent"
            );
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);

        uploads.forget(&key, SendMode::Encrypted);
        assert!(uploads.open().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_upload_is_begun_again_and_a_plain_one_is_not_used_where_it_must_be_encrypted() {
        let uploads = PendingUploads::default();
        let key = SendKey::new("a");
        let failed = uploads
            .content(&key, SendMode::Plain, || async { Err(PlatformErrorKind::Rejected.into()) })
            .await;
        assert_eq!(failed.err().map(|error| error.kind()), Some(PlatformErrorKind::Rejected));
        assert!(uploads.content(&key, SendMode::Plain, || async { Ok(content()) }).await.is_ok());
        let other = uploads
            .content(&key, SendMode::Encrypted, || async { Err(PlatformErrorKind::Rejected.into()) })
            .await;
        assert!(other.is_err());
    }
}
