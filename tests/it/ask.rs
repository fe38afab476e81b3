//! `talaria ask`: the real command against a real `talaria serve` whose agent asks a scripted model.

mod access;
mod acp;
mod answers;
mod breaks;
mod files;
mod hostile;
mod questions;
mod scene;
mod stopping;
