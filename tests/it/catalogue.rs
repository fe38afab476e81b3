//! Every text that rooms show is an entry of the catalogue: no other source file contains a sentence for a room.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use talaria::i18n::TextKey;

use crate::support::literals::{is_prose, read};

/// Files and folders whose sentences are not for rooms, each with its readers.
const OTHERS: &[(&str, &str)] = &[
    ("adapters/platform/src/conformance", "whoever writes an adapter and runs the suite"),
    ("adapters/platform/src/config", "the operator who writes the configuration"),
    ("adapters/platform/src/operator.rs", "the operator at the shell"),
    ("src/agents/codex/binary.rs", "the operator at the shell, about codex"),
    ("src/agents/codex/dynamic_tools.rs", "the model, about its tools"),
    ("src/agents/codex/migration", "the user who reads codex' config.toml"),
    ("src/agents/acp/files.rs", "the agent, about a file"),
    ("src/agents/acp/process.rs", "the log, and the agent about its request"),
    ("src/agents/acp/prompt.rs", "the agent, about what stands before a prompt"),
    ("src/agents/acp/tool_calls.rs", "a model, about the work of another agent"),
    ("src/agents/proxy/transcript.rs", "hermes-agent, which told its own model to go on"),
    ("src/agents/call_messages.rs", "a model, about the work of another agent"),
    ("src/agents/codex/projector.rs", "a model, about the work of codex"),
    ("src/agents/codex/turn_context.rs", "the model, about where it is"),
    ("src/agents/confined_dir.rs", "the model, about a file"),
    ("src/agents/skills.rs", "the model, about skills"),
    ("src/agents/jsonrpc", "the log, about a process"),
    ("src/agents/mcp", "the model and the operator, about servers of tools"),
    ("src/agents/outside_tools.rs", "a model outside, about its tools"),
    ("src/agents/process", "the operator, and the model whose command did not start"),
    ("src/agents/tools", "the model, about its tools"),
    ("src/cli", "the operator at the shell"),
    ("src/config/", "the operator who writes the configuration"),
    ("src/control", "the operator at the shell"),
    ("src/gateway.rs", "the operator whose gateway does not start"),
    ("src/agent/transcript.rs", "a model, about a call without a result"),
    ("src/agents/codex/mirror.rs", "codex, about the calls of earlier agents"),
    ("src/agents/codex/request.rs", "codex, about what a person attached"),
    ("src/agents/model/", "a model, about the calls that it made"),
    ("src/gateway/", "the operator whose gateway does not start"),
    ("src/metrics.rs", "whoever watches from outside"),
    ("src/media.rs", "the agent, about what a person attached"),
    ("adapters/matrix", "the log and the operator: what rooms are told is the core's"),
    ("src/state_dir.rs", "the operator whose gateway does not start"),
    ("src/platforms.rs", "the operator who writes the configuration"),
    ("src/server", "programs that ask over HTTP, and whoever writes them"),
    ("src/store", "SQL, and the operator whose store does not open"),
    ("src/testing/network", "a test, about the network that it runs"),
    ("src/turns/prompt_text.rs", "the agent, about who speaks and where"),
    ("src/i18n/listing.rs", "the operator who rewords a text"),
];

