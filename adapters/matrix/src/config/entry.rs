//! Reads an entry of the configuration, and checks it.
//!
//! The variables win over the file. They reach the entry called `matrix` only: other accounts are written in the file,
//! with secrets in files of their own (`password_file` and the like).

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use talaria_platform::config::setting::filled;
use talaria_platform::config::value::{TimeSpan, WholeNumber};
use talaria_platform::config::yaml_lines::KeyedMapping;
use talaria_platform::config::{
    BaseUrl, ConfigError, EntryReader, EnvVar, GivenValue, Secret, SecretForm, secret,
};
use talaria_platform::{AddressedWhen, AuthorTrust, RateLimit};

use super::settings::{EncryptionPolicy, LoginMethod, MatrixSettings, StoreKey};
use super::user_id::is_user;
use super::variables as vars;

/// Rate that a homeserver is believed to allow: Synapse's own, unless its administrator lifts it. To begin higher and
/// learn from refusals was tried: with ten answers at once the finals themselves were refused in a row.
const RATE: RateLimit = RateLimit { per_second: 0.2, burst: 10.0 };

/// The entry as written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MatrixSection {
    /// The homeserver's address. No default: needed.
    homeserver: Option<String>,
    /// The account's full id. No default: needed to log in with a password.
    user_id: Option<String>,
    /// Its password. Default: none.
    #[serde(deserialize_with = "secret::optional_phrase")]
    password: Option<Secret>,
    /// A file that holds it. Default: none.
    password_file: Option<String>,
    /// An access token, instead of the password. Default: none.
    #[serde(deserialize_with = "secret::optional")]
    access_token: Option<Secret>,
    /// A file that holds it. Default: none.
    access_token_file: Option<String>,
    /// Name of our device that people see. Default: `Talaria`.
    device_name: Option<String>,
    /// Opens the account's secret storage. Default: none.
    #[serde(deserialize_with = "secret::optional_phrase")]
    recovery_key: Option<Secret>,
    /// A file that holds it. Default: none.
    recovery_key_file: Option<String>,
    /// The key of the device's store. Default: one that is made on the first start.
    #[serde(deserialize_with = "secret::optional")]
    store_key: Option<Secret>,
    /// A file that holds it. Default: none.
    store_key_file: Option<String>,
    /// Which devices are heard and get keys. Default: `cross_signed`.
    trust: Option<WrittenTrust>,
    /// Whether only encrypted rooms are served. Default: `required`.
    e2ee: Option<WrittenE2ee>,
    /// Whether we must be named in rooms that are not direct chats. Default: `required`.
    mention: Option<AddressedWhen>,
    /// The longest message in bytes. Default: 10000.
    max_text: Option<WholeNumber<1000, 16_000>>,
    /// Longest wait for the key of a message that cannot be decrypted. Default: `10m`.
    unreadable_after: Option<TimeSpan<1000>>,
    /// The shortest pause between two edits of one message. Default: `1s`.
    pause: Option<TimeSpan<100>>,
    /// Rate that the homeserver is believed to allow. Default: one message in five seconds, ten at once.
    rate: Option<KeyedMapping<WrittenRate>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenTrust {
    Any,
    CrossSigned,
    Verified,
}

const TRUSTS: [&str; 3] = ["any", "cross_signed", "verified"];

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenE2ee {
    Required,
    Optional,
}

