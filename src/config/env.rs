//! The environment: the one table of variables, and the only way to read one.
//!
//! A variable that is missing in the table is read only if the configuration file names it (`mcp_servers`), so
//! `talaria env` tells the whole truth.

pub use talaria_platform::config::env::{EnvReader, EnvVar, VarCategory};

use super::suggest::closest;
use crate::platforms::{KINDS, LEFT_OUT};

/// Every variable that is read, in the order in which people look for them.
pub fn table() -> impl Iterator<Item = &'static EnvVar> {
    let of_platforms = KINDS.iter().flat_map(|kind| kind.variables());
    let of_platforms = of_platforms.chain(LEFT_OUT.iter().map(|kind| &kind.variable));
    AGENT.iter().chain(API_SERVER).chain(FORGE).chain(CLIENT).chain(of_platforms).chain(AROUND)
}

/// Names of all variables that hold a secret of ours, also of kinds that this build lacks.
pub fn secrets() -> impl Iterator<Item = &'static str> {
    let left_out = LEFT_OUT.iter().flat_map(|kind| kind.secrets.iter().copied());
    table().filter(|var| var.secret).map(|var| var.name).chain(left_out)
}

/// The table as `talaria env` prints it. Holds no values.
pub fn render() -> String {
    let header = ["NAME", "CATEGORY", "SECRET", "DEFAULT", "MEANING"];
    let rows = table().map(|var| {
        let secret = if var.secret { "yes" } else { "no" };
        let default = if var.default.is_empty() { "-" } else { var.default };
        [var.name, var.category.as_str(), secret, default, var.meaning]
    });
    let rows: Vec<[&str; 5]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let [name, category, secret, default] = [width(0), width(1), width(2), width(3)];
    rows.iter()
        .map(|[a, b, c, d, meaning]| {
            format!("{a:name$}  {b:category$}  {c:secret$}  {d:default$}  {meaning}\n")
        })
        .collect()
}

/// Warnings about variables that are set and not read, but look like one that is: nobody would notice the slip.
pub fn misspelt(set: impl IntoIterator<Item = String>) -> Vec<String> {
    let known = || table().map(|var| var.name);
    let slip = |name: String| {
        if known().any(|known| known == name) {
            return None;
        }
        let lower: Vec<String> = known().map(str::to_lowercase).collect();
        let near = closest(&name, lower.iter().map(String::as_str))?.to_uppercase();
        // Short names are close to many that belong to others.
        (near.len() > 8).then(|| format!("the variable `{name}` is not read: did you mean `{near}`?"))
    };
    set.into_iter().filter_map(slip).collect()
}

/// The value of a variable of this process. A value that is not UTF-8 gets replacement characters,
/// so that it is refused where it is used and not taken for unset.
pub fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Variables of the agents.
const AGENT: &[EnvVar] = &[PROXY_URL, PROXY_KEY, PROXY_KEY_FILE, BASE_URL, API_KEY, API_KEY_FILE, MODEL];

/// Variables of `talaria ask`.
const CLIENT: &[EnvVar] = &[TALARIA_URL, TALARIA_API_KEY, TALARIA_API_KEY_FILE];

/// Variables of the state folder and the log.
const AROUND: &[EnvVar] = &[TALARIA_HOME, TALARIA_CONFIG, XDG_STATE_HOME, HOME, TALARIA_LOG];

pub(super) const PROXY_URL: EnvVar = EnvVar {
    name: "GATEWAY_PROXY_URL",
    category: VarCategory::Messaging,
    meaning: "address of the remote agent server, without /v1",
    default: "gateway.proxy_url",
    secret: false,
};

pub(super) const PROXY_KEY: EnvVar = EnvVar {
    name: "GATEWAY_PROXY_KEY",
    category: VarCategory::Messaging,
    meaning: "bearer key for it (there: API_SERVER_KEY)",
    default: "gateway.proxy_key",
    secret: true,
};

pub(super) const PROXY_KEY_FILE: EnvVar = EnvVar {
    name: "GATEWAY_PROXY_KEY_FILE",
    category: VarCategory::Messaging,
    meaning: "a file that holds GATEWAY_PROXY_KEY, such as a Docker secret",
    default: "",
    secret: false,
};

