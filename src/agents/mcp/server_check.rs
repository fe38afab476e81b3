//! Checks the way to a server without starting it, for `talaria check`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::config::{McpServerConfig, McpTransport};

/// Result of the check of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFinding {
    /// Nothing speaks against it, in words.
    Well(String),
    /// It would not start, and why.
    Trouble(String),
}

/// Looks for the program or the address of a server. `path` is the value of `PATH`.
pub fn check_server(config: &McpServerConfig, path: Option<&OsStr>) -> ServerFinding {
    if !config.enabled {
        return ServerFinding::Well("switched off".to_owned());
    }
    match &config.transport {
        McpTransport::Http { url, headers } => {
            match headers.is_empty() || url.is_encrypted() || url.is_near() {
                true => ServerFinding::Well(format!("{}, started when it is needed", url.as_str())),
                false => ServerFinding::Trouble(format!(
                    "its headers would go to {} in the clear, so it is used only if that is a private address; use https",
                    url.as_str()
                )),
            }
        }
        McpTransport::Stdio { command, cwd, .. } => {
            if let Some(folder) = cwd.as_ref().filter(|folder| !folder.is_dir()) {
                return ServerFinding::Trouble(format!("its folder {} is not there", folder.display()));
            }
            match find_program(command, cwd.as_deref(), path) {
                Some(program) => {
                    ServerFinding::Well(format!("{}, started when it is needed", program.display()))
                }
                None if command.contains('/') => {
                    ServerFinding::Trouble(format!("{command} is not there or may not be run"))
                }
                None => ServerFinding::Trouble(format!(
                    "{command} is not found in PATH; install it, or name its path"
                )),
            }
        }
    }
}

fn find_program(command: &str, cwd: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let runs = |program: &PathBuf| program.is_file() && rustix::fs::access(program, Access::EXEC_OK).is_ok();
    if command.contains('/') {
        return Some(cwd.unwrap_or(Path::new("")).join(command)).filter(runs);
    }
    std::env::split_paths(path?).map(|folder| folder.join(command)).find(runs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::{BaseUrl, Secret};

    fn config(transport: McpTransport) -> McpServerConfig {
        McpServerConfig {
            transport,
            enabled: true,
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            include: None,
            exclude: Vec::new(),
            permissions: BTreeMap::new(),
        }
    }

    fn stdio(command: &str, cwd: Option<&str>) -> McpServerConfig {
        let (command, cwd) = (command.to_owned(), cwd.map(PathBuf::from));
        config(McpTransport::Stdio { command, args: Vec::new(), env: BTreeMap::new(), cwd })
    }

    #[test]
    fn a_program_is_looked_for_and_not_started() {
        let path = OsStr::new("/nowhere:/bin");
        let well = ServerFinding::Well("/bin/sh, started when it is needed".to_owned());
        assert_eq!(check_server(&stdio("sh", None), Some(path)), well);
        assert_eq!(check_server(&stdio("/bin/sh", None), None), well);
        for (config, words) in [
            (
                stdio("no-such-server", None),
                "no-such-server is not found in PATH; install it, or name its path",
            ),
            (stdio("/etc/passwd", None), "/etc/passwd is not there or may not be run"),
            (stdio("sh", Some("/no/such")), "its folder /no/such is not there"),
        ] {
            assert_eq!(check_server(&config, Some(path)), ServerFinding::Trouble(words.to_owned()));
        }
        let off = McpServerConfig { enabled: false, ..stdio("no-such-server", None) };
        assert_eq!(check_server(&off, None), ServerFinding::Well("switched off".to_owned()));
    }

    #[test]
    fn a_key_that_would_travel_in_the_clear_is_told_of() {
        let http = |url: &str, headers: &[(&str, &str)]| {
            let headers =
                headers.iter().map(|(name, key)| ((*name).to_owned(), Secret::from((*key).to_owned())));
            config(McpTransport::Http { url: BaseUrl::parse(url).unwrap(), headers: headers.collect() })
        };
        let key = [("Authorization", "Bearer abcdef")];
        assert!(matches!(check_server(&http("https://x.example/mcp", &key), None), ServerFinding::Well(_)));
        assert!(matches!(check_server(&http("http://127.0.0.1:9/mcp", &key), None), ServerFinding::Well(_)));
        assert!(matches!(check_server(&http("http://x.example/mcp", &[]), None), ServerFinding::Well(_)));
        assert!(matches!(check_server(&http("http://x.example/mcp", &key), None), ServerFinding::Trouble(_)));
    }
}
