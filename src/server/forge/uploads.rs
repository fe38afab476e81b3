//! `POST /files`: takes a file for later turns. Its bytes go to the disk as they come, past the ordinary limit of a body.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::{Extension, Json};
use futures_util::StreamExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;

use super::folders::on_disk;
use super::multipart::{MultipartError, MultipartParser, MultipartPiece};
use super::prompt_files::clean_name;
use crate::server::{ApiError, Caller, Server};
use crate::store::{FileUse, ForgeFile, unix_now};
use crate::token;

/// Most bytes of a file.
const LARGEST: u64 = 100 * 1024 * 1024;

/// Most bytes of a whole request: the file, and a form around it.
const LARGEST_BODY: u64 = LARGEST + 64 * 1024;

/// Files of one app at once, and their bytes.
pub(super) const MOST: FileUse = FileUse { files: 200, bytes: 1024 * 1024 * 1024 };

/// Bytes of the files of all apps at once: so many apps as there are tokens must not fill the disk together.
pub(super) const MOST_OF_ALL: u64 = 8 * MOST.bytes;

/// Longest time for a whole upload, and without a new piece of it.
const WHOLE: Duration = Duration::from_secs(15 * 60);
const PIECE: Duration = Duration::from_secs(30);

/// Pieces of a file that may wait for the disk.
const WAITING: usize = 8;

/// `Retry-After` when too much is uploaded.
const AGAIN: Duration = Duration::from_secs(60);

/// Seconds that a file is kept: the least, the most, and what is usual.
const TTL: (i64, i64, i64) = (60, 86_400, 3_600);

/// The form, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(rename = "FileUpload")]
#[expect(dead_code, reason = "read piece by piece")]
pub struct UploadForm {
    /// The file, at most 100 MiB.
    #[schemars(extend("format" = "binary"))]
    file: String,
    /// Seconds that the file is kept, from 60 to 86400. Default: 3600.
    ttl_secs: Option<i64>,
}

/// A file that was taken.
#[derive(Serialize, JsonSchema)]
pub struct UploadedFile {
    ok: bool,
    /// Names the file in `files` of a turn of the same app.
    file_token: String,
    ttl_secs: i64,
    size: u64,
}

/// `POST /files`
pub async fn upload(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Json<UploadedFile>, ApiError> {
    let in_query =
        query.as_deref().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("ttl_secs="));
    let in_query = in_query.map(str::to_owned);
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > LARGEST_BODY) {
        return Err(too_large());
    }
    let slot = server.forge.begin_upload(caller.app());
    let _slot =
        slot.ok_or_else(|| ApiError::busy("Too many files are sent at once; send it again", AGAIN))?;
    let app = caller.app().to_owned();
    let (used, all) =
        server.store.read(move |tx| Ok((tx.forge_file_use(&app)?, tx.forge_file_bytes()?))).await?;
    let bytes = length.unwrap_or_default();
    if used.files >= MOST.files || used.bytes + bytes > MOST.bytes || all + bytes > MOST_OF_ALL {
        return Err(too_many());
    }
    server.forge.make_for_uploads().await?;
    let token = token::make_for_file().map_err(ApiError::mistake)?;
    let digest = token::file_name(&token).ok_or_else(|| ApiError::mistake("a file token is malformed"))?;
    let path = server.forge.of_upload(&digest);
    let mut unfinished = UnfinishedFile { path: Some(path.clone()) };
    let receiving = receive(request, path);
    let received = tokio::select! {
        received = tokio::time::timeout(WHOLE, receiving) => received.map_err(|_| too_slow())??,
        // A half-sent file does not hold up shutdown.
        () = server.draining.cancelled() => return Err(ApiError::draining()),
    };
    let ttl_secs = ttl(received.ttl.or(in_query).as_deref())?;
    let file = ForgeFile {
        digest,
        app: caller.app().to_owned(),
        name: clean_name(&received.name),
        size: received.size,
        expires: unix_now() + ttl_secs,
    };
    if !server.store.write(move |tx| tx.add_forge_file(&file, MOST, MOST_OF_ALL)).await? {
        return Err(too_many());
    }
    unfinished.path = None;
    Ok(Json(UploadedFile { ok: true, file_token: token, ttl_secs, size: received.size }))
}

/// A form that was received, its file on disk.
struct ReceivedFile {
    name: String,
    size: u64,
    ttl: Option<String>,
}

/// A part of the form.
enum FormPart {
    File,
    Ttl(Vec<u8>),
    /// Another field, which is ignored.
    Other,
}

