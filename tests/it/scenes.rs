//! Scenes: a person, a room, an agent, and the whole core between them. One file per behaviour.

mod access;
mod asking;
mod busy;
mod clock;
mod commands;
mod conformance;
mod delivery;
mod deny_matrix;
mod ending;
mod failures;
mod limits;
mod long;
mod media;
mod memory;
mod names;
mod regressions;
mod rendering;
mod reset;
mod restart;
mod rooms;
mod sessions;
mod shows;
mod stop;
mod too_much;
mod waiting;
mod words;
