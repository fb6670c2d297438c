//! The input: reads URLs and adds them to the crawl.

pub(super) mod ingest;
mod json;
pub(super) mod lines;
