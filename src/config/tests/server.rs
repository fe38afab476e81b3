//! Tests: when there is an agent server, where it listens, and which settings it refuses.

use super::*;
use crate::config::{NetworkReach, ServerConfig, WebOrigin};
use crate::ids;

const KEY: &str = "3f9ad1c05e7b44288d2f";

/// A platform, so that the server is not implied.
const DESK: &str = "platforms: {desk: {kind: console}}\n";

fn origin(text: &str) -> WebOrigin {
    WebOrigin::parse(text).unwrap()
}

fn server(scene: &Scene) -> ServerConfig {
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    config.server.expect("there should be a server")
}

#[test]
fn it_is_there_when_nothing_else_is_or_somebody_asks_for_it() {
    for (yaml, var, there, explicit) in [
        ("", None, true, false),
        ("server: {port: 9000}\n", None, true, false),
        ("server: {enabled: true}\n", None, true, true),
        ("server: {enabled: false}\n", None, false, false),
        ("server: {enabled: false}\n", Some(("API_SERVER_PORT", "9000")), false, false),
        ("", Some(("API_SERVER_HOST", "127.0.0.1")), true, true),
        ("", Some(("API_SERVER_PORT", " ")), true, false),
        (DESK, None, false, false),
        (&format!("{DESK}server: {{enabled: true}}\n"), None, true, true),
        (&format!("{DESK}server: {{enabled: false}}\n"), Some(("API_SERVER_KEY", KEY)), false, false),
        (DESK, Some(("API_SERVER_HOST", "127.0.0.1")), true, true),
        (DESK, Some(("API_SERVER_PORT", "8642")), true, true),
        (DESK, Some(("API_SERVER_KEY", KEY)), true, true),
        (DESK, Some(("API_SERVER_CORS_ORIGINS", "http://localhost:3000")), true, true),
        (DESK, Some(("API_SERVER_MODEL_NAME", "mine")), true, true),
        (DESK, Some(("API_SERVER_PORT", "  ")), false, false),
    ] {
        let mut scene = Scene::new().file(yaml);
        if let Some((name, value)) = var {
            scene = scene.var(name, value);
        }
        let config = scene.load().unwrap();
        assert_eq!(config.server.is_some(), there, "{yaml} {var:?}");
        assert_eq!(config.server.is_some_and(|server| server.explicit), explicit, "{yaml} {var:?}");
        assert!(config.warnings.is_empty(), "{yaml} {var:?}: {:?}", config.warnings);
    }
}

#[test]
fn a_key_file_asks_for_it_too() {
    let scene = Scene::new().file(DESK);
    let path = scene.private_file("key", format!("{KEY}\n")).display().to_string();
    let server = server(&scene.var("API_SERVER_KEY_FILE", path));
    assert_eq!((server.key.unwrap().expose(), server.explicit), (KEY, true));
}

#[test]
fn the_command_line_asks_for_it_but_does_not_overrule_the_file() {
    let load = |yaml: &str| {
        let scene = Scene::new().file(yaml);
        let sources = ConfigSources { folder: scene.folder.path().to_owned(), serve: true, config: None };
        Config::load(&sources, &|name| scene.vars.get(name).cloned())
    };
    assert!(load(DESK).unwrap().server.unwrap().explicit);
    let errors = load("server:\n  enabled: false\n").unwrap_err();
    assert!(
        errors[0].message.starts_with("`server.enabled` is `false`, but `talaria serve` is all server (")
    );
    assert!(errors[0].message.ends_with("talaria.yaml, line 2)"), "{}", errors[0].message);
}

#[test]
fn settings_of_a_server_that_is_off_are_warned_about() {
    let warned = |yaml: &str| !Scene::new().file(format!("{DESK}{yaml}")).load().unwrap().warnings.is_empty();
    assert!(warned("server: {port: 9000}\n"));
    assert!(warned("server: {cors_origins: ['http://localhost:3000']}\n"));
    assert!(!warned("server: {port: 8642, host: localhost, cors_origins: []}\n"), "the example says as much");
    assert!(!warned("server: {port: 9000, enabled: false}\n"));
}

