//! A domain's queue on disk: runs of pages that may be handed out, and pages that wait for a date.
//!
//! Pages that one call adds to a domain are one row, a run. A unit takes the first pages of the
//! first runs, and its end writes each run once. So a row costs its bytes once per some ten pages,
//! and a domain with millions of pages leaves few deleted rows behind.
//!
//! | row | key | value |
//! | --- | --- | --- |
//! | run | queue lane second order | [`RunPage`]s |
//! | page with a date | queue [`DATED_LANE`] date hash | [`Dated`] |

use serde::{Deserialize, Serialize};

use crate::page::Priority;
use crate::rows::{self, QueueId, damaged, number};
use crate::{Batch, Date, StoreError, Table};

/// The lane of pages with a date. It sorts after the lanes of all priorities.
const DATED_LANE: u8 = u8::MAX;
/// The most pages of a run. A longer run would be written again too often.
pub(crate) const RUN_LEN_MAX: usize = 32;

/// The place of a run in its domain's queue. A lower lane is first, then an earlier second, and
/// then a lower order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RunId {
    lane: u8,
    /// The second since 1970 (UTC) from which on all pages of the run are due.
    due_secs: u64,
    order: u64,
}

impl RunId {
    pub(crate) const fn new(priority: Priority, due: Date, order: u64) -> Self {
        Self {
            lane: Priority::MAX.level() - priority.level(),
            due_secs: due.millis() / 1_000,
            order,
        }
    }

    pub(crate) fn priority(self) -> Priority {
        let level = Priority::MAX.level().saturating_sub(self.lane);
        Priority::new(level).unwrap_or_default()
    }

    pub(crate) fn key(self, queue: QueueId) -> Vec<u8> {
        let mut key = Vec::with_capacity(21);
        key.extend(queue.0.to_be_bytes());
        key.push(self.lane);
        key.extend(self.due_secs.to_be_bytes());
        key.extend(self.order.to_be_bytes());
        key
    }
}

/// What happened at a page's attempts since the last visit that did not fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Failures {
    pub(crate) attempts: u16,
    /// How many of the attempts did not count.
    pub(crate) free: u16,
}

impl Failures {
    pub(crate) const NONE: Self = Self {
        attempts: 0,
        free: 0,
    };

    /// Counts one more failed attempt.
    pub(crate) fn with(self, is_free: bool) -> Self {
        Self {
            attempts: self.attempts.saturating_add(1),
            free: self.free.saturating_add(u16::from(is_free)),
        }
    }
}

/// A page of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RunPage {
    /// The page's place in its run. Pages keep their places when others leave the run.
    pub(crate) place: u8,
    hash: [u8; 8],
    pub(crate) failures: Failures,
}

/// A page that may be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) run: RunId,
    pub(crate) page: RunPage,
}

impl Ready {
    pub(crate) const fn hash(&self) -> u64 {
        u64::from_be_bytes(self.page.hash)
    }
}

/// The pages of a run, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run(Vec<RunPage>);

impl Run {
    /// Adds a page behind the others. The run must have room.
    pub(crate) fn push(&mut self, hash: u64, failures: Failures) -> RunPage {
        let page = RunPage {
            place: self.0.last().map_or(0, |last| last.place + 1),
            hash: hash.to_be_bytes(),
            failures,
        };
        self.0.push(page);
        page
    }

    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < RUN_LEN_MAX
    }

    pub(crate) fn remove(&mut self, place: u8) {
        self.0.retain(|page| page.place != place);
    }

    /// Returns the pages as those of the run `id`.
    pub(crate) fn ready(&self, id: RunId) -> impl Iterator<Item = Ready> {
        self.0.iter().map(move |page| Ready {
            run: id,
            page: *page,
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        rows::decode("queue", bytes).map(Self)
    }

    /// Stores the run. A run without pages is removed.
    pub(crate) fn store(&self, batch: &mut Batch, queue: QueueId, id: RunId) {
        let key = id.key(queue);
        if self.0.is_empty() {
            batch.remove(Table::Queue, key);
        } else {
            batch.put(Table::Queue, key, rows::encode(&self.0));
        }
    }
}

/// A page that waits for a date, or that is due since a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dated {
    pub(crate) due: Date,
    pub(crate) hash: u64,
    pub(crate) priority: Priority,
    pub(crate) failures: Failures,
}

impl Dated {
    fn key(&self, queue: QueueId) -> Vec<u8> {
        let mut key = Self::first_key(queue, self.due);
        key.extend(self.hash.to_be_bytes());
        key
    }

