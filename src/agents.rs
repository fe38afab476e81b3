//! The agents that this program has: one module for each kind, and the fallback around two of them.
//!
//! The contract that they implement is [`agent`](crate::agent).

pub mod breaker;
pub mod fallback;
pub mod guide;
pub mod model;
pub mod proxy;
