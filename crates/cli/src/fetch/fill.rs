//! Takes pages out of the crawl for the lanes.

use std::sync::Arc;

use politely::core::Timestamp;

use super::engine::Engine;
use super::lanes::pending::Pending;
use super::lanes::{Job, LaneId, Lanes};
use super::limits::Leave;

impl Engine {
    /// Takes further pages of `lane` out of the crawl. Returns the first page if a permit for it is
    /// granted already, and why the page must not leave.
    pub(super) async fn fill(
        self: &Arc<Self>,
        lane: LaneId,
        is_granted: bool,
    ) -> Option<(Box<Pending>, Option<String>)> {
        let first = if self.crawl.kept().is_some() {
            // A call commits to the disk. No worker blocks a thread meanwhile.
            let _turn = self.filling.lock().await;
            let engine = Arc::clone(self);
            let filled = tokio::task::spawn_blocking(move || engine.fill_first(lane, is_granted));
            filled.await.ok().flatten()
        } else {
            self.fill_first(lane, is_granted)
        };
        self.look_again();
        first
    }

    fn fill_first(&self, lane: LaneId, is_granted: bool) -> Option<(Box<Pending>, Option<String>)> {
        let mut first = None;
        self.fill_now(lane, |lanes, now| {
            if is_granted {
                first = lanes.leave_filled(lane, now);
            }
        });
        first
    }

    /// Takes further pages of `lane` out of the crawl, and calls `then` before another worker sees
    /// them. Returns whether that succeeded.
    pub(super) fn fill_now(&self, lane: LaneId, then: impl FnOnce(&mut Lanes, Timestamp)) -> bool {
        let most = self.crawl.unit_len_max();
        let (origin, most) = self.lock().lanes.fill_len(lane, most, self.limits.now());
        let mut is_whole = true;
        let taken = self.crawl.take(lane, &origin, most, |pages| {
            let mut shared = self.lock();
            let now = self.limits.now();
            is_whole = shared.lanes.filled(lane, pages, now);
            then(&mut shared.lanes, now);
        });
        if let Err(why) = taken {
            if self.crawl_failed(&why) {
                // The lane asks again when there is room.
                let mut shared = self.lock();
                shared.lanes.filled(lane, Vec::new(), self.limits.now());
            }
            return false;
        }
        if !is_whole {
            self.lose_crawl(&format!("pages of {origin} are missing"));
        }
        is_whole
    }

    /// Sends the first page of a lane, which got `permit` before its pages, or ends it if there is
    /// a reason `why`.
    pub(super) async fn leave_filled(
        &self,
        lane: LaneId,
        permit: Leave,
        pending: Box<Pending>,
        why: Option<String>,
    ) {
        match why {
            None => {
                let job = Job {
                    lane,
                    pending,
                    permit,
                };
                self.send(job).await;
            }
            Some(why) => self.dropped(lane, &pending, &why),
        }
    }

    /// Ends the wait for pages that are set aside. With a state folder they stay for a later run,
    /// else they fail.
    pub(crate) fn settle_set_aside(&self) {
        if self.store.is_some() {
            let shared = self.lock();
            if let Some((_, why)) = shared.lanes.set_aside(0) {
                self.talk
                    .say(&format!("{why}: its URLs stay in the state folder"));
            }
            return;
        }
        // A lane is set aside for good, so the earlier lanes are done.
        let mut from = 0;
        loop {
            let (lane, why, pending) = {
                let mut shared = self.lock();
                let Some((lane, why)) = shared.lanes.set_aside(from) else {
                    return;
                };
                let why = why.to_owned();
                (lane, why, shared.lanes.drain(lane))
            };
            from = lane;
            match pending {
                Some(pending) => self.dropped(lane, &pending, &why),
                None if self.fill_now(lane, |_, _| {}) => {}
                None => return,
            }
        }
    }
}
