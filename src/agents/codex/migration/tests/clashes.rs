//! Keys of the user's that win over ours, in every spelling of TOML.

use super::*;
use crate::config::{CodexConfig, ProfileSetting};

fn clashes(old: &str) -> Vec<String> {
    let plan = MigrationPlan::make(old.as_bytes(), &wanting_all());
    assert_eq!(plan.report.errors, [], "{old}");
    let new = String::from_utf8(plan.bytes).unwrap();
    new.parse::<DocumentMut>().unwrap_or_else(|error| panic!("{error}\n{new}"));
    assert_eq!(removed(&new), old);
    plan.report.clashes
}

#[test]
fn a_users_server_wins_in_every_spelling() {
    for old in [
        "[mcp_servers.time]\ncommand = \"mine\"\n",
        "[ mcp_servers . \"time\" ]\nurl = \"https://h/mcp\"\n",
        "['mcp_servers'.\"ti\\u006de\"]\ncommand = \"mine\"\n",
        "mcp_servers.time.command = \"mine\"\n",
        "mcp_servers.time = { command = \"mine\" }\n[a]\n",
        "[mcp_servers]\ntime = { command = \"mine\" }\n",
        "[mcp_servers]\ntime.command = \"mine\"\n[mcp_servers.time.env]\nA = \"b\"\n",
        "\"mcp_servers\".time = { url = \"https://h\" }\n",
        "mcp_servers.time = 5\n",
        "[[mcp_servers.time]]\ncommand = \"mine\"\n",
    ] {
        assert_eq!(clashes(old), ["mcp_servers.time"], "{old}");
        let new = planned(old, &wanting_all());
        assert!(new.contains("[mcp_servers.talaria]") && new.contains("default_permissions"), "{new}");
    }
    // Another table of the same name is none of ours.
    for old in [
        "[x.mcp_servers.time]\ncommand = \"a\"\n",
        "[mcp_server.time]\n",
        "[mcp_servers.times]\ncommand = \"a\"\n",
    ] {
        assert!(clashes(old).is_empty(), "{old}");
    }
}

#[test]
fn a_table_that_cannot_be_extended_keeps_all_of_ours_out() {
    for old in [
        "mcp_servers = { own = { command = \"mine\" } }\n",
        "mcp_servers = {}\n",
        "mcp_servers = 5\n",
        "[[mcp_servers]]\nx = 1\n",
    ] {
        assert_eq!(clashes(old), ["mcp_servers"], "{old}");
        let new = planned(old, &wanting_all());
        assert!(!new.contains("[mcp_servers.") && new.contains("[plugins."), "{new}");
    }
    assert_eq!(clashes("plugins = {}\n"), ["plugins"]);
    // These can be extended.
    for old in [
        "[mcp_servers]\n",
        "mcp_servers.own.command = \"a\"\n",
        "[plugins]\n",
        "[mcp_servers.own]\ncommand = \"a\"\n",
    ] {
        assert!(clashes(old).is_empty(), "{old}");
    }
}

#[test]
fn the_users_permissions_and_plugins_win() {
    for (old, clash) in [
        ("default_permissions = \":read-only\"\n", "default_permissions"),
        ("'default_permissions' = \"mine\"\n[permissions.mine]\n", "default_permissions"),
        ("sandbox_mode = \"read-only\"\n", "sandbox_mode"),
        // codex ignores this table where a default profile is set.
        ("[sandbox_workspace_write]\nnetwork_access = true\n", "sandbox_workspace_write"),
    ] {
        assert_eq!(clashes(old), [clash], "{old}");
        assert!(!planned(old, &wanting_all()).contains(":workspace"), "{old}");
    }
    // In another table the key means something else.
    assert!(clashes("[profiles.x]\nsandbox_mode = \"read-only\"\n").is_empty());
    for old in [
        "[plugins.\"calendar@openai-curated\"]\nenabled = false\n",
        "plugins.'calendar@openai-curated'.enabled = false\n",
    ] {
        assert_eq!(clashes(old), ["plugins.\"calendar@openai-curated\""]);
    }
}

#[test]
fn a_server_that_only_our_part_completes_changes_nothing() {
    // As codex writes it when a person allows a tool for good; without our table codex would not start.
    let ours = planned("", &wanting_all());
    let old = format!("{ours}[mcp_servers.time.tools.echo]\napproval_mode = \"approve\"\n");
    for wanted in [wanting_all(), WantedEntries::default()] {
        let plan = MigrationPlan::make(old.as_bytes(), &wanted);
        assert_eq!(plan.report.errors, [MigrationError::Incomplete("time".to_owned())]);
        assert_eq!(plan.bytes, old.as_bytes());
    }
    let tools = "[mcp_servers.talaria]\nenabled = false\n";
    let plan = MigrationPlan::make(tools.as_bytes(), &wanting_all());
    assert_eq!(plan.report.errors, [MigrationError::Incomplete("talaria".to_owned())]);
    // A server that is none of ours is the user's alone.
    assert!(
        MigrationPlan::make(b"[mcp_servers.x]\nenabled = false\n", &wanting_all()).report.errors.is_empty()
    );
}

