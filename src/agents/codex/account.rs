//! The account and the rate limits of a codex process as it reports them, and the lines about them for `/status`. Pure.
//!
//! Every word is codex' own or its provider's, so it is shortened to one line. People in rooms see an e-mail address only
//! in part: the account is the operator's.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::i18n::{LocalizedText, TextKey};
use crate::util::{UtcTime, one_line};

/// Limits that are kept. An account has one or two.
const LIMITS: usize = 8;

/// Characters of a word of codex.
const WORD: usize = 60;

/// The account and its limits, as far as codex has told them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountState {
    account: Option<CodexAccount>,
    /// By the name that codex has for each.
    limits: BTreeMap<String, RateLimit>,
}

/// The account that pays.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CodexAccount {
    ChatGpt {
        email: Option<String>,
        plan: String,
    },
    ApiKey,
    /// An account of another provider, by codex' own word.
    Other(String),
    /// Nobody is logged in, although the provider needs it.
    Missing,
    /// The provider needs no account.
    Unneeded,
}

/// One limit of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RateLimit {
    primary: Option<LimitWindow>,
    secondary: Option<LimitWindow>,
    is_reached: bool,
}

/// The use of a limit within a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitWindow {
    used_percent: u64,
    minutes: Option<u64>,
    /// The time when it begins anew, in seconds since 1970.
    resets: Option<i64>,
}

/// The rules and the model of the last thread, in codex' own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadFacts<'a> {
    /// The model that answers.
    pub model: Option<&'a str>,
    /// Actions that codex asks for, such as `on-request`.
    pub approval: &'a str,
    /// Kind of the sandbox, such as `workspaceWrite`.
    pub sandbox: &'a str,
    /// Name of the permission profile, if there is one.
    pub profile: Option<&'a str>,
}

/// The reader of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusReader {
    /// People of a room.
    Room,
    /// The operator at the shell.
    Operator,
}

impl AccountState {
    /// Takes the answer to `account/read`.
    pub fn read_account(&mut self, answer: &Value) {
        let account = &answer["account"];
        let text = |name: &str| account[name].as_str().map(|text| one_line(text, WORD));
        let found = match account["type"].as_str() {
            Some("chatgpt") => Some(CodexAccount::ChatGpt {
                email: text("email").filter(|email| !email.is_empty()),
                plan: text("planType").unwrap_or_default(),
            }),
            Some("apiKey") => Some(CodexAccount::ApiKey),
            Some(other) => Some(CodexAccount::Other(one_line(other, WORD))),
            None => match answer["requiresOpenaiAuth"].as_bool() {
                Some(true) => Some(CodexAccount::Missing),
                Some(false) => Some(CodexAccount::Unneeded),
                None => None,
            },
        };
        if self.account.is_some() && self.account != found {
            // They were those of another account.
            self.limits.clear();
        }
        self.account = found;
    }

    /// Takes the parameters of `account/rateLimits/updated`, or the answer to `account/rateLimits/read`. A value that is
    /// missing there leaves the earlier one as it is.
    pub fn update_limits(&mut self, params: &Value) {
        let all = params["rateLimitsByLimitId"].as_object().into_iter().flat_map(|limits| limits.values());
        for limit in std::iter::once(&params["rateLimits"]).chain(all) {
            let name = one_line(limit["limitId"].as_str().unwrap_or_default(), WORD);
            if !limit.is_object() || self.limits.len() >= LIMITS && !self.limits.contains_key(&name) {
                continue;
            }
            let known = self.limits.entry(name).or_default();
            known.primary = LimitWindow::read(&limit["primary"]).or(known.primary);
            known.secondary = LimitWindow::read(&limit["secondary"]).or(known.secondary);
            known.is_reached = limit["rateLimitReachedType"].is_string();
        }
    }

    /// Lines for a reader, at the time `now` in seconds since 1970. `thread`: the last thread, if there was one.
    pub fn lines(
        &self,
        thread: Option<ThreadFacts<'_>>,
        reader: StatusReader,
        now: i64,
    ) -> Vec<LocalizedText> {
        let account = self
            .account
            .as_ref()
            .map(|account| TextKey::StatusCodexAccount.with("account", account.words(reader)));
        let thread = thread.map(ThreadFacts::line);
        let windows = self.limits.values().flat_map(RateLimit::windows).filter(|window| window.is_known(now));
        let is_reached = self.limits.values().any(|limit| limit.has_reached(now));
        let reached = is_reached.then(|| TextKey::StatusCodexLimitReached.into());
        account.into_iter().chain(thread).chain(windows.map(LimitWindow::line)).chain(reached).collect()
    }
}

