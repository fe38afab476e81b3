//! `/model`: lists the models of the agent that answers here, and chooses one for this session.
//!
//! The choice is stored with the session and holds from the next turn on. A session that follows begins without it.

use super::{CommandCall, CommandOutcome, agents, say};
use crate::i18n::{TextCatalog, TextKey};
use crate::store::Result;
use crate::util::one_line;

/// The word that stands for the agent's usual model.
const DEFAULT: &str = "default";

/// Edits between a name and one that is suggested for it.
const NEAR: usize = 3;

/// Characters of a name that is repeated to the person.
const NAME: usize = 64;

/// Carries the command out. The hub has refused a choice if its author must not talk to the agent.
pub(super) fn run(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    let CommandCall { context, session, behind, .. } = call;
    let models = context.agent.models.as_slice();
    let Some(usual) = models.first() else {
        return say(TextKey::ModelsNoChoice.with("name", agents::current(context, session).as_str()));
    };
    let chosen = session.chosen_model.as_ref().filter(|model| models.contains(model)).unwrap_or(usual);
    let list = list(context.words, models, chosen);
    if behind.is_empty() {
        let name = agents::current(context, session);
        return say(TextKey::Models.with("name", name.as_str()).with("list", list));
    }
    let wanted = match *behind {
        DEFAULT => Some((usual, None)),
        name => models.iter().find(|model| *model == name).map(|model| (model, Some(name))),
    };
    let Some((model, stored)) = wanted else {
        let name = one_line(behind, NAME);
        return say(match near(models, &name) {
            Some(near) => TextKey::ModelUnknownNear.with("near", near).with("model", name).with("list", list),
            None => TextKey::ModelUnknown.with("model", name).with("list", list),
        });
    };
    context.tx.choose_model(&session.id, stored)?;
    say(TextKey::ModelChosen.with("model", model.as_str()))
}

/// The models, a line each.
fn list(words: &TextCatalog, models: &[String], chosen: &str) -> String {
    let line = |model: &String| {
        let text = if model == chosen { TextKey::ModelsCurrent } else { TextKey::ModelsOther };
        words.say(&text.with("model", model.as_str()))
    };
    models.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The model whose name is most like `name`: another case, a part of it, or a slip.
fn near<'a>(models: &'a [String], name: &str) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |model: &str| {
        let model = model.to_lowercase();
        if model.contains(&name) { 0 } else { strsim::osa_distance(&model, &name) }
    };
    let nearest = models.iter().map(|model| (distance(model), model.as_str())).min_by_key(|(far, _)| *far);
    nearest.filter(|(far, _)| *far <= NEAR).map(|(_, model)| model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_a_part_and_another_case_are_near() {
        let models = ["gpt-5", "gpt-5-mini", "llama3"].map(str::to_owned);
        for (name, found) in [
            ("GPT-5", Some("gpt-5")),
            ("mini", Some("gpt-5-mini")),
            ("lama3", Some("llama3")),
            ("claude", None),
        ] {
            assert_eq!(near(&models, name), found, "{name}");
        }
    }
}
