//! The frontier of a crawl: a persistent queue of domains and their pages.
//!
//! Workers add pages. A worker takes a domain with some of its pages as a [`Unit`] of work, visits
//! the pages, and gives the unit back with outcomes and with pages that it found. While a worker
//! owns a domain, no other worker gets it. Every URL of a crawl is accepted once.
//!
//! # What is promised
//! - A unit is named by a fencing token that only grows. A unit ends when it is given back or when
//!   its lease is over. Words under the token of a unit that has ended are refused.
//! - A page that was answered [`Answer::New`] is in the queue until an owner reports an outcome for
//!   it. A page with the outcome [`Next::Never`] is never handed out again.
//! - Both hold when the process is killed between any two steps: each call is one atomic [`Batch`].
//!
//! # Files
//!
//! | file | its part |
//! | --- | --- |
//! | `schedule/` | which domain is next? Domains by time, priority and crawl; no I/O |
//! | `frontier/` | the calls: schedule, units and storage together |
//! | `units.rs`, `unit.rs` | the live units; a unit as its owner sees it |
//! | `page.rs`, `crawl_name.rs`, `date.rs` | what callers pass in, and its bounds |
//! | `rows.rs`, `queue.rs` | the layout of the storage; of a domain's queue |
//! | `scratch.rs` | the pages of a crawl that vanish with the process |
//! | `store.rs`, `embedded.rs`, `memory.rs` | the interface to a storage; on disk; in memory |
//!
//! # What is not here
//! The limits of hosts are a limiter's. [`Frontier::take`] asks a [`Gate`] before it hands out a
//! domain, and the gate acquires the permits. The crate has no clock: each call takes a [`Moment`].

mod counts;
mod crawl_name;
mod date;
mod embedded;
mod error;
mod frontier;
mod memory;
mod moment;
mod page;
mod queue;
mod rows;
mod schedule;
mod scratch;
mod settings;
mod spacing;
mod store;
mod unit;
mod units;

pub use self::counts::Counts;
pub use self::crawl_name::{CrawlName, CrawlNameError};
pub use self::date::Date;
pub use self::embedded::EmbeddedStore;
pub use self::error::FrontierError;
pub use self::frontier::{
    DomainStatus, Forgotten, Frontier, Gate, PageStatus, Revision, UnitStatus,
};
pub use self::memory::MemoryStore;
pub use self::moment::Moment;
pub use self::page::{
    Answer, Invalid, METADATA_LEN_MAX, NewPage, Priority, URL_LEN_MAX, ValidPage, canonical,
};
pub use self::scratch::Scratch;
pub use self::settings::Settings;
pub use self::spacing::Spacing;
pub use self::store::{Batch, Change, Store, StoreError, Table};
pub use self::unit::{Accepted, GiveBack, Next, PageOutcome, Take, TakenPage, Token, Unit};
