//! Tests: `mcp_servers`, and that nobody sees what is in `env` and `headers`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::config::{McpServerConfig, McpTransport, ToolPermission, ValueOrigin};

const CANARY: &str = "CANARY-0123-456";

/// An agent that uses all servers, so that there is no warning about that.
const USER: &str = "agents: {a: {kind: model, model: m, tools: [mcp]}}\n";

fn server_errors(keys: &str) -> String {
    Scene::new().file(format!("{USER}mcp_servers:\n  time:\n    {keys}\n")).errors()
}

/// The server `time` with these keys.
fn server(scene: Scene, keys: &str) -> McpServerConfig {
    let config = scene.file(format!("{USER}mcp_servers:\n  time:\n    {keys}\n")).load();
    let config = config.unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    config.mcp_servers["time"].clone()
}

fn exposed(values: &BTreeMap<String, crate::config::Secret>) -> Vec<(&str, &str)> {
    values.iter().map(|(name, value)| (name.as_str(), value.expose())).collect()
}

#[test]
fn every_key_of_a_server_arrives() {
    let keys = "command: npx\n    args: ['-y', some-server]\n    env: {TOKEN: '${SOME_TOKEN}', LEVEL: debug, PORT: 80, \
                EMPTY: ''}\n    cwd: /srv/time\n    timeout: 5s\n    connect_timeout: 6s\n    enabled: false\n    include: [b, a, \
                b]\n    exclude: [c]\n    permissions: {a: allow, b: ask, c: deny}";
    let time = server(Scene::new().var("SOME_TOKEN", CANARY), keys);
    let McpTransport::Stdio { command, args, env, cwd } = &time.transport else { panic!("{time:?}") };
    assert_eq!((command.as_str(), args.len(), cwd.as_deref()), ("npx", 2, Some(Path::new("/srv/time"))));
    assert_eq!(exposed(env), [("EMPTY", ""), ("LEVEL", "debug"), ("PORT", "80"), ("TOKEN", CANARY)]);
    assert_eq!((time.timeout, time.connect_timeout), (Duration::from_secs(5), Duration::from_secs(6)));
    assert!(!time.enabled);
    let origins = [
        ("EMPTY", ValueOrigin::Literal),
        ("LEVEL", ValueOrigin::Literal),
        ("PORT", ValueOrigin::Literal),
        ("TOKEN", ValueOrigin::Variable("SOME_TOKEN".to_owned())),
    ];
    assert_eq!(time.origins, BTreeMap::from(origins.map(|(name, origin)| (name.to_owned(), origin))));
    assert_eq!((time.include, time.exclude), (Some(vec!["a".into(), "b".into()]), vec!["c".to_owned()]));
    let permissions = ["a", "b", "c"].map(|tool| time.permissions[tool]);
    assert_eq!(permissions, [ToolPermission::Allow, ToolPermission::Ask, ToolPermission::Deny]);

    let keys = "url: https://mcp.example.org/mcp/\n    headers: {Authorization: 'Bearer ${SOME_TOKEN}'}";
    let web = server(Scene::new().var("SOME_TOKEN", CANARY), keys);
    let McpTransport::Http { url, headers } = &web.transport else { panic!("{web:?}") };
    assert_eq!(url.as_str(), "https://mcp.example.org/mcp");
    assert_eq!(exposed(headers), [("Authorization", format!("Bearer {CANARY}").as_str())]);
    assert_eq!((web.timeout, web.connect_timeout), (Duration::from_secs(60), Duration::from_secs(30)));
    assert!(web.enabled && web.exclude.is_empty() && web.permissions.is_empty());
    assert_eq!(web.include, None);
    assert_eq!(web.origins["Authorization"], ValueOrigin::BearerVariable("SOME_TOKEN".to_owned()));

    // A server that is off still names the variables that it would need, and a secret in the file is known as one.
    let keys = "command: a\n    enabled: false\n    env: {A: '${MISSING}', API_KEY: x, B: 'x${MISSING}'}";
    let off = server(Scene::new(), keys);
    let origins = ["A", "API_KEY", "B"].map(|name| off.origins[name].clone());
    let missing = ValueOrigin::Variable("MISSING".to_owned());
    assert_eq!(origins, [missing, ValueOrigin::SecretLiteral, ValueOrigin::Composed]);
}