pub(super) const BASE_URL: EnvVar = EnvVar {
    name: "OPENAI_BASE_URL",
    category: VarCategory::Model,
    meaning: "address of an OpenAI-compatible server, with /v1",
    default: "agent.base_url",
    secret: false,
};

pub(super) const API_KEY: EnvVar = EnvVar {
    name: "OPENAI_API_KEY",
    category: VarCategory::Model,
    meaning: "bearer key for it",
    default: "agent.api_key",
    secret: true,
};

pub(super) const API_KEY_FILE: EnvVar = EnvVar {
    name: "OPENAI_API_KEY_FILE",
    category: VarCategory::Model,
    meaning: "a file that holds OPENAI_API_KEY, such as a Docker secret",
    default: "",
    secret: false,
};

pub(super) const MODEL: EnvVar = EnvVar {
    name: "OPENAI_MODEL",
    category: VarCategory::Model,
    meaning: "the model that answers when there is no remote agent server",
    default: "agent.model",
    secret: false,
};

/// Variables that ask for the agent server by being set.
pub(super) const API_SERVER: &[EnvVar] = &[
    API_SERVER_HOST,
    API_SERVER_PORT,
    API_SERVER_KEY,
    API_SERVER_KEY_FILE,
    API_SERVER_CORS_ORIGINS,
    API_SERVER_MODEL_NAME,
];

pub(super) const API_SERVER_HOST: EnvVar = EnvVar {
    name: "API_SERVER_HOST",
    category: VarCategory::Server,
    meaning: "address that the agent server listens on; 0.0.0.0 is every one of this machine",
    default: "server.host, else 127.0.0.1",
    secret: false,
};

pub(super) const API_SERVER_PORT: EnvVar = EnvVar {
    name: "API_SERVER_PORT",
    category: VarCategory::Server,
    meaning: "its port; 0 is any that is free",
    default: "server.port, else 8642",
    secret: false,
};

pub(super) const API_SERVER_KEY: EnvVar = EnvVar {
    name: "API_SERVER_KEY",
    category: VarCategory::Server,
    meaning: "the owner's key for it (in another gateway: GATEWAY_PROXY_KEY)",
    default: "server.key, else api.key in TALARIA_HOME",
    secret: true,
};

pub(super) const API_SERVER_KEY_FILE: EnvVar = EnvVar {
    name: "API_SERVER_KEY_FILE",
    category: VarCategory::Server,
    meaning: "a file that holds API_SERVER_KEY, such as a Docker secret",
    default: "",
    secret: false,
};

pub(super) const API_SERVER_CORS_ORIGINS: EnvVar = EnvVar {
    name: "API_SERVER_CORS_ORIGINS",
    category: VarCategory::Server,
    meaning: "web pages that may ask it, such as https://chat.example.org, with commas between them",
    default: "server.cors_origins, else none",
    secret: false,
};

pub(super) const API_SERVER_MODEL_NAME: EnvVar = EnvVar {
    name: "API_SERVER_MODEL_NAME",
    category: VarCategory::Server,
    meaning: "what it calls its model",
    default: "server.model_name, else talaria",
    secret: false,
};

/// Variables of the sessions that other programs run.
const FORGE: &[EnvVar] = &[TALARIA_ADMIN_TOKEN, TALARIA_ADMIN_TOKEN_FILE];

pub(super) const TALARIA_ADMIN_TOKEN: EnvVar = EnvVar {
    name: "TALARIA_ADMIN_TOKEN",
    category: VarCategory::Server,
    meaning: "the token for /admin/tokens, which makes and revokes the tokens of programs",
    default: "none, and then that address does not exist",
    secret: true,
};

pub(super) const TALARIA_ADMIN_TOKEN_FILE: EnvVar = EnvVar {
    name: "TALARIA_ADMIN_TOKEN_FILE",
    category: VarCategory::Server,
    meaning: "a file that holds TALARIA_ADMIN_TOKEN, such as a Docker secret",
    default: "",
    secret: false,
};

