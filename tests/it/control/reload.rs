//! `talaria reload`: which changes take effect at once, which need a restart, and that a wrong configuration changes
//! nothing.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use talaria::config::{Config, ConfigSources};

use super::{Scene, texts};
use crate::support::binary::Talaria;
use crate::support::network::Network;
use crate::support::upstream::{Answer, Upstream, delta};

/// The exit code for a configuration error, named as in `sysexits.h`.
const EX_CONFIG: i32 = 78;

/// The first line of the output: the file that was read.
fn read_again(scene: &Scene) -> String {
    format!("Read again: {}\n", scene.talaria.home().join("talaria.yaml").display())
}

#[tokio::test]
async fn a_file_that_is_gone_is_said_to_be_gone() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    std::fs::remove_file(scene.talaria.home().join("talaria.yaml")).unwrap();
    let said = scene.prints(["reload"]).await;
    let gone = "There is no configuration file any more, so the defaults and the environment hold.\n";
    assert!(said.starts_with(gone), "{said}");
}

#[tokio::test]
async fn a_file_for_a_command_that_reads_none_is_refused() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    for command in ["status", "health", "reload", "sessions", "audit", "approvals"] {
        let ended = scene.is_refused(1, [command, "--config", "other.yaml"]).await;
        ended.said("error: this command reads no configuration file").said("hint: leave `--config` out");
    }
}

#[tokio::test]
async fn who_may_talk_changes_with_the_next_message() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    scene.network.says_as("@bob:test", "!bob", true, "before");
    scene.network.says_as("@ann:test", "!ann", true, "before");
    scene.shows(|messages| texts(messages, "!ann") == ["ok"]).await;

    scene.writes("access: {people: ['@bob:test']}");
    let read = read_again(&scene);
    assert_eq!(scene.prints(["reload"]).await, format!("{read}In effect now: platforms.test.access.\n"));
    scene.network.says_as("@ann:test", "!ann", true, "after");
    scene.network.says_as("@bob:test", "!bob", true, "after");

    scene.shows(|messages| texts(messages, "!bob") == ["ok"]).await;
    assert_eq!(texts(&scene.network.messages(), "!ann"), ["ok"]);
    assert_eq!(scene.prints(["reload"]).await, format!("{read}Nothing changed.\n"));
}

#[tokio::test]
async fn what_somebody_asked_who_is_taken_off_the_list_is_stopped() {
    let scene = Scene::new("access: {people: ['@ann:test', '@bob:test']}").await;
    let _process = scene.starts().await;
    scene.asks_without_end("@ann:test", "!ann").await;
    scene.asks_without_end("@bob:test", "!bob").await;

    scene.writes("access: {people: ['@bob:test']}");
    let said = scene.prints(["reload"]).await;

    assert!(said.contains("Stopped, because whoever asked may no longer: 1."), "{said}");
    scene.shows(|messages| texts(messages, "!ann") == ["Let me think\n\n(stopped)"]).await;
    assert_eq!(texts(&scene.network.messages(), "!bob"), ["Let me think"]);
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_each_time() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    let mut config = scene.config("access: {people: ['@ann:test']}\nmax_text: 1000\nbusy: interrupt\n");
    config += "  desk: {kind: console}\n";
    let _ = write!(
        config,
        "gateway: {{model: other, retry_for: 1m}}\nagent: {{context_prompt: Be kind.}}\ndisplay: {{edits: 5}}\n\
         log: {{level: debug}}\nwords: {{nothing_running: Quiet.}}\nmcp_servers: {{time: {{command: a, enabled: false}}}}\nskills_dir: \
         /srv/skills\nreview: {{memory: 3}}\nterminal: {{network: true}}\nbudget: {{person: 1000}}\n"
    );
    scene.talaria.rewrites_config(&config);

    let said = scene.prints(["reload"]).await;
    let restart = "Needs a restart: platforms.desk, platforms.test, agent.context_prompt, gateway.retry_for, \
                   display.edits, log.level, skills_dir, review, terminal.\n";
    let read = read_again(&scene);
    assert_eq!(
        said,
        format!(
            "{read}In effect now: words, budget, platforms.test.busy, gateway, mcp_servers.time.\n{restart}"
        )
    );
    assert_eq!(
        scene.prints(["reload"]).await,
        read + restart,
        "what still waits for a restart is said again"
    );
    scene.network.says_as("@ann:test", "!ann", true, "/stop");
    scene.shows(|messages| texts(messages, "!ann") == ["Quiet."]).await;
}