#[test]
fn everything_can_be_left_out() {
    let mut wanted = wanting_all();
    wanted.profile = None;
    assert!(!planned("", &wanted).contains("default_permissions"));
    wanted.plugins = PluginChoice::Off;
    assert!(!planned("", &wanted).contains("plugins"));
    wanted.tools_server = None;
    assert!(!planned("", &wanted).contains("mcp_servers.talaria"));
    wanted.servers.clear();
    let plan = MigrationPlan::make(b"", &wanted);
    assert_eq!((plan.bytes.len(), plan.report.outcome), (0, MigrationOutcome::Unchanged));
    assert_eq!(sentences(&plan.report), "There is nothing for codex' config.toml.");
}

#[test]
fn the_entry_of_an_agent_opts_out() {
    let mut entry = CodexConfig::new(PathBuf::from("/work"));
    let of = |entry: &CodexConfig, plugins: Option<PluginListing>| {
        WantedEntries::of_agents(&[agent("one", entry)], BTreeMap::new(), tools_server(), plugins)
    };
    let wanted = of(&entry, Some(PluginListing::default()));
    assert_eq!((wanted.profile.as_deref(), wanted.tools_server), (Some(":workspace"), Some(tools_server())));
    assert_eq!(wanted.plugins, PluginChoice::Listed(PluginListing::default()));
    assert_eq!(of(&entry, None).plugins, PluginChoice::Unknown);
    (entry.plugins, entry.tools_server, entry.profile) = (false, false, ProfileSetting::None);
    let wanted = of(&entry, Some(PluginListing::default()));
    assert_eq!((wanted.profile, wanted.tools_server, wanted.plugins), (None, None, PluginChoice::Off));
    for (profile, written) in
        [(":read-only", Some(":read-only")), ("mine", Some("mine")), (":danger-full-access", None)]
    {
        entry.profile = ProfileSetting::Named(profile.to_owned());
        assert_eq!(of(&entry, None).profile.as_deref(), written);
    }
}

#[test]
fn plugins_that_codex_did_not_tell_in_time_stay_as_they_were() {
    let once = planned("", &wanting_all());
    let unknown = WantedEntries { plugins: PluginChoice::Unknown, ..wanting_all() };
    assert_eq!(planned(&once, &unknown), once);
    assert!(!planned("", &unknown).contains("plugins"));
}

#[test]
fn a_profile_that_codex_would_not_know_is_not_written() {
    let wanted =
        |profile: &str| WantedEntries { profile: Some(profile.to_owned()), ..WantedEntries::default() };
    let plan = MigrationPlan::make(b"", &wanted(":workspaces"));
    assert_eq!((plan.report.unknown_profile.as_deref(), plan.bytes.len()), (Some(":workspaces"), 0));
    let own = "[permissions.mine]\nextends = \":read-only\"\n";
    assert!(planned(own, &wanted("mine")).contains("default_permissions = \"mine\"\n"));
    assert!(MigrationPlan::make(b"", &wanted("mine")).report.unknown_profile.is_some());
}

#[test]
fn the_report_tells_everything_in_sentences() {
    let mut wanted = wanting_all();
    let secret = with_value(stdio("a", &[]), "API_KEY", "CANARY", ValueOrigin::SecretLiteral);
    wanted.servers.insert("paid".to_owned(), secret.clone());
    wanted.servers.insert("off".to_owned(), McpServerConfig { enabled: false, ..secret });
    wanted.servers.insert("hub".to_owned(), with_value(stdio("a", &[]), "HUB", "CANARY", variable("HUB")));
    let old = "sandbox_mode = \"read-only\"\n[mcp_servers.time]\ncommand = \"mine\"\n";
    let report = MigrationPlan::make(old.as_bytes(), &wanted).report;
    insta::assert_snapshot!(sentences(&report), @"
    Would be written into codex' config.toml: `mcp_servers.hub`, `mcp_servers.off`, `mcp_servers.talaria`, `plugins.\"calendar@openai-curated\"`.
    Left as your own part of config.toml has it: `sandbox_mode`, `mcp_servers.time`.
    codex does not get the server `paid`: `env.API_KEY` is a secret in the configuration file, which is not copied; write `${NAME}` there and set that variable.
    codex has no place for these keys of the server `off`: `env.API_KEY`.
    The server `hub` reads `HUB` from codex' environment, where codex' commands can read it too.
    Installed plugins that Talaria leaves alone: `own@mine`.
    ");
}
