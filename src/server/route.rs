//! One line of the table of routes: what can be asked, what comes of it, and who answers.
//!
//! What is said here is what the OpenAPI document says, so a line is not finished before its request and its answers
//! are named; a test of [`openapi`](super::openapi) insists.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Server;
use super::sse::SseEventSchema;

/// JSON, as most is.
pub const JSON: &str = "application/json";
/// Events that come as they happen.
pub const EVENTS: &str = "text/event-stream";

/// Makes the schema of a type; what it needs besides is put beside it.
pub type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// One thing that can be asked.
pub struct Route {
    /// What `/v1/capabilities` calls it.
    pub name: &'static str,
    /// How.
    pub method: Method,
    /// Where; what is in braces is for the caller to fill in.
    pub path: &'static str,
    /// What it is good for, in one line.
    pub about: &'static str,
    /// Whether anybody may ask.
    pub open: bool,
    /// What is sent, as JSON; if nothing is, what is sent all the same does not matter.
    pub takes: Option<SchemaFn>,
    /// What may be said in the address, after the question mark.
    pub query: Option<SchemaFn>,
    /// What comes back if all is well.
    pub answers: Vec<RouteResponse>,
    /// The statuses of problems that only some routes have.
    pub fails: Vec<u16>,
    /// Whether it runs a turn: then its headers are those of all turns.
    pub runs: bool,
    /// Whether it reads a turn, which may be resumed.
    pub reads: bool,
    pub(super) handler: MethodRouter<Arc<Server>>,
}

/// One way to be answered.
#[derive(Clone, Copy)]
pub struct RouteResponse {
    /// The HTTP status.
    pub status: u16,
    /// In which form.
    pub media: &'static str,
    /// In which shape.
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
            takes: None,
            query: None,
            answers: Vec::new(),
            fails: Vec::new(),
            runs: false,
            reads: false,
            handler: on(filter, handler),
        }
    }

    /// Anybody may ask.
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// The body is JSON that is read as this.
    pub fn takes<T: JsonSchema>(self) -> Self {
        Self { takes: Some(SchemaGenerator::subschema_for::<T>), ..self }
    }

    /// The part after the question mark is read as this.
    pub fn asks<T: JsonSchema>(self) -> Self {
        Self { query: Some(T::json_schema), ..self }
    }

    /// It is answered with this, as JSON.
    pub fn answers<T: JsonSchema>(self, status: u16) -> Self {
        self.answers_as::<T>(status, JSON)
    }

    /// It is answered with this, in another form.
    pub fn answers_as<T: JsonSchema>(mut self, status: u16, media: &'static str) -> Self {
        self.answers.push(RouteResponse { status, media, shape: SchemaGenerator::subschema_for::<T> });
        self
    }

    /// It is answered with events as they happen, always or if the request asks for it.
    pub fn streams(self) -> Self {
        Self { reads: true, ..self }.answers_as::<SseEventSchema>(200, EVENTS).fails([409])
    }

    /// It runs a turn.
    pub fn runs(self) -> Self {
        Self { runs: true, ..self }.fails([409, 422, 508])
    }

    /// It may also be refused for these reasons, besides those for which anything may be.
    pub fn fails<const N: usize>(mut self, statuses: [u16; N]) -> Self {
        self.fails.extend(statuses);
        self
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {$(
        /// Something that is asked with this method.
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
