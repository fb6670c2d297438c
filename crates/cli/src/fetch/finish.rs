//! The end of a page: its result line is written, and its outcome is recorded.

use std::path::PathBuf;

use super::crawl::note::SavedBody;
use super::crawl::{Finished, Kept};
use super::engine::Engine;
use super::full_disk::{NO_ROOM, Place};
use super::lanes::LaneId;
use super::lanes::pending::Pending;
use super::report::output::{Row, Written};

impl Engine {
    /// Writes the result line of a finished page.
    pub(crate) fn write(&self, pending: &Pending, row: Row<'_>) {
        if let Some(why) = row.error {
            self.failures.add(&row, why);
        }
        let status = match row.error {
            // A status that the user accepts may be another one.
            None => Some(
                row.status
                    .filter(|status| (200..=299).contains(status))
                    .unwrap_or(200),
            ),
            // An answer can be spoiled although its status is good.
            Some(_) => row.status.filter(|status| !(200..=299).contains(status)),
        };
        let metadata = self.crawl.kept().and_then(|kept| {
            let saved = self.saved_body(&row);
            pending.metadata(kept.run(), row.error, saved)
        });
        let finished = Finished {
            lane: pending.home,
            url: &pending.page.url,
            status,
            metadata: metadata.as_deref(),
        };
        let former = self.former_body(pending, &row);
        self.write_row(row, Some(finished));
        if let Some(former) = former {
            // The body has another name now, because its type changed. A file that stays is stale.
            let _ = std::fs::remove_file(former);
        }
        if !self.full_disk.is_full() {
            self.forget_once(pending);
        }
    }

    /// Writes the result line of an input line that is no page.
    pub(crate) fn write_unlisted(&self, row: Row<'_>) {
        self.write_row(row, None);
    }

    /// Returns the file that had the body of a page before, if `row` names another one.
    fn former_body(&self, pending: &Pending, row: &Row<'_>) -> Option<PathBuf> {
        let former = pending.saved_before(self.settings.save.as_deref()?)?;
        let saved = row.saved.as_ref()?;
        (*saved != former).then_some(former)
    }

    /// Returns the file of the body of a page, for a later run.
    fn saved_body(&self, row: &Row<'_>) -> Option<SavedBody> {
        let dir = self.settings.save.as_deref()?;
        let name = row.saved.as_ref()?.strip_prefix(dir).ok()?.to_str()?;
        Some(SavedBody {
            name: name.into(),
            len: row.bytes,
        })
    }

    fn write_row(&self, row: Row<'_>, page: Option<Finished<'_>>) {
        let run = self.crawl.kept().map(Kept::run).filter(|run| *run > 1);
        let row = Row { run, ..row };
        let record = self
            .crawl
            .kept()
            .map(|kept| move || page.map_or(Ok(()), |page| kept.finish(page)));
        match self.output.write(&self.output.line(&row), record) {
            Written::Closed => self.close(),
            Written::Full(line) => {
                if self.store.is_some() {
                    self.hold(line, page.map(Into::into));
                }
                self.no_room(Place::Output, NO_ROOM);
            }
            Written::Unrecorded(line, why) => {
                if self.state_failed(&why) {
                    self.hold(line, page.map(Into::into));
                }
            }
            Written::Yes | Written::Lost => {}
        }
    }

    /// Ends a page without a request.
    pub(super) fn dropped(&self, lane: LaneId, pending: &Pending, why: &str) {
        let name = {
            let mut shared = self.lock();
            shared.lanes.over(lane, true);
            shared.lanes.lane(lane).name().to_owned()
        };
        self.write(pending, pending.row(&name, why));
    }
}
