//! From the file as written and the environment to the complete configuration.
//!
//! Everything that is wrong is collected, so that a person can put it right in one go.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::AccountId;
use tracing_subscriber::EnvFilter;

use super::Retention;
use super::access_lint;
use super::agents::ModelServer;
use super::document::ConfigDocument;
use super::env::{self, EnvReader, EnvVar};
use super::file::{self, ConfigFile};
use super::language;
use super::platform::is_name;
use super::server;
use super::suggest::closest;
use super::yaml_lines::KeyedMapping;
use super::{
    AgentChoice, BaseUrl, ConfigError, DisplayConfig, LocalConfig, PlatformConfig, ServerConfig, TurnConfig,
};
use crate::rules::Rules;

const DEFAULT_LOG: &str = "info";

/// Everything but the places of things, which `load` knows.
pub(super) struct ResolvedConfig {
    pub(super) agent: AgentChoice,
    pub(super) room_agent: Option<LocalConfig>,
    pub(super) turns: TurnConfig,
    pub(super) platforms: BTreeMap<AccountId, PlatformConfig>,
    pub(super) server: Option<ServerConfig>,
    pub(super) display: DisplayConfig,
    pub(super) store: Retention,
    pub(super) rules: Rules,
    pub(super) log: String,
    pub(super) warnings: Vec<String>,
}

/// Resolves what was written in `document`.
pub(super) fn resolve(
    file: ConfigFile,
    document: Option<&ConfigDocument>,
    env: EnvReader<'_>,
    home: &Path,
    serve: bool,
) -> Result<ResolvedConfig, Vec<ConfigError>> {
    let mut resolver =
        ConfigResolver { document, env, home, spare: None, errors: Vec::new(), warnings: Vec::new() };
    let turns = TurnConfig {
        context_prompt: file
            .agent
            .context_prompt
            .clone()
            .filter(|text| !text.trim().is_empty())
            .unwrap_or_default(),
        names: file.agent.names.unwrap_or(true),
        files: file.agent.files.unwrap_or(false),
        history_messages: file.gateway.history_messages.map_or(100, |count| count.0),
        history_bytes: file.gateway.history_bytes.map_or(262_144, |bytes| bytes.0),
        retry_for: file.gateway.retry_for.map_or(Duration::from_secs(10 * 60), |span| span.0),
        retry_scripts_for: file.gateway.retry_for.map_or(Duration::from_secs(30), |span| span.0),
    };
    let display = DisplayConfig {
        steps: file.display.steps.unwrap_or_default(),
        edits: file.display.edits.map_or(200, |edits| edits.0),
        reactions: file.display.reactions.unwrap_or(false),
    };
    let kept = Retention::default();
    let store = Retention {
        sessions: file.store.keep.map_or(kept.sessions, |keep| keep.0),
        responses: file.store.keep_responses.map_or(kept.responses, |keep| keep.0),
    };
    let agent = resolver.agent(file.gateway, file.agent);
    let mut rules = Rules::default();
    let platforms = resolver.platforms(file.platforms, &mut rules);
    let server =
        resolver.server(file.server, server::ServerWish { alone: platforms.is_empty(), commanded: serve });
    let room_agent = resolver.room_agent(&agent, &rules);
    let server = resolver.beside(server, &agent, room_agent.as_ref());
    rules.words = language::read(file.language.as_deref(), &file.words, document, &mut resolver.errors);
    let log = resolver.log(file.log.level);
    if resolver.errors.is_empty() {
        let warnings = resolver.warnings;
        Ok(ResolvedConfig {
            agent,
            room_agent,
            turns,
            platforms,
            server,
            display,
            store,
            rules,
            log,
            warnings,
        })
    } else {
        Err(resolver.errors)
    }
}

pub(super) struct ConfigResolver<'a> {
    pub(super) document: Option<&'a ConfigDocument>,
    pub(super) env: EnvReader<'a>,
    /// The state folder.
    #[cfg_attr(not(feature = "matrix"), allow(dead_code, reason = "Matrix keeps a device's keys there"))]
    pub(super) home: &'a Path,
    /// What is said of a model server that nobody has asked yet.
    pub(super) spare: Option<ModelServer>,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<String>,
}

/// Where a value can come from: the environment first, then the file.
pub(super) struct SettingSource<'a> {
    /// None for an entry that only the file can configure.
    pub(super) var: Option<&'a EnvVar>,
    pub(super) path: &'a [&'a str],
}

/// A value and, for messages, what people call the place it came from.
pub(super) struct GivenValue {
    pub(super) value: String,
    pub(super) name: String,
    /// ` (talaria.yaml, line 7)`, or empty for the environment.
    pub(super) place: String,
}

