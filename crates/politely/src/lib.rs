//! x

#[cfg(feature = "robots")]
pub mod robots;
