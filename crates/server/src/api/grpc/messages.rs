//! The messages of `proto/urlfrontier.proto`. Names and numbers are the interface of `URLFrontier`.

use std::collections::HashMap;

use prost::{Enumeration, Message, Oneof};

/// Defines messages. A field begins with its type and number on the wire, in the form of `prost`.
macro_rules! messages {
    ($(struct $name:ident { $(($($wire:tt)*) $field:ident: $type:ty,)* })*) => {$(
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            $(#[prost($($wire)*)] pub(super) $field: $type,)*
        }
    )*};
}

messages! {
    struct Empty {}

    struct Local {
        (bool, tag = "1") local: bool,
    }

    struct Active {
        (bool, tag = "1") state: bool,
        (bool, tag = "2") local: bool,
    }

    struct Boolean {
        (bool, tag = "1") state: bool,
    }

    struct Long {
        (uint64, tag = "1") value: u64,
    }

    struct StringList {
        (string, repeated, tag = "1") values: Vec<String>,
    }

    struct DeleteCrawl {
        (string, tag = "1") value: String,
        (bool, tag = "2") local: bool,
    }

    struct Stats {
        (uint64, tag = "1") size: u64,
        (uint32, tag = "2") in_process: u32,
        (map = "string, uint64", tag = "3") counts: HashMap<String, u64>,
        (uint64, tag = "4") number_of_queues: u64,
        (string, tag = "5") crawl_id: String,
    }

    struct Pagination {
        (uint32, tag = "1") start: u32,
        (uint32, tag = "2") size: u32,
        (bool, tag = "3") include_inactive: bool,
        (string, tag = "4") crawl_id: String,
        (bool, tag = "5") local: bool,
    }

    struct QueueList {
        (string, repeated, tag = "1") values: Vec<String>,
        (uint64, tag = "2") total: u64,
        (uint32, tag = "3") start: u32,
        (uint32, tag = "4") size: u32,
        (string, tag = "5") crawl_id: String,
    }

    struct QueueOfCrawl {
        (string, tag = "1") key: String,
        (string, tag = "2") crawl_id: String,
        (bool, tag = "3") local: bool,
    }

    struct QueueDelay {
        (string, tag = "1") key: String,
        (uint32, tag = "2") delay_requestable: u32,
        (string, tag = "3") crawl_id: String,
        (bool, tag = "4") local: bool,
    }

    struct BlockQueue {
        (string, tag = "1") key: String,
        (uint64, tag = "2") time: u64,
        (string, tag = "3") crawl_id: String,
        (bool, tag = "4") local: bool,
    }

    struct GetParams {
        (uint32, tag = "1") max_urls_per_queue: u32,
        (uint32, tag = "2") max_queues: u32,
        (string, tag = "3") key: String,
        (uint32, tag = "4") delay_requestable: u32,
        (oneof = "OfCrawl", tags = "5, 6") item: Option<OfCrawl>,
    }

    struct UrlInfo {
        (string, tag = "1") url: String,
        (string, tag = "2") key: String,
        (map = "string, message", tag = "3") metadata: HashMap<String, StringList>,
        (string, tag = "4") crawl_id: String,
    }

    struct KnownUrl {
        (message, optional, tag = "1") info: Option<UrlInfo>,
        (uint64, tag = "2") refetchable_from_date: u64,
    }

    struct DiscoveredUrl {
        (message, optional, tag = "1") info: Option<UrlInfo>,
    }

    struct UrlItem {
        (oneof = "OfUrl", tags = "1, 2") item: Option<OfUrl>,
        (string, tag = "3") id: String,
        (uint64, tag = "4") creation_date: u64,
    }

    struct Ack {
        (string, tag = "1") id: String,
        (enumeration = "AckStatus", tag = "2") status: i32,
    }

    struct DiscoveredBatch {
        (string, tag = "1") id: String,
        (message, repeated, tag = "2") items: Vec<UrlInfo>,
    }

    struct BatchAck {
        (string, tag = "1") id: String,
        (enumeration = "AckStatus", repeated, tag = "2") statuses: Vec<i32>,
    }

    struct UrlStatusRequest {
        (string, tag = "1") url: String,
        (string, tag = "2") key: String,
        (string, tag = "3") crawl_id: String,
    }

    struct ListUrls {
        (uint32, tag = "1") start: u32,
        (uint32, tag = "2") size: u32,
        (string, tag = "3") key: String,
        (string, tag = "4") crawl_id: String,
        (bool, tag = "5") local: bool,
        (string, optional, tag = "6") filter: Option<String>,
        (bool, optional, tag = "7") ignore_case: Option<bool>,
    }

    struct CountUrls {
        (string, tag = "1") key: String,
        (string, tag = "2") crawl_id: String,
        (string, optional, tag = "3") filter: Option<String>,
        (bool, optional, tag = "4") ignore_case: Option<bool>,
        (bool, optional, tag = "5") local: Option<bool>,
    }

    struct LogLevel {
        (string, tag = "1") package: String,
        (enumeration = "Level", tag = "2") level: i32,
        (bool, tag = "3") local: bool,
    }

    struct CrawlLimit {
        (string, tag = "1") key: String,
        (uint32, tag = "2") limit: u32,
        (string, tag = "3") crawl_id: String,
        (bool, tag = "4") local: bool,
    }

    struct PurgeUrls {
        (string, tag = "1") key: String,
        (string, tag = "2") crawl_id: String,
        (uint32, tag = "3") days: u32,
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OfCrawl {
    #[prost(message, tag = "5")]
    Any(Empty),
    #[prost(string, tag = "6")]
    One(String),
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
