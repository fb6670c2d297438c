//! A client of `URLFrontier`'s protocol, as small as the tests allow.

use std::collections::HashMap;

use prost::{Message, Oneof};
use reqwest::{Body, Client, Response};

use crate::client::Served;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Values {
    #[prost(string, repeated, tag = "1")]
    pub(super) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Info {
    #[prost(string, tag = "1")]
    pub(super) url: String,
    #[prost(string, tag = "2")]
    pub(super) key: String,
    #[prost(map = "string, message", tag = "3")]
    pub(super) metadata: HashMap<String, Values>,
    #[prost(string, tag = "4")]
    pub(super) crawl: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Known {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<Info>,
    #[prost(uint64, tag = "2")]
    pub(super) again: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Discovered {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<Info>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Discovered(Discovered),
    #[prost(message, tag = "2")]
    Known(Known),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Item {
    #[prost(oneof = "Kind", tags = "1, 2")]
    pub(super) kind: Option<Kind>,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(uint64, tag = "4")]
    pub(super) created: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ack {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// 0 OK, 1 SKIPPED, 2 FAIL.
    #[prost(int32, tag = "2")]
    pub(super) status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Batch {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) items: Vec<Info>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Get {
    #[prost(uint32, tag = "1")]
    pub(super) pages: u32,
    #[prost(uint32, tag = "2")]
    pub(super) queues: u32,
    #[prost(string, tag = "3")]
    pub(super) key: String,
    #[prost(uint32, tag = "4")]
    pub(super) hold: u32,
    #[prost(string, optional, tag = "6")]
    pub(super) crawl: Option<String>,
}

/// A queue of a crawl, and a number: seconds in `SetDelay`, a limit in `SetCrawlLimit`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Order {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(uint32, tag = "2")]
    pub(super) number: u32,
    #[prost(string, tag = "3")]
    pub(super) crawl: String,
}

/// A queue of a crawl, or the crawl.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Queue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) crawl: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Stats {
    #[prost(uint64, tag = "1")]
    pub(super) size: u64,
    #[prost(uint32, tag = "2")]
    pub(super) in_process: u32,
    #[prost(uint64, tag = "4")]
    pub(super) queues: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct List {
    #[prost(uint32, tag = "1")]
    pub(super) start: u32,
    #[prost(uint32, tag = "2")]
    pub(super) size: u32,
    #[prost(string, tag = "3")]
    pub(super) key: String,
    #[prost(string, tag = "4")]
    pub(super) crawl: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Page {
    #[prost(string, tag = "1")]
    pub(super) url: String,
    #[prost(string, tag = "2")]
    pub(super) key: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Count {
    #[prost(uint64, tag = "1")]
    pub(super) value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Purge {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(uint32, tag = "3")]
    pub(super) days: u32,
}

/// A name: a crawl of `DeleteCrawl`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Name {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// Returns a client whose answers wait unread in 64 KiB.
pub(super) fn client() -> Client {
    let builder = Client::builder().http2_prior_knowledge();
    builder
        .http2_initial_stream_window_size(Some(1 << 16))
        .build()
        .unwrap()
}

/// Returns the bytes of a message on a stream.
pub(super) fn frame(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &bytes].concat()
}

/// Begins a call with a stream of messages.
pub(super) async fn begin(served: &Served, call: &str, body: Body) -> reqwest::Result<Response> {
    let url = served.url(&format!("/urlfrontier.URLFrontier/{call}"));
    let request = client()
        .post(url)
        .header("content-type", "application/grpc");
    request.header("te", "trailers").body(body).send().await
}

/// Returns the messages of an answer, or the status of an error.
pub(super) async fn read<A: Message + Default>(answer: Response) -> Result<Vec<A>, String> {
    if let Some(status) = answer.headers().get("grpc-status") {
        return Err(status.to_str().unwrap().to_owned());
    }
    let bytes = answer.bytes().await.unwrap();
    let mut left = &bytes[..];
    let mut messages = Vec::new();
    while let Some((head, rest)) = left.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        messages.push(A::decode(&rest[..length]).unwrap());
        left = &rest[length..];
    }
    Ok(messages)
}

/// Makes a call with some messages, and returns the messages of the answer.
pub(super) async fn call<A: Message + Default>(
    served: &Served,
    name: &str,
    messages: &[impl Message],
) -> Result<Vec<A>, String> {
    let body: Vec<u8> = messages.iter().flat_map(frame).collect();
    read(begin(served, name, body.into()).await.unwrap()).await
}
