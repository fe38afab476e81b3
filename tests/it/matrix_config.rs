//! An account on a Matrix homeserver, configured by variables alone, by the file, and by both: the adapter reads its own
//! keys, the core the keys about people.

use std::any::Any;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use talaria::access::{AccessLists, AccessPolicy};
use talaria::config::{Config, ConfigError, ConfigSources, Secret};
use talaria_matrix::{EncryptionPolicy, LoginMethod, MatrixSettings, StoreKey};
use talaria_platform::{AddressedWhen, AuthorTrust, RateLimit};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../docker/config.example.yaml");

/// A folder and an environment of its own.
struct Scene {
    folder: TempDir,
    vars: HashMap<String, String>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home").display().to_string();
        Self { folder, vars: HashMap::from([("TALARIA_HOME".to_owned(), home)]) }
    }

    /// Puts a private `talaria.yaml` into the working folder.
    fn file(self, text: impl AsRef<[u8]>) -> Self {
        self.private_file("talaria.yaml", text);
        self
    }

    fn var(mut self, name: &str, value: impl Into<String>) -> Self {
        self.vars.insert(name.to_owned(), value.into());
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.vars.remove(name);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn private_file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        path
    }

    fn load(&self) -> Result<Config, Vec<ConfigError>> {
        let sources = ConfigSources { config: None, folder: self.folder.path().to_owned(), serve: false };
        Config::load(&sources, &|name| self.vars.get(name).cloned())
    }

    /// All errors as the command line prints them, with the folder's random name taken out.
    fn errors(&self) -> String {
        let folder = format!("{}/", self.folder.path().display());
        printed(&self.load().unwrap_err()).replace(&folder, "")
    }
}

