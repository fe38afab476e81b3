//! Files that a turn names: copied into the session's folder, and listed before its prompt.
//!
//! A copy, not a link: the agent may change it, and the upload must stay as it was sent.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use axum::http::StatusCode;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use talaria_platform::spawn_task;

use super::busy;
use super::copy_quota::{COPIES, CopyLimits, CopyShare};
use super::folders::on_disk;
use crate::ids::{SessionId, TurnId};
use crate::reply::TurnOutcome;
use crate::server::submit::{SubmittedTurn, TurnRequest, submit_turn};
use crate::server::{ApiError, Caller, Server};
use crate::store::{ForgeFile, KeyLookup, unix_now};
use crate::token;
use crate::util::{random_hex, remove_folder_in};

/// Most files of one turn.
const MOST: usize = 20;

/// Most bytes of the files of one turn. Its copies stay as long as the session.
const MOST_BYTES: u64 = 200 * 1024 * 1024;

/// Most bytes of copies in all sessions, as many as may be uploaded.
const MOST_COPIED: CopyLimits =
    CopyLimits { of_app: super::uploads::MOST.bytes, of_all: super::uploads::MOST_OF_ALL };

/// `Retry-After` when there are too many copies: some session must be deleted first.
const AGAIN: Duration = Duration::from_secs(60);

/// Characters of a file's name.
const LONGEST_NAME: usize = 100;

/// Files that were copied for a turn. Dropping them removes them again, on this thread, unless they are [kept](Self::keep).
pub struct CopiedFiles {
    paths: Vec<PathBuf>,
    /// The session's folder, and in it the name of the new folder with the files. `None` once they are kept.
    folder: Option<(Dir, String)>,
    /// Their bytes, as they count for the app.
    share: Option<CopyShare>,
}

impl CopiedFiles {
    fn none() -> Self {
        Self { paths: Vec::new(), folder: None, share: None }
    }

    /// Where the files are.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Leaves the files where they are: they go with the session's folder.
    pub fn keep(mut self) -> Vec<PathBuf> {
        self.folder = None;
        if let Some(share) = self.share.take() {
            share.keep();
        }
        std::mem::take(&mut self.paths)
    }

    /// Removes the files, on a blocking thread.
    async fn remove(self) {
        let removed = on_disk(move || {
            drop(self);
            Ok(())
        });
        if let Err(problem) = removed.await {
            tracing::warn!(problem = problem.message, "the files of a refused turn may stay");
        }
    }

    /// Whether a prompt was made with these files.
    fn are_in(&self, prompt: &str) -> bool {
        self.paths.first().is_some_and(|path| prompt.contains(&path.display().to_string()))
    }
}

impl Drop for CopiedFiles {
    fn drop(&mut self) {
        if let Some((dir, name)) = self.folder.take()
            && let Err(error) = remove_folder_in(&dir, &name)
        {
            tracing::warn!(%error, "the files of a refused turn stay until their session is deleted");
        }
    }
}

