//! Tests: where keys come from, where they are refused, and that nobody sees them.

use super::*;

const CANARY: &str = "sk-CANARY7";

fn relay() -> Scene {
    Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642")
}

#[test]
fn a_key_comes_from_the_variable_then_its_file_then_the_yaml() {
    let scene = relay().file("gateway:\n  proxy_key: from-yaml\n");
    let key = |scene: &Scene| scene.proxy().key.map(|key| key.expose().to_owned());
    assert_eq!(key(&scene).as_deref(), Some("from-yaml"));

    let path = scene.private_file("secret", "from-file\n").display().to_string();
    let scene = scene.var("GATEWAY_PROXY_KEY_FILE", path);
    assert_eq!(key(&scene).as_deref(), Some("from-file"));

    let scene = scene.var("GATEWAY_PROXY_KEY", "  ");
    assert_eq!(key(&scene).as_deref(), Some("from-file"));

    let scene = scene.var("GATEWAY_PROXY_KEY_FILE", " ").var("GATEWAY_PROXY_KEY", "from-variable");
    assert_eq!(key(&scene).as_deref(), Some("from-variable"));

    let blank = relay().file("gateway:\n  proxy_key: ''\n");
    assert_eq!(key(&blank), None);
}

#[test]
fn both_ways_at_once_are_refused() {
    let scene = relay().var("GATEWAY_PROXY_KEY", CANARY).var("GATEWAY_PROXY_KEY_FILE", "/run/secrets/key");
    insta::assert_snapshot!(scene.errors(), @"
    error: `GATEWAY_PROXY_KEY` and `GATEWAY_PROXY_KEY_FILE` are both set

    hint: unset one of them, so that it is clear which key is used
    ");
}

#[test]
fn a_key_file_must_hold_a_key() {
    let scene = relay().var("GATEWAY_PROXY_KEY_FILE", "/nowhere/key");
    insta::assert_snapshot!(scene.errors(), @"
    error: the file `/nowhere/key`, which `GATEWAY_PROXY_KEY_FILE` names, is not there

    hint: put it into that file, readable for this user, or correct the path
    ");
    for (content, reason) in [(&b" \n"[..], "is empty"), (b"\xff\xfe", "is not text")] {
        let path = scene.private_file("key", content).display().to_string();
        let scene = relay().var("GATEWAY_PROXY_KEY_FILE", path);
        assert!(scene.errors().contains(reason), "{}", scene.errors());
    }
    let path = scene.private_file("key", format!("{CANARY}\n{CANARY}\n")).display().to_string();
    let errors = relay().var("GATEWAY_PROXY_KEY_FILE", path).errors();
    assert!(errors.contains("must be a key of plain ASCII characters on one line"), "{errors}");
    assert!(!errors.contains(CANARY));
}

#[cfg(unix)]
#[test]
fn a_key_in_a_file_that_others_can_read_is_refused() {
    let scene = relay().file(format!("agent:\n  api_key: {CANARY}\n"));
    set_mode(&scene.path("talaria.yaml"), 0o640);
    insta::assert_snapshot!(scene.errors(), @"
    error: `agent.api_key` holds a key, but the file is open to other users (talaria.yaml, line 2)

    hint: run `chmod 600 talaria.yaml`, or put the key into a file of its own and name that in `OPENAI_API_KEY_FILE`
    ");
}

#[test]
fn a_key_is_not_sent_in_the_clear_over_a_public_network() {
    let public = "http://agent.example.com:8642";
    let scene = Scene::new().var("GATEWAY_PROXY_URL", public);
    scene.load().unwrap();

    let scene = scene.var("GATEWAY_PROXY_KEY", CANARY);
    insta::assert_snapshot!(scene.errors(), @"
    error: `GATEWAY_PROXY_URL` would carry the key unencrypted over a public network

    hint: use `https://`, a private address or a tunnel; or set `gateway.allow_cleartext: true`
    ");
    Scene::new()
        .var("GATEWAY_PROXY_URL", "https://agent.example.com")
        .var("GATEWAY_PROXY_KEY", CANARY)
        .load()
        .unwrap();

    let warnings = scene.file("gateway: {allow_cleartext: true}").load().unwrap().warnings;
    assert!(warnings[0].contains("everybody on the way can read the key"), "{warnings:?}");

    let local =
        Scene::new().file(format!("agent:\n  base_url: {public}/v1\n  model: m\n  api_key: {CANARY}\n"));
    assert!(local.errors().starts_with(
        "error: `agent.base_url` would carry the key unencrypted over a public network (talaria.yaml, line 2)"
    ));
}

#[test]
fn debug_and_check_show_no_key() {
    for scene in [
        relay().file(format!("gateway: {{proxy_key: {CANARY}}}\nagent: {{api_key: {CANARY}, model: m}}")),
        Scene::new().file(format!("agent: {{api_key: {CANARY}, model: m}}")),
    ] {
        let config = scene.load().unwrap();
        let shown = format!("{config:?}{config:#?}{}{}", config.describe(), config.agents.describe_default());
        assert!(shown.contains("Secret(…)") && shown.contains("with a key"));
        assert!(!shown.contains("CANARY"), "{shown}");
    }
}

#[test]
fn an_error_on_the_line_of_a_key_does_not_show_it() {
    for text in [
        "gateway:\n  proxy_key: [CANARY]\n",
        "gateway:\n  proxy_key: {CANARY: 1}\n",
        "gateway:\n  proxy_key: !CANARY x\n",
        "gateway:\n  proxy_key: &CANARY\n   *CANARY\n",
        "gateway:\n  proxy_key: *CANARY\n",
        "gateway:\n  proxy_key: \"CANARY\\n\"x\n",
        "gateway:\n  proxy_key: \"CANARY\n",
        "gateway:\n  proxy_key: \"CA\\x07NARY CANARY\"\n",
        "gateway:\n  proxy_key:CANARY\n",
        "gateway:\n  proxy_key:CANARY: x\n",
        "gateway:\n  proxy_key: CANARY: x\n",
        "gateway:\n  proxy_key: CANARY\n  proxy_key: CANARY\n",
        "gateway:\n  CANARY: proxy_key\n",
        "gateway:\n  identity: CANARY\n",
        "gateway:\n  identity: 'CANARY, expected CANARY'\n",
        "gateway:\n  upstream: CANARY\n",
        "gateway:\n  retry_for: CANARY\n",
        "gateway:\n  model: [CANARY]\n",
        "gateway: CANARY\n",
        "platforms:\n  CANARY: 3\n",
        "platforms:\n  CANARY:\n    kind: 3\n",
        "platforms:\n  CANARY:\n    kind: console\n",
        "platforms:\n  x:\n    kind: CANARY\n",
        "gateway:\n  proxy_url: http://CANARY@host\n",
        "log:\n  level: CANARY=CANARY=CANARY\n",
        "CANARY\n",
        "\tCANARY\n",
        "CANARY: 1\nCANARY: 2\n",
    ] {
        let errors = Scene::new().file(text).errors();
        assert!(!errors.contains("CANARY"), "{text}\n{errors}");
        assert!(errors.contains("line "), "{text}\n{errors}");
    }
}

#[test]
fn a_key_that_looks_like_a_number_is_taken_as_it_is_written() {
    for key in ["0012345", "12345678987654321123456789", "0x12", "1.50", "true"] {
        let proxy = relay().file(format!("gateway:\n  proxy_key: {key}\n")).proxy();
        assert_eq!(proxy.key.unwrap().expose(), key);
    }
}
