//! Hosts with known limits: pure limit models, a real HTTP server around them, and a judge.
pub mod model;
