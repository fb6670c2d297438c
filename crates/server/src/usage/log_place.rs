//! The place in the fleet's log until which the counts have its batches.
//!
//! Each hour's file names its place, so a coordinator that starts again adds what came after it,
//! and nothing twice.

use std::collections::BTreeMap;
use std::path::Path;

use politely::core::Timestamp;
use serde::{Deserialize, Serialize};

use super::hour_files::{files, place};
use super::hour_of;

/// The hours before the present one whose files are read at the start. The log keeps a day.
const HOURS: u64 = 26;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The run of the log.
    run: u64,
    /// The number of the next batch.
    next: u64,
    /// When the batch before it was added.
    at: Timestamp,
}

/// The present place, and those of the hours' files at the start.
#[derive(Debug, Default)]
pub(super) struct LogPlace {
    pub(super) now: Option<Place>,
    /// Whether batches before the present place are still read again, after the start. No file may
    /// name the place until then.
    pub(super) is_behind: bool,
    files: BTreeMap<u64, Place>,
}

impl LogPlace {
    pub(super) fn of_files(folder: &Path, now: Timestamp) -> Self {
        let hours = files(folder).into_iter();
        let recent = hours.filter(|hour| hour + HOURS >= hour_of(now));
        let files: BTreeMap<_, _> = recent
            .filter_map(|hour| Some((hour, place(folder, hour)?)))
            .collect();
        let now = files.values().copied().max_by_key(|place| place.at);
        Self {
            is_behind: now.is_some(),
            now,
            files,
        }
    }

    /// Continues after the batch `number` of the log `run`. Returns the time since which batches
    /// are missing, if any are.
    pub(super) fn pass(&mut self, run: u64, number: u64, now: Timestamp) -> Option<Timestamp> {
        let since = match self.now {
            Some(place) if place.run == run && number < place.next => {
                self.is_behind = number + 1 < place.next;
                return None;
            }
            Some(place) if (place.run, place.next) == (run, number) => None,
            None if number == 0 => None,
            place => Some(place.map_or(Timestamp::ZERO, |place| place.at)),
        };
        self.is_behind = false;
        let (next, at) = (number + 1, now);
        self.now = Some(Place { run, next, at });
        since
    }

    /// Returns whether the file of the hour has the batch.
    pub(super) fn is_in_file(&self, hour: u64, run: u64, number: u64) -> bool {
        let place = self.files.get(&hour);
        place.is_some_and(|place| place.run == run && number < place.next)
    }
}