pub(super) const TALARIA_URL: EnvVar = EnvVar {
    name: "TALARIA_URL",
    category: VarCategory::Client,
    meaning: "address of the agent server that `talaria ask` asks, without /v1",
    default: "the talaria that runs here",
    secret: false,
};

pub(super) const TALARIA_API_KEY: EnvVar = EnvVar {
    name: "TALARIA_API_KEY",
    category: VarCategory::Client,
    meaning: "the key or token for it",
    default: "api.key in TALARIA_HOME, without TALARIA_URL",
    secret: true,
};

pub(super) const TALARIA_API_KEY_FILE: EnvVar = EnvVar {
    name: "TALARIA_API_KEY_FILE",
    category: VarCategory::Client,
    meaning: "a file that holds TALARIA_API_KEY",
    default: "",
    secret: false,
};

pub(super) const TALARIA_HOME: EnvVar = EnvVar {
    name: "TALARIA_HOME",
    category: VarCategory::State,
    meaning: "the folder that everything is kept in",
    // By the convention of the system; see `paths`.
    default: if cfg!(target_os = "macos") {
        "~/Library/Application Support/talaria"
    } else {
        "~/.local/state/talaria"
    },
    secret: false,
};

pub(super) const TALARIA_CONFIG: EnvVar = EnvVar {
    name: "TALARIA_CONFIG",
    category: VarCategory::State,
    meaning: "the configuration file",
    default: "talaria.yaml in TALARIA_HOME or here",
    secret: false,
};

pub(super) const XDG_STATE_HOME: EnvVar = EnvVar {
    name: "XDG_STATE_HOME",
    category: VarCategory::State,
    meaning: "the folder for state of all programs, where TALARIA_HOME is unset (not on macOS)",
    default: "~/.local/state",
    secret: false,
};

pub(super) const HOME: EnvVar = EnvVar {
    name: "HOME",
    category: VarCategory::State,
    meaning: "the folder that ~ stands for",
    default: "",
    secret: false,
};

pub(super) const TALARIA_LOG: EnvVar = EnvVar {
    name: "TALARIA_LOG",
    category: VarCategory::Log,
    meaning: "a level, or a filter such as info,talaria=debug",
    default: "log.level, else info",
    secret: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn var(name: &str) -> EnvVar {
        *table().find(|var| var.name == name).unwrap()
    }

    #[test]
    fn the_proxy_url_is_listed_and_no_secret() {
        let var = var("GATEWAY_PROXY_URL");
        assert_eq!(var.category.as_str(), "messaging");
        assert!(!var.secret);
    }

    #[test]
    fn the_proxy_key_is_listed_and_secret() {
        let var = var("GATEWAY_PROXY_KEY");
        assert_eq!(var.category.as_str(), "messaging");
        assert!(var.secret);
    }

    #[test]
    fn every_secret_can_come_from_a_file() {
        for var in table().filter(|var| var.secret) {
            let file = self::var(&format!("{}_FILE", var.name));
            assert_eq!((file.category, file.secret), (var.category, false));
        }
    }

    #[test]
    fn the_table_is_aligned_and_complete() {
        let text = render();
        assert_eq!(text.lines().count(), table().count() + 1);
        let column = text.find("MEANING").unwrap();
        for (line, var) in text.lines().skip(1).zip(table()) {
            assert!(line.starts_with(var.name), "{line}");
            assert_eq!(&line[column..], var.meaning);
        }
    }

    #[test]
    fn a_slip_in_a_name_is_noticed_and_the_variables_of_others_are_not() {
        let set = [
            "GATEWAY_PROXY_ULR",
            "GATEWAY_PROXY_URL",
            "GATEWAY_PROXY_KEY_FIL",
            "HOMES",
            "OPENAI_ORG_ID",
            "PATH",
        ];
        insta::assert_snapshot!(misspelt(set.map(str::to_owned)).join("\n"), @"
        the variable `GATEWAY_PROXY_ULR` is not read: did you mean `GATEWAY_PROXY_URL`?
        the variable `GATEWAY_PROXY_KEY_FIL` is not read: did you mean `GATEWAY_PROXY_KEY_FILE`?
        ");
    }
}
