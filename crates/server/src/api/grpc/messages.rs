//! The messages of `proto/urlfrontier.proto`. Names and numbers are the interface of `URLFrontier`.

use std::collections::HashMap;

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Local {
    #[prost(bool, tag = "1")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Active {
    #[prost(bool, tag = "1")]
    pub(super) state: bool,
    #[prost(bool, tag = "2")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Boolean {
    #[prost(bool, tag = "1")]
    pub(super) state: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Long {
    #[prost(uint64, tag = "1")]
    pub(super) value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StringList {
    #[prost(string, repeated, tag = "1")]
    pub(super) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteCrawl {
    #[prost(string, tag = "1")]
    pub(super) value: String,
    #[prost(bool, tag = "2")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Stats {
    #[prost(uint64, tag = "1")]
    pub(super) size: u64,
    #[prost(uint32, tag = "2")]
    pub(super) in_process: u32,
    #[prost(map = "string, uint64", tag = "3")]
    pub(super) counts: HashMap<String, u64>,
    #[prost(uint64, tag = "4")]
    pub(super) number_of_queues: u64,
    #[prost(string, tag = "5")]
    pub(super) crawl_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pagination {
    #[prost(uint32, tag = "1")]
    pub(super) start: u32,
    #[prost(uint32, tag = "2")]
    pub(super) size: u32,
    #[prost(bool, tag = "3")]
    pub(super) include_inactive: bool,
    #[prost(string, tag = "4")]
    pub(super) crawl_id: String,
    #[prost(bool, tag = "5")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueueList {
    #[prost(string, repeated, tag = "1")]
    pub(super) values: Vec<String>,
    #[prost(uint64, tag = "2")]
    pub(super) total: u64,
    #[prost(uint32, tag = "3")]
    pub(super) start: u32,
    #[prost(uint32, tag = "4")]
    pub(super) size: u32,
    #[prost(string, tag = "5")]
    pub(super) crawl_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueueOfCrawl {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) crawl_id: String,
    #[prost(bool, tag = "3")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueueDelay {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(uint32, tag = "2")]
    pub(super) delay_requestable: u32,
    #[prost(string, tag = "3")]
    pub(super) crawl_id: String,
    #[prost(bool, tag = "4")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BlockQueue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(uint64, tag = "2")]
    pub(super) time: u64,
    #[prost(string, tag = "3")]
    pub(super) crawl_id: String,
    #[prost(bool, tag = "4")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GetParams {
    #[prost(uint32, tag = "1")]
    pub(super) max_urls_per_queue: u32,
    #[prost(uint32, tag = "2")]
    pub(super) max_queues: u32,
    #[prost(string, tag = "3")]
    pub(super) key: String,
    #[prost(uint32, tag = "4")]
    pub(super) delay_requestable: u32,
    #[prost(oneof = "OfCrawl", tags = "5, 6")]
    pub(super) item: Option<OfCrawl>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OfCrawl {
    #[prost(message, tag = "5")]
    Any(Empty),
    #[prost(string, tag = "6")]
    One(String),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UrlInfo {
    #[prost(string, tag = "1")]
    pub(super) url: String,
    #[prost(string, tag = "2")]
    pub(super) key: String,
    #[prost(map = "string, message", tag = "3")]
    pub(super) metadata: HashMap<String, StringList>,
    #[prost(string, tag = "4")]
    pub(super) crawl_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KnownUrl {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<UrlInfo>,
    #[prost(uint64, tag = "2")]
    pub(super) refetchable_from_date: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveredUrl {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<UrlInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UrlItem {
    #[prost(oneof = "OfUrl", tags = "1, 2")]
    pub(super) item: Option<OfUrl>,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(uint64, tag = "4")]
    pub(super) creation_date: u64,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OfUrl {
    #[prost(message, tag = "1")]
    Discovered(DiscoveredUrl),
    #[prost(message, tag = "2")]
    Known(KnownUrl),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum AckStatus {
    Ok = 0,
    Skipped = 1,
    Fail = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ack {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(enumeration = "AckStatus", tag = "2")]
    pub(super) status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveredBatch {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) items: Vec<UrlInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchAck {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(enumeration = "AckStatus", repeated, tag = "2")]
    pub(super) statuses: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UrlStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) url: String,
    #[prost(string, tag = "2")]
    pub(super) key: String,
    #[prost(string, tag = "3")]
    pub(super) crawl_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListUrls {
    #[prost(uint32, tag = "1")]
    pub(super) start: u32,
    #[prost(uint32, tag = "2")]
    pub(super) size: u32,
    #[prost(string, tag = "3")]
    pub(super) key: String,
    #[prost(string, tag = "4")]
    pub(super) crawl_id: String,
    #[prost(bool, tag = "5")]
    pub(super) local: bool,
    #[prost(string, optional, tag = "6")]
    pub(super) filter: Option<String>,
    #[prost(bool, optional, tag = "7")]
    pub(super) ignore_case: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CountUrls {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) crawl_id: String,
    #[prost(string, optional, tag = "3")]
    pub(super) filter: Option<String>,
    #[prost(bool, optional, tag = "4")]
    pub(super) ignore_case: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub(super) local: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LogLevel {
    #[prost(string, tag = "1")]
    pub(super) package: String,
    #[prost(enumeration = "Level", tag = "2")]
    pub(super) level: i32,
    #[prost(bool, tag = "3")]
    pub(super) local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Level {
    Trace = 0,
    Debug = 1,
    Info = 2,
    Warn = 3,
    Error = 4,
}

impl Level {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CrawlLimit {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(uint32, tag = "2")]
    pub(super) limit: u32,
    #[prost(string, tag = "3")]
    pub(super) crawl_id: String,
    #[prost(bool, tag = "4")]
    pub(super) local: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PurgeUrls {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) crawl_id: String,
    #[prost(uint32, tag = "3")]
    pub(super) days: u32,
}