#[test]
fn every_setting_arrives_and_variables_win() {
    let plain = server(&Scene::new());
    assert_eq!(plain, ServerConfig::default());
    assert_eq!(plain.address(), "127.0.0.1:8642");
    assert_eq!((plain.runs, plain.runs_per_app, plain.model_name.as_str()), (2000, 200, "talaria"));

    let yaml = format!(
        "server:\n  enabled: true\n  host: '::1'\n  port: 0\n  key: {KEY}\n  auth: key\n  cors_origins: \
         ['HTTPS://Chat.Example.org/', 'https://chat.example.org']\n  model_name: ' mine '\n  hosts: \
         [Agent.Example.Org, 10.0.0.1, '::1']\n  runs: 7\n  runs_per_app: 3\n"
    );
    let written = server(&Scene::new().file(&yaml));
    assert_eq!(written.address(), "[::1]:0");
    assert_eq!(written.key.as_ref().unwrap().expose(), KEY);
    assert_eq!(written.cors_origins, [origin("https://chat.example.org")]);
    let hosts: Vec<String> = written.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["agent.example.org", "10.0.0.1", "[::1]"]);
    assert_eq!((written.model_name.as_str(), written.runs, written.runs_per_app), ("mine", 7, 3));

    let other = "another-key-of-some-length";
    let scene = Scene::new().file(&yaml).var("API_SERVER_HOST", "localhost").var("API_SERVER_PORT", "9001");
    let scene = scene.var("API_SERVER_KEY", other).var("API_SERVER_MODEL_NAME", "theirs");
    let scene = scene.var("API_SERVER_CORS_ORIGINS", " http://localhost:3000 ,, app://phone,");
    let set = server(&scene);
    assert_eq!((set.address().as_str(), set.model_name.as_str()), ("127.0.0.1:9001", "theirs"));
    assert_eq!(set.key.unwrap().expose(), other);
    assert_eq!(set.cors_origins, [origin("http://localhost:3000"), origin("app://phone")]);
}

