//! Pauses the run while a disk is full, see `core/src/fault/machine.rs`, and goes on when there is
//! room.
//!
//! A page whose body has no room is put back. A page whose result has no room is held until it can
//! be written. Without a state folder a kill would lose all that waits, so the run ends instead and
//! lists what is missing.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::fault::machine::PROBE_EVERY;

use url::Url;

use super::crawl::{Finished, Kept};
use super::engine::Engine;
use super::lanes::LaneId;
use super::report::output::Written;
use super::report::save::probe_file;
use super::state::store::Store;
use crate::config::WarcSettings;
use crate::exit::{io_words, is_no_room};

/// The room that a disk must have before the run goes on, in bytes. With less, it would be full
/// again at once.
const ROOM_MIN: usize = 16 << 20;
/// The number of failures of the state folder for which there was room after all.
const UNCLEAR_MAX: u32 = 5;
/// The time between two looks of the input's reader, which waits for room.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The words of a full disk.
pub(super) const NO_ROOM: &str = "no space left on device";

/// The writer that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Save,
    Warc,
    Output,
    State,
}

/// The results that wait while a disk is full.
#[derive(Default)]
pub(crate) struct FullDisk {
    is_full: AtomicBool,
    /// Whether the run ended because of a full disk, and lists what is missing.
    lists_missing: AtomicBool,
    held: Mutex<Vec<Held>>,
    probed: Mutex<Timestamp>,
    unclear: AtomicU32,
}

/// A finished page whose result or outcome could not be written.
pub(crate) struct Held {
    /// The rest of its result line.
    line: Vec<u8>,
    /// Its page, or `None` for an input line that is no page.
    page: Option<HeldPage>,
}

/// The outcome of a held page.
pub(crate) struct HeldPage {
    lane: LaneId,
    url: String,
    status: Option<u16>,
    metadata: Option<Vec<u8>>,
}

impl From<Finished<'_>> for HeldPage {
    fn from(page: Finished<'_>) -> Self {
        Self {
            lane: page.lane,
            url: page.url.to_owned(),
            status: page.status,
            metadata: page.metadata.map(<[u8]>::to_vec),
        }
    }
}

impl FullDisk {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Lists at the end of the run what is missing.
    pub(crate) fn list_missing(&self) {
        self.lists_missing.store(true, Ordering::Relaxed);
    }

