//! The binary at the command line: its commands, its exit codes, and which input it reads.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};

use rustix::process::Signal;

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Upstream};

/// The exit code for a configuration error, named as in `sysexits.h`.
const EX_CONFIG: i32 = 78;

#[tokio::test]
async fn help_says_what_can_be_done() {
    let ended = Talaria::new().args(["--help"]).reads("").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    for word in
        ["GATEWAY_PROXY_URL", "talaria.yaml", "run", "chat", "serve", "check", "env", "words", "--config"]
    {
        assert!(ended.out.contains(word), "{word} is missing in\n{}", ended.out);
    }
}

#[tokio::test]
async fn every_command_of_the_operator_teaches_itself() {
    for command in [
        "status",
        "health",
        "sessions",
        "stop-turn",
        "reload",
        "pairing list",
        "pairing approve",
        "pairing revoke",
        "token add",
        "token list",
        "token revoke",
        "approvals",
        "audit",
        "mcp",
        "ask",
    ] {
        let args = command.split(' ').chain(["--help"]);
        let ended = Talaria::new().does(args).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{command}");
        let examples =
            ended.out.split_once("Examples:").unwrap_or_else(|| panic!("{command}: {}", ended.out)).1;
        assert!(examples.contains(&format!("talaria {command}")), "{command}: {examples}");
    }
    let ended = Talaria::new().does(["--help"]).await;
    for command in [
        "status",
        "health",
        "sessions",
        "stop-turn",
        "reload",
        "pairing",
        "token",
        "approvals",
        "audit",
        "mcp",
        "ask",
    ] {
        assert!(ended.out.contains(&format!("\n  {command} ")), "{command} is missing in\n{}", ended.out);
    }
}

#[tokio::test]
async fn an_unknown_argument_is_refused_with_what_was_meant() {
    let ended = Talaria::new().args(["chek"]).reads("").await;
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    ended.said("check");
}

#[tokio::test]
async fn check_says_what_would_run_and_starts_nothing() {
    let talaria = Talaria::new()
        .config("gateway:\n  proxy_url: http://127.0.0.1:9/\n  proxy_key: the-key-itself\n")
        .args(["check"]);
    let ended = talaria.reads("hi\n").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(ended.out.contains("remote agent server at http://127.0.0.1:9, model hermes-agent, with a key"));
    assert!(!ended.out.contains("the-key-itself"));
    let files: Vec<_> = fs::read_dir(talaria.home()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["talaria.yaml"]);
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_before_anything_starts() {
    for command in ["check", "run"] {
        let talaria = Talaria::new().config("gateway:\n  proxy_ulr: http://host\n").args([command]);
        let ended = talaria.reads("hi\n").await;
        assert_eq!((ended.code, ended.out.as_str()), (EX_CONFIG, ""));
        ended.said("error: unknown key `proxy_ulr` in `gateway` (").said("talaria.yaml, line 2)\n");
        ended.said("\nhint: did you mean `proxy_url`?\n");
        assert!(!talaria.home().join("talaria.db").exists());
    }
}

#[tokio::test]
async fn env_lists_every_variable_and_no_value() {
    let talaria = Talaria::new()
        .var("GATEWAY_PROXY_KEY", "the-key-itself")
        .var("OPENAI_API_KEY", "the-other-key")
        .var("GATEWAY_PROXY_URL", "http://the-address")
        .args(["env"]);
    let ended = talaria.reads("").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    for variable in talaria::config::env::table() {
        assert!(ended.out.lines().any(|line| line.starts_with(variable.name)), "{}", variable.name);
    }
    for value in ["the-key-itself", "the-other-key", "the-address"] {
        assert!(!ended.out.contains(value), "{}", ended.out);
    }
}

#[tokio::test]
async fn words_lists_every_text_in_the_language_that_is_asked_for() {
    let list = async |args: &[&str]| Talaria::new().args(args.iter().copied()).reads("").await;
    let (english, german) = (list(&["words"]).await, list(&["words", "--language", "de"]).await);
    for text in talaria::i18n::TextKey::ALL {
        let line = format!("\n  # {}: \"", text.key());
        assert!(english.out.contains(&line) && german.out.contains(&line), "{}", text.key());
    }
    assert!(english.out.contains("\n  # stopped: \"(stopped)\"\n"), "{}", english.out);
    assert!(german.out.contains("\n  # stopped: \"(gestoppt)\"\n"), "{}", german.out);
    assert!(english.out.lines().all(|line| line.is_empty() || line.trim_start().starts_with('#')));
    let unknown = list(&["words", "--language", "fr"]).await;
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
    unknown.said("[possible values: en, de]");
}

#[tokio::test]
async fn a_chat_speaks_the_configured_language() {
    let ended = Talaria::new().config("language: de\n").reads("hallo\n/stop\n").await;
    assert_eq!(ended.code, 0);
    assert!(ended.out.starts_with("Deine Nachricht ist angekommen: Das ist Talaria"), "{}", ended.out);
    ended.said("Gerade läuft nichts.");
}

#[tokio::test]
async fn a_second_process_is_refused_and_the_first_goes_on() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    let mut first = talaria.starts();
    first.logs("running").await;

    let second = talaria.reads("hi\n").await;
    assert_eq!((second.code, second.out.as_str()), (1, ""));
    second.said("error: another talaria (process ").said("\n\nhint: stop it first, or set TALARIA_HOME");

    first.types("still there?\n");
    first.leaves();
    first.ended().await.showed("ok\n");
    assert_eq!(upstream.prompt().messages()[0].1, "still there?");
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_left_alone() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    talaria.reads("hi\n").await.showed("ok\n");
    let path = talaria.home().join("talaria.db");
    let mut damaged = fs::read(&path).unwrap();
    for byte in &mut damaged[4096..5 * 4096] {
        *byte ^= 0x5a;
    }
    for bytes in [damaged, b"certainly not a database, but quite some text".to_vec()] {
        fs::write(&path, &bytes).unwrap();
        let ended = talaria.reads("hi\n").await;
        assert_eq!((ended.code, ended.out.as_str()), (1, ""));
        ended
            .said("is damaged")
            .said("it was left as it is\n\nhint: restore it from a backup, or move it away");
        assert!(fs::read(&path).unwrap() == bytes, "the file should be untouched");
    }
    assert_eq!(upstream.prompts().len(), 1);
}

