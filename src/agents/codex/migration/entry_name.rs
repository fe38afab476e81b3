//! Names of the entries that we write into config.toml.

use std::fmt;

use toml_edit::Key;

/// Root key of the permission profile that threads begin with.
pub(super) const PROFILE_KEY: &str = "default_permissions";

/// Table of the MCP servers.
pub(super) const SERVERS_KEY: &str = "mcp_servers";

/// Table of the plugins.
pub(super) const PLUGINS_KEY: &str = "plugins";

/// An entry of config.toml. `Display` writes its key as TOML has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryName {
    /// The permission profile that threads begin with.
    Profile,
    /// The MCP server with this name.
    Server(String),
    /// The plugin with this name and marketplace.
    Plugin(String),
}

impl EntryName {
    /// The entry that a key belongs to; `None` if it is none that we could have written.
    pub(super) fn of_path<'a>(path: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut path = path.into_iter();
        match (path.next()?, path.next()) {
            (PROFILE_KEY, None) => Some(Self::Profile),
            (SERVERS_KEY, Some(name)) => Some(Self::Server(name.to_owned())),
            (PLUGINS_KEY, Some(name)) => Some(Self::Plugin(name.to_owned())),
            _ => None,
        }
    }

    /// Reads a key as `Display` writes it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let keys = Key::parse(text).ok()?;
        Self::of_path(keys.iter().map(Key::get))
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile => f.write_str(PROFILE_KEY),
            Self::Server(name) => write!(f, "{SERVERS_KEY}.{}", Key::new(name).display_repr()),
            Self::Plugin(name) => write!(f, "{PLUGINS_KEY}.{}", Key::new(name).display_repr()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_toml_keys_and_read_back() {
        for (name, written) in [
            (EntryName::Profile, "default_permissions"),
            (EntryName::Server("my-time_1".to_owned()), "mcp_servers.my-time_1"),
            (EntryName::Plugin("cal@openai-curated".to_owned()), "plugins.\"cal@openai-curated\""),
        ] {
            assert_eq!(name.to_string(), written);
            assert_eq!(EntryName::parse(written), Some(name));
        }
        for other in ["", "model", "mcp_servers", "default_permissions.x", "a b", "features.plugins"] {
            assert_eq!(EntryName::parse(other), None, "{other}");
        }
    }
}
