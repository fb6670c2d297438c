//! Hosts that keep a run waiting for longer than it waits, once nothing else is left to do.

use politely::core::Timestamp;
use politely::core::signal::Report;

use super::lane::Lane;
use super::pending::Purpose;
use super::{LaneId, Lanes, Refused};
use crate::fetch::robots::Standing;

impl Lanes {
    /// Records the wait that an answer to a request of lane `id` asked for, told in `words`.
    pub(super) fn asked_to_wait(
        &mut self,
        id: LaneId,
        purpose: Purpose,
        report: &Report,
        words: &str,
        now: Timestamp,
    ) {
        let wait = report.retry_after.unwrap_or_default();
        if wait <= self.policy.give_up_after {
            return;
        }
        let (id, why) = match purpose {
            Purpose::Robots(of) => (
                of,
                format!("robots.txt answers {words}: the host is closed to crawlers"),
            ),
            Purpose::Page | Purpose::Proof => {
                let name = self.all[id as usize].name();
                let seconds = wait.as_secs();
                let why = format!("{name} {words}, wait {seconds} s, longer than is waited for");
                (id, why)
            }
        };
        let held = &mut self.all[id as usize].held;
        if held.as_ref().is_none_or(|known| known.0 < now + wait) {
            *held = Some((now + wait, why.into()));
        }
    }

    /// Sets the hosts aside that asked for long waits, and gives up those whose robots.txt was
    /// requested often enough, if nothing else is left. Returns whether there are any.
    pub(super) fn end_held(&mut self, now: Timestamp) -> bool {
        if self.input_open || self.in_flight > 0 || self.waiting == self.aside {
            return false;
        }
        let waited_for = now + self.policy.give_up_after;
        let has_fetched = self.sum.pages > 0;
        let is_left = |lane: &Lane| lane.set_aside.is_none() && lane.has_work();
        let is_over =
            |lane: &Lane| has_fetched && lane.robots.is_spent() || lane.is_held_beyond(waited_for);
        let mut left = self.all.iter().filter(|lane| is_left(lane)).peekable();
        if left.peek().is_none() || !left.all(is_over) {
            return false;
        }
        for id in 0..self.all.len() as LaneId {
            let lane = &mut self.all[id as usize];
            if !is_left(lane) {
                continue;
            }
            if lane.robots.is_spent() {
                let standing = std::mem::replace(&mut lane.robots, Standing::Unknown);
                lane.robots = standing.given_up(&lane.last_failure);
                self.schedule(id, now);
            } else if let Some((_, why)) = &lane.held {
                let why = why.to_string();
                self.refused(id, Refused::SetAside(why), now);
            }
        }
        true
    }
}

impl Lane {
    /// Returns whether its host asked for a wait, and nothing of it is due before `at`.
    fn is_held_beyond(&self, at: Timestamp) -> bool {
        let is_beyond = |time: Timestamp| time > at;
        self.held.as_ref().is_some_and(|held| is_beyond(held.0)) && self.due.is_some_and(is_beyond)
    }

    /// Returns whether a request of it waits, or a page is kept in doubt.
    fn has_work(&self) -> bool {
        !self.is_empty() || !self.doubts.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use politely::core::retry::Policy;
    use politely::core::signal::Signal;

    use super::super::Take;
    use super::super::tests::{add, at, lane, page, policy, sent, take};
    use super::*;
    use crate::fetch::robots::TRIES_MAX;

    /// Returns the pages of two hosts. The input is over.
    fn two_hosts(robots: bool) -> Lanes {
        let policy = Policy {
            give_up_after: Duration::from_mins(1),
            ..policy()
        };
        let mut lanes = Lanes::new(robots, policy);
        for (host, number) in [("a", 1), ("a", 2), ("b", 3)] {
            let url = format!("http://{host}.example/");
            let id = lane(&mut lanes, &url);
            add(&mut lanes, id, page(&url, number), at(0.0));
        }
        lanes.close_input();
        lanes
    }

    fn held_until(end: f64) -> impl Fn(&Lane) -> Result<(), Refused> {
        move |lane| match lane.name() {
            "a.example" => Err(Refused::Held(at(end), "a.example hold".to_owned())),
            _ => Ok(()),
        }
    }

    #[test]
    fn a_long_hold_ends_the_run_once_nothing_else_is_left() {
        let mut lanes = two_hosts(false);
        let (b, _) = sent(lanes.take(at(0.0), held_until(100.0)));
        let next = lanes.take(at(0.0), held_until(100.0));
        assert!(matches!(next, Take::Wait(_)), "a request is in flight");
        lanes.came_back(b, at(1.0));
        assert!(matches!(lanes.take(at(1.0), held_until(100.0)), Take::Done));
        assert_eq!(lanes.set_aside(0), Some((0, "a.example hold")));
    }

    #[test]
    fn a_hold_that_ends_soon_is_waited_for() {
        let mut lanes = two_hosts(false);
        let (b, _) = sent(lanes.take(at(50.0), held_until(100.0)));
        lanes.came_back(b, at(51.0));
        let next = lanes.take(at(51.0), held_until(100.0));
        assert!(matches!(next, Take::Wait(Some(end)) if end == at(100.0)));
        assert_eq!(lanes.set_aside(0), None);
    }

    #[test]
    fn a_robots_txt_with_a_long_wait_ends_the_run_with_its_answer() {
        let mut lanes = two_hosts(false);
        let (b, _) = sent(lanes.take(at(0.0), held_until(1.0)));
        lanes.came_back(b, at(1.0));
        let a = &mut lanes.all[0];
        a.robots = Standing::Unavailable {
            tries: 1,
            until: at(3600.0),
        };
        let report = Report {
            retry_after: Some(Duration::from_hours(1)),
            ..Report::of(Signal::RateLimited)
        };
        lanes.asked_to_wait(0, Purpose::Robots(0), &report, "503 Busy", at(0.0));
        assert!(matches!(take(&mut lanes, at(1.0)), Take::Done));
        let (_, why) = lanes.set_aside(0).unwrap();
        assert_eq!(
            why,
            "robots.txt answers 503 Busy: the host is closed to crawlers"
        );
    }

    #[test]
    fn a_robots_txt_that_was_asked_for_often_enough_is_not_waited_for() {
        for (tries, ends) in [(TRIES_MAX, true), (TRIES_MAX - 1, false)] {
            let mut lanes = two_hosts(false);
            let (b, _) = sent(lanes.take(at(0.0), held_until(1.0)));
            lanes.over(b, false);
            lanes.came_back(b, at(1.0));
            lanes.all[0].robots = Standing::Unavailable {
                tries,
                until: at(60.0),
            };
            let next = take(&mut lanes, at(1.0));
            let gives_up = matches!(&next, Take::Drop(_, _, why) if why.contains("5 tries"));
            assert_eq!(gives_up, ends, "{tries} tries");
        }
    }
}
