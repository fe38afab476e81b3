//! Scenes: a person, a room, an agent, and the whole core between them. One file per behaviour.

mod asking;
mod clock;
mod commands;
mod conformance;
mod delivery;
mod failures;
mod limits;
mod long;
mod media;
mod memory;
mod regressions;
mod rendering;
mod restart;
mod rooms;
mod shows;
mod stop;
mod waiting;