const E2EES: [&str; 2] = ["required", "optional"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRate {
    /// Messages and edits that come back each second.
    per_second: f64,
    /// Messages and edits that may come at once.
    burst: f64,
}

/// Reads the entry. Goes on after a fault, so that all of them are reported at once; `None` if it cannot be parsed.
pub(super) fn read(entry: &mut EntryReader<'_>) -> Option<MatrixSettings> {
    let written: MatrixSection = entry.parse()?;
    let login = read_login(entry, &written);
    let homeserver = read_homeserver(entry, written.homeserver);
    let user = read_user(entry, written.user_id, &login);
    let recovery_key = entry.secret(
        "recovery_key",
        (&vars::RECOVERY_KEY, &vars::RECOVERY_KEY_FILE),
        SecretForm::Phrase,
        (written.recovery_key, written.recovery_key_file),
    );
    let store_key = entry.secret(
        "store_key",
        (&vars::STORE_KEY, &vars::STORE_KEY_FILE),
        SecretForm::Key,
        (written.store_key, written.store_key_file),
    );
    let store_key = store_key.and_then(|key| read_store_key(entry, &key));
    let trust = entry.word(&vars::TRUST, &TRUSTS).or(written.trust);
    let e2ee = entry.word(&vars::E2EE, &E2EES).or(written.e2ee);
    let rate = read_rate(entry, written.rate);
    let settings = MatrixSettings {
        homeserver: homeserver.map(|url| url.as_str().to_owned()).unwrap_or_default(),
        user,
        login,
        device_name: filled(written.device_name).unwrap_or_else(|| "Talaria".to_owned()),
        folder: entry.folder(),
        store_key,
        recovery_key,
        trust: trust.map_or(AuthorTrust::CrossSigned, AuthorTrust::from),
        e2ee: e2ee.map_or(EncryptionPolicy::Required, EncryptionPolicy::from),
        hearing: written.mention.unwrap_or_default(),
        rooms: entry.mentions(),
        unreadable_after: written.unreadable_after.map_or(Duration::from_secs(10 * 60), |span| span.0),
        pause: written.pause.map_or(Duration::from_secs(1), |pause| pause.0),
        max_text: written.max_text.map_or(10_000, |length| length.0),
        rate,
    };
    if settings.e2ee == EncryptionPolicy::Optional && trust.is_some() && settings.trust > AuthorTrust::Network
    {
        entry.warn(format!(
            "`platforms.{}.trust` means nothing in rooms without encryption, which `e2ee: optional` serves: there the \
             homeserver's word is taken for who wrote something",
            entry.name()
        ));
    }
    Some(settings)
}

/// Reports a fault.
fn refuse(entry: &mut EntryReader<'_>, message: String, hint: &str) {
    entry.refuse(ConfigError::new(message).hint(hint));
}

/// The setting as hints name it: the variable too, where it configures this entry.
fn name_of(entry: &EntryReader<'_>, key: &str, var: &EnvVar) -> String {
    match entry.has_variables() {
        true => format!("`{}` or `platforms.{}.{key}`", var.name, entry.name()),
        false => format!("`platforms.{}.{key}`", entry.name()),
    }
}

fn read_homeserver(entry: &mut EntryReader<'_>, written: Option<String>) -> Option<BaseUrl> {
    const HINT: &str = "write it with its scheme, such as `https://matrix.example.org`";
    let Some(given) = entry.text("homeserver", &vars::HOMESERVER, written) else {
        let place = entry.place(None);
        let (message, hint) = match entry.has_variables() {
            true => (
                "there is no address of the Matrix homeserver".to_owned(),
                format!(
                    "set {}, for example to `https://matrix.example.org`",
                    name_of(entry, "homeserver", &vars::HOMESERVER)
                ),
            ),
            false => (format!("`platforms.{}` has no `homeserver`{place}", entry.name()), HINT.to_owned()),
        };
        refuse(entry, message, &hint);
        return None;
    };
    let GivenValue { name, place, value } = &given;
    let Ok(url) = BaseUrl::parse(value) else {
        refuse(entry, format!("{name} is not the address of a homeserver{place}"), HINT);
        return None;
    };
    if !url.is_encrypted() && !url.is_near() {
        refuse(
            entry,
            format!("{name} would carry the password or token unencrypted over a public network{place}"),
            "use `https://`; `http://` is for this machine and private networks",
        );
    }
    Some(url)
}

/// Reads the login method. A credential in the environment replaces all credentials of the file.
fn read_login(entry: &mut EntryReader<'_>, written: &MatrixSection) -> LoginMethod {
    let credentials = [&vars::PASSWORD, &vars::PASSWORD_FILE, &vars::ACCESS_TOKEN, &vars::ACCESS_TOKEN_FILE];
    let by_environment = credentials.iter().any(|var| entry.is_set(var));
    let of_file = |key: &Option<Secret>, file: &Option<String>| match by_environment {
        true => (None, None),
        false => (key.clone(), file.clone()),
    };
    let password = entry.secret(
        "password",
        (&vars::PASSWORD, &vars::PASSWORD_FILE),
        SecretForm::Phrase,
        of_file(&written.password, &written.password_file),
    );
    let token = entry.secret(
        "access_token",
        (&vars::ACCESS_TOKEN, &vars::ACCESS_TOKEN_FILE),
        SecretForm::Key,
        of_file(&written.access_token, &written.access_token_file),
    );
    match (password, token) {
        (Some(_), Some(_)) => {
            let (what, place) = match by_environment {
                true => ("`MATRIX_PASSWORD` and `MATRIX_ACCESS_TOKEN` are".to_owned(), String::new()),
                false => (
                    format!("`platforms.{}` has `password` and `access_token`,", entry.name()),
                    entry.place(None),
                ),
            };
            let hint = "keep one: a password lets Talaria make a device of its own, a token belongs to a device that \
                        nothing else may use";
            refuse(entry, format!("{what} both set, but one login is enough{place}"), hint);
            LoginMethod::Stored
        }
        (Some(password), None) => LoginMethod::Password(password),
        (None, Some(token)) => LoginMethod::Token(token),
        (None, None) => LoginMethod::Stored,
    }
}

fn read_user(entry: &mut EntryReader<'_>, written: Option<String>, login: &LoginMethod) -> Option<String> {
    match entry.text("user_id", &vars::USER_ID, written) {
        Some(GivenValue { value, .. }) if is_user(&value) => Some(value),
        Some(GivenValue { name, place, .. }) => {
            refuse(
                entry,
                format!("{name} is not a full id{place}"),
                "write the whole id of the account that answers, such as `@bot:example.org`",
            );
            None
        }
        None if matches!(login, LoginMethod::Password(_)) => {
            let (place, setting) = (entry.place(None), name_of(entry, "user_id", &vars::USER_ID));
            refuse(
                entry,
                format!("there is a password for Matrix but no account{place}"),
                &format!("set {setting}, for example to `@bot:example.org`"),
            );
            None
        }
        None => None,
    }
}

fn read_store_key(entry: &mut EntryReader<'_>, key: &Secret) -> Option<StoreKey> {
    let parsed = parse_store_key(key.expose());
    if parsed.is_none() {
        let setting = name_of(entry, "store_key", &vars::STORE_KEY);
        refuse(
            entry,
            format!("{setting} must be 32 bytes, as 64 hexadecimal digits or in base64"),
            "make one with `openssl rand -hex 32`; or leave it out, and one is made on the first start",
        );
    }
    parsed
}

fn read_rate(entry: &mut EntryReader<'_>, written: Option<KeyedMapping<WrittenRate>>) -> RateLimit {
    let Some(KeyedMapping(WrittenRate { per_second, burst })) = written else { return RATE };
    let fits = |number: f64, least: f64| number.is_finite() && (least..=1000.0).contains(&number);
    if !fits(per_second, 0.01) || !fits(burst, 1.0) {
        let place = entry.place(Some("rate"));
        refuse(
            entry,
            format!("`platforms.{}.rate` does not make sense{place}", entry.name()),
            "`per_second` is from 0.01 to 1000 and `burst` from 1 to 1000; Synapse's own are 0.2 and 10",
        );
    }
    RateLimit { per_second, burst }
}

/// 64 hexadecimal digits, or base64 of 32 bytes, with padding or without.
fn parse_store_key(text: &str) -> Option<StoreKey> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let bytes = match digits.filter(|digits| digits.len() == 64) {
        Some(digits) => {
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
        }
        None => GeneralPurpose::new(&alphabet::STANDARD, config).decode(text).ok()?,
    };
    bytes.try_into().ok().map(StoreKey)
}

impl From<WrittenTrust> for AuthorTrust {
    fn from(written: WrittenTrust) -> Self {
        match written {
            WrittenTrust::Any => Self::Network,
            WrittenTrust::CrossSigned => Self::CrossSigned,
            WrittenTrust::Verified => Self::Verified,
        }
    }
}

impl From<WrittenE2ee> for EncryptionPolicy {
    fn from(written: WrittenE2ee) -> Self {
        match written {
            WrittenE2ee::Required => Self::Required,
            WrittenE2ee::Optional => Self::Optional,
        }
    }
}
