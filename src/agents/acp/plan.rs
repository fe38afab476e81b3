//! The agent's plan as a step that people see. Pure.

use serde_json::Value;

use crate::agent::{Step, StepState};
use crate::agents::sorted_json::{list_field, text_field};
use crate::agents::step_lines::shown_line;

/// Id of the step. Calls of the agent have other ids.
const ID: &str = "talaria-plan";

/// Bytes of a plan that is kept for the transcript.
const KEPT: usize = 16 * 1024;

/// The plan of a turn.
#[derive(Debug, Default)]
pub struct PlanStep {
    step: Option<Step>,
    last: Option<Value>,
}

impl PlanStep {
    /// Takes a plan. Returns the step if people see a change.
    pub fn update(&mut self, plan: &Value) -> Option<Step> {
        let entries = list_field(plan, "entries");
        if entries.is_empty() {
            return None;
        }
        let is = |entry: &&Value, status: &str| entry["status"] == status;
        let done = entries.iter().filter(|entry| is(entry, "completed")).count();
        let next = entries.iter().find(|entry| is(entry, "in_progress"));
        let next = next.or_else(|| entries.iter().find(|entry| !is(entry, "completed")));
        let words = next.map(|entry| text_field(entry, "content")).unwrap_or_default();
        let detail = shown_line(&format!("{done}/{} {words}", entries.len()));
        let state = if done == entries.len() { StepState::Done } else { StepState::Running };
        if plan.to_string().len() <= KEPT {
            self.last = Some(plan.clone());
        }
        let step = Step { id: ID.to_owned(), title: "plan".to_owned(), detail, state };
        (self.step.as_ref() != Some(&step)).then(|| {
            self.step = Some(step.clone());
            step
        })
    }

    /// The step at the end of the turn, if it is still open.
    pub fn end(&mut self) -> Option<Step> {
        let step = self.step.take().filter(|step| step.state == StepState::Running)?;
        Some(Step { state: StepState::Done, ..step })
    }

    /// The last plan.
    pub fn last(&self) -> Option<&Value> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_step_says_how_far_the_plan_is() {
        let plan = |states: [&str; 2]| json!({ "entries": [{ "content": "look", "status": states[0] }, { "content": "write", "status": states[1] }] });
        let mut step = PlanStep::default();
        assert_eq!(
            step.update(&plan(["in_progress", "pending"])).unwrap().detail.as_deref(),
            Some("0/2 look")
        );
        assert_eq!(step.update(&plan(["in_progress", "pending"])), None);
        assert_eq!(
            step.update(&plan(["completed", "pending"])).unwrap().detail.as_deref(),
            Some("1/2 write")
        );
        assert_eq!(step.end().unwrap().state, StepState::Done);
        assert_eq!(step.update(&plan(["completed", "completed"])).unwrap().state, StepState::Done);
        assert_eq!((step.end(), PlanStep::default().update(&json!({}))), (None, None));
    }
}