/// Single sentences of other files that never reach a room, with the reason.
const SINGLE: &[(&str, &str, &str)] = &[
    ("adapters/console/src/inbound.rs", "what is answered cannot be shown any more", "an error, for the log"),
    ("adapters/console/src/outbound.rs", "the writer has ended", "an error, for the log"),
    ("src/access.rs", "admins only", "a rule in the audit"),
    ("src/access.rs", "not listed", "a rule in the audit"),
    ("src/agent/ask.rs", "not streamed", "a rule in the audit"),
    ("src/agent/ask.rs", "nothing to judge", "a rule in the audit"),
    ("src/agent/ask.rs", "too long", "a rule in the audit"),
    ("src/agent/ask.rs", "too many", "a rule in the audit"),
    (
        "src/agents/acp/permissions/detail.rs",
        "[current working directory ",
        "words of an agent, to be recognised",
    ),
    ("src/agents/acp/turn_loop.rs", "the session has no turn here", "the agent, about its request"),
    ("src/agents/acp/turn_loop.rs", "too many requests wait for an answer", "the agent, about its request"),
    ("src/agents/acp/turn_loop.rs", "unknown method", "the agent, about its request"),
    ("src/agents/acp/turn_loop.rs", "the turn is being ended", "the agent, about its request"),
    ("src/agents/codex/approvals.rs", "not supported", "codex, about its request"),
    ("src/agents/codex/approvals.rs", "the thread has no turn here", "codex, about its request"),
    ("src/agents/codex/approvals.rs", "unknown method", "codex, about its request"),
    ("src/agents/codex/approvals/elicited_form.rs", "api key", "looked for in a form"),
    ("src/agents/codex/failure.rs", "Missing environment variable", "words of codex, to be recognised"),
    ("src/agents/codex/failure.rs", "stream disconnected", "words of codex, to be recognised"),
    ("src/agents/codex/link.rs", "no turn of the client waits for this", "codex, about its request"),
    ("src/agents/codex/threads.rs", "the answer names no thread", "an error, for the log"),
    ("src/agents/turn_files.rs", "the folder of attachments is a link", "an error, for the log"),
    ("src/agents/codex/turn_loop.rs", "too many requests wait for an answer", "codex, about its request"),
    ("src/agents/codex/wire.rs", "no rollout found", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", "invalid session id", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", "active writer", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", "is archived", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", "thread not found", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", "no active turn", "words of codex, to be recognised"),
    ("src/hub/limits.rs", "limit hour", "a rule in the audit"),
    ("src/hub/limits.rs", "limit minute", "a rule in the audit"),
    ("src/hub/pairing.rs", "wrong code", "a rule in the audit"),
    ("src/hub/refusal_log.rs", "a direct chat", "the log, for the operator"),
    ("src/hub/refusal_log.rs", " (or {variable} where that is set)", "the log, for the operator"),
    ("src/hub/refusal_log.rs", "to let them in, add {id:?} to {}", "the log, for the operator"),
    (
        "src/hub/refusal_log.rs",
        "talaria pairing approve CODE lets them in, with the code they were shown; so does adding {:?} to {}",
        "the log, for the operator",
    ),
    (
        "src/hub/refusal_log.rs",
        "they verify this session with another one of theirs, or enter their recovery key there; or set `trust: any` \
         for this platform",
        "the log, for the operator",
    ),
    (
        "src/hub/refusal_log.rs",
        "ask them, in another way, whether they have reset their encryption; if so, verify them again",
        "the log, for the operator",
    ),
    ("src/hub/accept.rs", "invited us", "the log, for the operator"),
    ("src/hub/accept.rs", "too many strangers", "a rule in the audit"),
    ("src/openai/client.rs", "the key would go in the clear to a public address", "an error, for the log"),
    ("src/openai/error.rs", "timed out", "looked for in an error"),
    ("src/openai/wire/lenient.rs", "any value", "an error of the reader"),
    ("src/openai/error.rs", "context length", "words of servers, to be recognised"),
    ("src/openai/error.rs", "maximum context", "words of servers, to be recognised"),
    ("src/openai/error.rs", "context size", "words of servers, to be recognised"),
    ("src/openai/error.rs", "context window", "words of servers, to be recognised"),
    ("src/openai/error.rs", "too many tokens", "words of servers, to be recognised"),
    ("src/supervise.rs", "no words", "the log"),
    ("src/agents/acp/session.rs", "not found", "words of agents, to be recognised"),
    ("src/agents/acp/session.rs", "no rollout", "words of agents, to be recognised"),
    ("src/agents/acp/session.rs", "invalid session", "words of agents, to be recognised"),
    ("src/agents/acp/session.rs", "unknown session", "words of agents, to be recognised"),
    ("src/agents/acp/session.rs", "no previous session", "words of agents, to be recognised"),
    ("src/agents/acp/session.rs", "does not exist", "words of agents, to be recognised"),
    ("src/agents/codex/threads.rs", "the new thread is not new", "the log"),
    ("src/agents/codex/wire.rs", "failed to read session metadata", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", " is empty", "words of codex, to be recognised"),
    ("src/agents/codex/wire.rs", "does not start with session metadata", "words of codex, to be recognised"),
    ("src/agents/codex/enable.rs", " (deleted)", "words of Linux, to be recognised"),
    ("src/turns/agent_probe.rs", "is away: {why}", "the operator, from `health` and `status`"),
    ("src/turns/agent_probe.rs", "refuses requests: {why}", "the operator, from `health` and `status`"),
    (
        "src/turns/agent_probe.rs",
        "failed the last {times} times: {why}",
        "the operator, from `health` and `status`",
    ),
    ("src/i18n/stored.rs", "words, or the key of a text and what fills it", "an error of the reader"),
];

#[test]
fn no_words_for_people_live_outside_the_catalogue() {
    let mut strays = Vec::new();
    let mut unused: BTreeSet<&str> = SINGLE.iter().map(|(_, text, _)| *text).collect();
    unused.extend(OTHERS.iter().map(|(path, _)| *path));
    for (path, text) in sources() {
        for literal in read(&text).literals.iter().filter(|literal| is_prose(&literal.text)) {
            let other = OTHERS.iter().find(|(other, _)| path.starts_with(other));
            let single = SINGLE.iter().find(|(file, text, _)| *file == path && *text == literal.text);
            match (other, single) {
                (Some((other, _)), _) => _ = unused.remove(other),
                (None, Some((_, text, _))) => _ = unused.remove(text),
                (None, None) => strays.push(format!("{path}:{}: {:?}", literal.line, literal.text)),
            }
        }
    }
    assert!(
        strays.is_empty(),
        "these belong into src/i18n/texts.rs and src/i18n/*.yaml:\n{}",
        strays.join("\n")
    );
    assert!(unused.is_empty(), "these exceptions except nothing: {unused:?}");
}

#[test]
fn every_text_of_the_catalogue_is_said_somewhere() {
    let sources = sources();
    let said = |name: &str| {
        let used = format!("TextKey::{name}");
        sources.iter().any(|(_, text)| {
            // Not `TextKey::AskNone` where `TextKey::Ask` is looked for.
            text.match_indices(&used)
                .any(|(at, _)| !text[at + used.len()..].starts_with(char::is_alphanumeric))
        })
    };
    let unsaid: Vec<_> =
        TextKey::ALL.iter().map(|text| format!("{text:?}")).filter(|name| !said(name)).collect();
    assert!(unsaid.is_empty(), "nothing says {unsaid:?}");
}

#[test]
fn a_planted_sentence_is_found() {
    let planted = r##"
        //! A comment "with a sentence in it".
        #[error("an error for the log")]
        struct Fine;
        fn shown<'a>(c: char) -> &'a str {
            /* a block /* in a block */ "still a comment" */
            tracing::warn!(quote = '"' == c, "a line of the log");
            debug_assert!(c != '\'', "for a developer");
            let _ = b"bytes of the wire";
            let _ = ("key", "x-hermes-run-id", "SELECT", "{one} {two}", "/v1/chat");
            say("Something went wrong.");
            say(r#"It "broke" off"#);
            say("Sorry…");
            say("(stopped)");
            say(format!("{} tries \
                 are left", 3));
            "the end"
        }
        #[cfg(test)]
        mod tests {
            fn check() { say("only a test") }
        }
        #[cfg(test)]
        mod apart;
        fn behind() { say("and after the tests") }
    "##;
    let source = read(planted);
    let found = source.literals.iter().filter(|literal| is_prose(&literal.text));
    let found: Vec<_> = found.map(|literal| (literal.line, literal.text.as_str())).collect();
    assert_eq!(
        found,
        [
            (11, "Something went wrong."),
            (12, "It \"broke\" off"),
            (13, "Sorry…"),
            (14, "(stopped)"),
            (15, "{} tries are left"),
            (17, "the end"),
            (25, "and after the tests"),
        ]
    );
    assert_eq!(source.test_modules, ["apart"]);
}

#[test]
fn the_scanner_reads_the_whole_source() {
    let sources = sources();
    for path in
        ["src/hub/accept.rs", "src/turns/run.rs", "src/delivery/outbox.rs", "adapters/console/src/screen.rs"]
    {
        let (_, text) =
            sources.iter().find(|(known, _)| known == path).unwrap_or_else(|| panic!("{path} is missing"));
        // The scanner finds a sentence at the end of the file, so nothing before it threw the scanner off.
        let planted = format!("{text}\nfn stray() {{ say(\"A stray sentence.\") }}\n");
        let last = read(&planted).literals.pop().unwrap();
        assert_eq!(last.text, "A stray sentence.", "{path}");
    }
    assert!(!sources.iter().any(|(path, _)| path.ends_with("tests.rs") || path.contains("/tests/")));
}

/// Every source file of the product with its path from the root, without files that are compiled for tests only.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    walk(&root.join("src"), &mut files);
    for adapter in fs::read_dir(root.join("adapters")).unwrap() {
        walk(&adapter.unwrap().path().join("src"), &mut files);
    }
    let texts: Vec<(PathBuf, String)> =
        files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect();
    let mut tests = Vec::new();
    for (path, text) in &texts {
        let folder = match path.file_name().unwrap().to_str().unwrap() {
            "lib.rs" | "main.rs" => path.parent().unwrap().to_owned(),
            _ => path.with_extension(""),
        };
        tests.extend(read(text).test_modules.iter().map(|module| folder.join(module)));
    }
    let is_test = |path: &Path| tests.iter().any(|test| path.with_extension("").starts_with(test));
    texts
        .into_iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), text))
        .collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
