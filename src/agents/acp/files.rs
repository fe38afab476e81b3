//! Reads and writes files for the agent, in the folder of the session and nowhere else.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_platform::BoxFuture;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::agents::confined_dir::{ConfinedDir, FileProblem, ReplaceCondition};
use crate::agents::jsonrpc::RpcFault;
use crate::agents::sorted_json::text_field;

/// Bytes of one answer. A line of the connection takes twice as much.
const ANSWER: u64 = 4 * 1024 * 1024;

/// Bytes of a file of which a part is read.
const FILE: u64 = 64 * 1024 * 1024;

/// Files that are read at once, for all agents together: each takes the memory of an answer.
static READERS: Semaphore = Semaphore::const_new(4);

/// Longest time for one request. Files are on this machine, but a disk may hang.
const DEADLINE: Duration = Duration::from_secs(30);

/// Code of the error for a file that is not there. Agents look for its words, too.
const NOT_FOUND: i64 = -32_002;

/// Code of the error for parameters that do not fit.
const INVALID: i64 = -32_602;

/// Code of every other error.
const INTERNAL: i64 = -32_603;

/// A request about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileRequest {
    /// The text from a line on (the first is 1), at most so many lines.
    Read { path: PathBuf, line: u64, limit: Option<u64> },
    /// The whole new text.
    Write { path: PathBuf, content: String },
}

/// Answers `fs/read_text_file` and `fs/write_text_file`; `None` for every other method. `root` is the folder of the
/// session. Writing has begun when this returns, and goes on if the future is dropped; a caller that
/// needs the result of a write waits for it.
pub fn answer(
    method: &str,
    params: &Value,
    root: &Path,
) -> Option<BoxFuture<'static, Result<Value, RpcFault>>> {
    let request = match FileRequest::read(method, params, root)? {
        Ok(request) => request,
        Err(fault) => return Some(Box::pin(async { Err(fault) })),
    };
    let root = root.to_owned();
    let working: BoxFuture<'static, _> = match request {
        // A task, because it must go on if nobody waits.
        FileRequest::Write { .. } => Box::pin(spawn_blocking(move || request.carry_out(&root))),
        FileRequest::Read { .. } => Box::pin(async move {
            let permit = READERS.acquire().await;
            // The permit goes with the work: that cannot be ended from outside.
            spawn_blocking(move || {
                let _permit = permit;
                request.carry_out(&root)
            })
            .await
        }),
    };
    Some(Box::pin(async {
        match tokio::time::timeout(DEADLINE, working).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(RpcFault::new(INTERNAL, "the file cannot be used now")),
        }
    }))
}

impl FileRequest {
    fn read(method: &str, params: &Value, root: &Path) -> Option<Result<Self, RpcFault>> {
        let path = || inner_path(text_field(params, "path"), root);
        match method {
            "fs/read_text_file" => Some(path().map(|path| Self::Read {
                path,
                line: params["line"].as_u64().unwrap_or(1).max(1),
                limit: params["limit"].as_u64(),
            })),
            "fs/write_text_file" => Some(path().and_then(|path| match &params["content"] {
                Value::String(content) => Ok(Self::Write { path, content: content.clone() }),
                _ => Err(RpcFault::new(INVALID, "`content` must be a text")),
            })),
            _ => None,
        }
    }

    /// Blocks.
    fn carry_out(self, root: &Path) -> Result<Value, RpcFault> {
        let folder = ConfinedDir::open(root).map_err(|error| fault(root, error.into()))?;
        match self {
            Self::Read { path, line, limit } => {
                let text = read_lines(&folder, &path, line, limit)?;
                Ok(json!({ "content": text }))
            }
            Self::Write { path, content } => {
                folder
                    .replace_file(&path, content.as_bytes(), ReplaceCondition::Always, &|| false)
                    .map_err(|problem| fault(&path, problem))?;
                Ok(json!({}))
            }
        }
    }
}

/// The lines of a file that were asked for.
fn read_lines(folder: &ConfinedDir, path: &Path, line: u64, limit: Option<u64>) -> Result<String, RpcFault> {
    let (file, version) = folder.open_file(path).map_err(|problem| fault(path, problem))?;
    if version.bytes() > FILE {
        return Err(fault(path, FileProblem::TooLarge(FILE)));
    }
    let io = |error: std::io::Error| fault(path, error.into());
    // A file that grows meanwhile must not either.
    let mut reader = BufReader::new(file.take(FILE));
    for _ in 1..line {
        if !skip_line(&mut reader).map_err(io)? {
            break;
        }
    }
    let mut bytes = Vec::new();
    match limit {
        None => drop(reader.take(ANSWER + 1).read_to_end(&mut bytes).map_err(io)?),
        Some(limit) => {
            let mut reader = reader.take(ANSWER + 1);
            for _ in 0..limit {
                if reader.read_until(b'\n', &mut bytes).map_err(io)? == 0 {
                    break;
                }
            }
        }
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > ANSWER) {
        return Err(fault(path, FileProblem::TooLarge(ANSWER)));
    }
    String::from_utf8(bytes)
        .map_err(|_| RpcFault::new(INVALID, format!("{} is not a text in UTF-8", path.display())))
}

/// Skips a line, however long it is, without keeping any of it. False at the end of the file.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<bool> {
    let mut has_begun = false;
    loop {
        let buffer = reader.fill_buf()?;
        let (length, end) = (buffer.len(), memchr::memchr(b'\n', buffer));
        reader.consume(end.map_or(length, |end| end + 1));
        match (end, length) {
            (Some(_), _) => return Ok(true),
            (None, 0) => return Ok(has_begun),
            (None, _) => has_begun = true,
        }
    }
}

