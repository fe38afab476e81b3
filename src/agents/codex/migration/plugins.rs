//! Chooses the plugins that config.toml should have from codex' answer to `plugin/list`.
//!
//! The call itself is the caller's. It dials out, so it has a deadline of its own; without an answer the choice is
//! [`PluginChoice::Unknown`](super::PluginChoice::Unknown).

use serde_json::Value;

use crate::util::clip;

/// Marketplaces whose plugins OpenAI has looked at. The remote catalogue is not among them: an account has its plugins,
/// and config.toml does not.
const CURATED: [&str; 2] = ["openai-curated", "openai-api-curated"];

/// Plugins that are taken from one answer. Nobody installs so many; a longer list would make config.toml unreadable.
const MOST: usize = 200;

/// Longest name of a plugin with its marketplace.
const LONGEST: usize = 128;

/// Plugins that codex has installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginListing {
    /// Curated plugins that are on, as `<name>@<marketplace>`.
    pub curated: Vec<String>,
    /// Installed plugins that are not migrated: not curated, or switched off.
    pub others: Vec<String>,
}

impl PluginListing {
    /// Reads the result of `plugin/list`. Parts that do not look like plugins are left out.
    pub fn of_answer(result: &Value) -> Self {
        let mut listing = Self::default();
        for marketplace in result["marketplaces"].as_array().into_iter().flatten() {
            let Some(market) = marketplace["name"].as_str() else { continue };
            for plugin in marketplace["plugins"].as_array().into_iter().flatten() {
                let Some(name) = plugin["name"].as_str() else { continue };
                if plugin["installed"] != true || listing.curated.len() + listing.others.len() >= MOST {
                    continue;
                }
                let id = format!("{name}@{market}");
                let is_on = plugin["enabled"] != false && plugin["availability"] != "DISABLED_BY_ADMIN";
                let is_curated = CURATED.contains(&market) && is_plain(name);
                match is_curated && is_on {
                    true => listing.curated.push(id),
                    false => listing.others.push(clip(&id, LONGEST).to_owned()),
                }
            }
        }
        for list in [&mut listing.curated, &mut listing.others] {
            list.sort();
            list.dedup();
        }
        listing
    }
}

/// Whether a plugin can have this name. Others are no names of codex' and are not written into its file.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= LONGEST && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn installed_curated_plugins_are_chosen_and_other_installed_ones_are_listed() {
        let plugin = |name: &str, installed: bool, enabled: bool| json!({ "id": "x", "name": name, "installed": installed, "enabled": enabled, "availability": "AVAILABLE" });
        let blocked = json!({ "name": "blocked", "installed": true, "enabled": true, "availability": "DISABLED_BY_ADMIN" });
        let answer = json!({ "marketplaces": [
            { "name": "openai-curated", "path": "/x", "plugins": [
                plugin("github", true, true), plugin("calendar", true, true), plugin("slack", false, true),
                plugin("off", true, false), plugin("odd\"]\nx", true, true), blocked, { "name": 5 }, "noise",
                plugin("calendar", true, true),
            ]},
            { "name": "openai-curated-remote", "plugins": [plugin("gmail", true, true)] },
            { "name": "mine", "plugins": [plugin("own", true, true), plugin("other", false, true)] },
            { "plugins": [plugin("nameless", true, true)] },
            7,
        ], "marketplaceLoadErrors": [] });
        let listing = PluginListing::of_answer(&answer);
        assert_eq!(listing.curated, ["calendar@openai-curated", "github@openai-curated"]);
        assert_eq!(
            listing.others,
            [
                "blocked@openai-curated",
                "gmail@openai-curated-remote",
                "odd\"]\nx@openai-curated",
                "off@openai-curated",
                "own@mine"
            ]
        );
    }

    #[test]
    fn an_odd_or_endless_answer_gives_a_bounded_listing() {
        for answer in [
            json!(null),
            json!([]),
            json!({}),
            json!({ "marketplaces": {} }),
            json!({ "marketplaces": [{}] }),
        ] {
            assert_eq!(PluginListing::of_answer(&answer), PluginListing::default(), "{answer}");
        }
        let plugins: Vec<_> = (0..1000)
            .map(|n| json!({ "name": format!("p{n}"), "installed": true, "enabled": true }))
            .collect();
        let answer = json!({ "marketplaces": [{ "name": "openai-curated", "plugins": plugins }] });
        assert_eq!(PluginListing::of_answer(&answer).curated.len(), MOST);
    }
}
