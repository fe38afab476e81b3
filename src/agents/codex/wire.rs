//! Parts of codex' protocol: parameters that we send, and the few fields of its answers that we read. Pure.
//!
//! Everything is read leniently: codex adds fields and words freely, and a missing one never fails a turn.

use serde_json::{Map, Value, json};

use super::binary::CodexVersion;
use crate::agents::jsonrpc::RpcFault;
use crate::config::{CodexConfig, ProfileSetting};

/// Arguments of codex as a server of ours. Its goals are switched off: for a goal codex begins turns by itself, one after
/// the other, which no turn of ours owns. Nobody could stop them, answer their requests, or count their tokens. The
/// setting stands here as well as in each thread, because a goal that a thread has kept from another use begins its turns
/// as soon as the thread is opened, by the configuration of the process. A codex without goals ignores it.
pub const APP_SERVER: [&str; 3] = ["app-server", "-c", "features.goals=false"];

/// Notifications that we have no use for, and that may be many.
const UNUSED: [&str; 6] = [
    "item/commandExecution/terminalInteraction",
    "item/fileChange/outputDelta",
    "item/plan/delta",
    "turn/diff/updated",
    "thread/readState/changed",
    "thread/started",
];

/// Code of an answer that says that codex has too much to do. It proves that nothing ran.
const OVERLOADED: i64 = -32_001;

/// Words in a message of codex that tell us what to do. It has one code for most of its errors.
const NO_ROLLOUT: &str = "no rollout found";
const BAD_ID: &str = "invalid session id";
const UNREADABLE: &str = "failed to read session metadata";
const ACTIVE_WRITER: &str = "active writer";
const ARCHIVED: &str = "is archived";
const NOT_LOADED: &str = "thread not found";
const NO_ACTIVE_TURN: &str = "no active turn";

/// Reasons why a thread is unreadable that stay: its file is damaged. Others, such as too many open files, pass.
const DAMAGES: [&str; 3] = [" is empty", "does not start with session metadata", "valid UTF-8"];

/// The reviewer of requests who is a person. Any other is a model of codex that may approve by itself.
const PERSON: &str = "user";

/// The only rule that asks for commands without a look at the sandbox: for all but a few that only read.
const ASKS_ANYWAY: &str = "untrusted";

/// The sandboxes that we know to hold commands back. One of another name may not: an `externalSandbox` is nobody's but
/// the machine's around codex.
const SANDBOXES: [&str; 4] = ["readOnly", "read-only", "workspaceWrite", "workspace-write"];

/// First version that we have seen take `agents.enabled`; 0.138 takes it for a role and fails. The switches of features
/// are ignored where the model itself says how its agents work.
const AGENTS_SWITCH_SINCE: CodexVersion = CodexVersion { major: 0, minor: 145, patch: 0 };

/// Parameters of `initialize`.
pub fn initialize_params() -> Value {
    json!({
        "clientInfo": { "name": "talaria", "title": "Talaria", "version": env!("CARGO_PKG_VERSION") },
        "capabilities": {
            "experimentalApi": true,
            "requestAttestation": false,
            "optOutNotificationMethods": UNUSED,
        },
    })
}

/// Parameters of `thread/start` and `thread/resume` that follow from the configuration. Only what the entry sets is sent:
/// codex' own configuration decides the rest, but never that another than a person answers its requests.
///
/// Agents that codex starts beside a turn have threads of their own, which no turn of ours owns: nobody could answer
/// their requests, stop them, or count their tokens. So they are switched off, in the way of each version, and so are
/// goals; see [`APP_SERVER`]. Another key than those that a version knows would keep it from opening any thread.
pub fn thread_params(config: &CodexConfig, cwd: &str, version: Option<CodexVersion>) -> Map<String, Value> {
    let mut params = Map::new();
    let mut settings = json!({
        "features.multi_agent": false, "features.multi_agent_v2": false, "features.goals": false,
    });
    if version.is_none_or(|version| version >= AGENTS_SWITCH_SINCE) {
        settings["agents.enabled"] = json!(false);
    }
    params.insert("config".to_owned(), settings);
    params.insert("cwd".to_owned(), json!(cwd));
    params.insert("approvalsReviewer".to_owned(), json!(PERSON));
    if let Some(model) = &config.model {
        params.insert("model".to_owned(), json!(model));
    }
    if let Some(sandbox) = config.permissions.sandbox {
        params.insert("sandbox".to_owned(), json!(sandbox.wire_name()));
    }
    if let Some(approval) = config.permissions.approval {
        params.insert("approvalPolicy".to_owned(), json!(approval.wire_name()));
    }
    match &config.profile {
        ProfileSetting::Named(profile) => _ = params.insert("permissions".to_owned(), json!(profile)),
        ProfileSetting::Default | ProfileSetting::None => {}
    }
    params
}

