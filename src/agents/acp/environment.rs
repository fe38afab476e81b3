//! The environment of an agent.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::agents::process::environment::{PROGRAM_VARIABLES, process_environment};
use crate::agents::secret_mask::SecretMask;
use crate::config::{AcpConfig, HomeSetting};

/// Variable that names the folder of the user.
const HOME: &str = "HOME";

/// The variables that an agent gets: the short list of ours, those that the entry lets through, and the entry's own.
/// HOME arrives unchanged unless the entry says otherwise, because agents keep their logins there.
pub fn acp_environment(config: &AcpConfig, folder: &Path) -> BTreeMap<OsString, OsString> {
    complete(process_environment(PROGRAM_VARIABLES, &config.env_passthrough), config, folder)
}

/// The secrets that an agent gets because its entry says so.
pub fn entry_secrets(config: &AcpConfig) -> SecretMask {
    let passed = process_environment(PROGRAM_VARIABLES, &config.env_passthrough);
    let passed = config.env_passthrough.iter().filter_map(|name| passed.get(OsStr::new(name)));
    let passed = passed.map(|value| value.to_string_lossy().into_owned());
    let own = config.env.values().map(|value| value.expose().to_owned());
    SecretMask::of_program(&passed.chain(own).collect::<Vec<_>>(), &config.args)
}

fn complete(
    mut passed: BTreeMap<OsString, OsString>,
    config: &AcpConfig,
    folder: &Path,
) -> BTreeMap<OsString, OsString> {
    match config.home {
        HomeSetting::Real => {}
        HomeSetting::Session => {
            // These name folders of the user too.
            passed.retain(|name, _| !name.to_string_lossy().starts_with("XDG_"));
            passed.insert(HOME.into(), folder.into());
        }
    }
    passed.extend(config.env.iter().map(|(name, value)| (name.into(), value.expose().into())));
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn home_is_the_real_one_unless_the_entry_says_otherwise() {
        let ours: BTreeMap<OsString, OsString> =
            [("HOME", "/home/ann"), ("XDG_CONFIG_HOME", "/home/ann/.c"), ("LANG", "C")]
                .map(|(name, value)| (name.into(), value.into()))
                .into();
        let mut config = AcpConfig::new("agent", "/work".into());
        assert_eq!(complete(ours.clone(), &config, "/work/s".as_ref()), ours);
        config.home = HomeSetting::Session;
        config.env.insert("LANG".into(), Secret::from("de".to_owned()));
        let variables = complete(ours, &config, "/work/s".as_ref());
        let expected: BTreeMap<OsString, OsString> =
            [("HOME", "/work/s"), ("LANG", "de")].map(|(name, value)| (name.into(), value.into())).into();
        assert_eq!(variables, expected);
    }
}
