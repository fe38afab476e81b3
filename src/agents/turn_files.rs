//! Files that a turn brings to an agent that is a program: pictures in a private folder that goes with the turn, other attachments in the
//! folder of the session.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::util::random_hex;

/// Folder in the working folder for files that people attached.
const ATTACHMENTS: &str = "attachments";

/// Names with a number that are tried for one attachment: people read those more easily.
const NUMBERED: usize = 100;

/// Random names that are tried after them. No two are equal, unless an agent guesses them.
const RANDOM: usize = 3;

/// Longest name of an attachment in bytes. File systems take 255.
const LONGEST_NAME: usize = 120;

/// The files of one turn.
#[derive(Debug)]
pub struct TurnFiles {
    /// Private folder of the pictures. Made with the first one, removed when this is dropped.
    folder: PathBuf,
    pictures: usize,
    /// Attachments that the agent does not know of yet. They are removed when this is dropped, so that a turn that is
    /// tried again does not leave them twice.
    attachments: Vec<PathBuf>,
}

impl TurnFiles {
    /// No files yet. `folder` belongs to this turn alone.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, pictures: 0, attachments: Vec::new() }
    }

    /// Writes a picture, and returns its path.
    pub fn add_picture(&mut self, mime: &str, content: &[u8]) -> io::Result<String> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let ending = match mime {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            _ => "img",
        };
        self.pictures += 1;
        let path = self.folder.join(format!("{}.{ending}", self.pictures));
        write_new(&path, content)?;
        text_of(&path)
    }

    /// The agent has the turn, or may have it: its attachments stay from now on.
    pub fn keep_attachments(&mut self) {
        self.attachments.clear();
    }

    /// Writes another file into the working folder, and returns its path within it. A file that is there is kept. It goes
    /// with the turn unless [`keep_attachments`](Self::keep_attachments) is called.
    pub fn add_attachment(&mut self, cwd: &Path, name: &str, content: &[u8]) -> io::Result<String> {
        let folder = cwd.join(ATTACHMENTS);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        if !folder.symlink_metadata()?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "the folder of attachments is a link"));
        }
        let name = plain_name(name);
        for number in 1..=NUMBERED + RANDOM {
            let tried = match number {
                1 => name.clone(),
                2..=NUMBERED => format!("{number}-{name}"),
                _ => format!("{}-{name}", random_hex(8)),
            };
            let path = folder.join(&tried);
            match write_new(&path, content) {
                Ok(()) => {
                    self.attachments.push(path);
                    return Ok(format!("{ATTACHMENTS}/{tried}"));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for TurnFiles {
    fn drop(&mut self) {
        if self.pictures > 0
            && let Err(error) = fs::remove_dir_all(&self.folder)
        {
            tracing::warn!(%error, "the pictures of a turn cannot be removed");
        }
        for path in &self.attachments {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, "an attachment of a turn that did not begin cannot be removed");
            }
        }
    }
}

/// Writes a file that is not there yet. A link in its place is not followed.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

fn text_of(path: &Path) -> io::Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

/// A name without folders, hidden beginnings and control characters.
fn plain_name(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control() && *c != '/' && *c != '\\').collect();
    let plain = plain.trim_start_matches(['.', '-', ' ']).trim_end();
    let from = plain.ceil_char_boundary(plain.len().saturating_sub(LONGEST_NAME));
    match plain.get(from..).unwrap_or_default() {
        "" => "file".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_get_plain_names_and_replace_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        let mut add =
            |name: &str, content: &[u8]| files.add_attachment(folder.path(), name, content).unwrap();
        assert_eq!(add("a.txt", b"1"), "attachments/a.txt");
        assert_eq!(add("a.txt", b"2"), "attachments/2-a.txt");
        assert_eq!(add("../../etc/passwd", b"3"), "attachments/etcpasswd");
        assert_eq!(add("...", b"4"), "attachments/file");
        assert_eq!(fs::read(folder.path().join("attachments/a.txt")).unwrap(), b"1");
    }

    #[test]
    fn only_attachments_that_the_agent_knows_of_stay() {
        let folder = tempfile::tempdir().unwrap();
        let left = || fs::read_dir(folder.path().join(ATTACHMENTS)).unwrap().count();
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        files.add_attachment(folder.path(), "a.txt", b"1").unwrap();
        drop(files);
        assert_eq!(left(), 0);
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        assert_eq!(files.add_attachment(folder.path(), "a.txt", b"1").unwrap(), "attachments/a.txt");
        files.keep_attachments();
        drop(files);
        assert_eq!(left(), 1);
    }

    #[test]
    fn a_folder_takes_any_number_of_files_with_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        let count = NUMBERED + 2 * RANDOM;
        let mut add =
            |number: usize| files.add_attachment(folder.path(), "picture.png", number.to_string().as_bytes());
        let paths: Vec<_> = (0..count).map(|number| add(number).unwrap()).collect();
        for (number, path) in paths.iter().enumerate() {
            assert!(path.ends_with("picture.png"), "{path}");
            assert_eq!(fs::read_to_string(folder.path().join(path)).unwrap(), number.to_string());
        }
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join(ATTACHMENTS)).unwrap();
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        assert!(files.add_attachment(folder.path(), "a", b"1").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