    /// Returns the key at which the pages of a date begin.
    pub(crate) fn first_key(queue: QueueId, due: Date) -> Vec<u8> {
        let mut key = Self::prefix(queue);
        key.extend(due.millis().to_be_bytes());
        key
    }

    /// Returns the prefix of all pages of a queue that have a date.
    pub(crate) fn prefix(queue: QueueId) -> Vec<u8> {
        let mut key = Vec::with_capacity(21);
        key.extend(queue.0.to_be_bytes());
        key.push(DATED_LANE);
        key
    }

    pub(crate) fn store(&self, batch: &mut Batch, queue: QueueId) {
        let value = rows::encode(&(self.priority.level(), self.failures));
        batch.put(Table::Queue, self.key(queue), value);
    }

    pub(crate) fn remove(&self, batch: &mut Batch, queue: QueueId) {
        batch.remove(Table::Queue, self.key(queue));
    }
}

/// A row of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    Run(RunId, Run),
    Dated(Dated),
}

impl Row {
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self, StoreError> {
        let wrong = || damaged("queue", key);
        let (lane, rest) = key
            .get(4..)
            .and_then(<[u8]>::split_first)
            .ok_or_else(wrong)?;
        match (*lane, rest.len()) {
            (DATED_LANE, 16) => {
                let (level, failures) = rows::decode("queue", value)?;
                Ok(Self::Dated(Dated {
                    due: Date::from_millis(number(&rest[..8])).ok_or_else(wrong)?,
                    hash: number(&rest[8..]),
                    priority: Priority::new(level).ok_or_else(wrong)?,
                    failures,
                }))
            }
            (lane, 16) => {
                let id = RunId {
                    lane,
                    due_secs: number(&rest[..8]),
                    order: number(&rest[8..]),
                };
                Ok(Self::Run(id, Run::decode(value)?))
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = QueueId(3);

    fn run(level: u8, order: u64) -> RunId {
        run_due(level, 7, order)
    }

    fn run_due(level: u8, secs: u64, order: u64) -> RunId {
        let due = Date::from_millis(secs * 1_000 + 999).unwrap();
        RunId::new(Priority::new(level).unwrap(), due, order)
    }

    fn rows(batch: Batch) -> Vec<Row> {
        let decode = |change: crate::Change| Row::decode(&change.key, &change.value.unwrap());
        batch
            .0
            .into_iter()
            .map(|change| decode(change).unwrap())
            .collect()
    }

    #[test]
    fn runs_sort_by_priority_then_date_then_order_and_dates_to_come_are_last() {
        let runs = [
            run(9, 9),
            run_due(5, 3, 8),
            run(5, 2),
            run(5, 3),
            run_due(5, 300, 1),
            run(0, 1),
        ];
        let mut keys: Vec<_> = runs.iter().map(|run| run.key(QUEUE)).collect();
        let date = |millis| Date::from_millis(millis).unwrap();
        keys.extend([date(5), date(1 << 40)].map(|due| Dated::first_key(QUEUE, due)));
        assert!(keys.is_sorted());
        assert!(runs.is_sorted());
    }

    #[test]
    fn pages_keep_their_places_and_an_empty_run_is_removed() {
        let mut run_pages = Run::default();
        for hash in 0..RUN_LEN_MAX as u64 {
            assert!(run_pages.has_room());
            run_pages.push(u64::MAX - hash, Failures::NONE.with(true));
        }
        assert!(!run_pages.has_room());
        let mut batch = Batch::default();
        run_pages.remove(0);
        run_pages.store(&mut batch, QUEUE, run(5, 1));
        let [Row::Run(id, stored)] = &rows(batch)[..] else {
            panic!("one run");
        };
        assert_eq!((*id, stored), (run(5, 1), &run_pages));
        let first = stored.ready(*id).next().unwrap();
        assert_eq!((first.page.place, first.hash()), (1, u64::MAX - 1));
        for place in 1..RUN_LEN_MAX as u8 {
            run_pages.remove(place);
        }
        let mut batch = Batch::default();
        run_pages.store(&mut batch, QUEUE, run(5, 1));
        assert_eq!(batch.0[0].value, None);
    }

    #[test]
    fn a_page_with_a_date_is_stored_whole() {
        let dated = Dated {
            due: Date::from_millis(7).unwrap(),
            hash: 9,
            priority: Priority::MIN,
            failures: Failures::NONE.with(false),
        };
        let mut batch = Batch::default();
        dated.store(&mut batch, QUEUE);
        assert_eq!(rows(batch), [Row::Dated(dated)]);
        assert!(Row::decode(b"short", &[]).is_err());
    }
}
