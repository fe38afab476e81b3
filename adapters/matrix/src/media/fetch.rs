//! Fetches a file up to a limit, and decrypts it in memory.
//!
//! The SDK is not used: it reads the whole response, however long.

use std::io::Read as _;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::StreamExt as _;
use matrix_sdk::ruma::MxcUri;
use matrix_sdk::ruma::events::room::{EncryptedFile, MediaSource};
use matrix_sdk_base::crypto::AttachmentDecryptor;
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use talaria_platform::{MediaId, PlatformError, PlatformErrorKind};
use tokio::time::timeout;
use tracing::debug;

use crate::account::MatrixAccount;
use crate::error::{from_http, kind_of_status, rejected};

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest silence of the connection. Long: a homeserver may have to get the file from another one first.
const SILENCE: Duration = Duration::from_secs(30);
/// Time limit for the whole file. The core may give up earlier.
const WHOLE: Duration = Duration::from_secs(300);

/// Download endpoints, newest first. Redirects are not followed: the token is for the homeserver alone, and another
/// party chose the target of a redirect.
const PATHS: [&[&str]; 2] = [
    &["_matrix", "client", "v1", "media", "download"],
    // For homeservers older than Matrix 1.11.
    &["_matrix", "media", "v3", "download"],
];

/// Fetches and decrypts a file of at most `limit` bytes.
pub(crate) async fn fetch(
    account: &MatrixAccount,
    media: &MediaId,
    limit: u64,
) -> Result<Vec<u8>, PlatformError> {
    let source: MediaSource = serde_json::from_str(media.as_str()).map_err(rejected)?;
    let fetched = timeout(WHOLE, async {
        match &source {
            MediaSource::Plain(uri) => download(account, uri, limit).await,
            MediaSource::Encrypted(file) => {
                let sealed = download(account, &file.url, limit).await?;
                open(sealed, (**file).clone()).await
            }
        }
    });
    fetched.await.map_err(|late| PlatformError::new(PlatformErrorKind::Retry { after: None }, late))?
}

async fn download(account: &MatrixAccount, uri: &MxcUri, limit: u64) -> Result<Vec<u8>, PlatformError> {
    // Also proves that both parts consist of harmless characters.
    let (server, id) = uri.parts().map_err(rejected)?;
    let parts = [server.as_str(), id];
    let response = match request(account, PATHS[0], parts).await? {
        response if is_unknown(response.status()) => request(account, PATHS[1], parts).await?,
        response => response,
    };
    let status = response.status();
    if !status.is_success() {
        debug!(%status, "a file could not be fetched");
        return Err(PlatformError::new(
            kind_of_status(status.as_u16()),
            format!("the homeserver said {status}"),
        ));
    }
    read(response, limit).await
}

/// Whether the homeserver lacks this file, or this endpoint.
fn is_unknown(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::BAD_REQUEST)
}

async fn request(
    account: &MatrixAccount,
    path: &[&str],
    parts: [&str; 2],
) -> Result<Response, PlatformError> {
    let url = address(account.client.homeserver(), path, parts).ok_or(PlatformErrorKind::Rejected)?;
    let response = ask(account, url.clone()).await?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(response);
    }
    // The token may have expired; the SDK refreshes it when one of its own requests is refused.
    account.client.whoami().await.map_err(from_http)?;
    let response = ask(account, url).await?;
    if response.status() == StatusCode::UNAUTHORIZED {
        // The token is valid, and still this is refused: no reason to give up the account.
        return Err(PlatformErrorKind::Rejected.into());
    }
    Ok(response)
}

async fn ask(account: &MatrixAccount, url: Url) -> Result<Response, PlatformError> {
    let token = account.client.access_token().ok_or(PlatformErrorKind::Fatal)?;
    client()?.get(url).header(AUTHORIZATION, format!("Bearer {token}")).send().await.map_err(retry)
}

fn address(mut homeserver: Url, path: &[&str], parts: [&str; 2]) -> Option<Url> {
    homeserver.path_segments_mut().ok()?.pop_if_empty().extend(path).extend(parts);
    Some(homeserver)
}

/// Reads a response to its end; fails as soon as there is more than `limit`.
async fn read(response: Response, limit: u64) -> Result<Vec<u8>, PlatformError> {
    let too_large =
        || PlatformError::new(PlatformErrorKind::Rejected, format!("the file has more than {limit} bytes"));
    let announced = response.content_length().unwrap_or_default();
    if announced > limit {
        return Err(too_large());
    }
    // The announced length is trusted for at most a megabyte.
    let mut content = Vec::with_capacity(announced.min(1 << 20) as usize);
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(retry)?;
        if (content.len() + chunk.len()) as u64 > limit {
            return Err(too_large());
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

/// Decrypts a file. Only its end proves that it is the file that the sender meant, so nothing is returned before.
async fn open(sealed: Vec<u8>, file: EncryptedFile) -> Result<Vec<u8>, PlatformError> {
    // Large files take a while, and other rooms must not wait for it.
    let opened = tokio::task::spawn_blocking(move || {
        let mut sealed = sealed.as_slice();
        let mut content = Vec::with_capacity(sealed.len());
        let mut reader = AttachmentDecryptor::new(&mut sealed, file.into()).map_err(rejected)?;
        reader.read_to_end(&mut content).map_err(rejected)?;
        Ok(content)
    });
    opened.await.map_err(retry)?
}

/// One client for every account: it holds only connections.
fn client() -> Result<&'static Client, PlatformError> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let client = Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .build()
        .map_err(rejected)?;
    Ok(CLIENT.get_or_init(|| client))
}

fn retry(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Retry { after: None }, error)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use matrix_sdk::ruma::OwnedMxcUri;
    use matrix_sdk_base::crypto::AttachmentEncryptor;

    use super::*;

    #[test]
    fn the_address_keeps_the_homeservers_own_path() {
        for (homeserver, address_of_it) in [
            ("https://h.example", "https://h.example/_matrix/client/v1/media/download/example.org/abc"),
            (
                "http://h.example:8008/",
                "http://h.example:8008/_matrix/client/v1/media/download/example.org/abc",
            ),
            ("https://h.example/m/", "https://h.example/m/_matrix/client/v1/media/download/example.org/abc"),
        ] {
            let url = address(homeserver.parse().unwrap(), PATHS[0], ["example.org", "abc"]).unwrap();
            assert_eq!(url.as_str(), address_of_it);
        }
    }

    #[tokio::test]
    async fn a_file_opens_only_if_it_is_the_one_that_was_meant() {
        let mut content = Cursor::new(b"a cat".to_vec());
        let mut encryptor = AttachmentEncryptor::new(&mut content);
        let mut sealed = Vec::new();
        encryptor.read_to_end(&mut sealed).unwrap();
        let keys = encryptor.finish();
        let url = OwnedMxcUri::from("mxc://example.org/abc");
        let file = EncryptedFile::new(url, keys.encryption_info, keys.hashes);

        assert_eq!(open(sealed.clone(), file.clone()).await.unwrap(), b"a cat");
        sealed[0] ^= 1;
        assert_eq!(open(sealed, file).await.unwrap_err().kind(), PlatformErrorKind::Rejected);
    }
}
