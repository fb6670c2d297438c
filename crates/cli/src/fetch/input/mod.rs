//! The input: reads URLs and queues them on disk.

pub(super) mod ingest;
pub(super) mod lines;
pub(super) mod spool;