impl Server {
    /// Copies the files of these tokens into a new folder in that of the session. A token of another app is like one that
    /// never was. Nothing is copied for a request that is refused because a turn of the session runs, nor for one whose
    /// `Idempotency-Key` is known: it gets the answer of the turn before it.
    pub(super) async fn copy_files(
        &self,
        caller: &Caller,
        session: &SessionId,
        tokens: &[String],
        key: Option<&str>,
    ) -> Result<CopiedFiles, ApiError> {
        if tokens.is_empty() {
            return Ok(CopiedFiles::none());
        }
        if tokens.len() > MOST {
            return Err(ApiError::wrong("files", format!("A turn has at most {MOST} files")));
        }
        if tokens.iter().collect::<HashSet<_>>().len() < tokens.len() {
            return Err(ApiError::wrong("files", "A file is named twice; name each file once"));
        }
        let digests: Option<Vec<_>> = tokens.iter().map(|token| token::file_name(token)).collect();
        let (app, id, key) = (caller.app().to_owned(), session.clone(), key.map(str::to_owned));
        let found = self.store.read(move |tx| {
            if let Some(key) = &key
                // Whether with this body or another one: the submission finds that out, and refuses the other.
                && tx.asked_before(&app, key, "")? != KeyLookup::New
            {
                return Ok(TurnFiles::Repeated);
            }
            if !tx.open_turns(&id)?.is_empty() {
                return Ok(TurnFiles::Busy);
            }
            let now = unix_now();
            let files = digests.iter().flatten().map(|digest| tx.forge_file(&app, digest, now));
            let files = files.collect::<Result<Option<Vec<_>>, _>>()?;
            Ok(files.filter(|_| digests.is_some()).map_or(TurnFiles::Unknown, TurnFiles::Found))
        });
        let files = match found.await? {
            TurnFiles::Found(files) => files,
            TurnFiles::Unknown => return Err(no_file()),
            TurnFiles::Busy => return Err(busy()),
            TurnFiles::Repeated => return Ok(CopiedFiles::none()),
        };
        let bytes = files.iter().map(|file| file.size).sum::<u64>();
        if bytes > MOST_BYTES {
            let message = format!(
                "The files of a turn have at most {MOST_BYTES} bytes together; send fewer or smaller ones"
            );
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "files_too_large", message));
        }
        let mut taken = HashSet::new();
        let copies: Vec<_> = files
            .iter()
            .map(|file| (self.forge.of_upload(&file.digest), free_name(&file.name, &mut taken)))
            .collect();
        let share = self.forge.begin_copy(&self.store, (caller.app(), session), bytes, MOST_COPIED).await?;
        let share = share.ok_or_else(too_much)?;
        let folder = self.forge.make_for_session(session).await?;
        // If the client leaves meanwhile, the thread drops the copies when it has made them.
        let copying = on_disk(move || {
            let mut copied = copy_all(&folder, &copies)?;
            if let Some(copied) = &mut copied {
                copied.share = Some(share);
            }
            Ok(copied)
        });
        copying.await?.ok_or_else(no_file)
    }

    /// Submits a turn with its files, and removes them again if the turn is refused or an equal request began it. Runs on
    /// its own task: the client may leave before it is known whether the turn needs the files.
    pub(super) async fn submit_with_files(
        self: &Arc<Self>,
        caller: &Caller,
        request: TurnRequest,
        files: CopiedFiles,
    ) -> Result<SubmittedTurn, ApiError> {
        if files.paths().is_empty() {
            return submit_turn(self, caller, request).await;
        }
        let (server, caller) = (self.clone(), caller.clone());
        let submitted = spawn_task("submit-a-turn-with-files", async move {
            let submitted = submit_turn(&server, &caller, request).await;
            let run = match &submitted {
                Ok(submitted) => Some(submitted.reader.run.clone()),
                Err(problem) => problem.begun.as_ref().map(|begun| begun.1.clone()),
            };
            match run {
                Some(run) if server.needs_files(run.clone(), &files).await => {
                    let waiting = server.keep_if_run(run, files);
                    spawn_task("files-of-a-turn", waiting);
                }
                _ => files.remove().await,
            }
            submitted
        });
        submitted.await.unwrap_or_else(|error| Err(ApiError::mistake(error)))
    }

    /// Keeps the files of a turn, and removes them if it ends without having run: there was no place for it, or its agent
    /// was away.
    fn keep_if_run(self: &Arc<Self>, run: TurnId, files: CopiedFiles) -> impl Future<Output = ()> + use<> {
        let (server, log) = (self.clone(), self.turns.log_of(&run));
        async move {
            if let Some(log) = log {
                tokio::select! {
                    () = log.ended() => {}
                    // The turn goes on in the next process.
                    () = server.draining.cancelled() => return drop(files.keep()),
                }
            }
            let end = server.store.read(move |tx| tx.finished_in_short(&run)).await;
            match end {
                Ok(Some((_, end))) if matches!(end.outcome, TurnOutcome::Unavailable { .. }) => {
                    files.remove().await
                }
                Ok(_) | Err(_) => drop(files.keep()),
            }
        }
    }

    /// Whether this turn was made with these files.
    async fn needs_files(&self, run: TurnId, files: &CopiedFiles) -> bool {
        match self.store.read(move |tx| tx.turn(&run)).await {
            Ok(turn) => turn.is_some_and(|turn| files.are_in(&turn.prompt)),
            // The turn may run: its files are worth more than their space.
            Err(_) => true,
        }
    }
}

/// What the store says about the files of a turn.
enum TurnFiles {
    Found(Vec<ForgeFile>),
    /// One of them is not a file of the app.
    Unknown,
    /// Another turn of the session has not ended.
    Busy,
    /// The request came before.
    Repeated,
}

/// The prompt behind a list of its files; without files as it is.
pub fn with_files(prompt: String, files: &[PathBuf]) -> String {
    if files.is_empty() {
        return prompt;
    }
    let lines: String = files.iter().map(|file| format!("- {}\n", file.display())).collect();
    format!("Files that belong to this message:\n{lines}\n{prompt}")
}

/// A name for a file that no other file of the turn has.
fn free_name(name: &str, taken: &mut HashSet<String>) -> String {
    let mut free = name.to_owned();
    let mut number = 2;
    while !taken.insert(free.clone()) {
        free = format!("{number}-{name}");
        number += 1;
    }
    free
}

