//! The model and the effort of a conversation: what the agent offers, and how it is chosen.
//!
//! There are two forms. Most agents have settings with lists of values (`configOptions`), of which one is the model and
//! one the effort. Some list their models apart (`models`), and then an effort may be a part of a model's name:
//! `large[high]`.

use std::time::Duration;

use serde_json::{Value, json};

use super::process::AcpProcess;
use crate::agent::AgentTurn;
use crate::agents::sorted_json::{list_field, text_field};

/// Time limit of a change of the model or the effort.
const CHOOSE: Duration = Duration::from_secs(30);

/// Values of a setting that are remembered.
const VALUES: usize = 500;

/// What an agent offers for a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// Models of the list apart.
    models: Vec<String>,
    /// The one of them that is used.
    current: String,
    model: Option<SelectSetting>,
    effort: Option<SelectSetting>,
}

/// A setting with a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SelectSetting {
    id: String,
    values: Vec<String>,
    current: String,
}

/// A change that the agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SettingChange {
    /// A model of the list apart.
    Model(String),
    /// A value of the setting with this id.
    Value { setting: String, value: String },
}

impl SessionSettings {
    /// Reads the answer to `session/new` or `session/load`.
    pub fn read(answer: &Value) -> Self {
        let listed = &answer["models"];
        let ids = list_field(listed, "availableModels").iter();
        let models = ids.map(|model| text_field(model, "modelId").to_owned()).take(VALUES).collect();
        let current = text_field(listed, "currentModelId").to_owned();
        Self { models, current, ..Self::default() }.with_options(answer)
    }

    /// The settings after an answer that may tell them anew: the efforts can depend on the model.
    fn with_options(self, answer: &Value) -> Self {
        let options = list_field(answer, "configOptions");
        if options.is_empty() {
            return self;
        }
        let of = |category: &str, ids: &[&str]| {
            let is_it =
                |option: &&Value| option["category"] == category || ids.contains(&text_field(option, "id"));
            options.iter().find(is_it).map(SelectSetting::read)
        };
        Self { model: of("model", &["model"]), effort: of("thought_level", &["effort"]), ..self }
    }

    /// The change that makes a model the used one; `None` if it is. An error if the agent does not offer it.
    fn choose_model(&self, model: &str) -> Result<Option<SettingChange>, NotOffered> {
        if self.models.iter().any(|known| known == model) {
            let change = SettingChange::Model(model.to_owned());
            return Ok((self.current != model).then_some(change));
        }
        self.model.as_ref().ok_or(NotOffered)?.choose(model)
    }

    /// The change that makes an effort the used one; `None` if it is. An error if the agent does not offer it.
    fn choose_effort(&self, effort: &str) -> Result<Option<SettingChange>, NotOffered> {
        if let Some(setting) = &self.effort {
            return setting.choose(effort);
        }
        let base = self.current.split_once('[').map_or(self.current.as_str(), |(base, _)| base);
        let model = format!("{base}[{effort}]");
        match self.models.contains(&model) {
            true => Ok((self.current != model).then_some(SettingChange::Model(model))),
            false => Err(NotOffered),
        }
    }

    /// Notes that the agent took a change.
    fn changed(&mut self, change: &SettingChange, answer: &Value) {
        match change {
            SettingChange::Model(model) => self.current.clone_from(model),
            SettingChange::Value { setting, value } => {
                let own = self.model.iter_mut().chain(&mut self.effort);
                own.filter(|own| own.id == *setting).for_each(|own| own.current.clone_from(value));
            }
        }
        *self = std::mem::take(self).with_options(answer);
    }
}

/// The agent does not offer a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotOffered;

impl SelectSetting {
    /// Reads a setting. Its values may be in groups.
    fn read(option: &Value) -> Self {
        let in_group = |option: &'_ Value| match list_field(option, "options") {
            [] => vec![text_field(option, "value").to_owned()],
            grouped => grouped.iter().map(|option| text_field(option, "value").to_owned()).collect(),
        };
        Self {
            id: text_field(option, "id").to_owned(),
            values: list_field(option, "options").iter().flat_map(in_group).take(VALUES).collect(),
            current: text_field(option, "currentValue").to_owned(),
        }
    }

    fn choose(&self, value: &str) -> Result<Option<SettingChange>, NotOffered> {
        match self.values.iter().any(|known| known == value) {
            true if self.current == value => Ok(None),
            true => Ok(Some(SettingChange::Value { setting: self.id.clone(), value: value.to_owned() })),
            false => Err(NotOffered),
        }
    }
}

impl SettingChange {
    /// The method, and its parameters for a conversation.
    fn request(&self, session: &str) -> (&'static str, Value) {
        match self {
            Self::Model(model) => ("session/set_model", json!({ "sessionId": session, "modelId": model })),
            Self::Value { setting, value } => (
                "session/set_config_option",
                json!({ "sessionId": session, "configId": setting, "value": value }),
            ),
        }
    }
}

