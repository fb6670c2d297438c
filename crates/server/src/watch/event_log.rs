//! The latest events, with numbers, so that a reader can continue where it stopped.
//!
//! The events of a coordinator alone are numbered here. In a fleet they come from the fleet's log
//! with their numbers, so a reader may continue at any coordinator.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use politely_api::wire::Event;
use tokio::sync::watch;

/// The number of events that are kept. A reader that lags by more loses some.
const KEPT: usize = 16_384;

/// The latest events.
pub(crate) struct EventLog {
    kept: Mutex<VecDeque<Arc<Event>>>,
    /// The end of the log. It changes under the lock of `kept`, so that it belongs to those events.
    end: watch::Sender<End>,
}

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// The number of this run, which differs between runs of a coordinator alone, and between
    /// fleets.
    run: u32,
    /// The number of events so far. Event number n is the n-th, counted from 1.
    count: u64,
    /// The number of events when this coordinator joined the run.
    joined: u64,
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
    run: u32,
    /// The number of the last event that was read.
    last: u64,
    end: watch::Receiver<End>,
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
        let run = RandomState::new().hash_one(std::process::id()) as u32;
        Self {
            kept: Mutex::default(),
            end: watch::Sender::new(End {
                run,
                count: 0,
                joined: 0,
            }),
        }
    }
}

impl EventLog {
    /// Adds an event of this coordinator, which is not part of a fleet.
    pub(crate) fn push(&self, event: Event) {
        let mut kept = self.kept.lock();
        let end = *self.end.borrow();
        self.add(&mut kept, end, std::iter::once(event));
    }

    /// Adds events of the run `run`, in which `before` events came before them.
    pub(crate) fn append(&self, run: u32, before: u64, events: Vec<Event>) {
        let mut kept = self.kept.lock();
        let mut end = *self.end.borrow();
        if run != end.run {
            end = End {
                run,
                count: before,
                joined: before,
            };
            kept.clear();
        } else if before > end.count {
            // The events between were lost.
            end.count = before;
            kept.clear();
        }
        let known = end.count.saturating_sub(before) as usize;
        self.add(&mut kept, end, events.into_iter().skip(known));
    }

    fn add(
        &self,
        kept: &mut VecDeque<Arc<Event>>,
        mut end: End,
        events: impl Iterator<Item = Event>,
    ) {
        for event in events {
            if kept.len() >= KEPT {
                kept.pop_front();
            }
            kept.push_back(Arc::new(event));
            end.count += 1;
        }
        self.end.send_replace(end);
    }

    /// Returns whether an event is kept. The newest are looked at first.
    pub(crate) fn has(&self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.kept.lock().iter().rev().any(|event| is_it(event))
    }

    /// Lets readers that connected before now read only what comes after now.
    pub(crate) fn join_here(&self) {
        let _kept = self.kept.lock();
        self.end.send_modify(|end| end.joined = end.count);
    }

    /// Returns a reader of the events from now on.
    pub(crate) fn from_now(self: &Arc<Self>) -> Cursor {
        let end = self.end.subscribe();
        let End { run, count, .. } = *end.borrow();
        Cursor {
            log: Arc::clone(self),
            run,
            last: count,
            end,
        }
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
        if run != cursor.run || last > cursor.last {
            return Err(NotKept::OtherRun);
        }
        let kept = self.kept.lock();
        if last + (kept.len() as u64) < self.end.borrow().count {
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
        let has_more = |end: &End| end.run != self.run || end.count > self.last;
        let now = *self.end.wait_for(has_more).await.ok()?;
        if now.run != self.run {
            let had_read = self.last > 0;
            (self.run, self.last) = (now.run, now.joined);
            // A reader that came before the coordinator joined its fleet has missed nothing. The
            // number of events of a run that the fleet has lost is not known.
            if had_read {
                return Some(Next::Missed(0));
            }
            let joined = self.last;
            self.end.wait_for(|end| end.count > joined).await.ok()?;
        }
        let kept = self.log.kept.lock();
        let end = *self.log.end.borrow();
        let first = end.count - kept.len() as u64;
        if let Some(missed) = first.checked_sub(self.last).filter(|missed| *missed > 0) {
            self.last = first;
            return Some(Next::Missed(missed));
        }
        let event = kept.get((self.last - first) as usize)?;
        self.last += 1;
        let id = format!("{:x}-{}", self.run, self.last);
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

    fn run(log: &EventLog) -> u32 {
        log.end.borrow().run
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
        let (id, _) = read(&mut log.after(&format!("{:x}-0", run(&log))).ok().unwrap()).await;
        for _ in 0..KEPT {
            log.push(event("more"));
        }
        assert!(log.after(&id).is_ok(), "all events after it are kept");
        log.push(event("one more"));
        let refused = |id: &str| log.after(id).err();
        assert_eq!(refused(&id), Some(NotKept::TooOld));
        assert_eq!(
            refused(&format!("{:x}-1", run(&log) ^ 1)),
            Some(NotKept::OtherRun)
        );
        assert_eq!(
            refused(&format!("{:x}-99999", run(&log))),
            Some(NotKept::OtherRun)
        );
        for id in ["", "1", "x-1", "1-x"] {
            assert_eq!(refused(id), Some(NotKept::NoId), "{id}");
        }
        assert_eq!(read(&mut slow).await.1, "missed 2");
        assert_eq!(read(&mut slow).await.1, "more");
    }

    #[tokio::test]
    async fn the_events_of_a_fleet_keep_their_numbers() {
        let log = Arc::new(EventLog::default());
        let mut early = log.from_now();
        log.append(7, 40, vec![event("old")]);
        log.join_here();
        log.append(7, 40, vec![event("old"), event("a")]);
        assert_eq!(read(&mut early).await, ("7-42".to_owned(), "a".to_owned()));
        // Two events were lost, and a reader is told so.
        log.append(7, 44, vec![event("b")]);
        assert_eq!(read(&mut early).await.1, "missed 2");
        assert_eq!(read(&mut early).await, ("7-45".to_owned(), "b".to_owned()));
        let mut later = log.after("7-44").ok().unwrap();
        assert_eq!(read(&mut later).await.1, "b");
        assert_eq!(log.after("7-42").err(), Some(NotKept::TooOld));
    }
}
