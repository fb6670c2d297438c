//! Requests whose answers cannot be used, because this machine is at fault: they wait and are sent
//! again, or their pages end.

use politely::core::Timestamp;
use url::Url;

use super::engine::Engine;
use super::full_disk::Place;
use super::lanes::LaneId;
use super::lanes::pending::{Pending, Purpose};
use super::site;
use super::transport::answer::Came;
use super::warc::Exchange;
use super::worker::finish;
use crate::exit::{io_words, is_no_room};

/// Puts a request back that did not leave, or whose answer cannot be kept: this machine is at
/// fault, or no egress works. It does not leave before `not_before`.
pub(super) fn unsent(
    engine: &Engine,
    lane: LaneId,
    mut pending: Box<Pending>,
    not_before: Timestamp,
) {
    may_leave_again(engine, &pending);
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let now = engine.limits.now();
    pending.attempts -= 1;
    if pending.purpose == Purpose::Page && pending.is_untried() {
        lanes.tried(lane);
    }
    lanes.put_back(lane, pending, now.max(not_before), now);
    lanes.came_back(lane, now);
}

/// Records that a request may leave again, since the server did not process it. A redirect that
/// follows one that was processed changes nothing.
pub(super) fn may_leave_again(engine: &Engine, pending: &Pending) {
    if !pending.is_rewritten {
        engine.forget_once(pending);
    }
}

/// Writes an exchange to the archive. Returns why the answer is not saved or archived, if so.
pub(super) fn not_saved(
    engine: &Engine,
    came: &Came,
    url: &Url,
    exchange: Option<Box<Exchange>>,
) -> Option<String> {
    if let Some(why) = came.no_room() {
        engine.no_room(Place::Save, why);
        return Some(why.to_owned());
    }
    let (warc, exchange) = engine.warc.as_ref().zip(exchange)?;
    let is_long = exchange.len > site::READ_AT_ONCE_MAX;
    let write = || warc.write(url, *exchange);
    let written = if is_long {
        tokio::task::block_in_place(write)
    } else {
        write()
    };
    let why = written.err()?;
    let words = io_words(&why);
    if is_no_room(&why) {
        engine.no_room(Place::Warc, &words);
    } else if !engine.is_stopping() {
        (engine.talk).say(&format!("error: --warc: {words}; the run stops"));
        engine.stop();
    }
    Some(words)
}

/// Handles an answer that has no room, because of `why`.
pub(super) fn not_kept(engine: &Engine, lane: LaneId, pending: Box<Pending>, why: &str) {
    if pending.may_repeat() {
        return unsent(engine, lane, pending, engine.limits.now());
    }
    let method = pending.method();
    let error = format!("the answer was not saved: {why} ({method} is not sent twice)");
    finish(engine, lane, &pending, None, Some(&error));
}