/// New, changed and removed agents are taken in. A turn that runs keeps its agent, and one that waits for an agent that is
/// gone is told so.
#[tokio::test]
async fn agents_are_taken_in() {
    let people = "access: {people: ['@ann:test', '@bob:test']}";
    let scene = Scene::new(people).await;
    let _process = scene.starts().await;
    let (one, two) = (Upstream::plain().await, Upstream::plain().await);
    let agent = |url: &str, more: &str| {
        format!(
            "{}agents:\n  helper: {{kind: proxy, url: '{url}', key: sk-CANARY{more}}}\n",
            scene.config(people)
        )
    };
    let read = read_again(&scene);
    let reload = async |config: String| {
        scene.talaria.rewrites_config(config);
        scene.prints(["reload"]).await.replace(&read, "")
    };
    let says = |text: &str| scene.network.says_as("@ann:test", "!ann", true, text);

    assert_eq!(reload(agent(&one.url(), "")).await, "In effect now: agents.helper.\n");
    says("/agent helper");
    says("one");
    one.has_prompts(1).await;
    assert!(scene.prints(["status"]).await.contains("helper: remote agent server, answers"));

    assert_eq!(reload(agent(&two.url(), "")).await, "In effect now: agents.helper.\n");
    two.answers(Answer::stream().sends(delta("Let me think")).hangs());
    says("two");
    two.has_prompts(1).await;
    scene.network.says_as("@bob:test", "!bob", true, "/agent helper");
    scene.shows(|messages| texts(messages, "!bob").len() == 1).await;
    let access = agent(&two.url(), ", access: {people: ['@ann:test']}");
    assert_eq!(reload(access).await, "In effect now: agents.helper.access.\n");
    scene.network.says_as("@bob:test", "!bob", true, "me too");
    scene
        .shows(|messages| texts(messages, "!bob").iter().any(|text| text.contains("You may not talk")))
        .await;

    says("three");
    scene.shows(|messages| texts(messages, "!ann").iter().any(|text| text.starts_with("Let me think"))).await;
    assert_eq!(reload(scene.config(people)).await, "In effect now: agents.helper.\n");
    assert_eq!(reload(scene.config(people)).await, "Nothing changed.\n");
    assert!(!texts(&scene.network.messages(), "!ann").iter().any(|text| text.contains("(stopped)")));
    says("/stop");
    scene.shows(|messages| texts(messages, "!ann").iter().any(|text| text.contains("(stopped)"))).await;
    says("four");
    let gone = "The agent helper is no longer there.";
    scene.shows(|messages| texts(messages, "!ann").iter().any(|text| text.contains(gone))).await;
    assert_eq!((one.prompts().len(), two.prompts().len()), (1, 1));
    assert!(scene.upstream.prompts().is_empty(), "nothing went to the default agent");
}

#[tokio::test]
async fn a_wrong_configuration_is_explained_and_the_old_one_stays() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let mut process = scene.starts().await;
    scene.talaria.rewrites_config("gateway:\n  proxy_ulr: http://host\n");

    let ended = scene.is_refused(EX_CONFIG, ["reload"]).await;

    ended.said("error: unknown key `proxy_ulr` in `gateway` (").said("talaria.yaml, line 2)\n");
    ended.said("hint: did you mean `proxy_url`?");
    ended.said("error: nothing was changed: the configuration from before still holds");
    process.logs("the old one stays").await;
    scene.network.says_as("@ann:test", "!ann", true, "still there?");
    scene.shows(|messages| texts(messages, "!ann") == ["ok"]).await;
}

