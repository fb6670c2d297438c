//! Tests of the frontier over its storages.

mod again;
mod bounds;
mod calls;
mod crawl;
mod kill;
mod large;
mod model;
mod shared_domains;
mod support;
mod virtual_crawl;
