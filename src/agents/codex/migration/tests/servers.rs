//! Servers: each key of ours and its place in codex' table.

use toml_edit::Value;

use super::super::server_table::{server_table, text_value};
use super::*;
use crate::config::ToolPermission;

fn table(config: &McpServerConfig) -> String {
    server_table(config).unwrap().table.to_string()
}

fn refusal(config: &McpServerConfig) -> SkipReason {
    server_table(config).unwrap_err()
}

#[test]
fn a_program_keeps_its_arguments_variables_folder_and_times() {
    let mut config = with_value(stdio("npx", &["-y", "some-server"]), "LEVEL", "debug", ValueOrigin::Literal);
    config = with_value(config, "API_TOKEN", "CANARY", variable("API_TOKEN"));
    if let McpTransport::Stdio { cwd, .. } = &mut config.transport {
        *cwd = Some(PathBuf::from("/srv/time"));
    }
    config.timeout = Duration::from_millis(1500);
    insta::assert_snapshot!(table(&config), @r#"
    command = "npx"
    args = ["-y", "some-server"]
    env = { LEVEL = "debug" }
    env_vars = ["API_TOKEN"]
    cwd = "/srv/time"
    startup_timeout_sec = 30
    tool_timeout_sec = 1.5
    default_tools_approval_mode = "prompt"
    "#);
    let variables = server_table(&config).unwrap().variables;
    assert_eq!(variables.into_iter().collect::<Vec<_>>(), ["API_TOKEN"]);
}

#[test]
fn an_address_keeps_its_headers_and_names_its_secrets() {
    let config = with_value(http("https://mcp.example.org/mcp"), "X-Tenant", "acme", ValueOrigin::Literal);
    let bearer = ValueOrigin::BearerVariable("WEB_TOKEN".to_owned());
    let config = with_value(config, "authorization", "Bearer CANARY", bearer);
    let mut config = with_value(config, "X-Api-Key", "CANARY", variable("WEB_KEY"));
    config.enabled = false;
    insta::assert_snapshot!(table(&config), @r#"
    url = "https://mcp.example.org/mcp"
    bearer_token_env_var = "WEB_TOKEN"
    http_headers = { X-Tenant = "acme" }
    env_http_headers = { X-Api-Key = "WEB_KEY" }
    enabled = false
    startup_timeout_sec = 30
    tool_timeout_sec = 60
    default_tools_approval_mode = "prompt"
    "#);
}

#[test]
fn lists_and_permissions_of_tools_keep_their_meaning() {
    let mut config = stdio("a", &[]);
    config.include = Some(["read", "write", "odd.name", "never", "gone"].map(String::from).to_vec());
    config.exclude = vec!["gone".to_owned()];
    config.permissions = BTreeMap::from(
        [
            ("read", ToolPermission::Allow),
            ("odd.name", ToolPermission::Allow),
            ("write", ToolPermission::Ask),
            ("never", ToolPermission::Deny),
            // Nothing that a list hides is allowed.
            ("gone", ToolPermission::Allow),
            ("unlisted", ToolPermission::Allow),
        ]
        .map(|(tool, may)| (tool.to_owned(), may)),
    );
    insta::assert_snapshot!(table(&config), @r#"
    command = "a"
    startup_timeout_sec = 30
    tool_timeout_sec = 60
    default_tools_approval_mode = "prompt"
    enabled_tools = ["odd.name", "read", "write"]
    disabled_tools = ["gone", "never"]
    tools = { "odd.name" = { approval_mode = "approve" }, read = { approval_mode = "approve" } }
    "#);

    // codex forgets an empty list when it writes its file again, and would then offer every tool.
    config.include = Some(vec!["never".to_owned()]);
    assert_eq!(refusal(&config), SkipReason::NoTools);
    config.include = Some(Vec::new());
    assert_eq!(refusal(&config), SkipReason::NoTools);
}

#[test]
fn a_secret_without_a_place_keeps_a_server_out_and_is_in_no_message() {
    let env = |origin| with_value(stdio("a", &[]), "TOKEN", "CANARY", origin);
    let header = |name: &str, origin| with_value(http("https://h/mcp"), name, "CANARY", origin);
    let bearer = || ValueOrigin::BearerVariable("CANARY_NAME".to_owned());
    let key = |key: &str| key.to_owned();
    for (config, reason) in [
        (env(variable("OTHER")), SkipReason::Renamed(key("env.TOKEN"))),
        (env(ValueOrigin::Composed), SkipReason::Composed(key("env.TOKEN"))),
        (env(bearer()), SkipReason::Composed(key("env.TOKEN"))),
        (env(ValueOrigin::SecretLiteral), SkipReason::SecretLiteral(key("env.TOKEN"))),
        (header("X-Key", ValueOrigin::SecretLiteral), SkipReason::SecretLiteral(key("headers.X-Key"))),
        (header("X-Key", ValueOrigin::Composed), SkipReason::Composed(key("headers.X-Key"))),
        (header("X-Key", bearer()), SkipReason::Composed(key("headers.X-Key"))),
        // Perhaps a key that got into the place of a name.
        (header("abc123", ValueOrigin::Composed), SkipReason::Composed(key("headers"))),
    ] {
        assert_eq!(refusal(&config), reason);
        let plan = MigrationPlan::make(b"", &wanting([("s", config.clone())]));
        assert_eq!(plan.report.skipped_servers, BTreeMap::from([("s".to_owned(), reason)]));
        assert!(plan.bytes.is_empty() && plan.block.is_empty());
        assert!(!format!("{:?} {}", plan.report, sentences(&plan.report)).contains("CANARY"), "{config:?}");

        // A server that is off is written without the value, and that is said.
        let off = McpServerConfig { enabled: false, ..config };
        let plan = MigrationPlan::make(b"", &wanting([("s", off)]));
        assert_eq!(plan.report.skipped_keys["s"].len(), 1);
        assert!(!plan.block.contains("CANARY") && plan.block.contains("enabled = false"), "{}", plan.block);
    }
    // A value whose source nobody knows counts as a secret.
    let mut unknown = env(ValueOrigin::Literal);
    unknown.origins.clear();
    assert_eq!(refusal(&unknown), SkipReason::SecretLiteral(key("env.TOKEN")));
}

#[test]
fn a_variable_that_a_disabled_server_lacks_is_still_named() {
    let mut config = stdio("a", &[]);
    config.enabled = false;
    config.origins.insert("TOKEN".to_owned(), variable("TOKEN"));
    assert!(table(&config).contains("env_vars = [\"TOKEN\"]"));
}

#[test]
fn control_characters_are_escaped_and_come_back() {
    for value in [
        "plain",
        "",
        "line\nbreak",
        "tab\there",
        "\r\u{c}\u{8}",
        "\u{1b}[31m",
        "\u{7f}\u{0}\u{85}",
        "quote\"'\n\\",
        "\"\"\"\n'''",
        "C:\\Users\\ann\\mcp.exe",
        "C:\\new\ntable",
        "größe ✓ 𝄞\n",
        "\\u0041",
        "\\\"",
        "# no comment",
        "[x]",
    ] {
        let written = text_value(value).to_string();
        assert!(!written.contains(char::is_control), "{written:?}");
        assert_eq!(written.parse::<Value>().unwrap().as_str(), Some(value), "{written}");
        // Older versions of TOML know only these.
        assert!(!written.contains("\\e") && !written.contains("\\x"), "{written}");
    }
    let config = with_value(stdio("a\tb", &["x\ny"]), "PLACE", "C:\\temp\\new", ValueOrigin::Literal);
    let block = MigrationPlan::make(b"", &wanting([("s", config)])).block;
    assert!(!block.replace('\n', "").contains(char::is_control), "{block}");
    let read = block.parse::<DocumentMut>().unwrap();
    let server = &read["mcp_servers"]["s"];
    assert_eq!(server["command"].as_str(), Some("a\tb"));
    assert_eq!(server["args"][0].as_str(), Some("x\ny"));
    assert_eq!(server["env"]["PLACE"].as_str(), Some("C:\\temp\\new"));
}

#[test]
fn our_own_tools_server_knows_its_folder_and_keeps_its_name() {
    let mut wanted = wanting([(TOOLS_SERVER, stdio("someone-else", &[]))]);
    wanted.tools_server = Some(tools_server());
    let plan = MigrationPlan::make(b"", &wanted);
    insta::assert_snapshot!(plan.block, @r#"
    # >>> talaria >>> Talaria writes this part again. Your own settings are safe above it, and tables below it.
    # entries: mcp_servers.talaria
    [mcp_servers.talaria]
    command = "/usr/bin/talaria"
    args = ["mcp"]
    env = { TALARIA_HOME = "/var/lib/talaria", TALARIA_CONFIG = "/etc/talaria.yaml" }
    # <<< talaria <<<
    "#);
    let skipped = BTreeMap::from([(TOOLS_SERVER.to_owned(), SkipReason::ReservedName)]);
    assert_eq!(plan.report.skipped_servers, skipped);

    // Without ours, the name is free.
    wanted.tools_server = None;
    let plan = MigrationPlan::make(b"", &wanted);
    assert!(plan.block.contains("someone-else") && plan.report.skipped_servers.is_empty());
}
