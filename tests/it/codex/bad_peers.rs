//! A codex that misbehaves: noise, long and endless lines, bad UTF-8, floods, silence, an early end. Nothing of it hangs us,
//! fills our memory or is lost without a word.

mod client;