/// Checks that the old rules hold: Ann is answered and Eve is not.
async fn holds_as_before(scene: &Scene) {
    let answers = texts(&scene.network.messages(), "!ann").len();
    scene.network.says_as("@eve:test", "!eve", true, "/whoami");
    scene.network.says_as("@eve:test", "!eve", true, "let me in");
    scene.network.says_as("@ann:test", "!ann", true, "/whoami");
    scene.shows(|messages| texts(messages, "!ann").len() == answers + 1).await;
    let messages = scene.network.messages();
    assert!(texts(&messages, "!ann")[answers].contains("because a list names you"), "{messages:?}");
    assert!(texts(&messages, "!eve").is_empty(), "{messages:?}");
}

/// A console gives its person owner rights. A running chat account is no console, whatever the file calls it by now.
#[tokio::test]
async fn a_chat_network_that_the_file_calls_a_console_does_not_get_owners() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    scene.talaria.rewrites_config("platforms:\n  test: {kind: console}\n");
    for _ in 0..2 {
        assert_eq!(scene.prints(["reload"]).await, read_again(&scene) + "Needs a restart: platforms.test.\n");
        holds_as_before(&scene).await;
    }
}

#[tokio::test]
async fn a_platform_that_is_taken_out_of_the_file_goes_on_until_the_restart() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    scene.asks_without_end("@ann:test", "!long").await;
    scene.talaria.rewrites_config("log: {level: info}\n");
    assert_eq!(scene.prints(["reload"]).await, read_again(&scene) + "Needs a restart: platforms.test.\n");
    holds_as_before(&scene).await;
    assert_eq!(texts(&scene.network.messages(), "!long"), ["Let me think"], "what runs is not stopped");
}

#[tokio::test]
async fn the_terminal_stays_its_owners_whatever_the_file_makes_of_its_name() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    let network = Network::listen(talaria.home());
    let mut process = talaria.starts();
    process.logs("running").await;
    talaria.rewrites_config(format!(
        "platforms:\n  console:\n    kind: test\n    socket: {}\n    access: {{people: ['@eve:test']}}\n",
        network.socket().display()
    ));
    let said = talaria.does(["reload"]).await.out;
    assert!(said.ends_with("\nNeeds a restart: platforms.console.\n"), "{said}");
    process.types("hello\n");
    process.shows("ok").await;
}

/// The audit must match the rules in force: a reload that cannot be recorded changes nothing.
#[tokio::test]
async fn a_reload_that_cannot_be_recorded_changes_nothing() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    scene
        .talaria
        .stored()
        .execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON audit WHEN NEW.action = 'reload'
             BEGIN SELECT RAISE(ABORT, 'no space'); END",
        )
        .unwrap();
    scene.writes("access: {people: ['@eve:test']}");
    scene.is_refused(1, ["reload"]).await.said("no space").said("hint: nothing was changed");
    holds_as_before(&scene).await;

    scene.talaria.stored().execute_batch("DROP TRIGGER full").unwrap();
    assert_eq!(
        scene.prints(["reload"]).await,
        read_again(&scene) + "In effect now: platforms.test.access.\n"
    );
    scene.network.says_as("@eve:test", "!eve", true, "hello");
    scene.shows(|messages| texts(messages, "!eve") == ["ok"]).await;
}

