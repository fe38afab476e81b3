//! One entry of the route table: method, path, request, responses and handler.
//!
//! The OpenAPI document is generated from these entries, so an entry is complete only when its request and its
//! responses are named; a test in [`openapi`](super::openapi) insists.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Server;
use super::sse::SseEventSchema;

/// Media type of most bodies.
pub const JSON: &str = "application/json";
/// Media type of forms with files.
pub const FORM: &str = "multipart/form-data";
/// Media type of event streams.
pub const EVENTS: &str = "text/event-stream";

/// Builds the schema of a type, and adds the schemas that it refers to to the generator.
pub type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// One endpoint.
pub struct Route {
    /// Name of the endpoint in `/v1/capabilities`.
    pub name: &'static str,
    /// HTTP method.
    pub method: Method,
    /// Path; segments in braces are parameters.
    pub path: &'static str,
    /// Purpose in one line, for the OpenAPI document.
    pub about: &'static str,
    /// Whether it needs no key.
    pub open: bool,
    /// Whether it needs the admin token, in place of any other key.
    pub admin: bool,
    /// Schema of the JSON body; `None` if a body is ignored.
    pub takes: Option<SchemaFn>,
    /// Media type of the body.
    pub takes_media: &'static str,
    /// Schema of the query string.
    pub query: Option<SchemaFn>,
    /// Responses on success.
    pub answers: Vec<RouteResponse>,
    /// Error statuses of this endpoint, besides those that every endpoint can have.
    pub fails: Vec<u16>,
    /// Whether it runs a turn, and so accepts and returns the headers of turns.
    pub runs: bool,
    /// Whether it streams a turn, which a client can resume.
    pub reads: bool,
    pub(super) handler: MethodRouter<Arc<Server>>,
}

/// One possible response.
#[derive(Clone, Copy)]
pub struct RouteResponse {
    /// The HTTP status.
    pub status: u16,
    /// Media type.
    pub media: &'static str,
    /// Schema of the body.
    pub shape: SchemaFn,
}

impl Route {
    fn new<H: Handler<T, Arc<Server>>, T: 'static>(
        (method, filter): (Method, MethodFilter),
        name: &'static str,
        path: &'static str,
        about: &'static str,
        handler: H,
    ) -> Self {
        Self {
            name,
            method,
            path,
            about,
            open: false,
            admin: false,
            takes: None,
            takes_media: JSON,
            query: None,
            answers: Vec::new(),
            fails: Vec::new(),
            runs: false,
            reads: false,
            handler: on(filter, handler),
        }
    }

    /// Lets the endpoint be used without a key.
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// Asks for the admin token, in place of any other key.
    pub fn admin(self) -> Self {
        Self { admin: true, ..self }
    }

    /// Sets the type of a body that is a form.
    pub fn takes_form<T: JsonSchema>(self) -> Self {
        Self { takes_media: FORM, ..self.takes::<T>() }
    }

    /// Sets the type of the JSON body.
    pub fn takes<T: JsonSchema>(self) -> Self {
        Self { takes: Some(SchemaGenerator::subschema_for::<T>), ..self }
    }

    /// Sets the type of the query string.
    pub fn asks<T: JsonSchema>(self) -> Self {
        Self { query: Some(T::json_schema), ..self }
    }

    /// Adds a JSON response.
    pub fn answers<T: JsonSchema>(self, status: u16) -> Self {
        self.answers_as::<T>(status, JSON)
    }

    /// Adds a response of another media type.
    pub fn answers_as<T: JsonSchema>(mut self, status: u16, media: &'static str) -> Self {
        self.answers.push(RouteResponse { status, media, shape: SchemaGenerator::subschema_for::<T> });
        self
    }

    /// Adds a stream of events as a response, either always or if the request asks for it.
    pub fn streams(self) -> Self {
        Self { reads: true, ..self }.answers_as::<SseEventSchema>(200, EVENTS).fails([409])
    }

    /// Marks that the endpoint runs a turn.
    pub fn runs(self) -> Self {
        Self { runs: true, ..self }.fails([409, 422, 508])
    }

    /// Adds error statuses, besides those that every endpoint can have.
    pub fn fails<const N: usize>(mut self, statuses: [u16; N]) -> Self {
        self.fails.extend(statuses);
        self
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {$(
        /// Creates an endpoint with this method.
        pub fn $name<H: Handler<T, Arc<Server>>, T: 'static>(
            name: &'static str,
            path: &'static str,
            about: &'static str,
            handler: H,
        ) -> Route {
            Route::new((Method::$method, MethodFilter::$method), name, path, about, handler)
        }
    )*};
}

methods!(get GET, post POST, patch PATCH, delete DELETE);
