//! The result of an attempt: an answer, or why none came.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use politely::core::fault::machine::Trouble;
use politely::core::signal::{Failure, Outcome};

use super::body::Enough;
use super::content::Content;
use crate::fetch::warc::Exchange;

/// The result of an attempt.
#[expect(
    clippy::large_enum_variant,
    reason = "most attempts end in an answer, and each request has one at a time"
)]
pub(crate) enum Came {
    Answer(Answer),
    /// No whole answer came.
    Failed(Lost),
}

impl Came {
    /// Returns why there is no room for the body, if so.
    pub(crate) fn no_room(&self) -> Option<&str> {
        match self {
            Self::Answer(answer) => answer.no_room.as_deref(),
            Self::Failed(_) => None,
        }
    }

    /// Returns whether an answer came that nothing spoiled.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.spoiled.is_none())
    }

    /// Takes out the body that is read later, and the exchange for the archive.
    pub(crate) fn take_bodies(&mut self) -> (Option<Content>, Option<Box<Exchange>>) {
        match self {
            Self::Answer(answer) => (answer.content.take(), answer.exchange.take()),
            Self::Failed(_) => (None, None),
        }
    }

    /// Returns whether it is certain that no request has reached the host.
    pub(crate) fn is_unsent(&self) -> bool {
        use Failure::{Connect, NoSuchHost, Resolver};
        matches!(self, Self::Failed(lost) if matches!(lost.failure, Connect | NoSuchHost | Resolver))
    }

    /// Returns the outcome for the limits of the request.
    pub(crate) fn outcome(&self) -> Outcome<'_> {
        match self {
            Self::Answer(answer) => Outcome::Answered {
                status: answer.status,
                headers: &answer.headers,
                body_start: &answer.start,
            },
            Self::Failed(lost) => Outcome::Failed(lost.failure),
        }
    }
}

/// Why no whole answer came.
pub(crate) struct Lost {
    pub(crate) failure: Failure,
    /// The failure, in words.
    pub(crate) words: String,
    /// What may be wrong with this machine.
    pub(crate) trouble: Option<Trouble>,
    /// Whether the HTTP/2 of the server is malformed.
    pub(crate) is_http2: bool,
}

/// An answer with its body, as far as the body was wanted.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) latency: Duration,
    /// The size of the decoded body.
    pub(crate) bytes: u64,
    pub(crate) wire: Wire,
    /// The beginning of the body, which identifies block pages. It is the whole body if that was
    /// wanted.
    pub(crate) start: Bytes,
    /// The body of a page that names others.
    pub(crate) content: Option<Content>,
    /// The exchange for the archive, if there is one.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// The error of a body that could not be read, decoded or saved, after a valid head.
    pub(crate) spoiled: Option<String>,
    /// The file of the body, if it is saved.
    pub(crate) saved: Option<PathBuf>,
    /// Why there is no room for the body, if so. The page is not at fault.
    pub(crate) no_room: Option<String>,
}

/// The way of an answer through the network.
#[derive(Default)]
pub(crate) struct Wire {
    /// The size of the body before it was decoded.
    pub(crate) bytes: u64,
    pub(crate) version: Version,
    /// The address of the host, if no proxy is between.
    pub(crate) address: Option<IpAddr>,
    /// How long it took to connect, if the connection is new.
    pub(crate) connect: Option<Duration>,
    /// Time from the request to the end of the answer.
    pub(crate) total: Duration,
}

impl Answer {
    /// Returns an answer whose head came.
    pub(super) fn begun(head: Parts, wire: Wire) -> Self {
        Self {
            status: head.status,
            headers: head.headers,
            latency: wire.total,
            bytes: 0,
            wire,
            start: Bytes::new(),
            content: None,
            exchange: None,
            spoiled: None,
            saved: None,
            no_room: None,
        }
    }

    /// Returns the result for an answer whose body is not saved.
    pub(super) fn unsaved(mut self, why: Enough, may_repeat: bool) -> Came {
        match why {
            Enough::TooLong => {}
            Enough::NotSaved(why) => self.spoiled = Some(why),
            Enough::NoRoom(why) => self.no_room = Some(why),
            Enough::NoDescriptor(why) if !may_repeat => self.spoiled = Some(why),
            // The page and its host are not at fault, as when a connection finds no descriptor.
            Enough::NoDescriptor(words) => {
                return Came::Failed(Lost {
                    failure: Failure::Connect,
                    words,
                    trouble: Some(Trouble::OutOfDescriptors),
                    is_http2: false,
                });
            }
        }
        Came::Answer(self)
    }
}
