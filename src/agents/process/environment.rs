//! The environment of a process that an agent starts.
//!
//! It is built up, not stripped down: a short list of variables that programs cannot do without, and those that the
//! operator lets through. A secret of ours never passes, even if the operator names it. Pure, but for
//! [`process_environment`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::env;

/// Names of variables that pass without a wish of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedVariables {
    names: &'static [&'static str],
    /// Beginnings of further names.
    families: &'static [&'static str],
}

/// The list for commands and MCP servers.
pub const COMMAND_VARIABLES: PassedVariables = PassedVariables {
    names: &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TERM",
        "TZ",
        "TMPDIR",
        "TALARIA_HOME",
        "TALARIA_CONFIG",
    ],
    families: &["LC_", "XDG_"],
};

/// The list for codex. It needs the network and the user's real configuration, and the commands that it runs do too.
/// Programs disagree on the case of the names of proxies.
pub const CODEX_VARIABLES: PassedVariables = PassedVariables {
    names: &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TERM",
        "TZ",
        "TMPDIR",
        "SSH_AUTH_SOCK",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "RUST_LOG",
    ],
    families: &["LC_", "XDG_", "SSL_CERT_", "CODEX_"],
};

/// The list for other agents that are programs. Like codex they need the network and the user's real configuration.
pub const PROGRAM_VARIABLES: PassedVariables = PassedVariables {
    names: CODEX_VARIABLES.names,
    families: &["LC_", "XDG_", "SSL_CERT_", "NODE_EXTRA_CA_"],
};

/// Ending of the name of a variable that names a file with a secret.
const FILE_FORM: &str = "_FILE";

/// An environment, and the names of variables that are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildEnvironment {
    /// The variables that the process gets.
    pub variables: BTreeMap<OsString, OsString>,
    /// Names of all others, sorted.
    pub dropped: Vec<String>,
}

/// The environment of a process, out of our own variables. `allowed` has the names that pass beside the short list.
pub fn child_environment(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    list: PassedVariables,
    allowed: &[String],
) -> ChildEnvironment {
    let mut environment = ChildEnvironment::default();
    for (name, value) in ours {
        let passes = name.to_str().is_some_and(|name| {
            let is_allowed = allowed.iter().any(|allowed| allowed == name);
            (list.has(name) || is_allowed) && !is_secret(name)
        });
        if passes {
            environment.variables.insert(name, value);
        } else {
            environment.dropped.push(name.to_string_lossy().into_owned());
        }
    }
    environment.dropped.sort_unstable();
    environment
}

/// The environment of a process, out of the variables of this one. The log names those that are left out.
pub fn process_environment(list: PassedVariables, allowed: &[String]) -> BTreeMap<OsString, OsString> {
    let environment = child_environment(std::env::vars_os(), list, allowed);
    tracing::debug!(
        dropped = environment.dropped.join(" "),
        "variables that a child process does not get; `env_passthrough` lets one through"
    );
    environment.variables
}

/// Whether the variable holds a secret of ours, or names the file of one. Such a variable never passes.
pub fn is_secret(name: &str) -> bool {
    let name = name.strip_suffix(FILE_FORM).unwrap_or(name);
    env::secrets().any(|secret| secret == name)
}

