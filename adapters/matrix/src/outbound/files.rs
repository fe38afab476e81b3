//! Uploads a file that we send, encrypted if the room is.

use std::io::Read as _;
use std::time::Duration;

use matrix_sdk::Client;
use matrix_sdk::ruma::OwnedMxcUri;
use matrix_sdk::ruma::api::client::media::create_content;
use matrix_sdk::ruma::events::room::EncryptedFile;
use matrix_sdk_base::crypto::AttachmentEncryptor;
use serde_json::{Value, json};
use talaria_platform::{OutgoingFile, PlatformError, PlatformErrorKind};

use super::content::FileContent;
use super::{image_size, once};
use crate::encrypted_rooms::SendMode;
use crate::error::from_http;
use crate::error::rejected;
use crate::media::base_name;

/// Time limit for one upload, however often its message is tried meanwhile.
const UPLOAD: Duration = Duration::from_secs(300);

/// Uploads a file and returns its description for a message.
pub(super) async fn upload(
    client: Client,
    file: OutgoingFile,
    speech: SendMode,
) -> Result<FileContent<'static>, PlatformError> {
    let OutgoingFile { name, mime, content } = file;
    let mut info = json!({ "mimetype": mime, "size": content.len() });
    let msgtype = msgtype(&mime);
    if msgtype == "m.image"
        && let Some((width, height)) = image_size::size(&content)
    {
        info["w"] = width.into();
        info["h"] = height.into();
    }
    let source = match speech {
        SendMode::Plain => {
            let uri = put(&client, content, &mime).await?;
            ("url", Value::from(uri.as_str()))
        }
        SendMode::Encrypted => {
            let (sealed, keys) = seal(content).await?;
            // With neither its type nor its name: the homeserver needs neither.
            let uri = put(&client, sealed, "application/octet-stream").await?;
            let file = EncryptedFile::new(uri, keys.encryption_info, keys.hashes);
            ("file", serde_json::to_value(file).map_err(rejected)?)
        }
    };
    Ok(FileContent { msgtype, name: base_name(&name).into(), info, source })
}

/// Chooses the message type. Only formats that clients show inline count as pictures. Anything else, SVG above all,
/// is a file that a person decides to open.
fn msgtype(mime: &str) -> &'static str {
    match mime.split_once('/') {
        Some(("image", "png" | "jpeg" | "gif" | "webp")) => "m.image",
        Some(("audio", _)) => "m.audio",
        Some(("video", _)) => "m.video",
        _ => "m.file",
    }
}

async fn put(client: &Client, content: Vec<u8>, mime: &str) -> Result<OwnedMxcUri, PlatformError> {
    let mut request = create_content::v3::Request::new(content);
    request.content_type = Some(mime.to_owned());
    let sent = client.send(request).with_request_config(once(UPLOAD)).await;
    sent.map(|response| response.content_uri).map_err(from_http)
}

async fn seal(
    content: Vec<u8>,
) -> Result<(Vec<u8>, matrix_sdk::encryption::MediaEncryptionInfo), PlatformError> {
    let sealing = tokio::task::spawn_blocking(move || {
        let mut content = content.as_slice();
        let mut sealed = Vec::with_capacity(content.len());
        let mut encryptor = AttachmentEncryptor::new(&mut content);
        encryptor.read_to_end(&mut sealed).map_err(rejected)?;
        Ok((sealed, encryptor.finish()))
    });
    sealing.await.map_err(|broken| PlatformError::new(PlatformErrorKind::Retry { after: None }, broken))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_that_clients_show_are_pictures() {
        for (mime, kind) in [
            ("image/png", "m.image"),
            ("image/svg+xml", "m.file"),
            ("audio/ogg", "m.audio"),
            ("video/mp4", "m.video"),
            ("text/html", "m.file"),
            ("nonsense", "m.file"),
        ] {
            assert_eq!(msgtype(mime), kind, "{mime}");
        }
    }
}