#[test]
fn a_wrong_server_is_named_with_its_line() {
    insta::assert_snapshot!(server_errors("timeout: 5s"), @"
    error: `mcp_servers.time` has neither `command` nor `url` (talaria.yaml, line 3)

    hint: write the program that Talaria starts, such as `command: npx`, or the address of the server
    ");
    insta::assert_snapshot!(server_errors("command: a\n    url: http://localhost:1/mcp"), @"
    error: `mcp_servers.time` has both `command` and `url` (talaria.yaml, line 3)

    hint: keep `command` for a program that Talaria starts, or `url` for a server that runs already
    ");
    insta::assert_snapshot!(server_errors("command: npx -y some-server"), @r#"
    error: `mcp_servers.time.command` must be a program alone (talaria.yaml, line 4)

    hint: write its arguments as a list, such as `args: ["-y", "some-server"]`; no shell runs it
    "#);
    insta::assert_snapshot!(server_errors("command: a\n    headers: {A: b}"), @"
    error: `mcp_servers.time.headers` has no meaning without `url` (talaria.yaml, line 5)

    hint: `args`, `env` and `cwd` are for a program (`command`), `headers` for an address (`url`)
    ");
    insta::assert_snapshot!(server_errors("command: a\n    env: {TOKEN: '${SOME_TOKEN}'}"), @"
    error: `mcp_servers.time.env.TOKEN` takes the variable `SOME_TOKEN`, which is not set (talaria.yaml, line 5)

    hint: set it where Talaria is started; or write `mcp_servers.time.enabled: false`
    ");
    insta::assert_snapshot!(server_errors("url: http://mcp.example.org\n    headers: {Authorization: x}"), @"
    error: `mcp_servers.time.url` would carry the headers unencrypted over a public network (talaria.yaml, line 4)

    hint: use `https://`, a private address or a tunnel
    ");
    insta::assert_snapshot!(
        Scene::new().file("mcp_servers:\n  my server: {command: a}\n").errors(),
        @"
        error: `mcp_servers` has a name that cannot be used (talaria.yaml, line 2)

        hint: names are 1 to 32 letters, digits, `_` and `-`
        "
    );
    for (keys, part) in [
        ("comand: a", "unknown key `comand` in `mcp_servers.time` (talaria.yaml, line 4)"),
        ("url: localhost", "`mcp_servers.time.url` "),
        ("url: http://h/mcp\n    args: [a]", "`mcp_servers.time.args` has no meaning without `command`"),
        ("url: http://h/mcp\n    env: {A: b}", "`mcp_servers.time.env` has no meaning without `command`"),
        ("url: http://h/mcp\n    cwd: /x", "`mcp_servers.time.cwd` has no meaning without `command`"),
        (
            "url: http://h/mcp\n    headers: {'a b': c}",
            "a name that no header can have (talaria.yaml, line 5)",
        ),
        ("url: http://h/mcp\n    headers: {Host: c}", "a header that the protocol itself sets"),
        ("url: http://h/mcp\n    headers: {Mcp-Session-Id: c}", "a header that the protocol itself sets"),
        (
            "url: http://h/mcp\n    headers: {X-Name: schön}",
            "`mcp_servers.time.headers.X-Name` must be a key of plain",
        ),
        ("command: a\n    env: {A-B: c}", "a name that no variable can have"),
        (
            "command: a\n    env: {A: '${B'}",
            "`mcp_servers.time.env.A` has a `${` without the name of a variable",
        ),
        ("command: a\n    env: [A]", "`mcp_servers.time.env` must be a mapping"),
        ("command: a\n    env: {A: [b]}", "must be text"),
        ("command: a\n    env: {A: \"b\\nc\"}", "`mcp_servers.time.env.A` must be one line of text"),
        ("command: ~/bin/a", "`mcp_servers.time.command` begins with `~`"),
        ("command: a\n    cwd: ~/x", "`mcp_servers.time.cwd` begins with `~`"),
        (
            "command: a\n    include: ['get_*']",
            "`mcp_servers.time.include` holds what cannot be the name of a tool",
        ),
        (
            "command: a\n    exclude: ['']",
            "`mcp_servers.time.exclude` holds what cannot be the name of a tool",
        ),
        ("command: a\n    permissions: {x: allways}", "must be one of `allow`, `ask`, `deny`"),
        ("command: a\n    timeout: 0", "`mcp_servers.time.timeout` must be a length of time"),
        ("command: a\n    enabled: 5", "`mcp_servers.time.enabled` must be `true` or `false`"),
        ("command: a\n    args: -y", "`mcp_servers.time.args` must be"),
    ] {
        let errors = server_errors(keys);
        assert!(errors.contains(part), "{keys}: {errors}");
    }
    let name = "x".repeat(33);
    assert!(
        Scene::new()
            .file(format!("mcp_servers: {{{name}: {{command: a}}}}"))
            .errors()
            .contains("a name that")
    );
    // The agent that uses a faulty server is not reported, too.
    let text = "agents: {a: {kind: model, model: m, tools: [mcp.time]}}\nmcp_servers: {time: {}}";
    let errors = Scene::new().file(text).errors();
    assert_eq!(errors.matches("error:").count(), 1, "{errors}");
}

#[test]
fn a_server_that_is_off_needs_no_variables() {
    let keys = "command: a\n    enabled: false\n    env: {TOKEN: '${SOME_TOKEN}'}";
    let time = server(Scene::new(), keys);
    let McpTransport::Stdio { env, .. } = &time.transport else { panic!("{time:?}") };
    assert!(env.is_empty());
}

#[test]
fn secrets_are_never_shown_and_always_masked() {
    let scene = Scene::new().var("SOME_TOKEN", CANARY).file(format!(
        "{USER}mcp_servers:\n  one: {{command: a, args: [{CANARY}], env: {{A_TOKEN: x1, B: '${{SOME_TOKEN}}', LEVEL: debug, \
         PASSWORD: ''}}}}\n  two: {{url: 'https://h.example.org', headers: {{Authorization: 'Bearer ${{SOME_TOKEN}}'}}}}\n"
    ));
    let config = scene.load().unwrap();
    let shown = format!("{}{:?}", config.describe(), config.mcp_servers["two"]);
    assert!(!shown.contains(CANARY), "{shown}");
    assert!(shown.contains("one: a with an argument\n"), "{shown}");
    let masked: Vec<_> = config.secrets().iter().map(|secret| secret.expose().to_owned()).collect();
    assert_eq!(masked, ["x1", CANARY, &format!("Bearer {CANARY}"), CANARY]);
    for keys in [
        format!("command: a\n    env: {{{CANARY}: x}}"),
        format!("command: a\n    env: {{A: '${{{CANARY}}}'}}"),
        format!("command: a\n    env: {{A: '${{ghp_{}}}'}}", CANARY.replace('-', "_")),
        format!("command: a {CANARY}"),
        format!("command: a\n    include: ['{CANARY} x']"),
        format!("url: http://h/mcp\n    headers: {{{CANARY}x: 'ä'}}"),
        format!("url: http://h/mcp\n    headers: {{A: '{CANARY}ä'}}"),
        format!("{CANARY}: x"),
    ] {
        let errors = server_errors(&keys);
        assert!(!errors.contains("CANARY"), "{keys}: {errors}");
    }
}

#[test]
fn a_key_in_plain_text_needs_a_private_file() {
    let scene = |value: &str| {
        let scene = Scene::new().var("SOME_TOKEN", CANARY).file(format!(
            "{USER}mcp_servers:\n  time:\n    command: a\n    env:\n      LEVEL: debug\n      API_TOKEN: {value}\n"
        ));
        set_mode(&scene.path("talaria.yaml"), 0o644);
        scene
    };
    insta::assert_snapshot!(scene(CANARY).errors(), @"
    error: `mcp_servers.time.env.API_TOKEN` holds a key, but the file is open to other users (talaria.yaml, line 7)

    hint: run `chmod 600 talaria.yaml`, or write `${NAME}` and set that variable where Talaria is started
    ");
    scene("'${SOME_TOKEN}'").load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
}

#[test]
fn what_is_probably_not_meant_is_pointed_out() {
    let warnings = |keys: &str| {
        let scene = Scene::new().file(format!("{USER}mcp_servers:\n  time:\n    {keys}\n"));
        scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors))).warnings.join("\n")
    };
    insta::assert_snapshot!(warnings("command: a\n    args: ['--token=${TOKEN}']"), @"`mcp_servers.time.args` has a `${…}`, which is replaced only in `env` and `headers`; the program gets it as written");
    insta::assert_snapshot!(warnings("command: a\n    include: [a]\n    exclude: [a]"), @"`mcp_servers.time.include` names a tool that `exclude` names, too; it is not offered");
    insta::assert_snapshot!(warnings("url: http://mcp.example.org"), @"`mcp_servers.time.url` is a public `http://` address, so everybody on the way can read and change what tools do; use `https://`");
}
