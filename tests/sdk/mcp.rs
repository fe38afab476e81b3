//! Real MCP servers from the registries, driven as an agent's loop does. `tests/sdk/parts` installs them.

mod node;
mod python;
