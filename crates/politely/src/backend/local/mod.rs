//! Keys in this process.

pub(crate) mod birth;
mod index;
pub(crate) mod registry;
mod slab;
pub(crate) mod waiters;
