//! Tests: the tools of agents, their folders, and the sections about tools that all agents share.

use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;
use crate::access::AgentAccess;
use crate::config::{BudgetConfig, BuiltinTool, McpSelection, ReviewConfig, TerminalConfig};
use crate::ids::AgentName;

/// The errors about an agent `a` of kind `model` with these keys.
fn agent_errors(keys: &str) -> String {
    errors(&format!("agents:\n  a:\n    kind: model\n    model: m\n    {keys}\n"))
}

fn errors(text: &str) -> String {
    Scene::new().file(text).errors()
}

fn model_of(config: &Config, name: &str) -> ModelConfig {
    match config.agents.entries.get(&AgentName::new(name).unwrap()) {
        Some(AgentSettings::Model(model)) => model.clone(),
        other => panic!("no model: {other:?}"),
    }
}

#[test]
fn every_key_about_tools_arrives() {
    let scene = Scene::new().file(
        "agents:\n  a:\n    kind: model\n    model: m\n    models: [n, m, ' o ', n]\n    workspace: /srv/work\n    tools: \
         [terminal, read_file, memory, mcp.time, mcp.web, terminal]\n    context_tokens: 32000\n    max_iterations: \
         7\n    turn_timeout: 5m\nmcp_servers: {time: {command: a}, web: {command: b}, other: {command: c, enabled: \
         false}}\n",
    );
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    let model = model_of(&config, "a");
    assert_eq!(model.models, ["m", "n", "o"]);
    assert_eq!(model.workspace, Some(PathBuf::from("/srv/work")));
    assert_eq!(model.tools, [BuiltinTool::ReadFile, BuiltinTool::Terminal, BuiltinTool::Memory].into());
    assert_eq!(model.mcp, McpSelection::Some(["time".to_owned(), "web".to_owned()].into()));
    assert_eq!(["time", "web", "other"].map(|server| model.mcp.includes(server)), [true, true, false]);
    assert_eq!((model.context_tokens, model.max_iterations), (Some(32_000), 7));
    assert_eq!(model.turn_timeout, Duration::from_secs(300));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let described = config.describe().replace(&scene.folder.path().display().to_string(), "");
    insta::assert_snapshot!(described, @"
    configuration  /talaria.yaml
    state folder   /home
    agent          model server at https://api.openai.com/v1, model m, without a key
                     tools read_file, terminal, memory, mcp.time, mcp.web; workspace /srv/work; models m, n, o
    MCP servers    other: c (off)
                   time: a
                   web: b
    platforms      none configured: a chat in the terminal
    agent server   http://127.0.0.1:8642, model talaria, key in /home/api.key (not while prompts are piped in)
    log            info
    ");
}

#[test]
fn without_these_keys_an_agent_has_one_model_and_no_tools() {
    let entry = Scene::new().file("agents: {a: {kind: model, model: m}}").load().unwrap();
    let shorthand =
        Scene::new().var("OPENAI_BASE_URL", "http://h:1/v1").var("OPENAI_MODEL", "m").load().unwrap();
    for model in [model_of(&entry, "a"), model_of(&shorthand, "local")] {
        assert_eq!((model.models, model.workspace, model.context_tokens), (vec!["m".to_owned()], None, None));
        assert!(model.tools.is_empty());
        assert_eq!((model.mcp, model.max_iterations), (McpSelection::None, 50));
        assert_eq!(model.turn_timeout, Duration::from_secs(30 * 60));
    }
}

#[test]
fn four_lines_give_the_model_of_the_environment_its_tools() {
    let scene = |entry: &str| {
        Scene::new()
            .var("OPENAI_BASE_URL", "http://h:1/v1")
            .var("OPENAI_MODEL", "m")
            .file(format!("agents:\n  local:\n{entry}"))
    };
    let config = scene("    workspace: /srv/work\n    tools: [read_file, terminal]\n").load().unwrap();
    let model = model_of(&config, "local");
    assert_eq!((model.model.as_str(), model.workspace), ("m", Some(PathBuf::from("/srv/work"))));
    assert_eq!(model.tools.len(), 2);
    let all = "    models: [n]\n    context_tokens: 9000\n    max_iterations: 1\n    turn_timeout: 1s\n    access: \
               {apps: [forge]}\n    instructions: Be kind.\n";
    let config = scene(all).load().unwrap();
    let model = model_of(&config, "local");
    assert_eq!((model.models.len(), model.context_tokens, model.max_iterations), (2, Some(9000), 1));
    assert_eq!(config.rules.agents.by_name[&AgentName::local()].instructions, "Be kind.");

    insta::assert_snapshot!(scene("    wrokspace: /srv/work\n").errors(), @"
    error: unknown key `wrokspace` in `agents.local` (talaria.yaml, line 3)

    hint: did you mean `workspace`?
    ");
    insta::assert_snapshot!(scene("    tools: terminal\n").errors(), @"error: `agents.local.tools` must be a list, such as `[one, two]` (talaria.yaml, line 3)");
    // Without a model there is nothing to add to.
    let alone = "agents:\n  local:\n    tools: [memory]\n";
    insta::assert_snapshot!(errors(alone), @"
    error: `agents.local` has no `kind`, and its name is not one (talaria.yaml, line 2)

    hint: set `OPENAI_BASE_URL` and `OPENAI_MODEL`, to which the entry adds; or write a `kind` (known kinds: `proxy`, `model`, `codex`, `acp`)
    ");
    let faulty =
        Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642").var("OPENAI_BASE_URL", "http://h:1/v1");
    assert!(faulty.file(alone).errors().contains("no model is named"));
    // A remote agent server has its own tools.
    let proxy = Scene::new()
        .var("GATEWAY_PROXY_URL", "http://host:8642")
        .file("agents:\n  proxy: {tools: [memory]}\n");
    insta::assert_snapshot!(proxy.errors(), @"
    error: unknown key `tools` in `agents.proxy` (talaria.yaml, line 2)

    hint: the keys here are `access`, `instructions`
    ");
}

#[test]
fn an_agent_with_a_terminal_is_for_admins_unless_its_entry_says_otherwise() {
    let access = |keys: &str| {
        let text = format!("agents: {{a: {{kind: model, model: m, workspace: /srv/work, {keys}}}}}");
        let config = Scene::new().file(text).load().unwrap();
        config.rules.agents.by_name[&AgentName::new("a").unwrap()].access.clone()
    };
    assert_eq!(access("tools: [read_file, write_file, memory]"), AgentAccess::everybody());
    assert_eq!(access("tools: [read_file, terminal]"), AgentAccess::default());
    assert_eq!(access("tools: [terminal], access: {allow_all: true}"), AgentAccess::everybody());
    let local = Scene::new()
        .var("OPENAI_BASE_URL", "http://h:1/v1")
        .var("OPENAI_MODEL", "m")
        .file("agents: {local: {workspace: /srv/work, tools: [terminal]}}");
    let rules = local.load().unwrap().rules;
    assert_eq!(rules.agents.by_name[&AgentName::local()].access, AgentAccess::default());
}

#[test]
fn a_wrong_key_about_tools_is_named_with_its_line() {
    insta::assert_snapshot!(agent_errors("tools: [raed_file]\n    workspace: /srv/work"), @"
    error: `agents.a.tools` names a tool that does not exist (talaria.yaml, line 5)

    hint: did you mean `read_file`?
    ");
    insta::assert_snapshot!(agent_errors("tools: [sk-CANARY-0123]"), @"
    error: `agents.a.tools` names a tool that does not exist (talaria.yaml, line 5)

    hint: the tools are `edit_file`, `mcp`, `memory`, `read_file`, `search_files`, `skills`, `terminal`, `write_file`; `mcp.NAME` stands for a server of `mcp_servers`
    ");
    insta::assert_snapshot!(agent_errors("tools: [mcp.tiem]\nmcp_servers: {time: {command: a}}"), @"
    error: `agents.a.tools` names a server that `mcp_servers` does not have (talaria.yaml, line 5)

    hint: did you mean `mcp.time`?
    ");
    insta::assert_snapshot!(agent_errors("tools: [memory, terminal]"), @"
    error: `agents.a.tools` has `terminal`, which needs a `workspace` (talaria.yaml, line 5)

    hint: add the folder that the agent may work in, such as `workspace: /srv/agent`
    ");
    insta::assert_snapshot!(agent_errors("tools: [terminal]\n    workspace: ~/work"), @"
    error: `agents.a.workspace` begins with `~`, which only a shell replaces (talaria.yaml, line 6)

    hint: write the whole path, for example `/home/ann/agent`
    ");
    insta::assert_snapshot!(agent_errors("models: ['']"), @"
    error: `agents.a.models` must be at most 50 names of at most 128 characters (talaria.yaml, line 5)

    hint: write the names that the server knows its models by, such as `[llama3.2, qwen3]`
    ");
    for (keys, part) in [
        (
            "max_iterations: 0",
            "`agents.a.max_iterations` must be a whole number from 1 to 500 (talaria.yaml, line 5)",
        ),
        ("max_iterations: 501", "from 1 to 500"),
        ("context_tokens: 5", "`agents.a.context_tokens` must be a whole number from 1000 to 100000000"),
        ("turn_timeout: 0s", "`agents.a.turn_timeout` must be a length of time"),
        ("workspace: [a]", "`agents.a.workspace` must be text"),
        ("tools: {a: b}", "`agents.a.tools` must be"),
        ("model_s: [a]", "did you mean `models`?"),
        ("toolz: [a]", "did you mean `tools`?"),
    ] {
        let errors = agent_errors(keys);
        assert!(errors.contains(part), "{keys}: {errors}");
    }
}

#[test]
fn settings_without_effect_are_pointed_out() {
    let warnings = |text: &str| Scene::new().file(text).load().unwrap().warnings.join("\n");
    let agent = |keys: &str| format!("agents: {{a: {{kind: model, model: m, {keys}}}}}\n");
    insta::assert_snapshot!(warnings(&agent("workspace: /srv/work, tools: [memory]")), @"`agents.a.workspace` has no effect, because no tool of the agent works in it");
    insta::assert_snapshot!(warnings(&agent("tools: [mcp]")), @"`agents.a.tools` has `mcp`, but there are no servers in `mcp_servers`");
    insta::assert_snapshot!(warnings(&format!("{}mcp_servers: {{t: {{command: a}}}}", agent("tools: [memory]"))), @"`mcp_servers.t` is used by no agent; add `mcp.t` to the `tools` of one");
    insta::assert_snapshot!(
        warnings(&format!("{}mcp_servers: {{t: {{command: a, enabled: false}}}}", agent("tools: [mcp.t]"))),
        @"`agents.a.tools` has `mcp.t`, but that server is off (`enabled: false`)"
    );
    insta::assert_snapshot!(warnings("terminal: {env_passthrough: [LANG, OPENAI_API_KEY, TALARIA_HOME]}"), @"`terminal.env_passthrough` lists `OPENAI_API_KEY`, which never passes: it is a secret of Talaria's own");
}

#[test]
fn a_workspace_never_reaches_our_own_files() {
    let scene = Scene::new();
    let key = scene.private_file("keys/key", "sk-1");
    scene.private_file("plain-file", "");
    for folder in ["home", "work"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    symlink(scene.path("home"), scene.path("work/link")).unwrap();
    let folder = scene.path("").display().to_string();
    let load = |workspace: &str, more: &str| {
        let text = format!(
            "{more}agents:\n  a:\n    kind: model\n    model: m\n    api_key_file: {}\n    tools: [read_file]\n    workspace: \
             {workspace}\n",
            key.display()
        );
        scene.private_file("talaria.yaml", text);
        scene.load().map_err(|errors| printed(&errors).replace(&folder, "DIR/"))
    };
    for good in ["work", "work/deep", "new/folder", "keys/other"] {
        let config = load(&format!("{folder}{good}"), "").unwrap();
        assert_eq!(model_of(&config, "a").workspace, Some(scene.path(good)));
        assert_eq!(config.secret_files, std::slice::from_ref(&key));
    }
    for (bad, reason) in [
        ("home", "lies in DIR/home, which belongs to Talaria (DIR/talaria.yaml, line 7)"),
        ("home/work", "lies in DIR/home"),
        ("work/link", "lies in DIR/home"),
        ("work/link/new", "lies in DIR/home"),
        ("work/../home/x", "lies in DIR/home"),
        ("new/../work/link/x", "lies in DIR/home"),
        (".", "contains DIR/home"),
        ("keys", "contains DIR/keys/key"),
        ("plain-file", "is not a folder"),
    ] {
        let error = load(&format!("{folder}{bad}"), "").unwrap_err();
        assert!(error.contains(&format!("`agents.a.workspace` {reason}")), "{bad}: {error}");
    }
    assert!(load("/", "").unwrap_err().contains("is the root of the file system"));
    let skills = format!("skills_dir: {folder}work/skills\n");
    assert!(load(&format!("{folder}work"), &skills).unwrap_err().contains("contains DIR/work/skills"));
    assert!(load(&format!("{folder}work/skills"), &skills).unwrap_err().contains("lies in DIR/work/skills"));
    // The configuration file alone in another folder.
    let home = scene.path("home").display().to_string();
    let named = scene.private_file(
        "conf/named.yaml",
        format!("agents: {{a: {{kind: model, model: m, tools: [read_file], workspace: {folder}conf}}}}"),
    );
    let sources = ConfigSources { config: Some(named), ..ConfigSources::default() };
    let errors = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap_err();
    assert!(printed(&errors).contains("conf/named.yaml, which belongs to Talaria"), "{}", printed(&errors));
}

#[test]
fn a_relative_folder_begins_where_talaria_is_started() {
    let text = "agents: {a: {kind: model, model: m, tools: [read_file], workspace: some/folder}}";
    let here = std::env::current_dir().unwrap();
    let config = Scene::new().file(text).load().unwrap();
    assert_eq!(model_of(&config, "a").workspace, Some(here.join("some/folder")));
}

#[test]
fn the_shared_sections_arrive_and_have_defaults() {
    let scene = Scene::new();
    let plain = scene.load().unwrap();
    assert_eq!(plain.skills_dir, scene.path("home/skills"));
    assert_eq!(plain.review, ReviewConfig { memory: 10, skills: 10, agent: None });
    assert_eq!(plain.terminal, TerminalConfig::default());
    assert_eq!(plain.rules.budget, BudgetConfig::default());
    let full = scene.file(
        "agents: {a: {kind: model, model: m}}\nskills_dir: /srv/skills\nreview: {memory: 0, skills: 3, agent: \
         a}\nterminal: {env_passthrough: [LANG, LANG, _X1], network: true, timeout: 5s}\nbudget: {person: 1000, agent: \
         4000000000}\n",
    );
    let full = full.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    assert_eq!(full.skills_dir, Path::new("/srv/skills"));
    assert_eq!(full.review, ReviewConfig { memory: 0, skills: 3, agent: AgentName::new("a") });
    let env_passthrough = vec!["LANG".to_owned(), "_X1".to_owned()];
    let timeout = Duration::from_secs(5);
    assert_eq!(full.terminal, TerminalConfig { env_passthrough, network: true, timeout });
    assert_eq!(full.rules.budget, BudgetConfig { person: Some(1000), agent: Some(4_000_000_000) });
}

#[test]
fn a_reviewing_agent_that_can_keep_nothing_is_warned_about() {
    let warnings = |tools: &str| {
        let text =
            format!("agents: {{a: {{kind: model, model: m, tools: [{tools}]}}}}\nreview: {{agent: a}}\n");
        let config = Scene::new().file(text).load().unwrap();
        config.warnings.into_iter().filter(|warning| warning.contains("review.agent")).collect::<Vec<_>>()
    };
    insta::assert_snapshot!(warnings("mcp").join("\n"), @"`review.agent` names `a`, which has neither `memory` nor `skills` in its `tools`: it can keep nothing, so no conversation is reviewed");
    assert_eq!((warnings("memory"), warnings("skills")), (Vec::new(), Vec::new()));
}

#[test]
fn wrong_values_of_the_shared_sections_are_named() {
    insta::assert_snapshot!(errors("review: {agent: b}\nagents: {a: {kind: model, model: m}}"), @"
    error: `review.agent` names no agent (talaria.yaml, line 1)

    hint: did you mean `a`? the agents are `a`
    ");
    insta::assert_snapshot!(
        errors("review: {agent: p}\nagents: {a: {kind: model, model: m}, p: {kind: proxy, url: 'http://p:1'}}\ndefault_agent: a"),
        @"
        error: `review.agent` names an agent without a model of ours (talaria.yaml, line 1)

        hint: agents of kind `model` are `a`
        "
    );
    insta::assert_snapshot!(errors("terminal:\n  env_passthrough: [LANG=de]\n"), @"
    error: `terminal.env_passthrough` holds what cannot be the name of a variable (talaria.yaml, line 2)

    hint: write names alone, such as `[LANG, HTTPS_PROXY]`; there are no patterns and no values
    ");
    for (text, part) in [
        (
            "budget: {person: 0}",
            "`budget.person` must be a whole number from 1 to 4000000000 (talaria.yaml, line 1)",
        ),
        ("budget: {agent: many}", "`budget.agent` must be a whole number"),
        ("budget: {people: 1}", "unknown key `people` in `budget`"),
        ("review: {memory: -1}", "`review.memory` must be a whole number from 0 to 10000"),
        ("review: {skill: 1}", "did you mean `skills`?"),
        ("terminal: {timeout: 0}", "`terminal.timeout` must be a length of time"),
        ("terminal: {network: maybe}", "`terminal.network` must be `true` or `false`"),
        ("terminal: [a]", "`terminal` must be a mapping of keys"),
        ("skills_dir: ~/skills", "`skills_dir` begins with `~`"),
        ("skills_dir: /", "`skills_dir` is the state folder or contains it"),
        ("skill_dir: /x", "did you mean `skills_dir`?"),
    ] {
        let errors = errors(text);
        assert!(errors.contains(part), "{text}: {errors}");
    }
    let scene = Scene::new();
    let home = scene.path("home");
    let scene = scene.file(format!("skills_dir: {}", home.display()));
    assert!(scene.errors().contains("`skills_dir` is the state folder"), "{}", scene.errors());
    let scene = scene.file(format!("skills_dir: {}/other", home.display()));
    assert_eq!(scene.load().unwrap().skills_dir, home.join("other"));
}
