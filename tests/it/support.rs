//! What tests are written in.
#![allow(dead_code, reason = "each helper is used by some of the test files")]