#[tokio::test]
async fn a_hundred_lines_are_answered_in_order() {
    let upstream = Upstream::plain().await;
    let lines = |word: &str| (0..100).map(|n| format!("{word} {n}\n")).collect::<String>();
    for answer in lines("answer").lines() {
        upstream.answers(Answer::says([answer]));
    }
    Talaria::to(&upstream).reads(&lines("question")).await.showed(&lines("answer"));
    let asked = upstream.messages().into_iter().map(|messages| messages.last().unwrap().1.clone() + "\n");
    assert_eq!(asked.collect::<String>(), lines("question"));
}

#[tokio::test]
async fn a_last_line_without_its_end_is_a_line() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    let process = talaria.starts_with(file("first\n\nlast"));
    process.ended().await.showed("ok\nok\n");
    let asked: Vec<_> =
        upstream.messages().iter().map(|messages| messages.last().unwrap().1.clone()).collect();
    assert_eq!(asked, ["first", "last"]);
}

#[tokio::test]
async fn no_input_at_all_ends_well() {
    Talaria::new().reads("").await.showed("");
}

/// A service has `/dev/null` as its input. Taking it for the end of a file would end the service.
#[tokio::test]
async fn the_null_device_is_not_read() {
    let talaria = Talaria::new().config("server: {enabled: false}\n");
    let mut process = talaria.starts_with(File::open("/dev/null").unwrap());
    process.logs("running").await;
    process.signal(Signal::TERM);
    let ended = process.ended().await;
    ended.showed("").said("ending");
}

/// The other platform exists only in tests.
#[cfg(feature = "testing")]
#[tokio::test]
async fn with_another_platform_standard_input_is_never_read() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    let socket = talaria.home().join("network");
    let network = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let talaria = talaria.config(&format!(
        "platforms:\n  test:\n    socket: {}\n    access: {{allow_all: true}}\n",
        socket.display()
    ));
    let input = file("secret plans\n");
    let process = talaria.starts_with(input.try_clone().unwrap());
    // The process reads from the network by now, so it would have read standard input too.
    let connected =
        tokio::task::spawn_blocking(move || network.accept().map(|(stream, _)| (network, stream)));
    let _network = connected.await.unwrap().unwrap();
    process.signal(Signal::TERM);
    process.ended().await.showed("");
    // Both handles share one position.
    assert_eq!((&input).stream_position().unwrap(), 0);
    assert!(upstream.prompts().is_empty());
}

