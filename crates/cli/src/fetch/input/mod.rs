//! The input: reads URLs and adds them to the crawl.

pub(super) mod ingest;
pub(super) mod lines;
