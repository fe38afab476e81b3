//! Tests: agents by name, which of them is the default, and who may talk to them.

use super::*;
use crate::access::AgentAccess;
use crate::ids::AgentName;
use crate::rules::AgentPolicy;

const TWO: &str = "agents:\n  far: {kind: proxy, url: 'http://far:8642'}\n  near: {kind: model, base_url: \
                   'http://localhost:11434/v1', model: llama}\n";

fn names(config: &Config) -> Vec<&str> {
    config.agents.entries.keys().map(AgentName::as_str).collect()
}

fn errors(text: &str) -> String {
    Scene::new().file(text).errors()
}

#[test]
fn entries_stand_beside_the_shorthands_and_the_proxy_is_the_default() {
    let scene = Scene::new()
        .var("GATEWAY_PROXY_URL", "http://host:8642")
        .var("OPENAI_BASE_URL", "http://localhost:1/v1")
        .var("OPENAI_MODEL", "small")
        .file(TWO);
    let config = scene.load().unwrap();
    assert_eq!(names(&config), ["far", "local", "near", "proxy"]);
    assert_eq!(config.agents.default, AgentName::proxy());
    let described = config.describe().replace(&scene.folder.path().display().to_string(), "");
    insta::assert_snapshot!(described, @"
    configuration  /talaria.yaml
    state folder   /home
    agent          proxy (default): remote agent server at http://host:8642, model hermes-agent, without a key
                   far: remote agent server at http://far:8642, model hermes-agent, without a key
                   local: model server at http://localhost:1/v1, model small, without a key
                   near: model server at http://localhost:11434/v1, model llama, without a key
    platforms      none configured: a chat in the terminal
    agent server   http://127.0.0.1:8642, model talaria, key in /home/api.key (not while prompts are piped in)
    log            info
    ");

    let chosen = scene.file(format!("default_agent: near\n{TWO}")).load().unwrap();
    assert_eq!(chosen.agents.default.as_str(), "near");
}

#[test]
fn the_default_is_the_local_model_or_the_only_entry_or_must_be_named() {
    let local = Scene::new().var("OPENAI_BASE_URL", "http://localhost:1/v1").var("OPENAI_MODEL", "small");
    assert_eq!(local.file(TWO).load().unwrap().agents.default, AgentName::local());
    let one = Scene::new().file("agents:\n  far: {kind: proxy, url: 'http://far:8642'}\n").load().unwrap();
    assert_eq!(one.agents.default.as_str(), "far");
    insta::assert_snapshot!(errors(TWO), @"
    error: `agents` does not say which agent is the default (talaria.yaml, line 2)

    hint: write `default_agent: NAME`; the agents are `far`, `near`
    ");
    insta::assert_snapshot!(errors(&format!("default_agent: nearr\n{TWO}")), @"
    error: `default_agent` names no agent (talaria.yaml, line 1)

    hint: did you mean `near`? the agents are `far`, `near`
    ");
    let unknown = errors(&format!("default_agent: sk-CANARY-0123\n{TWO}"));
    assert!(!unknown.contains("CANARY") && unknown.contains("`far`, `near`"), "{unknown}");
}

#[test]
fn every_key_of_an_entry_arrives() {
    let scene = Scene::new();
    let key = scene.private_file("key", "sk-2\n");
    let config = scene
        .file(format!(
            "default_agent: far\nagents:\n  far:\n    kind: proxy\n    url: https://far.example.com/v1\n    key: sk-1\n    \
             model: other\n    upstream: plain\n    identity: true\n    allow_cleartext: true\n    timeouts: {{connect: 1s, \
             first_byte: 2s, idle: 3s, keepalive_idle: 4s}}\n    instructions: Be kind.\n    access: {{people: \
             ['@a:b'], places: ['!r:b'], apps: [forge]}}\n  near:\n    kind: model\n    model: llama\n    api_key_file: \
             {}\n    access: {{}}\n",
            key.display()
        ))
        .load()
        .unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    let Some(AgentSettings::Proxy(far)) = config.agents.default_entry() else {
        panic!("{:?}", config.agents)
    };
    assert_eq!((far.url.as_str(), far.model.as_str()), ("https://far.example.com", "other"));
    assert!(far.identity && far.allow_cleartext);
    let timeouts = far.timeouts;
    let seconds = [timeouts.connect, timeouts.first_byte, timeouts.idle, timeouts.keepalive_idle];
    assert_eq!(seconds.map(|timeout| timeout.as_secs()), [1, 2, 3, 4]);
    let near = AgentName::new("near").unwrap();
    let Some(AgentSettings::Model(model)) = config.agents.entries.get(&near) else {
        panic!("{:?}", config.agents)
    };
    assert_eq!((model.url.as_str(), model.model.as_str()), ("https://api.openai.com/v1", "llama"));
    let secrets: Vec<_> = config.agents.secrets().map(|secret| secret.expose().to_owned()).collect();
    assert_eq!(secrets, ["sk-1", "sk-2"]);
    assert!(!format!("{config:?}").contains("sk-1"), "secrets are redacted");

    let rules = &config.rules.agents.by_name;
    assert_eq!(rules[&near].access, AgentAccess::default(), "an empty list is for admins");
    let far = &rules[&config.agents.default];
    assert_eq!(far.instructions, "Be kind.");
    let access = AgentAccess {
        allow_all: false,
        people: ["@a:b".into()].into(),
        places: ["!r:b".into()].into(),
        apps: ["forge".to_owned()].into(),
    };
    assert_eq!(far.access, access);
}

#[test]
fn without_a_list_everybody_may_talk_to_a_proxy_and_a_model() {
    let config = Scene::new().file(format!("default_agent: far\n{TWO}")).load().unwrap();
    for policy in config.rules.agents.by_name.values() {
        assert_eq!(policy.access, AgentAccess::everybody());
    }
    assert_eq!(config.rules.agents.by_name.len(), 2);
}

#[test]
fn a_wrong_entry_is_named_with_its_line() {
    insta::assert_snapshot!(errors("agents:\n  far:\n    kind: proxy\n    ulr: http://far:8642\n"), @"
    error: unknown key `ulr` in `agents.far` (talaria.yaml, line 4)

    hint: did you mean `url`?
    ");
    insta::assert_snapshot!(errors("agents:\n  far: {kind: prxy}\n  other: {}\n"), @"
    error: `agents.far.kind` is not a known kind (talaria.yaml, line 2)

    hint: did you mean `proxy`? (known kinds: `proxy`, `model`, `codex`, `acp`)

    error: `agents.other` has no `kind`, and its name is not one (talaria.yaml, line 3)

    hint: known kinds: `proxy`, `model`, `codex`, `acp`
    ");
    insta::assert_snapshot!(errors("agents:\n  far: {kind: proxy}\n  near: {kind: model}\n"), @"
    error: `agents.far` has no `url` (talaria.yaml, line 2)

    hint: write the address of the agent server, such as `http://localhost:8642`

    error: `agents.near` has no `model` (talaria.yaml, line 3)

    hint: write the name that the server knows the model by, such as `llama3.2`
    ");
    insta::assert_snapshot!(errors("agents:\n  default: {kind: proxy}\n  My Agent: {kind: proxy}\n"), @"
    error: `agents` has a name that cannot be used (talaria.yaml, line 3)

    hint: names are 1 to 64 letters, digits, `.`, `_` and `-`; `default`, `none` and `guide` have a meaning of their own

    error: `agents` has a name that cannot be used (talaria.yaml, line 2)

    hint: names are 1 to 64 letters, digits, `.`, `_` and `-`; `default`, `none` and `guide` have a meaning of their own
    ");
    insta::assert_snapshot!(errors("agents:\n  far:\n    kind: proxy\n    url: http://far:1\n    access: {peopel: []}\n"), @"
    error: unknown key `peopel` in `agents.far.access` (talaria.yaml, line 5)

    hint: did you mean `people`?
    ");
    insta::assert_snapshot!(errors("agents:\n  far:\n    kind: proxy\n    url: http://far:1\n    access: {people: ['@*:b']}\n"), @"
    error: `agents.far.access.people` holds what cannot be a full id (talaria.yaml, line 5)

    hint: write whole ids and names; patterns can match anybody
    ");
    let public = "agents:\n  far: {kind: proxy, url: 'http://far.example.com', key: sk-CANARY}\n";
    let public = errors(public);
    assert!(
        public.contains("or set `agents.far.allow_cleartext: true`") && !public.contains("CANARY"),
        "{public}"
    );
}

#[test]
fn a_name_that_a_shorthand_has_is_refused() {
    let entry = "agents:\n  proxy: {url: 'http://far:8642'}\n";
    assert_eq!(Scene::new().file(entry).proxy().url.as_str(), "http://far:8642");
    insta::assert_snapshot!(Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642").file(entry).errors(), @"
    error: `agents.proxy` is an agent that `GATEWAY_PROXY_URL` or `gateway.proxy_url` configures already (talaria.yaml, line 2)

    hint: give the entry another name, leave the other settings out, or write only `access` and `instructions` here
    ");
    insta::assert_snapshot!(
        Scene::new()
            .var("OPENAI_BASE_URL", "http://localhost:1/v1")
            .var("OPENAI_MODEL", "small")
            .file("agents:\n  local: {kind: model, model: m}\n")
            .errors(),
        @"
        error: `agents.local` is an agent that `OPENAI_BASE_URL` or the section `agent` configures already (talaria.yaml, line 2)

        hint: give the entry another name, leave the other settings out, or write only `access`, `instructions`, `tools`, `workspace`, `models` and `runtime` here
        "
    );
}

#[test]
fn an_entry_adds_its_list_and_its_instructions_to_the_agent_of_a_shorthand() {
    let config = Scene::new()
        .var("GATEWAY_PROXY_URL", "http://host:8642")
        .var("OPENAI_BASE_URL", "http://localhost:1/v1")
        .var("OPENAI_MODEL", "small")
        .file("agents:\n  proxy: {access: {apps: [forge]}}\n  local: {instructions: Be brief.}\n")
        .load()
        .unwrap();
    assert_eq!(config.agents.entries.len(), 2);
    let rules = &config.rules.agents.by_name;
    let access = AgentAccess { apps: ["forge".to_owned()].into(), ..AgentAccess::default() };
    assert_eq!(
        rules[&AgentName::proxy()],
        AgentPolicy { codex_access: access.clone(), access, ..AgentPolicy::default() }
    );
    let local = AgentPolicy { instructions: "Be brief.".to_owned(), ..AgentPolicy::default() };
    assert_eq!(rules[&AgentName::local()], local);
}

#[test]
fn the_name_of_the_servers_model_is_no_other_agents() {
    let file = |name: &str| format!("default_agent: far\nserver:\n  model_name: {name}\n{TWO}");
    assert!(Scene::new().file(file("far")).load().is_ok());
    insta::assert_snapshot!(errors(&file("near")), @"
    error: `server.model_name` is `near`, which is another agent than the default (talaria.yaml, line 3)

    hint: requests for that name mean the default agent; choose a name that no agent has
    ");
}

#[test]
fn a_faulty_model_beside_a_proxy_is_left_out_unless_it_is_named() {
    let relay = |yaml: &str| {
        Scene::new()
            .var("GATEWAY_PROXY_URL", "http://host:8642")
            .var("OPENAI_BASE_URL", "http://h:1/v1")
            .file(yaml)
    };
    let config = relay("").load().unwrap();
    assert_eq!(names(&config), ["proxy"]);
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.starts_with("the model of the section `agent` is left out"), "{warning}");
    assert!(relay("default_agent: local").errors().contains("no model is named"));
}

#[cfg(feature = "testing")]
#[test]
fn a_place_names_an_agent_that_its_people_may_talk_to() {
    let people = "platforms:\n  test:\n    socket: /s\n    access: {admins: ['@root:t'], people: ['@ann:t', '@bob:t']}\n    \
                  places: {'!lab': {agent: near}, '!own': {agent: near, people: ['@ann:t']}}\n";
    let scene = |access: &str| {
        let agents = TWO.replace("model: llama", &format!("model: llama, access: {access}"));
        Scene::new().file(format!("default_agent: far\n{agents}{people}"))
    };
    let warnings = |access: &str| scene(access).load().unwrap().warnings.join("\n");
    insta::assert_snapshot!(warnings("{people: ['@ann:t']}"), @"@bob:t may talk in `platforms.test.places.!lab`, but not to its agent `near` (`agents.near.access`)");
    assert_eq!(warnings("{places: ['!lab', '!own']}"), "");
    insta::assert_snapshot!(warnings("{people: ['@eve:t'], places: ['!lab', '!own']}"), @"`agents.near.access.people` names @eve:t without effect, because no account lets them in");
    insta::assert_snapshot!(warnings("{allow_all: true, apps: [forge]}"), @"`agents.near.access.apps` has no effect, because everybody may talk to it (`allow_all`)");
    insta::assert_snapshot!(
        Scene::new().file(format!("default_agent: far\n{TWO}{}", people.replace("agent: near,", "agent: nera,"))).errors(),
        @"
        error: `platforms.test.places.!own.agent` names no agent (talaria.yaml, line 9)

        hint: did you mean `near`? the agents are `far`, `near`
        "
    );
}