impl AcpProcess {
    /// Chooses the model and the effort that a turn wants. An agent that does not do it goes on with its own: that must
    /// not cost the answer.
    pub async fn apply_choices(&mut self, turn: &AgentTurn) {
        // The model first: another one may have other efforts.
        if let Some(model) = &turn.model {
            self.choose(turn, "model", model, |settings| settings.choose_model(model)).await;
        }
        if let Some(effort) = &turn.effort {
            self.choose(turn, "effort", effort, |settings| settings.choose_effort(effort)).await;
        }
    }

    async fn choose(
        &mut self,
        turn: &AgentTurn,
        setting: &'static str,
        value: &str,
        change: impl FnOnce(&SessionSettings) -> Result<Option<SettingChange>, NotOffered>,
    ) {
        let Some(session) = &self.session else { return };
        let change = match change(&session.settings) {
            Ok(Some(change)) => change,
            Ok(None) => return,
            Err(NotOffered) => {
                tracing::warn!(agent = %turn.agent, setting, value, "the agent does not offer this and goes on with its own");
                return;
            }
        };
        let (method, params) = change.request(&session.id);
        match self.call(method, params, CHOOSE).await {
            Ok(answer) => {
                if let Some(session) = &mut self.session {
                    session.settings.changed(&change, &answer);
                }
            }
            Err(error) => {
                tracing::warn!(
                    %error, agent = %turn.agent, setting, value,
                    "the agent does not take this and goes on with its own"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(id: &str, category: &str, values: &[&str]) -> Value {
        let values: Vec<_> = values.iter().map(|value| json!({ "value": value, "name": value })).collect();
        json!({ "id": id, "category": category, "type": "select", "currentValue": "default", "options": values })
    }

    /// The settings of claude-agent-acp, as far as they matter here.
    fn claude() -> Value {
        json!({ "configOptions": [
            option("mode", "mode", &["default", "plan"]),
            option("model", "model", &["default", "opus", "haiku"]),
            option("effort", "thought_level", &["default", "low", "medium", "high", "xhigh", "max"]),
            option("fast", "model_config", &["on", "off"]),
        ] })
    }

    fn value(setting: &str, value: &str) -> Result<Option<SettingChange>, NotOffered> {
        Ok(Some(SettingChange::Value { setting: setting.to_owned(), value: value.to_owned() }))
    }

    #[test]
    fn a_model_and_an_effort_are_values_of_settings() {
        let mut settings = SessionSettings::read(&claude());
        assert_eq!(settings.choose_model("opus"), value("model", "opus"));
        assert_eq!(settings.choose_effort("max"), value("effort", "max"));
        assert_eq!(settings.choose_model("gpt"), Err(NotOffered));
        assert_eq!(settings.choose_effort("on"), Err(NotOffered));
        let change = settings.choose_effort("max").unwrap().unwrap();
        settings.changed(&change, &json!({}));
        assert_eq!(settings.choose_effort("max"), Ok(None), "it is chosen");
        // Another model has other efforts.
        let change = settings.choose_model("haiku").unwrap().unwrap();
        let told = json!({ "configOptions": [option("model", "model", &["default", "opus", "haiku"])] });
        settings.changed(&change, &told);
        assert_eq!(settings.choose_effort("low"), Err(NotOffered));
    }

    #[test]
    fn values_may_be_in_groups() {
        let groups = json!([
            { "group": "a", "name": "A", "options": [{ "value": "a/one" }, { "value": "a/two" }] },
            { "group": "b", "name": "B", "options": [{ "value": "b/one" }] },
            { "value": "alone" },
        ]);
        let answer = json!({ "configOptions": [{ "id": "model", "category": "model", "options": groups }] });
        let settings = SessionSettings::read(&answer);
        for model in ["a/one", "a/two", "b/one", "alone"] {
            assert_eq!(settings.choose_model(model), value("model", model));
        }
        assert_eq!(settings.choose_model("a"), Err(NotOffered));
    }

    #[test]
    fn an_effort_may_be_a_part_of_a_models_name() {
        let models = ["large[low]", "large[high]", "small[low]"];
        let models: Vec<_> = models.iter().map(|id| json!({ "modelId": id })).collect();
        let answer = json!({ "models": { "availableModels": models, "currentModelId": "large[low]" } });
        let mut settings = SessionSettings::read(&answer);
        let model = |id: &str| Ok(Some(SettingChange::Model(id.to_owned())));
        assert_eq!(settings.choose_effort("high"), model("large[high]"));
        assert_eq!(settings.choose_effort("low"), Ok(None));
        let change = settings.choose_model("small[low]").unwrap().unwrap();
        settings.changed(&change, &Value::Null);
        assert_eq!(settings.choose_effort("high"), Err(NotOffered));
        assert_eq!(SessionSettings::read(&Value::Null).choose_effort("high"), Err(NotOffered));
    }
}
