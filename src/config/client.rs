//! Resolves the server and the key of `talaria ask`: from its arguments, else from the environment.
//!
//! A key is never an argument, because every user of the machine can list those. It goes in the clear only to a private
//! address.

use std::path::Path;

use super::env::{self, EnvReader};
use super::secret::SecretForm;
use super::secret_sources::{self, KeySetting};
use super::setting::SettingReader;
use super::{BaseUrl, ConfigError, Secret};

/// The server that was named, and the key for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The address; `None` means the talaria that runs on this machine.
    pub url: Option<BaseUrl>,
    /// The key or token.
    pub key: Option<Secret>,
}

impl ClientConfig {
    /// Resolves both. The arguments win over the environment. The list of errors is never empty.
    pub fn read(
        url: Option<&str>,
        key_file: Option<&Path>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<ConfigError>> {
        let env = EnvReader::new(env);
        let mut errors = Vec::new();
        let (url, name) = match url {
            Some(url) => (Some(url.to_owned()), "`--url`"),
            None => (env.get(&env::TALARIA_URL), "`TALARIA_URL`"),
        };
        let parsed = url.map(|url| BaseUrl::parse(&url).map(BaseUrl::without_version)).transpose();
        let url = parsed.unwrap_or_else(|phrase| {
            errors.push(
                ConfigError::new(format!("{name} {phrase}"))
                    .hint("write the address of a server, for example http://127.0.0.1:8642"),
            );
            None
        });
        let key = match key_file {
            Some(file) => key_in(file).unwrap_or_else(|error| {
                errors.push(error);
                None
            }),
            None => key_of_environment(env, &mut errors),
        };
        if let (Some(url), Some(_)) = (&url, &key)
            && !url.is_encrypted()
            && !url.is_near()
        {
            let message = format!("{name} would carry the key unencrypted over a public network");
            errors.push(ConfigError::new(message).hint("use `https://`, a private address or a tunnel"));
        }
        if errors.is_empty() { Ok(Self { url, key }) } else { Err(errors) }
    }
}

/// The key in the file that `--key-file` names.
fn key_in(file: &Path) -> Result<Option<Secret>, ConfigError> {
    let text = secret_sources::read(file).map_err(|reason| {
        ConfigError::new(format!("the file `{}`, which `--key-file` names, {reason}", file.display()))
            .hint("put the key into that file, readable for this user, or correct the path")
    })?;
    Secret::parse(&text, SecretForm::Key).map_err(|expected| {
        ConfigError::new(format!("the content of the file that `--key-file` names must be {expected}"))
            .hint("copy the key again, without line breaks or quotes around it")
    })
}

fn key_of_environment(env: EnvReader<'_>, errors: &mut Vec<ConfigError>) -> Option<Secret> {
    let (mut secret_files, mut warnings) = (Vec::new(), Vec::new());
    let mut reader = SettingReader {
        document: None,
        env,
        home: Path::new(""),
        errors,
        secret_files: &mut secret_files,
        warnings: &mut warnings,
    };
    let vars = Some((&env::TALARIA_API_KEY, &env::TALARIA_API_KEY_FILE));
    reader.key(KeySetting { vars, path: &[], form: SecretForm::Key }, None, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        url: Option<&str>,
        key_file: Option<&Path>,
        vars: &[(&str, &str)],
    ) -> Result<ClientConfig, String> {
        let lookup =
            |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        ClientConfig::read(url, key_file, &lookup).map_err(|errors| errors[0].message.clone())
    }

    #[test]
    fn arguments_win_over_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "tlk_file\n").unwrap();
        let vars = [("TALARIA_URL", "http://nas.lan:1/v1"), ("TALARIA_API_KEY", "tlk_env")];
        let shown = |config: ClientConfig| {
            (config.url.map(|url| url.as_str().to_owned()), config.key.map(|key| key.expose().to_owned()))
        };
        let of_env = shown(read(None, None, &vars).unwrap());
        assert_eq!(of_env, (Some("http://nas.lan:1".to_owned()), Some("tlk_env".to_owned())));
        let of_arguments = shown(read(Some("https://x.example"), Some(&file), &vars).unwrap());
        assert_eq!(of_arguments, (Some("https://x.example".to_owned()), Some("tlk_file".to_owned())));
        let by_file = [("TALARIA_API_KEY_FILE", file.to_str().unwrap())];
        assert_eq!(shown(read(None, None, &by_file).unwrap()), (None, Some("tlk_file".to_owned())));
        assert_eq!(shown(read(None, None, &[]).unwrap()), (None, None));
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_being_repeated() {
        let key = [("TALARIA_API_KEY", "tlk_secret")];
        for (url, vars, message) in [
            (Some("nas"), &key[..], "`--url` must be an address such as"),
            (Some("http://8.8.8.8"), &key, "`--url` would carry the key unencrypted over a public network"),
            (None, &[("TALARIA_API_KEY", "a\nb")], "`TALARIA_API_KEY` must be a key of plain ASCII"),
            (None, &[("TALARIA_API_KEY", "a"), ("TALARIA_API_KEY_FILE", "b")], "are both set"),
            (
                None,
                &[("TALARIA_API_KEY_FILE", "/nowhere/key")],
                "which `TALARIA_API_KEY_FILE` names, is not there",
            ),
        ] {
            let error = read(url, None, vars).unwrap_err();
            assert!(error.contains(message) && !error.contains("tlk_secret"), "{error}");
        }
        let error = read(None, Some(Path::new("/nowhere/key")), &key).unwrap_err();
        assert_eq!(error, "the file `/nowhere/key`, which `--key-file` names, is not there");
        assert!(read(Some("http://8.8.8.8"), None, &[]).is_ok(), "without a key nothing is given away");
    }
}