    /// Returns the number of pages whose results wait for room.
    pub(crate) fn held(&self) -> u64 {
        self.lock().len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Handles a write to `place` that failed because of `why`: there is no room. The run pauses,
    /// or without a state folder stops.
    pub(crate) fn no_room(&self, place: Place, why: &str) {
        if !self.lock().lanes.out_of_room(self.limits.now()) {
            return;
        }
        self.full_disk.is_full.store(true, Ordering::Relaxed);
        let path = match place {
            Place::Save => self.settings.save.as_deref(),
            Place::State => self.settings.state.as_deref(),
            Place::Warc => self.settings.warc.as_ref().map(WarcSettings::folder),
            Place::Output => None,
        };
        let name = match (place, path) {
            (Place::Save, Some(dir)) => format!("--save {}", dir.display()),
            (Place::Warc, Some(dir)) => format!("--warc in {}", dir.display()),
            (Place::State, Some(dir)) => format!("--state {}", dir.display()),
            _ => format!("--output {}", self.output.name()),
        };
        if self.store.is_some() {
            self.talk.say(&format!(
                "no room for {name}: {why}; the run pauses until there is room, and looks every {} s",
                PROBE_EVERY.as_secs()
            ));
        } else {
            self.full_disk.list_missing();
            self.talk.say(&format!(
                "error: no room for {name}: {why}; the run stops and lists what is missing; with --state DIR it waits for room"
            ));
            self.stop();
        }
    }

    /// Handles a failed write to the state folder. Returns whether the run goes on later, because
    /// there is only no room.
    pub(crate) fn state_failed(&self, why: &str) -> bool {
        let Some(dir) = &self.settings.state else {
            self.lose_state(why);
            return false;
        };
        if self.full_disk.is_full() {
            return true;
        }
        // The storages tell no kind of error, and a write in the background may have failed first.
        let is_full = match probe(&dir.join("room")) {
            Err(why) => is_no_room(&why),
            Ok(()) => self.full_disk.unclear.fetch_add(1, Ordering::Relaxed) < UNCLEAR_MAX,
        };
        if is_full {
            self.no_room(Place::State, why);
        } else {
            self.lose_state(why);
        }
        is_full
    }

    /// Waits for room after a failed write to the state folder. Returns whether to write again.
    /// Blocks this thread.
    pub(crate) fn waits_for_room(&self, why: &str) -> bool {
        if self.store.is_none() || !self.state_failed(why) {
            return false;
        }
        while self.full_disk.is_full() && !self.is_stopping() {
            std::thread::sleep(LOOK_EVERY);
        }
        !self.is_stopping()
    }

    /// Holds the result of a page until there is room.
    pub(crate) fn hold(&self, line: Vec<u8>, page: Option<HeldPage>) {
        self.full_disk.lock().push(Held { line, page });
    }

    /// Looks for room, if a disk is full and the last look is long ago. If there is room, the run
    /// goes on.
    pub(crate) fn look_for_room(&self) {
        if !self.full_disk.is_full() || self.store.is_none() || self.is_stopping() {
            return;
        }
        let now = self.limits.now();
        {
            let probed =
                &mut *(self.full_disk.probed.lock()).unwrap_or_else(PoisonError::into_inner);
            if now.since(*probed) < PROBE_EVERY {
                return;
            }
            *probed = now;
        }
        match self.find_room() {
            Ok(()) => {}
            Err(why) if is_no_room(&why) => return,
            Err(why) => return self.lose_state(&io_words(&why)),
        }
        // A state is stored before the next request of its key leaves.
        if let Err(why) = self.write_held().and_then(|()| self.keep_state()) {
            return self.unclear(&why);
        }
        self.full_disk.is_full.store(false, Ordering::Relaxed);
        let paused = self.lock().lanes.has_room(now).unwrap_or_default();
        self.talk.say(&format!(
            "there is room again after {} s: the run goes on",
            paused.as_secs()
        ));
        self.look_again();
        // A page may have been held meanwhile.
        if let Err(why) = self.write_held() {
            self.state_failed(&why);
        }
    }

    /// Handles a write that failed because of `why`, although there was room. The next look tries
    /// again, a few times.
    fn unclear(&self, why: &str) {
        if self.full_disk.unclear.fetch_add(1, Ordering::Relaxed) >= UNCLEAR_MAX {
            self.lose_state(why);
        }
    }

    /// Checks the disks, and opens the storages of the state folder again if they failed.
    fn find_room(&self) -> io::Result<()> {
        if let Some(dir) = &self.settings.save {
            probe(&probe_file(dir)?)?;
        }
        if let Some(warc) = &self.settings.warc {
            probe(
                &warc
                    .folder()
                    .join(format!(".politely-{}-room", std::process::id())),
            )?;
        }
        if let Some(dir) = &self.settings.state {
            probe(&dir.join("room"))?;
        }
        let opened = self.crawl.kept().map_or(Ok(()), Kept::recover);
        let opened = opened.and_then(|()| {
            let store = self.store.as_ref();
            store.map_or(Ok(()), Store::open_again)
        });
        opened.map_err(io::Error::other)
    }

    /// Writes the results that are held.
    ///
    /// # Errors
    /// One could not be written. The error is in words.
    fn write_held(&self) -> Result<(), String> {
        loop {
            let next = self.full_disk.lock().pop();
            let Some(Held { line, page }) = next else {
                return Ok(());
            };
            let record = || {
                let (Some(kept), Some(page)) = (self.crawl.kept(), &page) else {
                    return Ok(());
                };
                let origin = self.lock().lanes.lane(page.lane).origin.to_string();
                let origin = Url::parse(&origin).map_err(|why| why.to_string())?;
                if !kept.is_unfinished(&origin, &page.url) {
                    // The write that failed is there all the same.
                    return Ok(());
                }
                kept.finish(Finished {
                    lane: page.lane,
                    url: &page.url,
                    status: page.status,
                    metadata: page.metadata.as_deref(),
                })
            };
            match self.output.write(&line, Some(record)) {
                Written::Yes | Written::Lost => {}
                Written::Full(line) => {
                    self.hold(line, page);
                    return Err(NO_ROOM.to_owned());
                }
                Written::Unrecorded(line, why) => {
                    self.hold(line, page);
                    return Err(why);
                }
                Written::Closed => return Ok(()),
            }
        }
    }

    /// Lists the pages that are not fetched, or whose results are not written, if a full disk ended
    /// the run.
    pub(crate) fn list_missing(&self) {
        if !self.full_disk.lists_missing.load(Ordering::Relaxed) || self.store.is_some() {
            return;
        }
        for url in self.output.unwritten() {
            self.talk.say(&format!("missing result: {url}"));
        }
        let mut lane = 0;
        loop {
            let (pending, has_more) = {
                let mut shared = self.lock();
                if lane as usize >= shared.lanes.all().len() {
                    return;
                }
                let pending = shared.lanes.drain_any(lane, self.limits.now());
                (pending, shared.lanes.lane(lane).pages_waiting() > 0)
            };
            match pending {
                Some(pending) => {
                    let url = super::without_login(pending.page.given());
                    self.talk.say(&format!("missing: {url}"));
                }
                None if has_more && self.fill_now(lane, |_, _| {}) => {}
                None => lane += 1,
            }
        }
    }
}

/// Writes a file of [`ROOM_MIN`] bytes, and removes it.
fn probe(file: &Path) -> io::Result<()> {
    let written = fs::write(file, vec![0; ROOM_MIN]);
    let removed = fs::remove_file(file);
    written.and(removed)
}
