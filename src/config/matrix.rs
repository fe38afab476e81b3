//! `kind: matrix`, an account on a Matrix homeserver; and the variables that configure the entry called `matrix`.
//!
//! The variables win over the file. They reach one entry only: other accounts are written in the file, with keys in
//! files of their own (`password_file` and the like).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny, IntoDeserializer as _, value};
use talaria_matrix::{AddressedWhen, EncryptionPolicy, LoginMethod, MatrixSettings, StoreKey};
use talaria_platform::{AuthorTrust, RateLimit, RoomId};

use super::access_rules::{self, MentionSetting, NetworkTraits};
use super::document::ConfigDocument;
use super::env::{self, EnvReader, EnvVar};
use super::matrix_id::is_user;
use super::resolve::{ConfigResolver, GivenValue, SettingSource, filled};
use super::secret::{self, SecretForm};
use super::secret_sources::KeySetting;
use super::suggest::did_you_mean;
use super::value::{TimeSpan, WholeNumber};
use super::yaml_lines::KeyedMapping;
use super::{BaseUrl, ConfigError, Secret};
use crate::rules::AccountRules;

/// The entry that the variables configure.
const BY_VARIABLES: &str = "matrix";

/// What a homeserver is believed to allow: what Synapse does unless its administrator lifts it. To begin higher and
/// learn from refusals was tried: with ten answers at once the finals themselves were refused in a row.
const RATE: RateLimit = RateLimit { per_second: 0.2, burst: 10.0 };

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MatrixSection {
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    // Read by `access_rules`.
    #[serde(rename = "access")]
    _access: Option<IgnoredAny>,
    #[serde(rename = "session")]
    _session: Option<IgnoredAny>,
    #[serde(rename = "busy")]
    _busy: Option<IgnoredAny>,
    #[serde(rename = "places")]
    _places: Option<IgnoredAny>,
    #[serde(rename = "limits")]
    _limits: Option<IgnoredAny>,
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
    /// What people see as the name of our device. Default: `Talaria`.
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
    mention: Option<MentionSetting>,
    /// The longest message in bytes. Default: 10000.
    max_text: Option<WholeNumber<1000, 16_000>>,
    /// How long the key of a message is waited for that cannot be decrypted. Default: `10m`.
    unreadable_after: Option<TimeSpan<1000>>,
    /// The shortest pause between two edits of one message. Default: `1s`.
    pause: Option<TimeSpan<100>>,
    /// What the homeserver is believed to allow. Default: one message in five seconds, ten at once.
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
pub(super) struct WrittenRate {
    /// Messages and edits that come back each second.
    per_second: f64,
    /// Messages and edits that may come at once.
    burst: f64,
}

/// Reads `platforms.<name>`. `None` only with an error.
pub(super) fn read(
    resolver: &mut ConfigResolver<'_>,
    document: &ConfigDocument,
    name: &str,
) -> Option<MatrixSettings> {
    let written: MatrixSection = match document.parse_at(&["platforms", name]) {
        Ok(written) => written,
        Err(error) => {
            resolver.errors.push(error);
            return None;
        }
    };
    let before = resolver.errors.len();
    let mut entry = MatrixEntry { resolver, name };
    let login = entry.login(&written);
    // From here on everything is read, so that all that is wrong can be said at once.
    let homeserver = entry.homeserver(written.homeserver);
    let user = entry.user(written.user_id, &login);
    let recovery_key = entry.key(
        "recovery_key",
        (&env::MATRIX_RECOVERY_KEY, &env::MATRIX_RECOVERY_KEY_FILE),
        SecretForm::Phrase,
        (written.recovery_key, written.recovery_key_file),
    );
    let store_key = entry.key(
        "store_key",
        (&env::MATRIX_STORE_KEY, &env::MATRIX_STORE_KEY_FILE),
        SecretForm::Key,
        (written.store_key, written.store_key_file),
    );
    let store_key = entry.store_key(store_key);
    let trust = entry.word(&env::MATRIX_TRUST, &TRUSTS).or(written.trust);
    let e2ee = entry.word(&env::MATRIX_E2EE, &E2EES).or(written.e2ee);
    let rate = entry.rate(written.rate);
    let rooms = entry.rooms(document);
    let settings = MatrixSettings {
        homeserver: homeserver.map(|url| url.as_str().to_owned()).unwrap_or_default(),
        user,
        login,
        device_name: filled(written.device_name).unwrap_or_else(|| "Talaria".to_owned()),
        folder: resolver.home.join("matrix").join(name),
        store_key,
        recovery_key: recovery_key.map(|key| hidden(&key)),
        trust: trust.map_or(AuthorTrust::CrossSigned, AuthorTrust::from),
        e2ee: e2ee.map_or(EncryptionPolicy::Required, EncryptionPolicy::from),
        hearing: written.mention.map_or(AddressedWhen::Mentioned, AddressedWhen::from),
        rooms,
        unreadable_after: written.unreadable_after.map_or(Duration::from_secs(10 * 60), |span| span.0),
        pause: written.pause.map_or(Duration::from_secs(1), |pause| pause.0),
        max_text: written.max_text.map_or(10_000, |length| length.0),
        rate,
    };
    if resolver.errors.len() == before {
        if settings.e2ee == EncryptionPolicy::Optional
            && trust.is_some()
            && settings.trust > AuthorTrust::Network
        {
            resolver.warnings.push(format!(
                "`platforms.{name}.trust` means nothing in rooms without encryption, which `e2ee: optional` serves: \
                 there the homeserver's word is taken for who wrote something"
            ));
        }
        return Some(settings);
    }
    if let Err(error) = people(resolver.env, document, name, &settings) {
        resolver.errors.push(error);
    }
    None
}

/// What `platforms.<name>` and the variables say about people.
pub(super) fn people(
    env: EnvReader<'_>,
    document: &ConfigDocument,
    name: &str,
    settings: &MatrixSettings,
) -> Result<AccountRules, ConfigError> {
    let ids = |list: String| {
        let ids = list.split(',').map(str::trim).filter(|id| !id.is_empty());
        ids.map(str::to_owned).collect()
    };
    let variable = &env::MATRIX_ALLOWED_USERS;
    let variable = (name == BY_VARIABLES).then(|| (variable.name, env.get(variable).map(ids)));
    let trust = (settings.trust > AuthorTrust::Network).then_some(settings.trust);
    let secure_only = match settings.e2ee {
        EncryptionPolicy::Required => true,
        EncryptionPolicy::Optional => false,
    };
    access_rules::read(document, name, NetworkTraits { is_id: is_user, variable, trust, secure_only })
}

/// One line for `talaria check`.
pub(super) fn describe(settings: &MatrixSettings, rules: &AccountRules) -> String {
    let login = match settings.login {
        LoginMethod::Password(_) => "with a password",
        LoginMethod::Token(_) => "with an access token",
        LoginMethod::Stored => "with the session of an earlier login, if there is one",
    };
    let trust = match settings.trust {
        AuthorTrust::Violated | AuthorTrust::Network => "any device",
        AuthorTrust::CrossSigned => "cross-signed devices",
        AuthorTrust::Verified => "verified devices",
    };
    let e2ee = match settings.e2ee {
        EncryptionPolicy::Required => "encrypted rooms only",
        EncryptionPolicy::Optional => "rooms with and without encryption",
    };
    let hearing = match settings.hearing {
        AddressedWhen::Mentioned => "answers in rooms when it is named",
        AddressedWhen::Everything => "answers everything in rooms",
    };
    let user = settings.user.as_deref().unwrap_or("the account");
    let rooms: HashSet<&RoomId> = rules.places.keys().chain(settings.rooms.keys()).collect();
    let places = match rooms.len() {
        0 => String::new(),
        count => format!(", {count} of them with settings of their own"),
    };
    format!("{user} at {} {login}; hears {trust}, {e2ee}, {hearing}{places}", settings.homeserver)
}

/// An entry that is being read.
struct MatrixEntry<'r, 'a> {
    resolver: &'r mut ConfigResolver<'a>,
    name: &'r str,
}

impl MatrixEntry<'_, '_> {
    /// The variable, if this is the entry that it configures.
    fn var<T>(&self, var: T) -> Option<T> {
        (self.name == BY_VARIABLES).then_some(var)
    }

    fn text(&self, key: &str, var: &EnvVar, written: Option<String>) -> Option<GivenValue> {
        let path = ["platforms", self.name, key];
        self.resolver.text(SettingSource { var: self.var(var), path: &path }, written)
    }

    fn key(
        &mut self,
        key: &str,
        vars: (&EnvVar, &EnvVar),
        form: SecretForm,
        (written, written_file): (Option<Secret>, Option<String>),
    ) -> Option<Secret> {
        let path = ["platforms", self.name, key];
        let vars = self.var(vars);
        self.resolver.key(KeySetting { vars, path: &path, form }, written, written_file)
    }

    /// One of some words from the environment.
    fn word<T: DeserializeOwned>(&mut self, var: &EnvVar, words: &[&str]) -> Option<T> {
        let word = self.resolver.env.get(self.var(var)?)?;
        let read: Result<T, value::Error> = T::deserialize(word.as_str().into_deserializer());
        if read.is_err() {
            let known = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let error = ConfigError::new(format!("`{}` must be one of {known}", var.name));
            let hint = did_you_mean(&word, words.iter().copied());
            self.resolver.errors.push(match hint {
                Some(hint) => error.hint(hint),
                None => error,
            });
        }
        read.ok()
    }

    fn error(&mut self, message: String, hint: &str) {
        self.resolver.errors.push(ConfigError::new(message).hint(hint));
    }

    fn homeserver(&mut self, written: Option<String>) -> Option<BaseUrl> {
        const HINT: &str = "write it with its scheme, such as `https://matrix.example.org`";
        let Some(given) = self.text("homeserver", &env::MATRIX_HOMESERVER, written) else {
            let place = self.resolver.place(&["platforms", self.name]);
            let (message, hint) = match self.var(()) {
                Some(()) => (
                    "there is no address of the Matrix homeserver".to_owned(),
                    "set `MATRIX_HOMESERVER` or `platforms.matrix.homeserver`, for example to \
                     `https://matrix.example.org`",
                ),
                None => (format!("`platforms.{}` has no `homeserver`{place}", self.name), HINT),
            };
            self.error(message, hint);
            return None;
        };
        let GivenValue { name, place, value } = &given;
        let Ok(url) = BaseUrl::parse(value) else {
            self.error(format!("{name} is not the address of a homeserver{place}"), HINT);
            return None;
        };
        if !url.is_encrypted() && !url.is_near() {
            let what =
                format!("{name} would carry the password or token unencrypted over a public network{place}");
            self.error(what, "use `https://`; `http://` is for this machine and private networks");
        }
        Some(url)
    }

    /// How to log in. Whatever the environment says about it replaces all that the file says.
    fn login(&mut self, written: &MatrixSection) -> LoginMethod {
        let vars = [
            &env::MATRIX_PASSWORD,
            &env::MATRIX_PASSWORD_FILE,
            &env::MATRIX_ACCESS_TOKEN,
            &env::MATRIX_ACCESS_TOKEN_FILE,
        ];
        let by_environment =
            self.var(()).is_some() && vars.iter().any(|var| self.resolver.env.get(var).is_some());
        let of_file = |key: &Option<Secret>, file: &Option<String>| match by_environment {
            true => (None, None),
            false => (key.clone(), file.clone()),
        };
        let password = self.key(
            "password",
            (&env::MATRIX_PASSWORD, &env::MATRIX_PASSWORD_FILE),
            SecretForm::Phrase,
            of_file(&written.password, &written.password_file),
        );
        let token = self.key(
            "access_token",
            (&env::MATRIX_ACCESS_TOKEN, &env::MATRIX_ACCESS_TOKEN_FILE),
            SecretForm::Key,
            of_file(&written.access_token, &written.access_token_file),
        );
        match (password, token) {
            (Some(_), Some(_)) => {
                let place = self.resolver.place(&["platforms", self.name]);
                let (what, place) = match by_environment {
                    true => ("`MATRIX_PASSWORD` and `MATRIX_ACCESS_TOKEN` are".to_owned(), String::new()),
                    false => (format!("`platforms.{}` has `password` and `access_token`,", self.name), place),
                };
                let hint = "keep one: a password lets Talaria make a device of its own, a token belongs to a \
                            device that nothing else may use";
                self.error(format!("{what} both set, but one login is enough{place}"), hint);
                LoginMethod::Stored
            }
            (Some(password), None) => LoginMethod::Password(hidden(&password)),
            (None, Some(token)) => LoginMethod::Token(hidden(&token)),
            (None, None) => LoginMethod::Stored,
        }
    }

    fn user(&mut self, written: Option<String>, login: &LoginMethod) -> Option<String> {
        match self.text("user_id", &env::MATRIX_USER_ID, written) {
            Some(GivenValue { value, .. }) if is_user(&value) => Some(value),
            Some(GivenValue { name, place, .. }) => {
                self.error(
                    format!("{name} is not a full id{place}"),
                    "write the whole id of the account that answers, such as `@bot:example.org`",
                );
                None
            }
            None if matches!(login, LoginMethod::Password(_)) => {
                let place = self.resolver.place(&["platforms", self.name]);
                let key = match self.var(()) {
                    Some(()) => "`MATRIX_USER_ID` or `platforms.matrix.user_id`".to_owned(),
                    None => format!("`platforms.{}.user_id`", self.name),
                };
                self.error(
                    format!("there is a password for Matrix but no account{place}"),
                    &format!("set {key}, for example to `@bot:example.org`"),
                );
                None
            }
            None => None,
        }
    }

    fn store_key(&mut self, key: Option<Secret>) -> Option<StoreKey> {
        let key = key?;
        let parsed = parse_store_key(key.expose());
        if parsed.is_none() {
            let name = match self.var(()) {
                Some(()) => "`MATRIX_STORE_KEY` or `platforms.matrix.store_key`".to_owned(),
                None => format!("`platforms.{}.store_key`", self.name),
            };
            self.error(
                format!("{name} must be 32 bytes, as 64 hexadecimal digits or in base64"),
                "make one with `openssl rand -hex 32`; or leave it out, and one is made on the first start",
            );
        }
        parsed
    }

    fn rooms(&mut self, document: &ConfigDocument) -> HashMap<RoomId, AddressedWhen> {
        match access_rules::mentions(document, self.name) {
            Ok(rooms) => rooms.into_iter().map(|(room, mention)| (room, mention.into())).collect(),
            // What is wrong there is said by those who read the rest of it.
            Err(_) => HashMap::new(),
        }
    }

    fn rate(&mut self, written: Option<KeyedMapping<WrittenRate>>) -> RateLimit {
        let Some(KeyedMapping(WrittenRate { per_second, burst })) = written else { return RATE };
        let fits = |number: f64, least: f64| number.is_finite() && (least..=1000.0).contains(&number);
        if !fits(per_second, 0.01) || !fits(burst, 1.0) {
            let path = ["platforms", self.name, "rate"];
            let place = self.resolver.place(&path);
            self.error(
                format!("`platforms.{}.rate` does not make sense{place}", self.name),
                "`per_second` is from 0.01 to 1000 and `burst` from 1 to 1000; Synapse's own are 0.2 and 10",
            );
        }
        RateLimit { per_second, burst }
    }
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

/// The adapter's own type for the same.
fn hidden(secret: &Secret) -> talaria_matrix::MatrixSecret {
    talaria_matrix::MatrixSecret::new(secret.expose())
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

impl From<MentionSetting> for AddressedWhen {
    fn from(written: MentionSetting) -> Self {
        match written {
            MentionSetting::Required => Self::Mentioned,
            MentionSetting::Never => Self::Everything,
        }
    }
}