/// The last part of a name that an app sent, in plain characters: it stands in a prompt, and becomes a path.
pub fn clean_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let clean: String = last.trim().chars().take(LONGEST_NAME).map(plain).collect();
    let clean = clean.trim_start_matches('.').to_owned();
    // A name of many wide characters is too long for a file system.
    let clean = clean[..clean.floor_char_boundary(200)].to_owned();
    if clean.is_empty() { "file".to_owned() } else { clean }
}

/// Copies files into a new folder below `folder`; `None` if one of them is gone. The agent may have put links there: nothing
/// is written through one.
fn copy_all(folder: &Path, copies: &[(PathBuf, String)]) -> io::Result<Option<CopiedFiles>> {
    // All are open before one is copied: the sweeper may remove them at any time.
    let mut sources = Vec::new();
    for (from, to) in copies {
        match fs::File::open(from) {
            Ok(file) => sources.push((file, to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let dir = Dir::open_ambient_dir(folder, ambient_authority())?;
    let name = format!("{COPIES}{}", random_hex(4));
    dir.create_dir(&name)?;
    let path = folder.join(&name);
    let folder = Some((dir.try_clone()?, name.clone()));
    let mut copied = CopiedFiles { paths: Vec::new(), folder, share: None };
    let own = dir.open_dir(&name)?;
    for (mut from, to) in sources {
        let mut file = own.open_with(to, OpenOptions::new().write(true).create_new(true))?;
        io::copy(&mut from, &mut file)?;
        copied.paths.push(path.join(to));
    }
    Ok(Some(copied))
}

fn too_much() -> ApiError {
    let message = "The sessions of this app, or of all, hold too many bytes of files; close some of them, or ask again \
                   when they are deleted";
    ApiError::busy(message, AGAIN)
}

fn no_file() -> ApiError {
    let message = "There is no such file of this app, or its time is over; send it again to POST /files";
    let problem = ApiError::wrong("files", message);
    ApiError { status: StatusCode::BAD_REQUEST, code: "unknown_file", ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_names_its_files_and_without_files_stays_as_it_is() {
        assert_eq!(with_files("hello".to_owned(), &[]), "hello");
        let told = with_files("hello".to_owned(), &["/data/x.txt".into(), "/data/y.txt".into()]);
        assert!(told.contains("/data/x.txt\n") && told.contains("/data/y.txt\n"), "{told}");
        assert!(told.ends_with("hello"));
    }

    #[test]
    fn a_name_is_a_plain_one_and_each_file_has_its_own() {
        for (name, clean) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("C:\\x\\y z.txt", "y_z.txt"),
            (".env", "env"),
            ("..", "file"),
            ("", "file"),
            ("a\nb\u{202e}c", "a_b_c"),
            ("Über.txt", "Über.txt"),
        ] {
            assert_eq!(clean_name(name), clean, "{name:?}");
        }
        assert!(clean_name(&"ü".repeat(1_000)).len() <= 200);
        let mut taken = HashSet::new();
        let names = ["a", "a", "b", "a"].map(|name| free_name(name, &mut taken));
        assert_eq!(names, ["a", "2-a", "b", "3-a"]);
    }

    #[test]
    fn files_are_copied_beside_what_an_agent_put_there_and_never_through_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("upload");
        std::fs::write(&from, "content").unwrap();
        let session = folder.path().join("session");
        std::fs::create_dir(&session).unwrap();
        std::os::unix::fs::symlink("/etc", session.join("files")).unwrap();
        let copied = copy_all(&session, &[(from.clone(), "a.txt".to_owned())]).unwrap().unwrap().keep();
        assert_eq!(std::fs::read_to_string(&copied[0]).unwrap(), "content");
        assert!(copied[0].starts_with(&session) && copied[0].ends_with("a.txt"));
        std::fs::write(&copied[0], "changed").unwrap();
        assert_eq!(std::fs::read_to_string(&from).unwrap(), "content");
    }

    #[test]
    fn copies_that_fail_half_way_or_are_not_kept_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("upload");
        fs::write(&from, "content").unwrap();
        let session = folder.path().join("session");
        fs::create_dir(&session).unwrap();
        let is_empty = || fs::read_dir(&session).unwrap().next().is_none();
        let copy = |name: &str| (from.clone(), name.to_owned());
        assert!(copy_all(&session, &[copy("a"), copy("a")]).is_err(), "a name is used once");
        assert!(is_empty());
        let gone = (folder.path().join("gone"), "b".to_owned());
        assert!(copy_all(&session, &[copy("a"), gone]).unwrap().is_none());
        assert!(is_empty());
        let copied = copy_all(&session, &[copy("a"), copy("b")]).unwrap().unwrap();
        assert!(!is_empty());
        drop(copied);
        assert!(is_empty());
    }
}
