//! The transport: sends one request and reads its answer, within a time and a size.
//!
//! | file | its part |
//! | --- | --- |
//! | `call` | what is sent |
//! | `answer` | the result of an attempt |
//! | `client` | one attempt, from the request to the end of the body |
//! | `content` | bodies that are read after their answer |
//! | `egresses` | which proxy a request takes |
//! | `http1` | which origins HTTP/1.1 is spoken with |
//! | `trust` | which certificates are accepted |
//! | `ways` | the pooled client of one route |
//! | `proxy` | connects directly, or through a proxy |
//! | `resolver` | keeps the addresses of names |
//! | `connection` | notes whether a connection was used before |
//! | `repair`, with `head` and `chunks` | repairs responses that hyper would refuse |
//! | `cookies` | the cookies of each egress |
//! | `body` | decodes a body and counts, keeps or saves it |
//! | `reading` | reads the body of an answer |
//! | `unexpected` | answers with a good status that may be a block page |
//! | `words` | the words for an error |

pub(super) mod answer;
mod body;
pub(super) mod call;
mod chunks;
pub(super) mod client;
mod connection;
pub(super) mod content;
mod cookies;
pub(super) mod egresses;
mod head;
mod http1;
mod proxy;
mod reading;
mod repair;
pub(super) mod resolver;
mod trust;
pub(super) mod unexpected;
mod ways;
pub(super) mod words;