impl CodexAccount {
    fn words(&self, reader: StatusReader) -> LocalizedText {
        match self {
            Self::ChatGpt { email: None, plan } => TextKey::CodexAccountChatgpt.with("plan", plan.as_str()),
            Self::ChatGpt { email: Some(email), plan } => {
                let email = match reader {
                    StatusReader::Room => masked(email),
                    StatusReader::Operator => email.clone(),
                };
                TextKey::CodexAccountEmail.with("plan", plan.as_str()).with("email", email)
            }
            Self::ApiKey => TextKey::CodexAccountKey.into(),
            Self::Other(kind) => TextKey::CodexAccountOther.with("kind", kind.as_str()),
            Self::Missing => TextKey::CodexAccountMissing.into(),
            Self::Unneeded => TextKey::CodexAccountUnneeded.into(),
        }
    }
}

/// The first letter and the domain of an address.
fn masked(email: &str) -> String {
    let first = email.chars().next().filter(|first| *first != '@').map(String::from).unwrap_or_default();
    match email.rsplit_once('@') {
        Some((_, domain)) => format!("{first}…@{domain}"),
        None => format!("{first}…"),
    }
}

impl ThreadFacts<'_> {
    fn line(self) -> LocalizedText {
        let word = |word: &str| match one_line(word, WORD) {
            word if word.is_empty() => "?".to_owned(),
            word => word,
        };
        let sandbox = match self.profile {
            Some(profile) => format!("{} ({})", word(self.sandbox), word(profile)),
            None => word(self.sandbox),
        };
        TextKey::StatusCodexThread
            .with("model", word(self.model.unwrap_or_default()))
            .with("approval", word(self.approval))
            .with("sandbox", sandbox)
    }
}

impl RateLimit {
    fn windows(&self) -> impl Iterator<Item = LimitWindow> + use<> {
        [self.primary, self.secondary].into_iter().flatten()
    }

    /// Whether nothing more may be used, as far as is known: not any more once all windows have begun anew.
    fn has_reached(&self, now: i64) -> bool {
        let is_over = self.windows().count() > 0 && !self.windows().any(|window| window.is_known(now));
        self.is_reached && !is_over
    }
}

impl LimitWindow {
    /// Whether it has not begun anew since it was told.
    fn is_known(self, now: i64) -> bool {
        self.resets.is_none_or(|resets| resets > now)
    }

    fn read(window: &Value) -> Option<Self> {
        let used = window["usedPercent"].as_f64()?.clamp(0.0, 100.0).round();
        Some(Self {
            used_percent: used as u64,
            minutes: window["windowDurationMins"].as_u64().filter(|minutes| *minutes > 0),
            resets: window["resetsAt"].as_i64(),
        })
    }

    fn line(self) -> LocalizedText {
        const HOUR: u64 = 60;
        const DAY: u64 = 24 * HOUR;
        let window = match self.minutes {
            None => TextKey::CodexLimitWindow.into(),
            Some(minutes) if minutes % DAY == 0 => LocalizedText::Said(format!("{} d", minutes / DAY)),
            Some(minutes) if minutes % HOUR == 0 => LocalizedText::Said(format!("{} h", minutes / HOUR)),
            Some(minutes) => LocalizedText::Said(format!("{minutes} min")),
        };
        match self.resets.and_then(moment) {
            None => TextKey::StatusCodexLimit.with("used", self.used_percent).with("window", window),
            Some(time) => TextKey::StatusCodexLimitUntil
                .with("used", self.used_percent)
                .with("window", window)
                .with("time", time),
        }
    }
}

