//! Defects that a review once found: a scene for each, so that it stays mended.

mod approvals;
mod commands;
mod delivery;
mod incidents;
mod people;
mod turns;
mod upstream;