/// The rules that hold in a thread, as codex reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// Actions that codex asks for, such as `on-request`; a name of ours for a rule with parts.
    pub approval: String,
    /// Kind of the sandbox, such as `workspaceWrite`.
    pub sandbox: String,
    /// Whoever answers codex' requests, such as `user`. A codex that does not tell it has no other than people.
    pub reviewer: Option<String>,
    /// Name of the permission profile, if there is one.
    pub profile: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
}

impl EffectivePolicy {
    /// Reads the answer to `thread/start` or `thread/resume`.
    pub fn read(answer: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let approval = &answer["approvalPolicy"];
        let parts = approval.as_object().and_then(|parts| parts.keys().next()).cloned();
        Self {
            approval: text(approval).or(parts).unwrap_or_default(),
            sandbox: text(&answer["sandbox"]["type"])
                .or_else(|| text(&answer["sandbox"]))
                .unwrap_or_default(),
            reviewer: text(&answer["approvalsReviewer"]),
            profile: text(&answer["activePermissionProfile"]["id"]),
            model: text(&answer["model"]),
        }
    }

    /// Whether commands may run without a sandbox and without anybody being asked. Most rules ask for what the sandbox does
    /// not allow, so without one they ask for nothing. A sandbox that we do not know counts as none.
    pub fn is_unrestricted(&self) -> bool {
        self.approval != ASKS_ANYWAY && !SANDBOXES.contains(&self.sandbox.as_str())
    }

    /// Whether another than a person may approve what codex asks.
    pub fn has_other_reviewer(&self) -> bool {
        self.reviewer.as_deref().is_some_and(|reviewer| reviewer != PERSON)
    }
}

/// What an error of codex about a thread means for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadFault {
    /// Codex does not have the thread.
    Forgotten,
    /// Another process has the thread open.
    OpenElsewhere,
    /// The thread must be taken out of the archive first.
    Archived,
    /// The thread must be resumed first.
    NotLoaded,
    /// Codex has too much to do, and did nothing.
    Overloaded,
    /// Anything else.
    Other,
}

impl ThreadFault {
    /// Reads an error.
    pub fn of(fault: &RpcFault) -> Self {
        let says = |words: &str| fault.message.contains(words);
        if fault.code == OVERLOADED {
            Self::Overloaded
        } else if says(NO_ROLLOUT) || says(BAD_ID) || (says(UNREADABLE) && DAMAGES.into_iter().any(says)) {
            Self::Forgotten
        } else if says(ACTIVE_WRITER) {
            Self::OpenElsewhere
        } else if says(ARCHIVED) {
            Self::Archived
        } else if says(NOT_LOADED) {
            Self::NotLoaded
        } else {
            Self::Other
        }
    }
}

/// Whether an error of `turn/interrupt` says that no turn runs.
pub fn has_no_turn(fault: &RpcFault) -> bool {
    fault.message.contains(NO_ACTIVE_TURN)
}

/// Largest number of characters that codex takes as input, if an error says that there were too many.
pub fn too_large(fault: &RpcFault) -> Option<u64> {
    let data = fault.data.as_ref()?;
    (data["input_error_code"] == "input_too_large").then(|| data["max_chars"].as_u64().unwrap_or_default())
}

/// The version in `userAgent` of the answer to `initialize`, such as `talaria/0.169.0 (…)`.
pub fn version(answer: &Value) -> Option<CodexVersion> {
    let (_, version) = answer["userAgent"].as_str()?.split_once('/')?;
    CodexVersion::parse_word(version.split_whitespace().next()?)
}

