//! Configuration: `kind: matrix`, an account on a Matrix homeserver.
//!
//! `entry` reads and checks an entry of the configuration, `variables` lists the environment variables, `settings` is
//! the outcome. This file answers the core's questions about the kind and about one account.

mod entry;
mod settings;
mod user_id;
mod variables;

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine as _;
use clap::ArgMatches;
use talaria_platform::config::{ConfigError, EntryReader, EnvVar};
use talaria_platform::{
    AccountLink, AccountPlatform, AccountSettings, AddressedWhen, AuthorProof, AuthorTrust, BoxFuture,
    CommandFailure, CommandReport, LibraryLog, PeopleTraits, PlatformKind, RoomId,
};

use crate::operator::commands;
use crate::{Matrix, login};
pub use settings::{EncryptionPolicy, LoginMethod, MatrixSettings, StoreKey};

/// Matrix as a kind of platform.
pub struct MatrixKind;

impl PlatformKind for MatrixKind {
    fn name(&self) -> &'static str {
        "matrix"
    }

    fn title(&self) -> &'static str {
        "Matrix"
    }

    fn people(&self) -> Option<PeopleTraits> {
        Some(PeopleTraits {
            is_id: user_id::is_user,
            examples: ["@ann:example.org", "@bob:example.org"],
            variable: Some(&variables::ALLOWED_USERS),
        })
    }

    fn variables(&self) -> &'static [EnvVar] {
        variables::ALL
    }

    /// matrix-sdk logs every sync with its whole request, and logs errors that are none for us, such as a homeserver
    /// that has nothing under a name yet. The adapter itself logs what a person should know.
    fn library_log(&self) -> Option<LibraryLog> {
        Some(LibraryLog {
            target: "matrix_sdk",
            filter: "matrix_sdk=error,matrix_sdk::http_client=off,matrix_sdk::encryption=off",
        })
    }

    fn read(&self, entry: &mut EntryReader<'_>) -> Option<Arc<dyn AccountSettings>> {
        Some(Arc::new(entry::read(entry)?))
    }

    fn command(&self) -> Option<clap::Command> {
        Some(commands::command())
    }

    fn run_command<'a>(
        &'a self,
        arguments: &'a ArgMatches,
        account: &'a dyn AccountLink,
    ) -> BoxFuture<'a, Result<CommandReport, CommandFailure>> {
        Box::pin(commands::run_there(arguments, account))
    }
}

impl AccountSettings for MatrixSettings {
    fn same_as(&self, other: &dyn AccountSettings) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn author_proof(&self) -> AuthorProof {
        AuthorProof {
            trust: (self.trust > AuthorTrust::Network).then_some(self.trust),
            secure_only: match self.e2ee {
                EncryptionPolicy::Required => true,
                EncryptionPolicy::Optional => false,
            },
        }
    }

    fn secrets(&self) -> Vec<String> {
        let login = match &self.login {
            LoginMethod::Password(secret) | LoginMethod::Token(secret) => Some(secret),
            LoginMethod::Stored => None,
        };
        let texts = login.into_iter().chain(&self.recovery_key).map(|secret| secret.expose().to_owned());
        texts.chain(self.store_key.iter().flat_map(|key| written_forms(&key.0))).collect()
    }

    fn describe(&self, rooms: HashSet<&RoomId>) -> Option<String> {
        let login = match self.login {
            LoginMethod::Password(_) => "with a password",
            LoginMethod::Token(_) => "with an access token",
            LoginMethod::Stored => "with the session of an earlier login, if there is one",
        };
        let trust = match self.trust {
            AuthorTrust::Violated | AuthorTrust::Network => "any device",
            AuthorTrust::CrossSigned => "cross-signed devices",
            AuthorTrust::Verified => "verified devices",
        };
        let e2ee = match self.e2ee {
            EncryptionPolicy::Required => "encrypted rooms only",
            EncryptionPolicy::Optional => "rooms with and without encryption",
        };
        let hearing = match self.hearing {
            AddressedWhen::Mentioned => "answers in rooms when it is named",
            AddressedWhen::Everything => "answers everything in rooms",
        };
        let user = self.user.as_deref().unwrap_or("the account");
        let rooms: HashSet<&RoomId> = rooms.into_iter().chain(self.rooms.keys()).collect();
        let places = match rooms.len() {
            0 => String::new(),
            count => format!(", {count} of them with settings of their own"),
        };
        Some(format!("{user} at {} {login}; hears {trust}, {e2ee}, {hearing}{places}", self.homeserver))
    }

    /// The account cannot log in: no credentials are configured, and no session is stored.
    fn start_problem(&self, name: &str) -> Option<ConfigError> {
        let stored = matches!(self.login, LoginMethod::Stored);
        (stored && !login::has_session(self)).then(|| {
            ConfigError::new(format!(
                "`platforms.{name}` has neither a password nor an access token, and no session is kept in {}",
                self.folder.display()
            ))
            .hint(
                "set `password_file` or `access_token_file` (MATRIX_PASSWORD_FILE, MATRIX_ACCESS_TOKEN_FILE)",
            )
        })
    }

    fn open(&self) -> AccountPlatform {
        AccountPlatform::Network(Arc::new(Matrix::new(self.clone())))
    }

    fn run_command<'a>(
        &'a self,
        arguments: &'a ArgMatches,
    ) -> BoxFuture<'a, Result<CommandReport, CommandFailure>> {
        Box::pin(commands::run_here(arguments, self))
    }
}

/// Forms in which a key of bytes may have been configured, and may appear in the log.
fn written_forms(key: &[u8]) -> [String; 3] {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    // Without padding, so that it is also found with padding.
    [hex.to_uppercase(), hex, base64::engine::general_purpose::STANDARD_NO_PAD.encode(key)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_however_it_was_written() {
        assert_eq!(written_forms(&[0xab, 0xcd]), ["ABCD", "abcd", "q80"]);
    }

    #[test]
    fn every_secret_can_come_from_a_file() {
        for var in variables::ALL.iter().filter(|var| var.secret) {
            let file = format!("{}_FILE", var.name);
            assert!(variables::ALL.iter().any(|var| var.name == file && !var.secret), "{file}");
        }
    }
}