/// Makes a file with this content; its position is at the beginning.
fn file(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

/// The first signal waits for a message that does not arrive; the second does not.
#[cfg(feature = "testing")]
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    let network = crate::support::network::Network::listen(talaria.home());
    network.falls_silent();
    let talaria = talaria.config(&format!(
        "platforms:\n  test:\n    socket: {}\n    access: {{allow_all: true}}\n",
        network.socket().display()
    ));
    let mut process = talaria.starts();
    network.says("!home", "/help");
    let shown = network.shows(std::time::Duration::from_secs(60), |messages| !messages.is_empty()).await;
    assert!(shown, "the answer to the command is under way");

    process.signal(Signal::TERM);
    process.logs("ending").await;
    process.signal(Signal::TERM);
    let ended = process.ended().await;
    assert_eq!(ended.code, 0);
    ended.said("ended at once");
    assert!(!ended.err.contains("not everything ended in time"), "{}", ended.err);
}

#[tokio::test]
async fn words_are_those_of_the_configuration_and_say_what_was_reworded() {
    let talaria = Talaria::new().config("language: de\nwords:\n  stopped: Halt.\n");
    let ended = talaria.does(["words"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(
        ended.out.contains("\n  # (reworded; cannot be silenced)\n  # stopped: \"Halt.\"\n"),
        "{}",
        ended.out
    );
    assert!(
        ended.out.contains("\n  # (cannot be silenced)\n  # nothing_running: \"Gerade läuft nichts.\"\n")
    );
    let check = talaria.does(["check"]).await.out;
    assert!(check.lines().any(|line| line == "words          de, reworded: 1"), "{check}");
    let plain = Talaria::new().does(["check"]).await.out;
    assert!(!plain.contains("\nwords "), "{plain}");

    let wrong = Talaria::new().config("languge: de\n");
    assert_eq!(wrong.does(["words"]).await.code, EX_CONFIG);
    assert_eq!(wrong.does(["words", "--language", "en"]).await.code, 0);
}

#[tokio::test]
async fn the_log_says_how_a_turn_ended_in_words() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::status(401, "no"));
    let ended = Talaria::to(&upstream).reads("hi\n").await;
    ended.said("outcome=\"failed\" why=").said("Proxy error (401)");
    assert!(!ended.err.contains("Text("), "{}", ended.err);
}

#[tokio::test]
async fn stop_turn_alone_says_what_it_takes_and_where_that_is_found() {
    let ended = Talaria::new().does(["stop-turn"]).await;
    assert_eq!(ended.code, 2);
    ended.said("stop-turn <ID>").said("talaria status").said("stop-turn --all");
}

#[tokio::test]
async fn approvals_can_be_listed_by_that_word_too() {
    let talaria = Talaria::new();
    let (bare, list) = (talaria.does(["approvals"]).await, talaria.does(["approvals", "list"]).await);
    assert_eq!((bare.code, &bare.out, &bare.err), (list.code, &list.out, &list.err));
    assert_eq!(talaria.does(["approvals", "list", "--json"]).await.code, bare.code);
}

#[tokio::test]
async fn a_question_as_an_argument_is_answered_with_how_to_ask_it() {
    let ended = Talaria::new().does(["What is Rust?"]).await;
    assert_eq!(ended.code, 2);
    ended.said("hint: to ask something: talaria ask '…'");
}

#[tokio::test]
async fn ask_says_what_each_exit_code_means_and_takes_no_key() {
    let ended = Talaria::new().does(["ask", "--help"]).await;
    for code in ["  0  ", "  1  ", "  2  ", "  69 ", "  77 ", "  78 ", "  130 "] {
        assert!(ended.out.contains(&format!("\n{code}")), "{code} is missing in\n{}", ended.out);
    }
    for wrong in
        [&["ask", "--key", "tlk_1", "hi"][..], &["ask", "--retry-for", "-1", "hi"], &["ask", "--nonsense"]]
    {
        let ended = Talaria::new().does(wrong.iter().copied()).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{wrong:?}");
    }
}

/// Runs without a terminal, so SIGHUP cannot mean that a terminal hung up.
#[tokio::test]
async fn a_hang_up_reads_the_configuration_again() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream).config("words: {nothing_running: Before.}\n");
    let mut process = talaria.starts();
    process.logs("running").await;
    talaria.rewrites_config("words: {nothing_running: After.}\n");
    process.signal(Signal::HUP);
    process.logs("the configuration was read again").await;
    talaria.rewrites_config("wrods: {}\n");
    process.signal(Signal::HUP);
    process.logs("unknown key `wrods`").await;
    process.types("/stop\n");
    process.leaves();
    let ended = process.ended().await;
    assert_eq!(ended.code, 0);
    ended.said("After.");
}

#[tokio::test]
async fn a_chat_with_nobody_ends_with_what_to_do() {
    let ended = Talaria::new().does(["chat"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    ended.said("error: standard input is closed, so there is nobody to chat with");
    ended.said("hint: run it in a terminal, or pipe prompts into it");
}
