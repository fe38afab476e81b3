//! `GET /openapi.json`: describes the route table as an OpenAPI document.
//!
//! `schemars` derives the schemas from the types that the handlers read and write: it makes JSON Schema
//! 2020-12, which OpenAPI 3.1 uses, and leaves the table to us. (`utoipa` would need a table of its own beside
//! it.)

use std::sync::LazyLock;

use axum::Json;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::api_error::ApiErrorSchema;
use super::forge::{self, ForgeErrorSchema};
use super::route::{JSON, Route, RouteResponse};
use super::routes;

/// An OpenAPI document.
#[derive(JsonSchema)]
#[schemars(with = "Map<String, Value>")]
#[schemars(rename = "Document")]
pub struct OpenApiDocument;

/// Name of the only security scheme.
const KEY: &str = "key";

/// Name of the security scheme for the tokens of apps.
const ADMIN: &str = "admin";

/// Error statuses of every endpoint, with their reasons.
const ALWAYS: [(u16, &str); 6] = [
    (400, "The request is not understood"),
    (403, "The server is not called that, or this page or app may not ask"),
    (408, "The request took too long to come"),
    (431, "The head of the request is too large"),
    (500, "The server made a mistake, or its store does not answer"),
    (503, "The server is about to end, has too many connections, or the agent is away; ask again"),
];

/// Error statuses of every endpoint that needs a key.
const KEYED: [(u16, &str); 2] = [
    (401, "There is no key, or it is not the right one"),
    (429, "Too much goes on, or too many keys were wrong; ask again when Retry-After has passed"),
];

/// Error statuses of every endpoint that takes JSON.
const READ: [(u16, &str); 2] = [(413, "The request is too large"), (415, "The request is no JSON")];

/// Error statuses of some endpoints, with their reasons.
const SOMETIMES: [(u16, &str); 6] = [
    (404, "There is no such thing, for whoever asks"),
    (409, "It is not in a state for that"),
    (410, "It was closed"),
    (422, "The idempotency key was used for another request"),
    (502, "The agent failed; what it had said is `error.partial`"),
    (508, "The request goes in circles: a relay is pointed at itself"),
];

/// Error statuses of unknown paths and methods: no operation lists them.
const ELSEWHERE: [(u16, &str); 2] =
    [(405, "The address does not take that method"), (414, "The address is too long")];

/// Headers of a request that runs a turn. [`TOLD`] are those of its response.
const ASKED: [(&str, &str); 5] = [
    ("Idempotency-Key", "What makes asking twice the same as asking once; kept for seven days"),
    ("X-Hermes-Session-Id", "The session that is talked in"),
    ("X-Hermes-Session-Key", "What scopes the agent's memory"),
    (
        "X-Talaria-Partial",
        "`true`: without a stream, a turn that failed is answered with the text it had, not with 502",
    ),
    ("X-Talaria-Hops", "How many relays the request has come through"),
];
const RESUMED: (&str, &str) = ("Last-Event-ID", "The last event that was seen; what came after it is told");
const TOLD: [(&str, &str); 3] = [
    ("X-Hermes-Session-Id", "The session"),
    ("X-Hermes-Run-Id", "The run, to read it again or to stop it"),
    ("X-Talaria-Ignored", "The parameters that the agent ignores, if there are any"),
];

/// The document. Built once: it is the same for every client.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| describe(&routes::all()));

/// `GET /openapi.json`
pub async fn document() -> Json<&'static Value> {
    Json(&DOCUMENT)
}