/// Reads the form and writes its file to `path`.
async fn receive(request: Request, path: PathBuf) -> Result<ReceivedFile, ApiError> {
    let content_type =
        request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parser = MultipartParser::new(content_type).ok_or_else(no_form)?;
    let (sender, receiver) = mpsc::channel::<Bytes>(WAITING);
    let writing = on_disk(move || write(&path, receiver));
    let reading = async move {
        let mut body = request.into_body().into_data_stream();
        let (mut part, mut name, mut size, mut ttl) = (FormPart::Other, None, 0_u64, None);
        // Of the whole body: also what is ignored takes a slot and the network.
        let mut came = 0_u64;
        loop {
            let next = tokio::time::timeout(PIECE, body.next()).await.map_err(|_| too_slow())?;
            let Some(bytes) = next else { break };
            let bytes = bytes.map_err(|_| wrong_form(MultipartError::Unfinished))?;
            came += bytes.len() as u64;
            if came > LARGEST_BODY {
                return Err(too_large());
            }
            let mut pieces = Vec::new();
            parser.push::<FormProblem>(&bytes, |piece| {
                match piece {
                    MultipartPiece::Begin(head) => {
                        part = match head.name.as_str() {
                            "file" if name.is_some() => return Err(FormProblem::TwoFiles),
                            "file" => {
                                name = Some(head.file_name.unwrap_or_default());
                                FormPart::File
                            }
                            "ttl_secs" => FormPart::Ttl(Vec::new()),
                            _ => FormPart::Other,
                        };
                    }
                    MultipartPiece::Data(data) => match &mut part {
                        FormPart::File => {
                            size += data.len() as u64;
                            if size > LARGEST {
                                return Err(FormProblem::TooLarge);
                            }
                            pieces.push(Bytes::copy_from_slice(data));
                        }
                        // Longer than any number.
                        FormPart::Ttl(digits) if digits.len() + data.len() > 32 => {
                            return Err(FormProblem::Ttl);
                        }
                        FormPart::Ttl(digits) => digits.extend_from_slice(data),
                        FormPart::Other => {}
                    },
                    MultipartPiece::End => {
                        if let FormPart::Ttl(digits) = std::mem::replace(&mut part, FormPart::Other) {
                            ttl = Some(String::from_utf8(digits).map_err(|_| FormProblem::Ttl)?);
                        }
                    }
                }
                Ok(())
            })?;
            for piece in pieces {
                // The writer ends early only if it failed, and says so itself.
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
        }
        parser.finish().map_err(wrong_form)?;
        let name = name.ok_or_else(no_form)?;
        Ok::<_, ApiError>(ReceivedFile { name, size, ttl })
    };
    let (received, written) = tokio::join!(reading, writing);
    let received = received?;
    match written? == received.size {
        true => Ok(received),
        false => Err(ApiError::mistake("a file was not written as a whole")),
    }
}

/// Writes pieces to a new file until the sender is gone; returns the number of bytes.
fn write(path: &std::path::Path, mut pieces: mpsc::Receiver<Bytes>) -> std::io::Result<u64> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut written = 0;
    while let Some(piece) = pieces.blocking_recv() {
        file.write_all(&piece)?;
        written += piece.len() as u64;
    }
    file.sync_all()?;
    Ok(written)
}

/// Why a form is refused.
enum FormProblem {
    Malformed(MultipartError),
    TwoFiles,
    TooLarge,
    Ttl,
}

impl From<MultipartError> for FormProblem {
    fn from(error: MultipartError) -> Self {
        Self::Malformed(error)
    }
}

impl From<FormProblem> for ApiError {
    fn from(problem: FormProblem) -> Self {
        match problem {
            FormProblem::Malformed(error) => wrong_form(error),
            FormProblem::TwoFiles => {
                ApiError::wrong("file", "The form has one file; send each file by itself")
            }
            FormProblem::TooLarge => too_large(),
            FormProblem::Ttl => wrong_ttl(),
        }
    }
}

fn ttl(text: Option<&str>) -> Result<i64, ApiError> {
    let (least, most, usual) = TTL;
    match text.map(str::trim).filter(|text| !text.is_empty()) {
        None => Ok(usual),
        Some(text) => text.parse().ok().filter(|ttl| (least..=most).contains(ttl)).ok_or_else(wrong_ttl),
    }
}

fn wrong_ttl() -> ApiError {
    let (least, most, _) = TTL;
    ApiError::wrong("ttl_secs", format!("It is a number of seconds from {least} to {most}"))
}

fn wrong_form(error: MultipartError) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_form", error.to_string())
}

fn no_form() -> ApiError {
    let message = "The request must be multipart/form-data with a part called file";
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_form", message)
}

fn too_large() -> ApiError {
    let message = format!("The file is larger than {LARGEST} bytes, or the form around it is too long");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "file_too_large", message)
}

fn too_many() -> ApiError {
    let message = "Too many files are still kept, of this app or of all of them; some must expire first";
    ApiError::busy(message, AGAIN)
}

fn too_slow() -> ApiError {
    let message = "The file did not come to its end in time";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

/// Removes a file that did not become an upload, whatever ended it.
struct UnfinishedFile {
    path: Option<PathBuf>,
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // One system call; the writer may make the file just now, and then the sweeper removes it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_kept_for_a_minute_to_a_day() {
        for (text, kept) in [(None, 3_600), (Some(""), 3_600), (Some("60"), 60), (Some(" 86400 "), 86_400)] {
            assert_eq!(ttl(text).ok(), Some(kept), "{text:?}");
        }
        for wrong in ["0", "59", "86401", "-60", "1h", "6e1", "99999999999999999999"] {
            assert_eq!(
                ttl(Some(wrong)).map_err(|problem| problem.status),
                Err(StatusCode::BAD_REQUEST),
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn all_bytes_of_a_body_count() {
        let dir = tempfile::tempdir().unwrap();
        let head = |name: &str| {
            Bytes::from(format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n"))
        };
        let mib = Bytes::from(vec![b'y'; 1024 * 1024]);
        // Before the form, in a field that is ignored, and behind the end of the form.
        let end = Bytes::from_static(b"1\r\n--x--\r\n");
        for (number, begin) in [vec![], vec![head("other")], vec![head("file"), end]].into_iter().enumerate()
        {
            let long = std::iter::repeat_n(mib.clone(), 101);
            let pieces = begin.into_iter().chain(long).map(Ok::<_, std::convert::Infallible>);
            let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
            let request = Request::builder().header(CONTENT_TYPE, "multipart/form-data; boundary=x");
            let path = dir.path().join(number.to_string());
            let refused = receive(request.body(body).unwrap(), path).await;
            let status = refused.map(|file| file.size).map_err(|problem| problem.status);
            assert_eq!(status, Err(StatusCode::PAYLOAD_TOO_LARGE), "{number}");
        }
    }
}
