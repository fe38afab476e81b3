//! The generated owner's key of the agent server, for an operator who set none: `api.key` in the state folder.
//!
//! It is made on the first start that needs it, and then stays. Everybody who can read it can have the agent do
//! everything, so a file that others could have read or written is refused, never repaired: the key may be known
//! already.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::secret::SecretForm;
use super::{ConfigError, Secret};
use crate::token;

/// The file's name in the state folder.
const NAME: &str = "api.key";

/// Temporary name of the file until it is complete.
const NEW: &str = "api.key.new";

/// Prefix of keys that we make, so that people and the log filter recognise them.
pub const PREFIX: &str = "tlk_";

/// Random bytes of a key: 256 bits.
const BYTES: usize = 32;

/// Most bytes that are read; a key has 68 characters.
const LARGEST: u64 = 4096;

/// Fewest characters of a key in the file: we write the file, so fewer are a mistake.
const SHORTEST: usize = 16;

/// Why there is no key, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct KeyError {
    /// The fault, for people.
    pub message: String,
    /// The next step, for people.
    pub hint: &'static str,
}

impl From<KeyError> for ConfigError {
    fn from(error: KeyError) -> Self {
        Self::new(error.message).hint(error.hint)
    }
}

/// Path of the key in a state folder.
pub fn path(home: &Path) -> PathBuf {
    home.join(NAME)
}

/// Loads the key of a state folder; `None` if none was made yet. Changes nothing.
pub fn load(home: &Path) -> Result<Option<Secret>, KeyError> {
    let path = path(home);
    let shown = path.display();
    let unreadable = |error: io::Error| KeyError {
        message: format!("the key of the agent server in {shown} cannot be read: {}", error.kind()),
        hint: "it must be a file of this user; remove it to have another key made",
    };
    // Does not follow a link, which somebody may have put there; and a pipe must not block us.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(|_| unreadable(io::ErrorKind::InvalidInput.into()))?;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    // Read from the open file, so that nobody can put another one there in between.
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::ErrorKind::InvalidInput.into()));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(KeyError {
            message: format!("the key of the agent server in {shown} belongs to another user"),
            hint: "run talaria as that user; or remove the file, and another key is made",
        });
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(KeyError {
            message: format!(
                "the key of the agent server in {shown} is open to other users, who may know it by now"
            ),
            hint: "remove the file, and another key is made; if nobody else can have read it, `chmod 600` will do",
        });
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(unreadable)?;
    match Secret::parse(&text, SecretForm::Key) {
        Ok(Some(key)) if key.expose().len() >= SHORTEST => Ok(Some(key)),
        Ok(Some(_)) => Err(KeyError {
            message: format!("the key in {shown} has fewer than {SHORTEST} characters"),
            hint: "remove the file, and another key is made",
        }),
        Ok(None) | Err(_) => Err(KeyError {
            message: format!("there is no key in {shown}"),
            hint: "remove the file, and another key is made",
        }),
    }
}

/// Loads the key of a state folder, and makes one if there is none. The caller holds the lock of the folder.
pub fn load_or_make(home: &Path) -> Result<Secret, KeyError> {
    if let Some(key) = load(home)? {
        return Ok(key);
    }
    make(home).map_err(|error| KeyError {
        message: format!("the key of the agent server cannot be kept in {}: {error}", path(home).display()),
        hint: "check the rights of the state folder and the free space; or set API_SERVER_KEY",
    })?;
    load(home)?.ok_or_else(|| KeyError {
        message: format!("the key of the agent server has gone from {}", path(home).display()),
        hint: "keep other programs out of the state folder, and start again",
    })
}

/// Makes the key file, complete or not at all: writes it under another name first.
fn make(home: &Path) -> io::Result<()> {
    let new = home.join(NEW);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    writeln!(file, "{PREFIX}{}", token::random_hex(BYTES)?)?;
    file.sync_all()?;
    fs::rename(&new, path(home))?;
    File::open(home)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn home() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn refused(home: &Path) -> String {
        let error = load_or_make(home).unwrap_err();
        assert!(!error.hint.is_empty());
        error.message.replace(&home.display().to_string(), "HOME")
    }

    #[test]
    fn it_is_made_once_for_its_owner_alone_and_then_stays() {
        let (one, other) = (home(), home());
        assert_eq!(load(one.path()).unwrap(), None);
        assert!(!path(one.path()).exists(), "looking makes nothing");
        let key = load_or_make(one.path()).unwrap();
        assert_eq!(load_or_make(one.path()).unwrap(), key);
        assert_eq!(load(one.path()).unwrap(), Some(key.clone()));
        assert_ne!(load_or_make(other.path()).unwrap(), key);
        let digits = key.expose().strip_prefix(PREFIX).unwrap();
        assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "256 bits");
        assert_eq!(fs::metadata(path(one.path())).unwrap().permissions().mode() & 0o777, 0o600);
        let names: Vec<_> = fs::read_dir(one.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
    }

    #[test]
    fn what_a_crash_left_half_done_is_no_key() {
        let home = home();
        fs::write(home.path().join(NEW), "tlk_half").unwrap();
        let key = load_or_make(home.path()).unwrap();
        assert!(key.expose().len() == 68 && !home.path().join(NEW).exists());
    }

    #[test]
    fn a_file_that_others_may_have_read_is_refused_and_left_alone() {
        for mode in [0o640, 0o604, 0o620, 0o644, 0o666] {
            let home = home();
            load_or_make(home.path()).unwrap();
            let before = fs::read(path(home.path())).unwrap();
            fs::set_permissions(path(home.path()), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                refused(home.path()),
                "the key of the agent server in HOME/api.key is open to other users, who may know it by now"
            );
            assert_eq!(fs::read(path(home.path())).unwrap(), before);
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let none = "there is no key in HOME/api.key";
        for (content, why) in [
            ("", none),
            (" \n", none),
            ("short", "the key in HOME/api.key has fewer than 16 characters"),
            ("two\nlines of this and that", none),
            ("schlüssel-schlüssel", none),
        ] {
            let home = home();
            fs::write(path(home.path()), content).unwrap();
            fs::set_permissions(path(home.path()), fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(refused(home.path()), why, "{content:?}");
        }
        let home = home();
        let elsewhere = home.path().join("elsewhere");
        fs::write(&elsewhere, "0123456789abcdef0123456789").unwrap();
        symlink(&elsewhere, path(home.path())).unwrap();
        assert!(refused(home.path()).contains("cannot be read"));
        fs::remove_file(path(home.path())).unwrap();
        fs::create_dir(path(home.path())).unwrap();
        assert!(refused(home.path()).contains("cannot be read"));
    }
}
