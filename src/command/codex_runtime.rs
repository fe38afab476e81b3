//! `/codex-runtime`: shows which runtime the agent of the place has, or switches it. Codex is looked for after the commit.

use std::sync::Arc;

use talaria_platform::BoxFuture;

use super::after_commit::{CommandAnswer, CommandResult, CommandTask};
use crate::agents::runtime_switch::{RuntimeChange, RuntimeState};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::rules::AgentRuntime;
use crate::util::{code_span, one_line};

/// Characters of a word that is repeated to the person.
const WORD: usize = 64;

/// Shows the runtime of the agent of the place, or switches it to the one that the words behind the command name.
pub(super) fn run(task: CommandTask) -> BoxFuture<'static, CommandResult> {
    Box::pin(async move {
        let behind = task.row.behind.trim().to_owned();
        let lines = match behind.as_str() {
            "" => show(&task).await?,
            word => match AgentRuntime::commanded(word) {
                Some(runtime) => switch(&task, runtime).await?,
                None => {
                    return Err(TextKey::RuntimeUnknown.with("word", code_span(&one_line(word, WORD), WORD)));
                }
            },
        };
        let answer: CommandAnswer = Box::new(move |_, rules| {
            let lines: Vec<_> = lines.iter().map(|line| rules.words.say(line)).collect();
            Ok(LocalizedText::Said(lines.join("\n")))
        });
        Ok(answer)
    })
}

/// The current runtime, where it comes from, and the version of codex.
async fn show(task: &CommandTask) -> Result<Vec<LocalizedText>, LocalizedText> {
    let agent = agent_of_place(task).await?;
    let state = task.runtimes.state(&agent).map_err(|why| why.words(&agent))?;
    let name = agent.as_str();
    let current = match state.runtime {
        AgentRuntime::Auto => TextKey::RuntimeIsAuto.with("name", name),
        AgentRuntime::CodexAppServer => TextKey::RuntimeIsCodex.with("name", name),
    };
    let chosen = (state.runtime != state.configured)
        .then(|| TextKey::RuntimeOverridden.with("runtime", state.configured.name()));
    let codex = match task.runtimes.find_codex(&agent).await {
        Ok(codex) => TextKey::RuntimeVersion.with("version", codex.version.to_string()),
        Err(error) => {
            tracing::warn!(%error, "codex cannot be used");
            error.words()
        }
    };
    let usage = match state.is_switchable {
        true => TextKey::RuntimeUsage.into(),
        false => TextKey::RuntimeUsageFixed.into(),
    };
    Ok([Some(current), chosen, Some(codex), Some(usage)].into_iter().flatten().collect())
}

async fn switch(task: &CommandTask, to: AgentRuntime) -> Result<Vec<LocalizedText>, LocalizedText> {
    let (agent, key) = (agent_of_place(task).await?, task.session_key());
    let is_idle = move |tx: &crate::store::Tx<'_>| {
        let session = tx.session_for(&key)?;
        Ok(tx.open_turns(&session.id)?.is_empty())
    };
    let changed = task.runtimes.change(&agent, to, Arc::new(is_idle)).await;
    let RuntimeChange { before, state, enabled } = changed.map_err(|refusal| refusal.words(&agent))?;
    let name = agent.as_str();
    let mut lines = vec![match (before, to) {
        (AgentRuntime::Auto, AgentRuntime::Auto) => TextKey::RuntimeStillAuto.with("name", name),
        (AgentRuntime::CodexAppServer, AgentRuntime::Auto) => TextKey::RuntimeNowAuto.with("name", name),
        (AgentRuntime::Auto, AgentRuntime::CodexAppServer) => TextKey::RuntimeNowCodex.with("name", name),
        (AgentRuntime::CodexAppServer, AgentRuntime::CodexAppServer) => {
            TextKey::RuntimeStillCodex.with("name", name)
        }
    }];
    if state.runtime != state.configured && to == AgentRuntime::Auto {
        lines.push(TextKey::RuntimeOverridden.with("runtime", state.configured.name()));
    }
    if let Some((codex, report)) = enabled {
        lines.push(TextKey::RuntimeVersion.with("version", codex.version.to_string()));
        lines.extend(report.migration.lines());
        lines.extend(on_codex(&state));
        // Codex has an account of its own in any case.
        lines.push(match report.is_logged_out {
            true => TextKey::RuntimeLoggedOut.into(),
            false => TextKey::RuntimeLogin.into(),
        });
    }
    Ok(lines)
}

/// The agent of the place. Without an answer of the store, no other one may be meant.
async fn agent_of_place(task: &CommandTask) -> Result<AgentName, LocalizedText> {
    task.agent_of_place().await.map_err(|error| {
        tracing::error!(%error, "the agent of a place cannot be read");
        TextKey::RuntimeUnread.into()
    })
}

/// Lines about what is different on codex.
fn on_codex(state: &RuntimeState) -> Vec<LocalizedText> {
    let mut lines = Vec::new();
    if state.is_switchable {
        lines.push(TextKey::RuntimeUnavailable.into());
    }
    if state.narrows_access {
        lines.push(TextKey::RuntimeNarrows.with("name", state.agent.as_str()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::runtime_switch::RuntimeRefusal;
    use crate::chat_command::ChatCommand;
    use crate::command::CommandRun;

    #[test]
    fn a_change_that_is_late_or_broken_may_have_been_made_and_the_words_say_so() {
        let CommandRun::AfterCommit(after) = ChatCommand::CodexRuntime.entry().1 else {
            panic!("it needs I/O")
        };
        let late = after.late.with("command", "codex-runtime").with("seconds", 20_usize);
        insta::assert_snapshot!(late.to_string(), @"After 20 s there was no result of /codex-runtime. It may still take effect; `/codex-runtime` shows what holds.");
        let broken = RuntimeRefusal::Broken.words(&AgentName::local());
        insta::assert_snapshot!(broken.to_string(), @"Something went wrong while switching. It may have taken effect all the same; `/codex-runtime` shows what holds.");
    }
}
