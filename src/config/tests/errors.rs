//! Tests: the messages that people read about a wrong configuration.

use super::*;

fn errors(text: &str) -> String {
    Scene::new().file(text).errors()
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_likely_word() {
    insta::assert_snapshot!(errors("log:\n  level: info\n\ngateway:\n  # here\n  model: x\n  proxy_ulr: http://h\n"), @"
    error: unknown key `proxy_ulr` in `gateway` (talaria.yaml, line 7)

    hint: did you mean `proxy_url`?
    ");
    insta::assert_snapshot!(errors("gatewya:\n  model: x\n"), @"
    error: unknown key `gatewya` (talaria.yaml, line 1)

    hint: did you mean `gateway`?
    ");
    insta::assert_snapshot!(errors("display:\n  colour: red\n"), @"
    error: unknown key `colour` in `display` (talaria.yaml, line 2)

    hint: the keys here are `steps`, `edits`, `reactions`
    ");
    insta::assert_snapshot!(errors("log:\n  Some Words: red\n"), @"
    error: there is an unknown key in `log` (talaria.yaml, line 2)

    hint: the keys here are `level`
    ");
}

#[test]
fn platforms_are_read_by_their_kind_wherever_it_stands() {
    insta::assert_snapshot!(errors("platforms:\n  desk:\n    homeserverr: x\n    kind: console\n"), @"
    error: unknown key `homeserverr` in `platforms.desk` (talaria.yaml, line 3)

    hint: the keys here are `kind`
    ");
    insta::assert_snapshot!(errors("log:\nplatforms:\n  console:\n    kimd: x\n"), @"
    error: unknown key `kimd` in `platforms.console` (talaria.yaml, line 4)

    hint: did you mean `kind`?
    ");
}

#[cfg(not(feature = "testing"))]
#[test]
fn an_unknown_kind_is_answered_with_the_known_ones() {
    insta::assert_snapshot!(errors("platforms:\n  desk:\n    kind: consol\n  chat: {}\n  telegram:\n"), @"
    error: `platforms.chat` has no `kind`, and its name is not one (talaria.yaml, line 4)

    hint: known kinds: `console`

    error: `platforms.desk.kind` is not a known kind (talaria.yaml, line 3)

    hint: did you mean `console`? (known kinds: `console`)

    error: `platforms.telegram` has no `kind`, and its name is not one (talaria.yaml, line 5)

    hint: known kinds: `console`
    ");
}

#[test]
fn names_of_platforms_are_plain_and_there_is_one_terminal() {
    insta::assert_snapshot!(errors("platforms:\n  My Desk:\n    kind: console\n  a: {kind: console}\n  b: {kind: console}\n"), @"
    error: `platforms` has the name `My Desk`, which cannot be used (talaria.yaml, line 2)

    hint: names are 1 to 32 of `a`–`z`, `0`–`9`, `_` and `-`

    error: `platforms` has more than one entry of the kind `console` (talaria.yaml, line 2)

    hint: there is one terminal; keep one of them
    ");
    let name = "x".repeat(33);
    assert!(errors(&format!("platforms:\n  {name}: {{kind: console}}\n")).contains("cannot be used"));
}

#[test]
fn an_entry_that_is_at_fault_itself_is_named_by_the_line_of_its_key() {
    let error = errors("platforms:\n  chat:\n    # which one?\n    user: x\n");
    assert!(
        error.contains("`platforms.chat` has no `kind`, and its name is not one (talaria.yaml, line 2)"),
        "{error}"
    );
    #[cfg(feature = "testing")]
    {
        let error = errors("log:\nplatforms:\n  test:\n\n    socket: s\n");
        assert!(error.contains("does not say who may talk to the agent (talaria.yaml, line 3)"), "{error}");
    }
}

#[test]
fn a_wrong_value_is_answered_with_what_it_must_be() {
    for (text, expected) in [
        (
            "gateway:\n  identity: yes please\n",
            "`gateway.identity` must be `true` or `false` (talaria.yaml, line 2)",
        ),
        (
            "gateway:\n  model: [x]\n",
            "`gateway.model` must be text, in quotes if it has special characters (talaria.yaml, line 2)",
        ),
        (
            "display:\n  edits: 0\n",
            "`display.edits` must be a whole number from 1 to 1000 (talaria.yaml, line 2)",
        ),
        (
            "gateway:\n  idle_timeout: soon\n",
            "`gateway.idle_timeout` must be a length of time such as `10s`, `5m`, `1h` or `250ms`, more than zero \
             and at most `720h` (talaria.yaml, line 2)",
        ),
        ("display:\n  steps: []\n", "`display.steps` must be a single word (talaria.yaml, line 2)"),
        (
            "gateway:\n  upstream: 7\n",
            "`gateway.upstream` must be one of `auto`, `talaria`, `runs`, `plain` (talaria.yaml, line 2)",
        ),
        ("gateway: 5\n", "`gateway` must be a mapping of keys (talaria.yaml, line 1)"),
        ("platforms: []\n", "`platforms` must be a mapping of keys (talaria.yaml, line 1)"),
        (
            "platforms:\n  console: on\n",
            "`platforms.console` must be a mapping of keys (talaria.yaml, line 2)",
        ),
        ("gateway: []\n", "`gateway` must be a mapping of keys (talaria.yaml, line 1)"),
        (
            "platforms: {console: [console]}\n",
            "`platforms.console` must be a mapping of keys (talaria.yaml, line 1)",
        ),
        ("[]\n", "the file must be a mapping of keys (talaria.yaml, line 1)"),
        ("- a\n", "the file must be a mapping of keys (talaria.yaml, line 1)"),
        ("hello\n", "the file must be a mapping of keys (talaria.yaml, line 1)"),
    ] {
        assert_eq!(errors(text), format!("error: {expected}"), "{text}");
    }
    insta::assert_snapshot!(errors("gateway:\n  upstream: plane\n"), @"
    error: `gateway.upstream` must be one of `auto`, `talaria`, `runs`, `plain` (talaria.yaml, line 2)

    hint: did you mean `plain`?
    ");
}

#[test]
fn a_doubled_key_is_refused_where_it_comes_again() {
    insta::assert_snapshot!(errors("gateway:\n  model: a\n  identity: true\n  model: b\n"), @"
    error: `model` is there twice in `gateway` (talaria.yaml, line 4)

    hint: keep one of the two
    ");
    assert!(errors("log:\ngateway:\nlog:\n").contains("`log` is there twice (talaria.yaml, line 3)"));
    assert!(
        errors("platforms:\n  console:\n  console:\n")
            .contains("twice in `platforms` (talaria.yaml, line 3)")
    );
}

#[test]
fn what_is_no_yaml_is_refused_with_the_line() {
    insta::assert_snapshot!(errors("gateway:\n\tmodel: x\n"), @"
    error: a line is indented with a tab (talaria.yaml, line 2)

    hint: YAML wants spaces there; two for each level
    ");
    insta::assert_snapshot!(errors("gateway:\n  model: 'x\n"), @"
    error: the file is not valid YAML: found unexpected end of stream (talaria.yaml, line 3)

    hint: look at the indentation, the quotes and the space after each `:` there and just above
    ");
    insta::assert_snapshot!(errors("log:\n---\nlog:\n"), @"
    error: the file holds more than one document (talaria.yaml, line 3)

    hint: remove the line `---` between them, or what is left over after the first
    ");
    insta::assert_snapshot!(errors("log:\n  level: a\u{7}\n"), @"
    error: there is a control character (talaria.yaml, line 2)

    hint: remove it, or type the line again
    ");
}

#[test]
fn what_is_no_text_is_refused() {
    let error = Scene::new().file(b"log:\n  level: \xff\n").errors();
    assert!(error.starts_with("error: the file is not UTF-8 text (talaria.yaml, line 2)"), "{error}");
    let error = Scene::new().file(vec![b'#'; 1024 * 1024 + 1]).errors();
    assert!(
        error.starts_with("error: the configuration file `talaria.yaml` is larger than 1 MiB"),
        "{error}"
    );
    let scene = Scene::new();
    fs::create_dir(scene.path("talaria.yaml")).unwrap();
    assert!(scene.errors().contains("cannot read the configuration file"), "{}", scene.errors());
}

#[test]
fn an_empty_file_is_fine() {
    for text in
        ["", "\n", "# nothing\n", "---\n", "{}", "\u{feff}", "gateway:\nagent:\nplatforms:\ndisplay:\nlog:\n"]
    {
        Scene::new().file(text).load().unwrap();
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let scene = Scene::new()
        .file("gateway:\n  proxy_url: host:8642\nlog:\n  level: inof\nplatforms:\n  x: {kind: x}\n")
        .var("OPENAI_API_KEY", "a\nb")
        .without("TALARIA_HOME");
    let text = scene.errors();
    for part in [
        "neither `TALARIA_HOME` nor `HOME` is set",
        "`gateway.proxy_url` must be an address such as `http://192.168.1.10:8642` (talaria.yaml, line 2)",
        "`OPENAI_API_KEY` must be a key of plain ASCII characters on one line",
        "`platforms.x.kind` is not a known kind (talaria.yaml, line 6)",
        "`log.level` is not a level (talaria.yaml, line 4)\n\nhint: did you mean `info`?",
    ] {
        assert!(text.contains(part), "{part}\n\n{text}");
    }
}

#[test]
fn addresses_are_checked() {
    for (url, expected) in [
        ("ftp://host", "must be an address such as"),
        ("http://ann:pw@host", "must not hold a user name or password"),
        ("http://host/?a=b", "must end with the path"),
        ("http://host/#a", "must end with the path"),
    ] {
        let error = Scene::new().var("GATEWAY_PROXY_URL", url).errors();
        assert!(error.starts_with(&format!("error: `GATEWAY_PROXY_URL` {expected}")), "{error}");
    }
}

#[test]
fn a_log_filter_is_checked() {
    for good in ["info", "WARN", "off", "talaria=debug", "info,talaria=trace,hyper=off"] {
        assert_eq!(Scene::new().var("TALARIA_LOG", good).load().unwrap().log, good);
    }
    assert!(
        Scene::new()
            .var("TALARIA_LOG", "a=b=c")
            .errors()
            .contains("`TALARIA_LOG` is neither a level nor a filter")
    );
    // The log filter would take such a word for a module's name, and log nothing else.
    for word in ["loud", "talaria", "verbose", "7"] {
        let error = Scene::new().var("TALARIA_LOG", word).errors();
        assert!(error.starts_with("error: `TALARIA_LOG` is not a level"), "{word}: {error}");
        assert!(error.contains("hint: "), "{word}: {error}");
    }
}

#[cfg(feature = "testing")]
mod test_platform {
    use std::time::Duration;

    use talaria_platform::{RateLimit, ShowMode};

    use super::*;
    use crate::testing::network::TestConfig;

    #[test]
    fn the_test_platform_is_read() {
        let read = |text: &str| Scene::new().file(text).load().unwrap().platforms[&"test".into()].clone();
        let mut expected = TestConfig {
            socket: "/tmp/s".into(),
            max_text: 4000,
            rate: None,
            show: ShowMode::Edit { pause: Duration::from_millis(50) },
        };
        let read = |text: &str| settings::<TestConfig>(&read(text));
        assert_eq!(read("platforms: {test: {socket: /tmp/s, access: {people: []}}}"), expected);
        expected.max_text = 500;
        expected.rate = Some(RateLimit { per_second: 0.2, burst: 10.0 });
        expected.show = ShowMode::Append;
        assert_eq!(
            read(
                "platforms:\n  test:\n    socket: /tmp/s\n    max_text: 500\n    show: append\n    \
                 rate: {per_second: 0.2, burst: 10}\n    pause_ms: 1\n    access: {people: []}\n"
            ),
            expected
        );
    }

    #[test]
    fn the_test_platform_is_checked() {
        for (text, expected) in [
            ("{}", "`platforms.test` has no `socket` (talaria.yaml, line 1)"),
            (
                "{socket: s, rate: {burst: 1}}",
                "`platforms.test.rate` has no `per_second` (talaria.yaml, line 1)",
            ),
            ("{socket: s, rate: {burst: 0, per_second: 1}}", "must be of numbers above zero"),
            ("{socket: s, sockets: t}", "unknown key `sockets` in `platforms.test`"),
        ] {
            let text = errors(&format!("platforms: {{test: {text}}}"));
            assert!(text.contains(expected), "{text}");
        }
    }
}
