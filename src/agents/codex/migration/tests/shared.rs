//! Agents that share a file: it has what one of them wants, and nothing that none of them may have.

use super::*;

fn codex() -> CodexConfig {
    CodexConfig::new(PathBuf::from("/work"))
}

fn some(names: &[&str]) -> McpSelection {
    McpSelection::Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// A model with these servers that was switched.
fn switched(name: &str, servers: McpSelection) -> MigratedAgent {
    MigratedAgent { servers, is_switched: true, ..agent(name, &codex()) }
}

fn three() -> BTreeMap<String, McpServerConfig> {
    wanting([("time", stdio("t", &[])), ("web", stdio("w", &[])), ("paid", stdio("p", &[]))]).servers
}

/// The wanted entries of agents that share the file.
fn wanted(agents: &[MigratedAgent], servers: BTreeMap<String, McpServerConfig>) -> WantedEntries {
    WantedEntries::of_agents(agents, servers, tools_server(), None)
}

/// The migrated servers, and the arguments of ours.
fn written(agents: &[MigratedAgent], servers: BTreeMap<String, McpServerConfig>) -> (Vec<String>, String) {
    let plan = MigrationPlan::make(b"", &wanted(agents, servers));
    let names = plan.report.migrated.iter().filter_map(|entry| match entry {
        EntryName::Server(name) if name != TOOLS_SERVER => Some(name.clone()),
        EntryName::Server(_) | EntryName::Profile | EntryName::Plugin(_) => None,
    });
    let args = plan.block.lines().find_map(|line| line.strip_prefix("args = "));
    (names.collect(), args.unwrap_or_default().to_owned())
}

#[test]
fn an_agent_gets_the_servers_of_its_tools_and_the_others_are_not_offered_either() {
    let of = |servers| written(&[switched("one", servers)], three());
    let (names, args) = of(McpSelection::All);
    assert_eq!(names, ["paid", "time", "web"]);
    assert_eq!(args, r#"["mcp", "--without-server=paid", "--without-server=time", "--without-server=web"]"#);
    assert_eq!(of(some(&["time"])), (vec!["time".to_owned()], r#"["mcp", "--servers="]"#.to_owned()));
    assert_eq!(of(McpSelection::None), (vec![], r#"["mcp", "--servers="]"#.to_owned()));
}

#[test]
fn agents_that_share_the_file_get_the_servers_of_all_of_them() {
    let (time, web) = (switched("one", some(&["time"])), switched("two", some(&["web"])));
    let (names, _) = written(&[time.clone(), web.clone()], three());
    assert_eq!(names, ["time", "web"]);
    let (names, _) = written(&[time.clone(), web, agent("three", &codex())], three());
    assert_eq!(names, ["paid", "time", "web"]);

    // One of them opts out; the other one does not.
    let mut plain = codex();
    (plain.tools_server, plain.plugins, plain.profile) = (false, false, ProfileSetting::None);
    let both = wanted(&[agent("plain", &plain), time], three());
    assert_eq!((both.tools_server, both.offered), (Some(tools_server()), some(&["time"])));
    assert_eq!((both.profile.as_deref(), both.plugins), (Some(DEFAULT_PROFILE), PluginChoice::Unknown));
}

#[test]
fn a_server_that_cannot_be_migrated_is_offered_by_ours() {
    let mut servers = three();
    let secret = with_value(stdio("p", &[]), "KEY", "CANARY", ValueOrigin::SecretLiteral);
    servers.insert("paid".to_owned(), secret);
    let one = switched("one", some(&["time", "paid"]));
    assert_eq!(written(&[one], servers).1, r#"["mcp", "--servers=paid"]"#);
}

#[test]
fn a_server_whose_variable_no_codex_has_is_left_out_with_advice_that_fits() {
    let paid = with_value(stdio("p", &[]), "TALARIA_TEST_HUB", "CANARY", variable("TALARIA_TEST_HUB"));
    let servers = || BTreeMap::from([("paid".to_owned(), paid.clone())]);
    let told = |agents: &[MigratedAgent]| {
        let report = MigrationPlan::make(b"", &wanted(agents, servers())).report;
        let lines = sentences(&report);
        lines.lines().filter(|line| line.contains("paid")).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(told(&[agent("one", &codex())]), @"codex does not get the server `paid`: it needs `TALARIA_TEST_HUB`, which codex does not get; name that in `env_passthrough` of the agent or set it in its `env`, knowing that codex' commands can read it too.");
    insta::assert_snapshot!(told(&[switched("one", McpSelection::All)]), @"codex does not get the server `paid`: it needs `TALARIA_TEST_HUB`, which codex does not get from a switched agent; an agent of `kind: codex` can pass it on.");
    let mut passing = codex();
    passing.env.insert("TALARIA_TEST_HUB".to_owned(), Secret::from("x".to_owned()));
    let passing = agent("two", &passing);
    for agents in [vec![passing.clone()], vec![switched("one", McpSelection::All), passing]] {
        assert!(told(&agents).contains("reads `TALARIA_TEST_HUB` from codex' environment"), "{agents:?}");
    }
    // One that is off needs nothing.
    let off = BTreeMap::from([("paid".to_owned(), McpServerConfig { enabled: false, ..paid.clone() })]);
    assert!(wanted(&[agent("one", &codex())], off).out_of_reach.is_empty());
}