/// Builds the document of a route table.
fn describe(routes: &[Route]) -> Value {
    let mut schemas = SchemaGenerators::new();
    let mut paths = Map::new();
    for route in routes {
        let at = paths.entry(route.path).or_insert_with(|| json!({}));
        at[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    let problem = schemas.written.subschema_for::<ApiErrorSchema>();
    let forge_problem = schemas.written.subschema_for::<ForgeErrorSchema>();
    let problems: Map<String, Value> = [(false, problem), (true, forge_problem)]
        .iter()
        .flat_map(|(is_forge, problem)| {
            known().map(|&(status, why)| (name(status, *is_forge), shared(why, problem)))
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Talaria",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The agent server: turns of an AI agent, asked for over HTTP. An address that is not listed \
                            answers 404, and a method that is not listed for it 405.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ KEY: [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                KEY: { "type": "http", "scheme": "bearer" },
                ADMIN: { "type": "http", "scheme": "bearer", "description": "TALARIA_ADMIN_TOKEN" },
            },
            "responses": problems,
            "schemas": schemas.all(),
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerators) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.about,
        "responses": responses(route, schemas),
    });
    let parameters = parameters(route, schemas);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(shape) = route.takes {
        // Always required; the schema says which fields are. An empty body is read as an empty object.
        let schema = shape(&mut schemas.read);
        operation["requestBody"] =
            json!({ "required": true, "content": { (route.takes_media): { "schema": schema } } });
    }
    if route.open {
        operation["security"] = json!([]);
    }
    if route.admin {
        operation["security"] = json!([{ ADMIN: [] }]);
    }
    operation
}

fn parameters(route: &Route, schemas: &mut SchemaGenerators) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if let Some(shape) = route.query {
        let shape = shape(&mut schemas.read);
        let required = shape.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let known = shape.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        parameters.extend(known.into_iter().map(|(name, schema)| {
            let required = required.iter().any(|other| other == &name);
            json!({ "name": name, "in": "query", "required": required, "schema": schema })
        }));
    }
    let asked = ASKED.iter().filter(|_| route.runs).chain(Some(&RESUMED).filter(|_| route.reads));
    parameters.extend(asked.map(|(name, about)| {
        let mut schema = json!({ "type": "string", "maxLength": 256 });
        if *name == "X-Talaria-Hops" {
            schema = json!({ "type": "integer", "minimum": 0 });
        }
        if *name == "X-Talaria-Partial" {
            schema = json!({ "type": "boolean" });
        }
        json!({ "name": name, "in": "header", "description": about, "schema": schema })
    }));
    parameters
}

fn responses(route: &Route, schemas: &mut SchemaGenerators) -> Value {
    let mut responses = Map::new();
    for RouteResponse { status, media, shape } in &route.answers {
        let answer = responses.entry(status.to_string()).or_insert_with(|| {
            let mut answer = json!({ "description": route.about, "content": {} });
            if route.runs {
                let header = |(name, about): &(&str, &str)| {
                    (name.to_string(), json!({ "description": about, "schema": { "type": "string" } }))
                };
                answer["headers"] = Value::Object(TOLD.iter().map(header).collect());
            }
            answer
        });
        answer["content"][media] = json!({ "schema": shape(&mut schemas.written) });
    }
    let mut fails = route.fails.clone();
    fails.extend(ALWAYS.map(|(status, _)| status));
    fails.extend(KEYED.iter().filter(|_| !route.open).map(|(status, _)| status));
    fails.extend(READ.iter().filter(|_| route.takes.is_some()).map(|(status, _)| status));
    for status in fails {
        // Some endpoints have a body of their own for an error status.
        let name = name(status, forge::is_forge_path(route.path));
        let shared = json!({ "$ref": format!("#/components/responses/{name}") });
        responses.entry(status.to_string()).or_insert(shared);
    }
    Value::Object(responses)
}

/// All error statuses.
fn known() -> impl Iterator<Item = &'static (u16, &'static str)> {
    ALWAYS.iter().chain(&KEYED).chain(&READ).chain(&SOMETIMES).chain(&ELSEWHERE)
}

/// Name of the shared response for a status; the forge surface has errors of another form.
fn name(status: u16, is_forge: bool) -> String {
    let form = if is_forge { "ForgeProblem" } else { "Problem" };
    format!("{form}{status}")
}

fn shared(why: &str, problem: &schemars::Schema) -> Value {
    json!({ "description": why, "content": { JSON: { "schema": problem } } })
}

/// Schemas for requests and for responses: a field that is optional in the one may be always present in the
/// other.
struct SchemaGenerators {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl SchemaGenerators {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    /// All schemas that were used.
    fn all(mut self) -> Map<String, Value> {
        let mut all = self.read.take_definitions(true);
        all.extend(self.written.take_definitions(true));
        all
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};