/// SR-01: a server that others can reach has a strong key; without one it listens on loopback alone.
#[test]
fn what_may_listen_where() {
    // Results with a strong key, with a weak one, and without any: `ok`, `warns` or `refused`.
    for (host, reach, good, poor, open) in [
        ("127.0.0.1", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("127.8.8.8", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("localhost", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("LocalHost.", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("::1", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("[::1]", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("0:0:0:0:0:0:0:1", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("::ffff:127.0.0.1", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("127.1", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("2130706433", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("0x7f.0.0.1", NetworkReach::Loopback, "ok", "warns", "ok"),
        ("10.0.0.5", NetworkReach::Private, "ok", "refused", "refused"),
        ("172.17.0.1", NetworkReach::Private, "ok", "refused", "refused"),
        ("192.168.1.10", NetworkReach::Private, "ok", "refused", "refused"),
        ("100.64.0.1", NetworkReach::Private, "ok", "refused", "refused"),
        ("169.254.1.1", NetworkReach::Private, "ok", "refused", "refused"),
        ("fd00::1", NetworkReach::Private, "ok", "refused", "refused"),
        ("fe80::1", NetworkReach::Private, "ok", "refused", "refused"),
        ("::ffff:10.0.0.5", NetworkReach::Private, "ok", "refused", "refused"),
        ("nas", NetworkReach::Private, "ok", "refused", "refused"),
        ("nas.local", NetworkReach::Private, "ok", "refused", "refused"),
        ("host.docker.internal", NetworkReach::Private, "ok", "refused", "refused"),
        ("evil.localhost", NetworkReach::Private, "ok", "refused", "refused"),
        ("0.0.0.0", NetworkReach::Everywhere, "warns", "refused", "refused"),
        ("0", NetworkReach::Everywhere, "warns", "refused", "refused"),
        ("0x0", NetworkReach::Everywhere, "warns", "refused", "refused"),
        ("::", NetworkReach::Everywhere, "warns", "refused", "refused"),
        ("[::]", NetworkReach::Everywhere, "warns", "refused", "refused"),
        ("::ffff:0.0.0.0", NetworkReach::Everywhere, "warns", "refused", "refused"),
        ("8.8.8.8", NetworkReach::Public, "warns", "refused", "refused"),
        ("134744072", NetworkReach::Public, "warns", "refused", "refused"),
        ("2001:db8::1", NetworkReach::Public, "warns", "refused", "refused"),
        ("::ffff:8.8.8.8", NetworkReach::Public, "warns", "refused", "refused"),
        ("agent.example.org", NetworkReach::Public, "warns", "refused", "refused"),
        ("localhost.example.org", NetworkReach::Public, "warns", "refused", "refused"),
        ("127.0.0.1.example.org", NetworkReach::Public, "warns", "refused", "refused"),
        ("127.evil.com", NetworkReach::Public, "warns", "refused", "refused"),
    ] {
        let with = |yaml: &str| {
            let file = format!("server:\n  enabled: true\n  host: '{host}'\n{yaml}");
            match Scene::new().file(file).load() {
                Ok(config) => {
                    let server = config.server.unwrap();
                    assert_eq!(server.reach(), reach, "{host}");
                    if config.warnings.is_empty() { "ok" } else { "warns" }
                }
                Err(errors) => {
                    assert!(errors.iter().all(|error| error.hint.is_some()), "{host}: {errors:?}");
                    "refused"
                }
            }
        };
        assert_eq!(with(&format!("  key: {KEY}\n")), good, "{host} with a key");
        assert_eq!(with(""), good, "{host} with the key that is made");
        for key in [
            "changeme",
            "test",
            "your-api-key-goes-here",
            "tooshort",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "openssl rand -hex 32",
        ] {
            assert_eq!(with(&format!("  key: {key}\n")), poor, "{host} with {key}");
        }
        assert_eq!(with("  auth: none\n"), open, "{host} without a key");
        assert_eq!(with(&format!("  auth: none\n  key: {KEY}\n")), "refused", "{host}: which of the two?");
    }
}

/// An operator who gives the server another name has a proxy in front of it that others reach.
#[test]
fn a_server_with_a_name_of_its_own_is_not_this_machines_alone() {
    let with = |yaml: &str| {
        let file = format!("server:\n  enabled: true\n  hosts: [agent.example.org]\n{yaml}");
        Scene::new().file(file).load().is_ok()
    };
    assert!(with(""));
    assert!(with(&format!("  key: {KEY}\n")));
    assert!(!with("  auth: none\n"));
    assert!(!with("  key: changeme\n"));
}

#[test]
fn what_is_no_address_is_refused() {
    for host in ["*", "127.0.0.1:8642", "http://127.0.0.1", "[::1]:8642", "a b", "fe80::1%eth0", "1.2.3.4.5"]
    {
        let errors = Scene::new().var("API_SERVER_HOST", host).errors();
        assert!(
            errors.starts_with("error: `API_SERVER_HOST` must be an address or a name"),
            "{host}: {errors}"
        );
    }
    for port in ["65536", "-1", "http", "8642 8643", "0x10"] {
        let errors = Scene::new().var("API_SERVER_PORT", port).errors();
        assert!(
            errors.contains("`API_SERVER_PORT` must be a whole number from 0 to 65535"),
            "{port}: {errors}"
        );
    }
    for model in ["a\nb".to_owned(), "x".repeat(129)] {
        let errors = Scene::new().var("API_SERVER_MODEL_NAME", model).errors();
        assert!(errors.contains("`API_SERVER_MODEL_NAME` must be one line of at most 128"), "{errors}");
    }
    insta::assert_snapshot!(Scene::new().file("server:\n  port: 65536\n").errors(), @"error: `server.port` must be a whole number from 0 to 65535 (talaria.yaml, line 2)");
    insta::assert_snapshot!(Scene::new().file("server:\n  auth: nothing\n").errors(), @"error: `server.auth` must be one of `key`, `none` (talaria.yaml, line 2)");
    insta::assert_snapshot!(Scene::new().file("server:\n  hosts: ['*.example.org']\n").errors(), @"
    error: `server.hosts` must be names, without `http://`, a port or `*` (talaria.yaml, line 2)

    hint: write each such as `agent.example.org`
    ");
    insta::assert_snapshot!(Scene::new().var("API_SERVER_CORS_ORIGINS", "*").errors(), @"
    error: `API_SERVER_CORS_ORIGINS` has `*`, which would let in every web page that somebody here looks at

    hint: write each origin out, such as `https://chat.example.org`
    ");
}

#[test]
fn refusals_and_warnings_say_what_to_do() {
    let scene = |yaml: &str| Scene::new().file(yaml);
    insta::assert_snapshot!(scene("server:\n  host: 0.0.0.0\n  auth: none\n").errors(), @"
    error: `server.auth: none` would let everybody in who can reach 0.0.0.0 (talaria.yaml, line 3)

    hint: remove that line, and a key is made; or listen on 127.0.0.1 only
    ");
    insta::assert_snapshot!(scene("server:\n  host: 10.0.0.5\n").var("API_SERVER_KEY", "changeme").errors(), @"
    error: the key of the agent server (`API_SERVER_KEY` or `server.key`) has fewer than 16 characters, and 10.0.0.5 can be reached from elsewhere

    hint: make one with `openssl rand -hex 32`, or leave it out and Talaria makes one
    ");
    let warnings = |scene: Scene| scene.load().unwrap().warnings.join("\n");
    insta::assert_snapshot!(warnings(scene("").var("API_SERVER_KEY", "changeme")), @"the key of the agent server (`API_SERVER_KEY` or `server.key`) has fewer than 16 characters: every program on this machine can guess it; make one with `openssl rand -hex 32`, or leave it out and Talaria makes one");
    insta::assert_snapshot!(warnings(scene("").var("API_SERVER_HOST", "0.0.0.0")), @"the agent server would listen on every address of this machine (0.0.0.0), unencrypted; if one of them is public, close port 8642 to the outside, or put a proxy with TLS in front and listen on 127.0.0.1");
    insta::assert_snapshot!(warnings(scene("").var("API_SERVER_HOST", "8.8.8.8")), @"the agent server would listen on 8.8.8.8, which looks public, unencrypted: everybody on the way can read the key; put a proxy with TLS in front and listen on 127.0.0.1, or use a private network");
}

#[test]
fn check_says_what_would_be_served_and_where() {
    let scene = Scene::new();
    let home = scene.path("home").display().to_string();
    let line = |scene: &Scene| {
        let text = scene.load().unwrap().describe().replace(&home, "HOME");
        text.lines().find(|line| line.starts_with("agent server")).unwrap_or("none").to_owned()
    };
    let home_var = |scene: Scene| scene.var("TALARIA_HOME", home.clone());
    let shown: Vec<String> = [
        scene,
        home_var(Scene::new().file("server: {enabled: true, host: '::', port: 0}\n")),
        home_var(Scene::new().var("API_SERVER_KEY", KEY)),
        home_var(Scene::new().file("server: {auth: none}\n")),
        home_var(Scene::new().file(DESK)),
    ]
    .iter()
    .map(line)
    .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    agent server   http://127.0.0.1:8642, model talaria, key in HOME/api.key (not while prompts are piped in)
    agent server   http://[::], any free port, model talaria, key in HOME/api.key
    agent server   http://127.0.0.1:8642, model talaria, with a key
    agent server   http://127.0.0.1:8642, model talaria, without a key: everybody on this machine may ask (not while prompts are piped in)
    none
    ");
}

#[test]
fn no_platform_can_take_the_place_of_programs() {
    for name in [ids::HTTP, "@HTTP", "@http2"] {
        let errors = Scene::new().file(format!("platforms:\n  '{name}': {{kind: console}}\n")).errors();
        assert!(errors.contains("that cannot be used"), "{name}: {errors}");
    }
}

/// An operator who configures an agent at this address means another server; ours would ask itself.
#[test]
fn it_never_asks_itself() {
    for (url, var, there) in [
        ("http://127.0.0.1:8642", None, Some(false)),
        ("http://localhost:8642/", None, Some(false)),
        ("http://[::1]:8642", None, Some(false)),
        ("http://0.0.0.0:8642", None, Some(false)),
        ("http://127.0.0.1:8643", None, Some(true)),
        ("http://host.docker.internal:8642", None, Some(true)),
        ("http://10.0.0.5:8642", None, Some(true)),
        ("http://127.0.0.1:8642", Some(("API_SERVER_PORT", "9000")), Some(true)),
        ("http://127.0.0.1:8642", Some(("API_SERVER_PORT", "0")), Some(true)),
        ("http://127.0.0.1:8642", Some(("API_SERVER_PORT", "8642")), None),
        ("http://127.0.0.1:8642", Some(("API_SERVER_HOST", "0.0.0.0")), None),
        ("http://127.0.0.1:8642", Some(("API_SERVER_HOST", "10.0.0.5")), Some(true)),
        ("http://10.0.0.5:8642", Some(("API_SERVER_HOST", "10.0.0.5")), None),
    ] {
        for agent in ["GATEWAY_PROXY_URL", "OPENAI_BASE_URL"] {
            let mut scene = Scene::new().var(agent, url);
            if agent == "OPENAI_BASE_URL" {
                scene = scene.var("OPENAI_BASE_URL", format!("{url}/v1")).var("OPENAI_MODEL", "m");
            }
            if let Some((name, value)) = var {
                scene = scene.var(name, value);
            }
            let found = scene.load().ok().map(|config| config.server.is_some());
            assert_eq!(found, there, "{agent}={url} {var:?}");
        }
    }
    let scene = Scene::new().var("GATEWAY_PROXY_URL", "http://127.0.0.1:8642").var("API_SERVER_KEY", KEY);
    insta::assert_snapshot!(scene.errors(), @"
    error: the agent is said to be at 127.0.0.1:8642, where our own agent server listens

    hint: correct `GATEWAY_PROXY_URL` or `OPENAI_BASE_URL` (`gateway.proxy_url`, `agent.base_url`), or set `API_SERVER_PORT` (`server.port`) to another port
    ");
}