impl ConfigResolver<'_> {
    fn platforms(
        &mut self,
        mut written: BTreeMap<String, Option<KeyedMapping<file::PlatformSection>>>,
        rules: &mut Rules,
    ) -> BTreeMap<AccountId, PlatformConfig> {
        let mut platforms = BTreeMap::new();
        self.add_matrix(&mut written);
        let absent = ConfigDocument::absent();
        let document = self.document.unwrap_or(&absent);
        for (name, entry) in written {
            if !is_name(&name) {
                let place = document.place_of_key(&["platforms", &name]);
                // A key that got there by a slip is not shown; those are seldom a few plain words.
                let plain = |c: char| c.is_alphabetic() || matches!(c, ' ' | '.');
                let word = name.len() <= 32 && name.chars().all(plain) && name.contains(char::is_lowercase);
                let name = if word { format!("the name `{name}`, which") } else { "a name that".to_owned() };
                self.errors.push(
                    ConfigError::new(format!("`platforms` has {name} cannot be used {place}"))
                        .hint("names are 1 to 32 of `a`–`z`, `0`–`9`, `_` and `-`"),
                );
                continue;
            }
            let kind = entry.and_then(|KeyedMapping(entry)| filled(entry.kind));
            let Some(platform) = PlatformConfig::read(self, document, &name, kind.as_deref()) else {
                continue;
            };
            match platform.people(self.env, document, &name) {
                Ok(people) => {
                    let account = AccountId::from(name.as_str());
                    if let Some(people) = people {
                        self.warnings.extend(access_lint::warnings(&name, &people.access));
                        rules.accounts.insert(account.clone(), Arc::new(people));
                    }
                    platforms.insert(account, platform);
                }
                Err(error) => self.errors.push(error),
            }
        }
        if platforms.values().filter(|platform| **platform == PlatformConfig::Console).count() > 1 {
            let place = document.place(&["platforms"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`platforms` has more than one entry of the kind `console` {place}"
                ))
                .hint("there is one terminal; keep one of them"),
            );
        }
        platforms
    }

    /// Adds the entry that variables configure, where the file has none.
    fn add_matrix(&mut self, written: &mut BTreeMap<String, Option<KeyedMapping<file::PlatformSection>>>) {
        let Some(var) = env::MATRIX.iter().find(|var| self.env.get(var).is_some()) else { return };
        let variable = var.name;
        if !cfg!(feature = "matrix") {
            self.errors.push(
                ConfigError::new(format!("`{variable}` is set, but this Talaria was built without Matrix"))
                    .hint("unset it, or build Talaria with the feature `matrix`, which is on by default"),
            );
            return;
        }
        let entry = written.entry("matrix".to_owned()).or_default();
        let kind = entry.as_ref().and_then(|KeyedMapping(entry)| filled(entry.kind.clone()));
        if kind.is_some_and(|kind| kind != "matrix") {
            let place = self.place(&["platforms", "matrix", "kind"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`{variable}` configures `platforms.matrix`, which is of another kind{place}"
                ))
                .hint("give that entry another name, or unset the variables that begin with `MATRIX_`"),
            );
        }
    }

    fn log(&mut self, written: Option<String>) -> String {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let setting = SettingSource { var: Some(&env::TALARIA_LOG), path: &["log", "level"] };
        let Some(GivenValue { value, name, place }) = self.text(setting, written) else {
            return DEFAULT_LOG.to_owned();
        };
        // A filter takes any word for the name of a module, so a slip would silence everything.
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(&value));
        if !is_level && !value.contains(['=', ',', '[']) {
            let levels = LEVELS.map(|level| format!("`{level}`")).join(", ");
            let hint = match closest(&value, LEVELS) {
                Some(level) => format!("did you mean `{level}`?"),
                None => format!("the levels are {levels}; a filter is written such as `info,talaria=debug`"),
            };
            self.errors.push(ConfigError::new(format!("{name} is not a level{place}")).hint(hint));
        } else if EnvFilter::builder().parse(&value).is_err() {
            self.errors.push(
                ConfigError::new(format!("{name} is neither a level nor a filter{place}"))
                    .hint("write a level such as `info`, or a filter such as `info,talaria=debug`"),
            );
        }
        value
    }

    /// A text from the environment, else from the file; blank counts as unset.
    pub(super) fn text(&self, setting: SettingSource<'_>, written: Option<String>) -> Option<GivenValue> {
        if let Some(var) = setting.var
            && let Some(value) = self.env.get(var)
        {
            return Some(GivenValue { value, name: format!("`{}`", var.name), place: String::new() });
        }
        let value = filled(written)?;
        let place = self.place(setting.path);
        Some(GivenValue { value, name: format!("`{}`", setting.path.join(".")), place })
    }

    pub(super) fn url(&mut self, given: &GivenValue) -> Option<BaseUrl> {
        match BaseUrl::parse(&given.value) {
            Ok(url) => Some(url),
            Err(phrase) => {
                self.errors.push(ConfigError::new(format!("{} {phrase}{}", given.name, given.place)));
                None
            }
        }
    }

    /// ` (talaria.yaml, line 7)`
    pub(super) fn place(&self, path: &[&str]) -> String {
        self.document.map(|document| format!(" {}", document.place(path))).unwrap_or_default()
    }
}

/// A text that says something, without white space around it.
pub(super) fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