    use super::super::route::EVENTS;
    use super::*;

    #[test]
    fn every_route_says_what_it_takes_and_what_comes_of_it() {
        for route in routes::all() {
            let Route { name, about, answers, takes, method, .. } = &route;
            assert!(about.len() > 10, "{name} is not described");
            assert!(answers.iter().any(|answer| answer.status < 300), "{name} has no answer");
            let has_body = ![Method::GET, Method::DELETE].contains(method)
                && !["run_stop", "response_cancel", "forge_turn_cancel"].contains(name);
            assert_eq!(has_body, takes.is_some(), "{name}: what is in its body?");
            for status in &route.fails {
                let known = SOMETIMES.iter().any(|(known, _)| known == status);
                assert!(known, "{name} may fail with {status}, which nobody described");
            }
        }
    }

    /// Checks that every status in a handler is described, and that every described status occurs in one.
    #[test]
    fn every_status_of_a_problem_is_described() {
        fn sources(folder: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    sources(&path, found);
                } else if path.file_name() != Some("tests.rs".as_ref()) {
                    let text = std::fs::read_to_string(path).unwrap();
                    found.extend(text.split("#[cfg(test)]").next().map(str::to_owned));
                }
            }
        }
        let mut found = Vec::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server"), &mut found);
        let used = |status: &StatusCode| {
            let Some(reason) = status.canonical_reason() else { return false };
            let named = format!("StatusCode::{}", reason.to_uppercase().replace([' ', '-'], "_"));
            let is_name =
                |text: &str| !text.starts_with(|next: char| next.is_ascii_uppercase() || next == '_');
            found.iter().any(|text| text.split(named.as_str()).skip(1).any(is_name))
        };
        let errors = (400..600).filter_map(|status| StatusCode::from_u16(status).ok());
        let used: Vec<u16> = errors.filter(used).map(|status| status.as_u16()).collect();
        let mut described: Vec<u16> = known().map(|(status, _)| *status).collect();
        described.sort_unstable();
        assert_eq!(used, described);
    }

    #[test]
    fn an_operation_names_what_may_come_of_its_key_and_its_body() {
        let statuses = |method: &str, path: &str| {
            let responses = &DOCUMENT["paths"][path][method]["responses"];
            responses.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        let anything = "400 403 408 431 500 503";
        let sorted = |text: &str| {
            let mut all: Vec<_> = format!("{text} {anything}").split(' ').map(str::to_owned).collect();
            all.sort_unstable();
            all.join(" ")
        };
        assert_eq!(statuses("get", "/health"), sorted("200"));
        assert_eq!(statuses("get", "/v1/models"), sorted("200 401 429"));
        assert_eq!(statuses("post", "/v1/runs/{run_id}/stop"), sorted("200 401 404 429"));
        assert_eq!(statuses("post", "/v1/chat/completions"), sorted("200 401 409 413 415 422 429 502 508"));
    }

    #[test]
    fn no_two_routes_and_no_two_schemas_share_a_name() {
        let routes = routes::all();
        let mut names: Vec<_> = routes.iter().map(|route| route.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), routes.len());
        let mut schemas = SchemaGenerators::new();
        for route in &routes {
            operation(route, &mut schemas);
        }
        let written = schemas.written.take_definitions(true);
        for (name, schema) in schemas.read.take_definitions(true) {
            assert!(written.get(&name).is_none_or(|other| *other == schema), "{name} is two things");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
                    Some(to) if name == "$ref" => found.push(to),
                    _ => references(value, found),
                }),
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let mut found = Vec::new();
        references(&DOCUMENT, &mut found);
        assert!(!found.is_empty());
        for to in found {
            assert!(DOCUMENT.pointer(to.trim_start_matches('#')).is_some(), "{to} leads nowhere");
        }
    }

    #[test]
    fn a_route_that_streams_says_so() {
        let answer = &DOCUMENT["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"];
        assert!(answer[EVENTS].is_object() && answer[JSON].is_object(), "{answer}");
    }
}
