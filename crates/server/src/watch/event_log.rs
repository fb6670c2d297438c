//! The latest events, with numbers, so that a reader can continue where it stopped.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use politely_api::wire::Event;
use tokio::sync::watch;

/// The number of events that are kept. A reader that lags by more loses some.
const KEPT: usize = 16_384;

/// The latest events of this run of the coordinator.
pub(crate) struct EventLog {
    /// The number of this run, which differs between runs and between coordinators.
    run: u32,
    kept: Mutex<VecDeque<Arc<Event>>>,
    /// The number of events so far. Event number n is the n-th, counted from 1.
    count: watch::Sender<u64>,
}

/// The reason why a reader cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// The text is no id of an event.
    NoId,
    /// The id is of another run or another coordinator.
    OtherRun,
    /// Later events are not kept any more.
    TooOld,
}

/// The place of a reader in the log.
pub(crate) struct Cursor {
    log: Arc<EventLog>,
    /// The number of the last event that was read.
    last: u64,
    count: watch::Receiver<u64>,
}

/// The next event of a reader.
pub(crate) enum Next {
    /// The event and its id.
    Event(String, Arc<Event>),
    /// This many events were lost, because the reader was too slow.
    Missed(u64),
}

impl Default for EventLog {
    fn default() -> Self {
        Self {
            run: RandomState::new().hash_one(std::process::id()) as u32,
            kept: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }
}

impl EventLog {
    pub(crate) fn push(&self, event: Event) {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(Arc::new(event));
        // The number changes under the lock, so that it belongs to the events that are kept.
        self.count.send_modify(|count| *count += 1);
    }

    /// Returns a reader of the events from now on.
    pub(crate) fn from_now(self: &Arc<Self>) -> Cursor {
        let count = self.count.subscribe();
        let last = *count.borrow();
        let log = Arc::clone(self);
        Cursor { log, last, count }
    }

    /// Returns a reader of the events after the one with this id.
    ///
    /// # Errors
    /// The events after it are not known.
    pub(crate) fn after(self: &Arc<Self>, id: &str) -> Result<Cursor, NotKept> {
        let (run, last) = id.split_once('-').ok_or(NotKept::NoId)?;
        let run = u32::from_str_radix(run, 16).map_err(|_| NotKept::NoId)?;
        let last: u64 = last.parse().map_err(|_| NotKept::NoId)?;
        let cursor = self.from_now();
        if run != self.run || last > cursor.last {
            return Err(NotKept::OtherRun);
        }
        let kept = self.kept.lock();
        if last + (kept.len() as u64) < *self.count.borrow() {
            return Err(NotKept::TooOld);
        }
        drop(kept);
        Ok(Cursor { last, ..cursor })
    }
}

impl Cursor {
    /// Waits for the next event. Returns `None` if the log has ended.
    ///
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Next> {
        self.count.wait_for(|count| *count > self.last).await.ok()?;
        let kept = self.log.kept.lock();
        let first = *self.log.count.borrow() - kept.len() as u64;
        if let Some(missed) = first.checked_sub(self.last).filter(|missed| *missed > 0) {
            self.last = first;
            return Some(Next::Missed(missed));
        }
        let event = kept.get((self.last - first) as usize)?;
        self.last += 1;
        let id = format!("{:x}-{}", self.log.run, self.last);
        Some(Next::Event(id, Arc::clone(event)))
    }
}

#[cfg(test)]
mod tests {
    use politely_api::wire::EventKind;

    use super::*;

    fn event(text: &str) -> Event {
        Event {
            kind: EventKind::Config,
            key: None,
            text: text.to_owned(),
            rate: None,
            hold_ms: None,
        }
    }

    async fn read(cursor: &mut Cursor) -> (String, String) {
        match cursor.next().await {
            Some(Next::Event(id, event)) => (id, event.text.clone()),
            Some(Next::Missed(count)) => (String::new(), format!("missed {count}")),
            None => panic!("the log goes on"),
        }
    }

    #[tokio::test]
    async fn a_reader_continues_after_the_last_event_that_it_read() {
        let log = Arc::new(EventLog::default());
        let mut first = log.from_now();
        for text in ["a", "b", "c"] {
            log.push(event(text));
        }
        let (id, text) = read(&mut first).await;
        assert_eq!(text, "a");
        let mut later = log.after(&id).ok().unwrap();
        assert_eq!(read(&mut later).await.1, "b");
        assert_eq!(read(&mut later).await.1, "c");
        log.push(event("d"));
        assert_eq!(read(&mut later).await.1, "d");
    }

    #[tokio::test]
    async fn ids_that_are_too_old_or_of_another_run_are_refused() {
        let log = Arc::new(EventLog::default());
        let mut slow = log.from_now();
        log.push(event("first"));
        let (id, _) = read(&mut log.after(&format!("{:x}-0", log.run)).ok().unwrap()).await;
        for _ in 0..KEPT {
            log.push(event("more"));
        }
        assert!(log.after(&id).is_ok(), "all events after it are kept");
        log.push(event("one more"));
        let refused = |id: &str| log.after(id).err();
        assert_eq!(refused(&id), Some(NotKept::TooOld));
        assert_eq!(
            refused(&format!("{:x}-1", log.run ^ 1)),
            Some(NotKept::OtherRun)
        );
        assert_eq!(
            refused(&format!("{:x}-99999", log.run)),
            Some(NotKept::OtherRun)
        );
        for id in ["", "1", "x-1", "1-x"] {
            assert_eq!(refused(id), Some(NotKept::NoId), "{id}");
        }
        assert_eq!(read(&mut slow).await.1, "missed 2");
        assert_eq!(read(&mut slow).await.1, "more");
    }
}
