//! The pages of a lane that came back: redirected, refused or failed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use politely::core::Timestamp;

use super::pending::Pending;

/// Pages that came back. Few lanes have any, so an empty value takes only a pointer.
#[derive(Default)]
pub(super) struct Returned(pub(super) Option<Box<Queues>>);

#[derive(Default)]
pub(super) struct Queues {
    /// Pages redirected here that were not tried yet.
    pub(super) redirected: VecDeque<Box<Pending>>,
    /// Pages that were refused or failed, in the order in which they are tried again.
    pub(super) ready: BinaryHeap<Reverse<Ready>>,
    /// Pages that wait for a time of their own.
    pub(super) resting: BinaryHeap<Reverse<Resting>>,
}

/// A page's place in its lane's queue.
pub(super) struct Ready {
    /// URLs added to the lane before the page came back. These go first.
    pub(super) behind: u64,
    pub(super) sequence: u64,
    pub(super) pending: Box<Pending>,
}

pub(super) struct Resting {
    pub(super) not_before: Timestamp,
    pub(super) page: Ready,
}

impl Returned {
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queues| {
            queues.redirected.len() + queues.ready.len() + queues.resting.len()
        })
    }

    pub(super) fn queues(&mut self) -> &mut Queues {
        self.0.get_or_insert_default()
    }
}

/// Orders a type by the value of an expression.
macro_rules! ordered_by {
    ($name:ident, $this:ident => $by:expr) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for $name {}
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                let by = |$this: &Self| $by;
                by(self).cmp(&by(other))
            }
        }
    };
}
ordered_by!(Ready, page => (page.behind, page.sequence));
ordered_by!(Resting, resting => (resting.not_before, resting.page.sequence));