/// Files with secrets of ours that variables name, such as `API_SERVER_KEY_FILE`.
pub fn secret_files(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let files = env::secrets().filter_map(|secret| lookup(&format!("{secret}{FILE_FORM}")));
    files.filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

impl PassedVariables {
    fn has(self, name: &str) -> bool {
        self.names.contains(&name) || self.families.iter().any(|family| name.starts_with(family))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(ours: &[&str], allowed: &[&str]) -> (Vec<String>, Vec<String>) {
        listed(COMMAND_VARIABLES, ours, allowed)
    }

    fn listed(list: PassedVariables, ours: &[&str], allowed: &[&str]) -> (Vec<String>, Vec<String>) {
        let ours = ours.iter().map(|name| (OsString::from(name), OsString::from("value")));
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let made = child_environment(ours, list, &allowed);
        let passed = made.variables.keys().map(|name| name.to_string_lossy().into_owned()).collect();
        (passed, made.dropped)
    }

    #[test]
    fn only_the_short_list_passes() {
        let (passed, dropped) = environment(
            &[
                "PATH",
                "HOME",
                "LC_ALL",
                "XDG_CACHE_HOME",
                "TALARIA_HOME",
                "TALARIA_CONFIG",
                "EDITOR",
                "AWS_KEY",
                "LC",
            ],
            &[],
        );
        assert_eq!(passed, ["HOME", "LC_ALL", "PATH", "TALARIA_CONFIG", "TALARIA_HOME", "XDG_CACHE_HOME"]);
        assert_eq!(dropped, ["AWS_KEY", "EDITOR", "LC"]);
    }

    #[test]
    fn codex_gets_its_own_list() {
        let (passed, dropped) = listed(
            CODEX_VARIABLES,
            &[
                "HOME",
                "CODEX_HOME",
                "LC_TIME",
                "HTTPS_PROXY",
                "no_proxy",
                "SSL_CERT_FILE",
                "SSH_AUTH_SOCK",
                "RUST_LOG",
                "TALARIA_HOME",
                "OPENAI_API_KEY",
                "FAKE_KEY",
            ],
            &["OPENAI_API_KEY", "FAKE_KEY"],
        );
        assert_eq!(
            passed,
            [
                "CODEX_HOME",
                "FAKE_KEY",
                "HOME",
                "HTTPS_PROXY",
                "LC_TIME",
                "RUST_LOG",
                "SSH_AUTH_SOCK",
                "SSL_CERT_FILE",
                "no_proxy"
            ]
        );
        assert_eq!(dropped, ["OPENAI_API_KEY", "TALARIA_HOME"]);
    }

    #[test]
    fn a_variable_that_is_let_through_passes_and_only_by_its_whole_name() {
        let (passed, dropped) = environment(&["EDITOR", "EDITOR_2", "editor"], &["EDITOR", "UNSET"]);
        assert_eq!(passed, ["EDITOR"]);
        assert_eq!(dropped, ["EDITOR_2", "editor"]);
    }

    #[test]
    fn no_secret_of_ours_passes_even_if_it_is_let_through() {
        let secrets: Vec<&str> = env::secrets().collect();
        for known in ["GATEWAY_PROXY_KEY", "API_SERVER_KEY", "MATRIX_PASSWORD", "MATRIX_ACCESS_TOKEN"] {
            assert!(secrets.contains(&known), "{known}");
        }
        for secret in secrets {
            let file = format!("{secret}_FILE");
            let (passed, dropped) = environment(&[secret, &file], &[secret, &file]);
            assert!(passed.is_empty(), "{passed:?}");
            assert_eq!(dropped, [secret, &file]);
        }
    }

    #[test]
    fn files_of_secrets_are_found_by_their_variables() {
        let lookup = |name: &str| match name {
            "API_SERVER_KEY_FILE" => Some("/secrets/key".into()),
            "GATEWAY_PROXY_KEY_FILE" => Some(OsString::new()),
            "GATEWAY_PROXY_URL_FILE" => Some("/not/a/secret".into()),
            _ => None,
        };
        assert_eq!(secret_files(lookup), [PathBuf::from("/secrets/key")]);
    }

    #[test]
    fn a_name_that_is_no_text_does_not_pass() {
        use std::os::unix::ffi::OsStringExt as _;
        let name = OsString::from_vec(b"PATH\xff".to_vec());
        let made =
            child_environment([(name, OsString::from("x"))], COMMAND_VARIABLES, &["PATH\u{fffd}".to_owned()]);
        assert!(made.variables.is_empty());
        assert_eq!(made.dropped, ["PATH\u{fffd}"]);
    }
}