/// The thread that a message belongs to.
pub fn thread_of(params: &Value) -> Option<&str> {
    let legacy = || params.get("conversationId");
    params.get("threadId").or_else(legacy)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ApprovalMode, SandboxMode};

    #[test]
    fn only_settings_of_the_entry_are_sent_and_what_keeps_people_in_charge() {
        let mut config = CodexConfig::new("/work".into());
        let params = |config: &CodexConfig| Value::Object(thread_params(config, "/w", None));
        let agents = json!({
            "features.multi_agent": false, "features.multi_agent_v2": false, "features.goals": false,
            "agents.enabled": false,
        });
        let usual = json!({ "cwd": "/w", "approvalsReviewer": "user", "config": agents });
        assert_eq!(params(&config), usual);
        config.model = Some("m".into());
        config.permissions.sandbox = Some(SandboxMode::WorkspaceWrite);
        config.permissions.approval = Some(ApprovalMode::OnRequest);
        let mut set = usual.clone();
        set["model"] = json!("m");
        set["sandbox"] = json!("workspace-write");
        set["approvalPolicy"] = json!("on-request");
        assert_eq!(params(&config), set);
        config.permissions.sandbox = None;
        config.profile = ProfileSetting::Named(":read-only".into());
        assert_eq!(params(&config)["permissions"], ":read-only");
    }

    #[test]
    fn an_old_codex_gets_no_key_that_it_takes_for_a_role() {
        let config = CodexConfig::new("/work".into());
        let version = |minor| Some(CodexVersion { major: 0, minor, patch: 0 });
        let old = json!({
            "features.multi_agent": false, "features.multi_agent_v2": false, "features.goals": false,
        });
        assert_eq!(thread_params(&config, "/w", version(138))["config"], old);
        assert_eq!(thread_params(&config, "/w", version(145))["config"]["agents.enabled"], false);
    }

    #[test]
    fn the_rules_of_a_thread_are_read_and_without_a_sandbox_only_one_rule_asks() {
        let read = |approval: Value, sandbox: &str| {
            EffectivePolicy::read(&json!({
                "model": "m", "approvalPolicy": approval, "sandbox": { "type": sandbox },
                "activePermissionProfile": { "id": ":x", "extends": null },
            }))
        };
        let usual = read(json!("on-request"), "readOnly");
        assert_eq!((usual.approval.as_str(), usual.sandbox.as_str()), ("on-request", "readOnly"));
        assert_eq!((usual.profile.as_deref(), usual.model.as_deref()), (Some(":x"), Some("m")));
        assert!(!usual.is_unrestricted());
        for approval in [json!("never"), json!("on-request"), json!({ "granular": {} }), json!(null)] {
            for sandbox in ["readOnly", "read-only", "workspaceWrite", "workspace-write"] {
                assert!(!read(approval.clone(), sandbox).is_unrestricted(), "{approval} {sandbox}");
            }
            for sandbox in
                ["dangerFullAccess", "danger-full-access", "externalSandbox", "", "ReadOnly", "new"]
            {
                assert!(read(approval.clone(), sandbox).is_unrestricted(), "{approval} {sandbox}");
                assert!(!read(json!("untrusted"), sandbox).is_unrestricted(), "{sandbox}");
            }
        }
        assert_eq!(EffectivePolicy::read(&json!({})), EffectivePolicy::default());
        assert!(EffectivePolicy::default().is_unrestricted(), "a codex that does not tell its rules");
        for (answer, is_other) in [
            (json!({}), false),
            (json!({ "approvalsReviewer": "user" }), false),
            (json!({ "approvalsReviewer": "auto_review" }), true),
            (json!({ "approvalsReviewer": "guardian_subagent" }), true),
        ] {
            assert_eq!(EffectivePolicy::read(&answer).has_other_reviewer(), is_other, "{answer}");
        }
    }

    #[test]
    fn errors_are_told_apart_by_their_words() {
        for (code, message, means) in [
            (-32_600, "no rollout found for thread id 01", ThreadFault::Forgotten),
            (-32_600, "invalid session id: invalid character", ThreadFault::Forgotten),
            (
                -32_603,
                "failed to read session metadata /r.jsonl: rollout at /r.jsonl is empty",
                ThreadFault::Forgotten,
            ),
            (
                -32_603,
                "failed to read session metadata /r.jsonl: stream did not contain valid UTF-8",
                ThreadFault::Forgotten,
            ),
            (-32_603, "failed to read session metadata /r.jsonl: Too many open files", ThreadFault::Other),
            (-32_600, "thread 01 already has an active writer", ThreadFault::OpenElsewhere),
            (-32_600, "session 01 is archived. Run `codex unarchive 01`", ThreadFault::Archived),
            (-32_600, "thread not found: 01", ThreadFault::NotLoaded),
            (-32_001, "Server overloaded; retry later.", ThreadFault::Overloaded),
            (-32_603, "internal", ThreadFault::Other),
        ] {
            assert_eq!(ThreadFault::of(&RpcFault::new(code, message)), means, "{message}");
        }
        let data = json!({ "input_error_code": "input_too_large", "max_chars": 1_048_576 });
        let large = RpcFault { data: Some(data), ..RpcFault::new(-32_602, "Input exceeds") };
        assert_eq!(too_large(&large), Some(1_048_576));
        assert_eq!(too_large(&RpcFault::new(-32_602, "Input exceeds")), None);
    }

    #[test]
    fn the_version_is_found_in_the_name_of_the_program() {
        for (agent, found) in [
            ("talaria/0.169.0 (Debian 12.0.0; x86_64) unknown (talaria; 0.1.0)", Some("0.169.0")),
            ("talaria/0.130.0-alpha.2 (x)", Some("0.130.0")),
            ("codex", None),
            ("talaria/next", None),
        ] {
            let version = version(&json!({ "userAgent": agent })).map(|version| version.to_string());
            assert_eq!(version.as_deref(), found, "{agent}");
        }
    }
}
