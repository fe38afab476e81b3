//! `GET /v1/skills`: the skills of the agents.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Caller, Server};
use crate::agents::skills::{FaultySkill, Skill};

/// The skills of the agents.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Skills")]
pub struct SkillList {
    object: &'static str,
    data: Vec<SkillEntry>,
    /// Files that cannot be used; only the owner is told of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faulty: Vec<FaultyEntry>,
}

/// One skill.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Skill")]
struct SkillEntry {
    name: String,
    description: String,
    /// `operator`, or `learned` if an agent wrote it.
    source: &'static str,
}

/// A file that cannot be used.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FaultySkill")]
struct FaultyEntry {
    /// Path below the folder of skills.
    file: String,
    /// The reason, in English.
    reason: String,
}

/// `GET /v1/skills`
pub async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
) -> Json<SkillList> {
    let set = match &server.skills {
        Some(library) => library.current().await,
        None => Default::default(),
    };
    let data = set.skills.into_iter().map(SkillEntry::new).collect();
    let faulty = set.faulty.into_iter().filter(|_| caller.is_owner()).map(FaultyEntry::new).collect();
    Json(SkillList { object: "list", data, faulty })
}

impl SkillEntry {
    fn new(skill: Skill) -> Self {
        Self { name: skill.name, description: skill.description, source: skill.origin.name() }
    }
}

impl FaultyEntry {
    fn new(faulty: FaultySkill) -> Self {
        Self { file: faulty.file, reason: faulty.fault.to_string() }
    }
}
