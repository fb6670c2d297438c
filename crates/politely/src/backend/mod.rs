//! The backends that a limiter's permits come from.
//!
//! | room | the keys are in |
//! | --- | --- |
//! | `local/` | this process |
//! | [`coordinator`] | a coordinator, which workers call over HTTP |
//! | [`store`] | an engine, such as Redis, which processes share |

#[cfg(feature = "coordinator")]
pub mod coordinator;
pub(crate) mod local;
pub(crate) mod operations;
pub mod store;
