//! From the file as written and the environment to the complete configuration.
//!
//! Everything that is wrong is collected, so that a person can put it right in one go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use talaria_platform::AccountId;
use tracing_subscriber::EnvFilter;

use super::Retention;
use super::document::ConfigDocument;
use super::env::{self, EnvReader};
use super::file::ConfigFile;
use super::language;
use super::mcp_servers::is_server_name;
use super::secret_sources::KeySetting;
use super::server;
use super::setting::SettingReader;
pub(super) use super::setting::{GivenValue, SettingSource, filled};
use super::suggest::closest;
use super::{
    AgentsConfig, BaseUrl, ConfigError, DisplayConfig, ForgeConfig, McpServerConfig, PlatformConfig,
    ReviewConfig, Secret, ServerConfig, TerminalConfig, TurnConfig,
};
use crate::rules::Rules;

const DEFAULT_LOG: &str = "info";

/// Everything but the paths, which `load` knows.
pub(super) struct ResolvedConfig {
    pub(super) agents: AgentsConfig,
    pub(super) mcp_servers: BTreeMap<String, McpServerConfig>,
    pub(super) skills_dir: PathBuf,
    pub(super) review: ReviewConfig,
    pub(super) terminal: TerminalConfig,
    pub(super) turns: TurnConfig,
    pub(super) platforms: BTreeMap<AccountId, PlatformConfig>,
    pub(super) server: Option<ServerConfig>,
    pub(super) forge: ForgeConfig,
    pub(super) display: DisplayConfig,
    pub(super) store: Retention,
    pub(super) rules: Rules,
    pub(super) log: String,
    pub(super) secret_files: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

/// Resolves `file`, which was read from `document`.
pub(super) fn resolve(
    file: ConfigFile,
    document: Option<&ConfigDocument>,
    env: EnvReader<'_>,
    home: &Path,
    serve: bool,
) -> Result<ResolvedConfig, Vec<ConfigError>> {
    let mut resolver = ConfigResolver {
        document,
        env,
        home,
        // Also the names of entries with errors, so that an agent that names one is not reported, too.
        mcp_names: file.mcp_servers.keys().filter(|name| is_server_name(name)).cloned().collect(),
        errors: Vec::new(),
        secret_files: Vec::new(),
        warnings: Vec::new(),
    };
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
    let mcp_servers = resolver.mcp_servers(file.mcp_servers);
    let skills_dir = resolver.skills_dir(file.skills_dir);
    let terminal = resolver.terminal(file.terminal);
    let errors_before = resolver.errors.len();
    let (agents, of_agents) = resolver.agents(file.gateway, file.agent, file.agents, file.default_agent);
    let has_all_agents = resolver.errors.len() == errors_before;
    let review = resolver.review(file.review, &agents, has_all_agents);
    let mut rules = Rules { agents: of_agents, budget: file.budget.resolve(), ..Rules::default() };
    let platforms = resolver.platforms(file.platforms, &mut rules);
    let server =
        resolver.server(file.server, server::ServerWish { alone: platforms.is_empty(), commanded: serve });
    resolver.check_places(&agents, &rules);
    let server = resolver.beside(server, &agents);
    let forge = resolver.forge(file.forge, has_all_agents.then_some(&agents));
    if has_all_agents {
        resolver.check_servers(&agents, &mcp_servers);
    }
    resolver.check_workspaces(&agents, &rules, &skills_dir);
    rules.words = language::read(file.language.as_deref(), &file.words, document, &mut resolver.errors);
    let log = resolver.log(file.log.level);
    if resolver.errors.is_empty() {
        Ok(ResolvedConfig {
            agents,
            mcp_servers,
            skills_dir,
            review,
            terminal,
            turns,
            platforms,
            server,
            forge,
            display,
            store,
            rules,
            log,
            secret_files: resolver.secret_files,
            warnings: resolver.warnings,
        })
    } else {
        Err(resolver.errors)
    }
}

pub(super) struct ConfigResolver<'a> {
    pub(super) document: Option<&'a ConfigDocument>,
    pub(super) env: EnvReader<'a>,
    /// The state folder.
    pub(super) home: &'a Path,
    /// The names below `mcp_servers`.
    pub(super) mcp_names: BTreeSet<String>,
    pub(super) errors: Vec<ConfigError>,
    /// Files that keys were read from.
    pub(super) secret_files: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl ConfigResolver<'_> {
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

    /// Reads single settings, with the errors and warnings of this resolver.
    pub(super) fn reader(&mut self) -> SettingReader<'_> {
        SettingReader {
            document: self.document,
            env: self.env,
            home: self.home,
            errors: &mut self.errors,
            secret_files: &mut self.secret_files,
            warnings: &mut self.warnings,
        }
    }

    /// A text from the environment, else from the file; blank counts as unset.
    pub(super) fn text(&mut self, source: SettingSource<'_>, written: Option<String>) -> Option<GivenValue> {
        self.reader().text(source, written)
    }

    /// A key from the environment, the file that the environment names, or the configuration file.
    pub(super) fn key(
        &mut self,
        setting: KeySetting<'_>,
        written: Option<Secret>,
        written_file: Option<String>,
    ) -> Option<Secret> {
        self.reader().key(setting, written, written_file)
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
