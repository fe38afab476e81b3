//! Behaviour tests: one file per behaviour, on what the room shows.

mod support;
