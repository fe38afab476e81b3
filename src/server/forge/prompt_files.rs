//! Files that a turn names: copied into the session's folder, and listed before its prompt.
//!
//! A copy, not a link: the agent may change it, and the upload must stay as it was sent.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::folders::on_disk;
use crate::ids::SessionId;
use crate::server::{ApiError, Caller, Server};
use crate::store::unix_now;
use crate::token;
use crate::util::random_hex;

/// Most files of one turn.
const MOST: usize = 20;

/// Characters of a file's name.
const LONGEST_NAME: usize = 100;

impl Server {
    /// Copies the files of these tokens into a new folder in that of the session; returns their paths. A token of another
    /// app is like one that never was.
    pub(super) async fn copy_files(
        &self,
        caller: &Caller,
        session: &SessionId,
        tokens: &[String],
    ) -> Result<Vec<PathBuf>, ApiError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        if tokens.len() > MOST {
            return Err(ApiError::wrong("files", format!("A turn has at most {MOST} files")));
        }
        let digests: Option<Vec<_>> = tokens.iter().map(|token| token::file_name(token)).collect();
        let digests = digests.ok_or_else(no_file)?;
        let app = caller.app().to_owned();
        let found = self.store.read(move |tx| {
            let now = unix_now();
            digests
                .iter()
                .map(|digest| tx.forge_file(&app, digest, now))
                .collect::<Result<Option<Vec<_>>, _>>()
        });
        let files = found.await?.ok_or_else(no_file)?;
        let mut taken = HashSet::new();
        let copies: Vec<_> = files
            .iter()
            .map(|file| (self.forge.of_upload(&file.digest), free_name(&file.name, &mut taken)))
            .collect();
        let folder = self.forge.make_for_session(session).await?;
        on_disk(move || copy_all(&folder, &copies)).await
    }
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

/// Copies files into a new folder below `folder`. The agent may have put links there: nothing is written through one.
fn copy_all(folder: &Path, copies: &[(PathBuf, String)]) -> io::Result<Vec<PathBuf>> {
    let dir = Dir::open_ambient_dir(folder, ambient_authority())?;
    let name = format!("files-{}", random_hex(4));
    dir.create_dir(&name)?;
    let own = dir.open_dir(&name)?;
    copies
        .iter()
        .map(|(from, to)| {
            let mut from = std::fs::File::open(from)?;
            let mut file = own.open_with(to, OpenOptions::new().write(true).create_new(true))?;
            io::copy(&mut from, &mut file)?;
            Ok(folder.join(&name).join(to))
        })
        .collect()
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
        let copied = copy_all(&session, &[(from.clone(), "a.txt".to_owned())]).unwrap();
        assert_eq!(std::fs::read_to_string(&copied[0]).unwrap(), "content");
        assert!(copied[0].starts_with(&session) && copied[0].ends_with("a.txt"));
        std::fs::write(&copied[0], "changed").unwrap();
        assert_eq!(std::fs::read_to_string(&from).unwrap(), "content");
    }
}