/// The path within the folder. Agents name the whole path.
fn inner_path(written: &str, root: &Path) -> Result<PathBuf, RpcFault> {
    let path = Path::new(written);
    if written.is_empty() {
        return Err(RpcFault::new(INVALID, "`path` must be a path"));
    }
    let inner = match path.is_absolute() {
        false => path.to_owned(),
        true => {
            let real = root.canonicalize().ok();
            let roots = [Some(root.to_owned()), real];
            let inner = roots.iter().flatten().find_map(|root| path.strip_prefix(root).ok());
            inner.map(Path::to_owned).ok_or_else(|| fault(path, FileProblem::Outside))?
        }
    };
    // The folder itself would refuse it too; this does not depend on what lies on the way.
    match inner.components().any(|part| part == Component::ParentDir) {
        true => Err(fault(path, FileProblem::Outside)),
        false if inner.as_os_str().is_empty() => Ok(PathBuf::from(".")),
        false => Ok(inner),
    }
}

fn fault(path: &Path, problem: FileProblem) -> RpcFault {
    match problem {
        // Agents take a file for a new one only with these words.
        FileProblem::Missing => RpcFault::new(NOT_FOUND, format!("Resource not found: {}", path.display())),
        problem => RpcFault::new(INVALID, format!("{} {problem}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    async fn asked(method: &str, params: Value, root: &Path) -> Result<Value, RpcFault> {
        answer(method, &params, root).unwrap().await
    }

    async fn read(path: &Path, root: &Path) -> Result<Value, RpcFault> {
        asked("fs/read_text_file", json!({ "path": path }), root).await
    }

    #[tokio::test]
    async fn files_of_the_folder_are_written_and_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/a.txt");
        let text = "one\ntwo\nthree\n";
        let written =
            asked("fs/write_text_file", json!({ "path": path, "content": text }), folder.path()).await;
        assert_eq!(written, Ok(json!({})));
        assert_eq!(read(&path, folder.path()).await, Ok(json!({ "content": text })));
        for (line, limit, part) in [(2, json!(1), "two\n"), (3, json!(null), "three\n"), (9, json!(2), "")] {
            let params = json!({ "path": "deep/er/a.txt", "line": line, "limit": limit });
            let answer = asked("fs/read_text_file", params, folder.path()).await;
            assert_eq!(answer, Ok(json!({ "content": part })), "from line {line}");
        }
        assert!(answer("terminal/create", &json!({}), folder.path()).is_none());
    }

    #[tokio::test]
    async fn a_long_line_before_the_first_one_that_is_wanted_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let mut file = std::fs::File::create(&path).unwrap();
        file.set_len(FILE - 6).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"\nlast\n").unwrap();
        let line = |line: u64, limit: u64| json!({ "path": "sparse", "line": line, "limit": limit });
        let asking = (0..16).map(|_| asked("fs/read_text_file", line(2, 1), folder.path()));
        let before = peak_memory();
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer, Ok(json!({ "content": "last\n" })));
        }
        let more = peak_memory().saturating_sub(before);
        // Plain cargo counts all tests of the program.
        assert!(more < 16 * 1024 || std::env::var_os("NEXTEST").is_none(), "{more} KiB");
        let fault = asked("fs/read_text_file", line(1, 1), folder.path()).await.unwrap_err();
        assert!(fault.message.contains("too large"), "{fault}");
    }

    /// Most memory that this process had so far, in KiB.
    fn peak_memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes =
            |line: &str| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        status.lines().find_map(kilobytes).unwrap_or_default()
    }

    #[tokio::test]
    async fn nothing_outside_is_read_or_written_by_any_way() {
        let around = tempfile::tempdir().unwrap();
        let root = around.path().join("session");
        std::fs::create_dir(&root).unwrap();
        let secret = around.path().join("secret");
        std::fs::write(&secret, "s").unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        std::os::unix::fs::symlink(around.path(), root.join("up")).unwrap();
        let ways = [secret.clone(), root.join("../secret"), root.join("link"), root.join("up/secret")];
        for way in ways.iter().map(PathBuf::as_path).chain([Path::new("../secret"), Path::new("/etc/passwd")])
        {
            let fault = read(way, &root).await.unwrap_err();
            assert!(!fault.message.contains("not found"), "{way:?} {fault}");
            let params = json!({ "path": way, "content": "x" });
            asked("fs/write_text_file", params, &root).await.unwrap_err();
        }
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "s");
    }

    #[tokio::test]
    async fn a_missing_file_is_named_as_agents_expect_it_and_odd_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let fault = read(&folder.path().join("none"), folder.path()).await.unwrap_err();
        assert!(fault.code == NOT_FOUND && fault.message.contains("Resource not found"), "{fault}");
        std::fs::write(folder.path().join("bytes"), [0xff, 0xfe]).unwrap();
        std::fs::write(folder.path().join("large"), vec![b'x'; 5 * 1024 * 1024]).unwrap();
        for (name, words) in [("bytes", "not a text"), ("large", "too large"), ("", "folder")] {
            let fault = read(&folder.path().join(name), folder.path()).await.unwrap_err();
            assert!(fault.message.contains(words), "{name}: {fault}");
        }
        for params in [json!({}), json!({ "path": 7 }), json!({ "path": "a", "content": 7 })] {
            asked("fs/write_text_file", params, folder.path()).await.unwrap_err();
        }
    }
}