/// The first reload reads slowly; meanwhile the file changes once more, and a second reload starts.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_reloads_the_newer_file_holds_in_the_end() {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    let _process = scene.starts().await;
    let file = scene.talaria.home().join("talaria.yaml");
    let older = scene.config("access: {people: ['@eve:test']}");
    fs::remove_file(&file).unwrap();
    mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let home = scene.talaria.home().to_owned();
    let reload = move || {
        let client = reqwest::Client::builder().unix_socket(home.join("control.sock")).build().unwrap();
        tokio::spawn(
            async move { client.post("http://talaria/reload").send().await.unwrap().status().as_u16() },
        )
    };

    let first = reload();
    // Opens when the other end reads.
    let pipe = file.clone();
    let mut slow = tokio::task::spawn_blocking(move || OpenOptions::new().write(true).open(pipe).unwrap());
    let mut slow = (&mut slow).await.unwrap();
    fs::remove_file(&file).unwrap();
    scene.writes("access: {people: ['@ann:test']}\nbusy: interrupt");
    let mut second = reload();
    // The second reload has every chance to finish first, and must not.
    let early = tokio::time::timeout(Duration::from_millis(300), &mut second).await.ok();
    slow.write_all(older.as_bytes()).unwrap();
    drop(slow);

    assert_eq!(first.await.unwrap(), 200);
    if early.is_none() {
        assert_eq!(second.await.unwrap(), 200);
    }
    holds_as_before(&scene).await;
}

/// A small random generator with a seed, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

/// A configuration with one random change, which may be harmless.
fn mutated(text: &str, dice: &mut Dice) -> Vec<u8> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = dice.roll(lines.len());
    match dice.roll(6) {
        0 => drop(lines.remove(line)),
        1 => lines.insert(line, lines[line].clone()),
        2 => lines[line].insert(0, '\t'),
        3 => lines[line].push_str(": x"),
        4 => {
            let at = dice.roll(lines[line].len().max(1));
            lines[line].truncate(at);
        }
        _ => {
            let mut bytes = text.as_bytes().to_vec();
            let at = dice.roll(bytes.len());
            bytes[at] = u8::try_from(dice.roll(256)).unwrap();
            return bytes;
        }
    }
    (lines.join("\n") + "\n").into_bytes()
}

/// Two hundred damaged configurations: after each of them the old one holds.
#[tokio::test]
async fn f55_no_wrong_configuration_ever_changes_anything() {
    let people = "access:\n  people:\n    - '@ann:test'\nlimits:\n  per_minute: 10000\n  per_hour: 100000";
    let scene = Scene::new(people).await;
    let good = scene.config(people) + "words:\n  nothing_running: As before.\nlog:\n  level: info\n";
    scene.talaria.rewrites_config(&good);
    let _process = scene.starts().await;
    let socket = scene.talaria.home().join("control.sock");
    let client = reqwest::Client::builder().unix_socket(socket).build().unwrap();
    let reload = async || client.post("http://talaria/reload").send().await.unwrap().status().as_u16();
    let home = scene.talaria.home().display().to_string();
    let (url, sources) = (
        scene.upstream.url(),
        ConfigSources { config: None, folder: scene.talaria.home().into(), serve: false },
    );
    let env = |name: &str| match name {
        "TALARIA_HOME" => Some(home.clone()),
        "GATEWAY_PROXY_URL" => Some(url.clone()),
        _ => None,
    };

    let (mut dice, mut wrong) = (Dice(1), 0);
    while wrong < 200 {
        let text = mutated(&good, &mut dice);
        scene.talaria.rewrites_config(&text);
        let shown = String::from_utf8_lossy(&text);
        match Config::load(&sources, &env) {
            Err(_) => {
                wrong += 1;
                assert_eq!(reload().await, 422, "{shown}");
                scene.network.says_as("@eve:test", "!eve", true, "let me in");
                scene.network.says_as("@ann:test", "!ann", true, "/stop");
                scene.shows(|messages| texts(messages, "!ann").len() == wrong).await;
            }
            Ok(_) => {
                assert_eq!(reload().await, 200, "{shown}");
                scene.talaria.rewrites_config(&good);
                assert_eq!(reload().await, 200);
            }
        }
    }

    let messages = scene.network.messages();
    assert!(texts(&messages, "!ann").iter().all(|text| text == "As before."), "{messages:?}");
    assert!(texts(&messages, "!eve").is_empty());
    scene.prints(["health"]).await;
}