/// A time in seconds since 1970, for people.
fn moment(at: i64) -> Option<String> {
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(at).ok()?))?;
    let UtcTime { year, month, day, hour, minute, .. } = UtcTime::from(at);
    Some(format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}"))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;
    use crate::i18n::TextCatalog;

    const NOW: i64 = 1_794_784_000;

    fn shown(state: &AccountState, thread: Option<ThreadFacts<'_>>, reader: StatusReader) -> String {
        let words = TextCatalog::default();
        let lines = state.lines(thread, reader, NOW);
        lines.iter().map(|line| words.say(line)).collect::<Vec<_>>().join("\n")
    }

    /// Messages of the real codex with a model server of our own, which needs no account.
    #[test]
    fn a_server_without_accounts_has_neither_account_nor_limits() {
        let mut state = AccountState::default();
        assert_eq!(shown(&state, None, StatusReader::Room), "");
        state.read_account(&json!({
            "account": null, "userId": null, "requiresOpenaiAuth": false, "workspaceRouting": null
        }));
        state.update_limits(&json!({ "rateLimits": {
            "limitId": "codex", "limitName": null, "normalModelSlug": null, "primary": null, "secondary": null,
            "credits": null, "individualLimit": null, "spendControlReached": null, "planType": null,
            "rateLimitReachedType": null,
        } }));
        let thread = ThreadFacts {
            model: Some("fake-model"),
            approval: "on-request",
            sandbox: "readOnly",
            profile: Some(":read-only"),
        };
        assert_snapshot!(shown(&state, Some(thread), StatusReader::Room), @r"
        Account of codex: none, and its model server needs none.
        The last answer came from model fake-model, with approvals on-request and sandbox readOnly (:read-only).
        ");
    }

    fn subscription() -> AccountState {
        let mut state = AccountState::default();
        state.read_account(&json!({
            "account": { "type": "chatgpt", "email": "ann.smith@example.org", "planType": "plus" },
            "requiresOpenaiAuth": true,
        }));
        state.update_limits(&json!({ "rateLimits": {
            "limitId": "codex",
            "primary": { "usedPercent": 42, "windowDurationMins": 300, "resetsAt": NOW + 3600 },
            "secondary": { "usedPercent": 7, "windowDurationMins": 10_080, "resetsAt": NOW + 86_400 },
            "planType": "plus",
        } }));
        state
    }

    #[test]
    fn a_subscription_shows_its_limits_and_only_the_operator_sees_the_whole_address() {
        let state = subscription();
        assert_snapshot!(shown(&state, None, StatusReader::Room), @r"
        Account of codex: ChatGPT plus, a…@example.org.
        Rate limit: 42 % of 5 h is used; it begins anew at 2026-11-16 00:06 UTC.
        Rate limit: 7 % of 7 d is used; it begins anew at 2026-11-16 23:06 UTC.
        ");
        let operator = shown(&state, None, StatusReader::Operator);
        assert!(operator.contains("ann.smith@example.org"), "{operator}");
        for (email, mask) in
            [("ann@x.org", "a…@x.org"), ("@x.org", "…@x.org"), ("ann", "a…"), ("a@b@c", "a…@c")]
        {
            assert_eq!(masked(email), mask);
        }
    }

    #[test]
    fn an_update_that_lacks_a_value_keeps_the_earlier_one() {
        let mut state = subscription();
        let before = shown(&state, None, StatusReader::Room);
        state.update_limits(
            &json!({ "rateLimits": { "limitId": "codex", "primary": null, "secondary": null } }),
        );
        assert_eq!(shown(&state, None, StatusReader::Room), before);
        state.update_limits(&json!({ "rateLimits": {
            "limitId": "codex", "rateLimitReachedType": "rate_limit_reached",
            "primary": { "usedPercent": 100, "windowDurationMins": 300, "resetsAt": NOW - 1 },
        } }));
        let said = shown(&state, None, StatusReader::Room);
        assert!(!said.contains("100 %") && said.contains("is reached"), "{said}");
        // Then the last window begins anew.
        state.update_limits(&json!({ "rateLimits": {
            "limitId": "codex", "rateLimitReachedType": "rate_limit_reached",
            "secondary": { "usedPercent": 100, "windowDurationMins": 10_080, "resetsAt": NOW - 1 },
        } }));
        let said = shown(&state, None, StatusReader::Room);
        assert!(!said.contains("is reached"), "{said}");
    }

    #[test]
    fn another_account_has_limits_of_its_own() {
        let mut state = subscription();
        let before = shown(&state, None, StatusReader::Room);
        let account =
            |email: &str| json!({ "account": { "type": "chatgpt", "email": email, "planType": "plus" } });
        state.read_account(&account("ann.smith@example.org"));
        assert_eq!(shown(&state, None, StatusReader::Room), before);
        state.read_account(&account("bob@example.org"));
        assert_eq!(
            shown(&state, None, StatusReader::Room),
            "Account of codex: ChatGPT plus, b…@example.org."
        );
    }

    #[test]
    fn every_kind_of_account_has_words() {
        let words = |answer: Value| {
            let mut state = AccountState::default();
            state.read_account(&answer);
            shown(&state, None, StatusReader::Room)
        };
        let told = [
            json!({ "account": { "type": "apiKey" }, "requiresOpenaiAuth": true }),
            json!({ "account": { "type": "chatgpt", "email": null, "planType": "pro" }, "requiresOpenaiAuth": true }),
            json!({ "account": { "type": "amazonBedrock", "usesCodexManagedCredentials": false } }),
            json!({ "account": null, "requiresOpenaiAuth": true }),
            json!({}),
        ];
        assert_snapshot!(told.map(words).join("\n"), @r"
        Account of codex: an API key.
        Account of codex: ChatGPT pro.
        Account of codex: of kind amazonBedrock.
        Account of codex: none, so nothing can be asked; `codex login` on its machine helps.
        ");
    }

    #[test]
    fn odd_numbers_and_floods_of_limits_do_no_harm() {
        let mut state = AccountState::default();
        for number in 0..100 {
            let window =
                json!({ "usedPercent": -5 + number * 10, "windowDurationMins": 90, "resetsAt": i64::MAX });
            state.update_limits(
                &json!({ "rateLimits": { "limitId": format!("l{number}"), "primary": window } }),
            );
        }
        state.update_limits(&json!({ "rateLimits": "many" }));
        state.update_limits(&json!([]));
        assert_eq!(state.limits.len(), LIMITS);
        assert!(shown(&state, None, StatusReader::Room).starts_with("Rate limit: 0 % of 90 min is used"));
    }
}