fn printed(errors: &[ConfigError]) -> String {
    assert!(!errors.is_empty());
    let one = |error: &ConfigError| match &error.hint {
        Some(hint) => format!("error: {error}\n\nhint: {hint}"),
        None => format!("error: {error}"),
    };
    errors.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn secret(text: &str) -> Secret {
    text.to_owned().into()
}

/// A container without any file.
fn container() -> Scene {
    Scene::new()
        .var("MATRIX_HOMESERVER", "https://matrix.example.org")
        .var("MATRIX_USER_ID", "@bot:example.org")
        .var("MATRIX_PASSWORD", "secret")
        .var("MATRIX_ALLOWED_USERS", "@ann:example.org, @bob:example.org,")
}

/// An entry `matrix` with these lines below a homeserver and a list of people.
fn written(lines: &str) -> Scene {
    entry("matrix", lines)
}

fn entry(name: &str, lines: &str) -> Scene {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    Scene::new().file(format!(
        "platforms:\n  {name}:\n    kind: matrix\n    homeserver: https://hs.example.org\n    access: {{people: [\"@ann:example.org\"]}}\n{lines}"
    ))
}

fn settings(scene: &Scene) -> MatrixSettings {
    of(scene, "matrix")
}

fn of(scene: &Scene, name: &str) -> MatrixSettings {
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    let settings: &dyn Any = config.platforms[&name.into()].settings();
    settings.downcast_ref::<MatrixSettings>().expect("an account of Matrix").clone()
}

fn lists(scene: &Scene) -> AccessLists {
    match &scene.load().unwrap().rules.account(&"matrix".into()).access {
        AccessPolicy::Listed(lists) => lists.clone(),
        AccessPolicy::Owner => panic!("a chat network has no owner"),
    }
}

#[test]
fn a_container_needs_no_file() {
    let scene = container();
    let home = scene.path("home");
    assert_eq!(
        settings(&scene),
        MatrixSettings {
            homeserver: "https://matrix.example.org".to_owned(),
            user: Some("@bot:example.org".to_owned()),
            login: LoginMethod::Password(secret("secret")),
            device_name: "Talaria".to_owned(),
            folder: home.join("matrix/matrix"),
            store_key: None,
            recovery_key: None,
            trust: AuthorTrust::CrossSigned,
            e2ee: EncryptionPolicy::Required,
            hearing: AddressedWhen::Mentioned,
            rooms: HashMap::new(),
            unreadable_after: Duration::from_secs(600),
            pause: Duration::from_secs(1),
            max_text: 10_000,
            rate: RateLimit { per_second: 0.2, burst: 10.0 },
        }
    );
    let lists = lists(&scene);
    assert_eq!(lists.people, ["@ann:example.org".into(), "@bob:example.org".into()].into());
    assert_eq!((lists.trust, lists.secure_only), (Some(AuthorTrust::CrossSigned), true));
    assert_eq!(scene.load().unwrap().file, None);
}

#[test]
fn without_a_variable_there_is_no_account() {
    assert!(Scene::new().load().unwrap().platforms.is_empty());
    assert!(Scene::new().var("MATRIX_TRUST", " ").load().unwrap().platforms.is_empty());
}

#[test]
fn every_variable_wins_over_the_file() {
    let scene = written(
        "user_id: \"@other:example.org\"\npassword: of the file\nrecovery_key: of the file\ntrust: verified\n\
         e2ee: required\nstore_key: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    )
    .var("MATRIX_HOMESERVER", "http://synapse:8008/")
    .var("MATRIX_USER_ID", "@bot:example.org")
    .var("MATRIX_ACCESS_TOKEN", "syt_token")
    .var("MATRIX_RECOVERY_KEY", "EsTx xxxx")
    .var("MATRIX_STORE_KEY", "01".repeat(32))
    .var("MATRIX_ALLOWED_USERS", "@bob:example.org")
    .var("MATRIX_TRUST", "any")
    .var("MATRIX_E2EE", "optional");
    let settings = settings(&scene);
    assert_eq!(settings.homeserver, "http://synapse:8008");
    assert_eq!(settings.user.as_deref(), Some("@bot:example.org"));
    assert_eq!(settings.login, LoginMethod::Token(secret("syt_token")));
    assert_eq!(settings.recovery_key, Some(secret("EsTx xxxx")));
    assert_eq!(settings.store_key, Some(StoreKey([1; 32])));
    assert_eq!((settings.trust, settings.e2ee), (AuthorTrust::Network, EncryptionPolicy::Optional));
    let lists = lists(&scene);
    assert_eq!(lists.people, ["@bob:example.org".into()].into());
    assert_eq!(lists.trust, None);
}

#[test]
fn every_key_of_the_file_is_read() {
    let scene = written(
        "user_id: \"@bot:example.org\"\naccess_token: syt_token\ndevice_name: Kitchen\nrecovery_key: \"Es Tx\"\n\
         store_key: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE\ntrust: verified\ne2ee: optional\nmention: never\n\
         max_text: 16000\nunreadable_after: 5s\npause: 250ms\nrate: {per_second: 5, burst: 20.5}",
    );
    let settings = settings(&scene);
    assert_eq!(settings.login, LoginMethod::Token(secret("syt_token")));
    assert_eq!(settings.device_name, "Kitchen");
    assert_eq!(settings.recovery_key, Some(secret("Es Tx")));
    assert_eq!(settings.store_key, Some(StoreKey([1; 32])));
    assert_eq!((settings.trust, settings.e2ee), (AuthorTrust::Verified, EncryptionPolicy::Optional));
    assert_eq!(settings.hearing, AddressedWhen::Everything);
    assert_eq!((settings.max_text, settings.pause), (16_000, Duration::from_millis(250)));
    assert_eq!(settings.unreadable_after, Duration::from_secs(5));
    assert_eq!(settings.rate, RateLimit { per_second: 5.0, burst: 20.5 });
    assert_eq!(lists(&scene).trust, Some(AuthorTrust::Verified));
    assert!(!lists(&scene).secure_only);
}

#[test]
fn rooms_can_have_settings_of_their_own() {
    let scene = written(
        "places:\n  \"!a\": {mention: never}\n  \"!b:example.org\": {mention: required, people: [\"@bob:example.org\"]}",
    );
    let rooms = settings(&scene).rooms;
    assert_eq!(rooms.get(&"!a".into()), Some(&AddressedWhen::Everything));
    assert_eq!(rooms.get(&"!b:example.org".into()), Some(&AddressedWhen::Mentioned));
    let config = scene.load().unwrap();
    let rules = config.rules.account(&"matrix".into());
    let AccessPolicy::Listed(own) = rules.access_in(&"!b:example.org".into()) else { panic!("no owner") };
    assert_eq!(own.people, ["@bob:example.org".into()].into());
    // A list of the room's own does not change the trust that is required.
    assert_eq!((own.trust, own.secure_only), (Some(AuthorTrust::CrossSigned), true));
    assert!(config.describe().contains(", 2 of them with settings of their own"));
}

#[test]
fn variables_reach_the_entry_called_matrix_and_no_other() {
    let scene = entry("work", "access_token: of the file").var("MATRIX_USER_ID", "@bot:example.org");
    insta::assert_snapshot!(scene.errors(), @"
    error: there is no address of the Matrix homeserver

    hint: set `MATRIX_HOMESERVER` or `platforms.matrix.homeserver`, for example to `https://matrix.example.org`

    error: `platforms.matrix` does not say who may talk to the agent (talaria.yaml)

    hint: list people by their full ids in `MATRIX_ALLOWED_USERS` or `platforms.matrix.access.people`; or write `access: {allow_all: true}` to let everybody in
    ");
    let scene = scene
        .var("MATRIX_HOMESERVER", "https://matrix.example.org")
        .var("MATRIX_ALLOWED_USERS", "@bob:example.org")
        .var("MATRIX_TRUST", "any");
    let work = of(&scene, "work");
    assert_eq!((work.user, work.trust), (None, AuthorTrust::CrossSigned));
    assert_eq!(work.folder, scene.path("home/matrix/work"));
    assert_eq!(of(&scene, "matrix").login, LoginMethod::Stored);
}

#[test]
fn keys_can_come_from_files() {
    let scene = container().without("MATRIX_PASSWORD");
    let file = scene.private_file("password", "pässwörd\n");
    let scene = scene.var("MATRIX_PASSWORD_FILE", file.display().to_string());
    assert_eq!(settings(&scene).login, LoginMethod::Password(secret("pässwörd")));

    let scene = Scene::new();
    let token = scene.private_file("token", "syt_1\n").display().to_string();
    let store = scene.private_file("store", "01".repeat(32)).display().to_string();
    let scene = scene.file(format!(
        "platforms:\n  work:\n    kind: matrix\n    homeserver: https://hs.example.org\n    access: {{allow_all: true}}\n    \
         access_token_file: {token}\n    store_key_file: {store}\n"
    ));
    let work = of(&scene, "work");
    assert_eq!(work.login, LoginMethod::Token(secret("syt_1")));
    assert_eq!(work.store_key, Some(StoreKey([1; 32])));
}

#[test]
fn a_key_in_a_file_that_others_can_read_is_refused() {
    let scene = entry("work", "access_token: canary");
    set_mode(&scene.path("talaria.yaml"), 0o644);
    insta::assert_snapshot!(scene.errors(), @"
    error: `platforms.work.access_token` holds a key, but the file is open to other users (talaria.yaml, line 6)

    hint: run `chmod 600 talaria.yaml`, or put the key into a file of its own and name that in `platforms.work.access_token_file`
    ");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let scene = Scene::new()
        .var("MATRIX_HOMESERVER", "matrix.example.org")
        .var("MATRIX_USER_ID", "bot")
        .var("MATRIX_PASSWORD", "canary")
        .var("MATRIX_ACCESS_TOKEN", "canary")
        .var("MATRIX_STORE_KEY", "canary")
        .var("MATRIX_ALLOWED_USERS", "@ann:example.org,bob")
        .var("MATRIX_TRUST", "crosssigned")
        .var("MATRIX_E2EE", "on");
    let errors = scene.errors();
    assert!(!errors.contains("canary"));
    insta::assert_snapshot!(errors, @"
    error: `MATRIX_PASSWORD` and `MATRIX_ACCESS_TOKEN` are both set, but one login is enough

    hint: keep one: a password lets Talaria make a device of its own, a token belongs to a device that nothing else may use

    error: `MATRIX_HOMESERVER` is not the address of a homeserver

    hint: write it with its scheme, such as `https://matrix.example.org`

    error: `MATRIX_USER_ID` is not a full id

    hint: write the whole id of the account that answers, such as `@bot:example.org`

    error: `MATRIX_STORE_KEY` or `platforms.matrix.store_key` must be 32 bytes, as 64 hexadecimal digits or in base64

    hint: make one with `openssl rand -hex 32`; or leave it out, and one is made on the first start

    error: `MATRIX_TRUST` must be one of `any`, `cross_signed`, `verified`

    hint: did you mean `cross_signed`?

    error: `MATRIX_E2EE` must be one of `required`, `optional`

    error: `MATRIX_ALLOWED_USERS` holds `bob`, which is not a full id

    hint: write whole ids with commas between them, such as `@ann:example.org,@bob:example.org`
    ");
}

#[test]
fn what_is_wrong_in_the_file_is_said_with_its_line() {
    for (lines, error) in [
        ("user_id: bot", "`platforms.matrix.user_id` is not a full id (talaria.yaml, line 6)"),
        ("password: x", "there is a password for Matrix but no account (talaria.yaml, line 3)"),
        (
            "password: x\naccess_token: y",
            "`platforms.matrix` has `password` and `access_token`, both set, but one login is enough (talaria.yaml, line 3)",
        ),
        (
            "access_token: x\naccess_token_file: y",
            "`platforms.matrix.access_token` and `platforms.matrix.access_token_file` are both set",
        ),
        (
            "trust: all",
            "`platforms.matrix.trust` must be one of `any`, `cross_signed`, `verified` (talaria.yaml, line 6)",
        ),
        (
            "e2ee: false",
            "`platforms.matrix.e2ee` must be one of `required`, `optional` (talaria.yaml, line 6)",
        ),
        (
            "mention: always",
            "`platforms.matrix.mention` must be one of `required`, `never` (talaria.yaml, line 6)",
        ),
        (
            "max_text: 999",
            "`platforms.matrix.max_text` must be a whole number from 1000 to 16000 (talaria.yaml, line 6)",
        ),
        (
            "max_text: 16001",
            "`platforms.matrix.max_text` must be a whole number from 1000 to 16000 (talaria.yaml, line 6)",
        ),
        (
            "rate: {per_second: 0, burst: 1}",
            "`platforms.matrix.rate` does not make sense (talaria.yaml, line 6)",
        ),
        (
            "rate: {per_second: 1, burst: 0}",
            "`platforms.matrix.rate` does not make sense (talaria.yaml, line 6)",
        ),
        (
            "rate: {per_second: .nan, burst: 1}",
            "`platforms.matrix.rate` does not make sense (talaria.yaml, line 6)",
        ),
        ("rate: {per_second: 1}", "`platforms.matrix.rate` has no `burst` (talaria.yaml, line 6)"),
        (
            "store_key: abc",
            "`MATRIX_STORE_KEY` or `platforms.matrix.store_key` must be 32 bytes, as 64 hexadecimal digits or in base64",
        ),
        ("homserver: x", "unknown key `homserver` in `platforms.matrix` (talaria.yaml, line 6)"),
    ] {
        let errors = written(lines).errors();
        let first = errors.lines().next().unwrap_or_default();
        assert_eq!(first, format!("error: {error}"), "{lines}");
    }
}

#[test]
fn a_password_goes_unencrypted_only_to_what_is_near() {
    for near in ["http://localhost:8008", "http://10.0.0.1", "http://synapse:8008", "http://[::1]:8008"] {
        assert_eq!(settings(&container().var("MATRIX_HOMESERVER", near)).homeserver, near);
    }
    insta::assert_snapshot!(container().var("MATRIX_HOMESERVER", "http://matrix.example.org").errors(), @"
    error: `MATRIX_HOMESERVER` would carry the password or token unencrypted over a public network

    hint: use `https://`; `http://` is for this machine and private networks
    ");
}

#[test]
fn an_entry_of_another_kind_is_not_for_variables() {
    let scene = Scene::new().file("platforms:\n  matrix:\n    kind: console\n").var("MATRIX_TRUST", "any");
    insta::assert_snapshot!(scene.errors(), @"
    error: `MATRIX_TRUST` configures `platforms.matrix`, which is of another kind (talaria.yaml, line 3)

    hint: give that entry another name, or unset the variables that begin with `MATRIX_`
    ");
}

#[test]
fn store_keys_have_two_forms() {
    let key = |text: &str| settings(&container().var("MATRIX_STORE_KEY", text)).store_key;
    let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 7 % 256).unwrap());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let base64 = "AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK+2vcTL0tk";
    for text in [hex.clone(), hex.to_uppercase(), base64.to_owned(), format!("{base64}=")] {
        assert_eq!(key(&text), Some(StoreKey(bytes)), "{text}");
    }
    for text in [&hex[1..], &format!("{hex}00"), &hex.replace('0', "g"), &base64[1..], "AAAA"] {
        let errors = container().var("MATRIX_STORE_KEY", text).errors();
        assert!(errors.contains("must be 32 bytes"), "{text}: {errors}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let scene = container()
        .var("MATRIX_PASSWORD", "canary")
        .var("MATRIX_RECOVERY_KEY", "canary")
        .var("MATRIX_STORE_KEY", "01".repeat(32));
    let config = scene.load().unwrap();
    for text in [format!("{config:?}"), config.describe()] {
        assert!(!text.contains("canary") && !text.contains("1, 1, 1"), "{text}");
    }
}

#[test]
fn check_says_what_would_run() {
    let describe = |scene: &Scene| {
        let text = scene.load().unwrap().describe();
        text.lines().filter(|line| line.contains("example.org")).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(
        describe(&container()),
        @"matrix         @bot:example.org at https://matrix.example.org with a password; hears cross-signed devices, encrypted rooms only, answers in rooms when it is named"
    );
    let scene = entry("work", "access_token: x\ntrust: any\ne2ee: optional\nmention: never");
    insta::assert_snapshot!(
        describe(&scene),
        @"work           the account at https://hs.example.org with an access token; hears any device, rooms with and without encryption, answers everything in rooms"
    );
}

/// An account needs only an address and people; the example documents the other keys with their defaults.
#[test]
fn the_example_states_the_defaults() {
    let scene = Scene::new();
    let load = |text: String| {
        scene.private_file("talaria.yaml", text);
        scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors))).platforms
    };
    let behind =
        EXAMPLE.lines().skip_while(|line| !line.starts_with("  # An account on a Matrix homeserver"));
    let lines = behind.take_while(|line| !line.is_empty());
    // Keys are indented by more than prose is.
    let keys = lines.filter_map(|line| line.strip_prefix("  #").filter(|rest| rest.starts_with("  ")));
    let (access, block) = ("    access: {people: []}\n", keys.collect::<Vec<_>>().join("\n"));
    let least = "platforms:\n  matrix:\n    homeserver: https://matrix.example.org\n";
    assert_eq!(load(format!("platforms:\n{block}\n{access}")), load(format!("{least}{access}")));
}

/// The operator is told of the variable that replaces the list, on the entry that it reaches and on no other.
#[test]
fn the_variable_with_people_belongs_to_the_entry_called_matrix() {
    let variable =
        |scene: &Scene, name: &str| scene.load().unwrap().rules.account(&name.into()).people_variable;
    assert_eq!(variable(&written("mention: never"), "matrix"), Some("MATRIX_ALLOWED_USERS"));
    assert_eq!(variable(&entry("work", "mention: never"), "work"), None);
}
