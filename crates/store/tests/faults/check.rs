//! The promises, checked against what happened. Each bound follows from the numbers of the
//! schedule.

use politely_core::gate::Tally;
use politely_core::host::HORIZON;

use super::apart::Known;
use super::books::{Arrival, Books};
use super::dice::{CALL_TIMEOUT, DRIFT_PPM, Micros, SECOND};
use super::locker::{Fenced, HOLDERS_MAX, LockHeld, is_lossless};
use super::plan::{Fault, Memory, Plan};
use politely_store::testing::FALLBACK_MAX as ALONE;

impl Books {
    /// Returns all broken promises.
    pub(super) fn check(&self, plan: &Plan, tallies: &[Option<Tally>]) -> Vec<String> {
        let mut wrongs = self.wrongs.clone();
        if self.granted == 0 && plan.faults.is_empty() {
            wrongs.push("nothing was granted".to_owned());
        }
        wrongs.extend(self.locks(plan));
        if !plan.fixed {
            return wrongs;
        }
        for key in 0..plan.keys {
            wrongs.extend(self.pace(plan, key));
            wrongs.extend(self.in_flight(plan, key));
            wrongs.extend(self.holds(plan, key));
            wrongs.extend(self.away(plan, key));
        }
        wrongs.extend(self.balance(plan, tallies));
        wrongs
    }

    /// P12. No two sessions have the same fencing number on a key. Without a loss, and without a
    /// step of the clock, no more sessions hold a key than may.
    fn locks(&self, plan: &Plan) -> Option<String> {
        let is_twice = |(at, seen): &(usize, &Fenced)| {
            let mut before = self.fencing[..*at].iter();
            before.any(|other| (other.key, other.number) == (seen.key, seen.number))
        };
        let twice = self.fencing.iter().enumerate().find(is_twice);
        if let Some((_, seen)) = twice.filter(|_| self.clock_sets.is_empty()) {
            return Some(format!(
                "P12: {seen:?} is the number of another session too"
            ));
        }
        if !is_lossless(plan) {
            return None;
        }
        let beside = |held: &LockHeld| {
            let others = self.locks_held.iter().filter(|other| {
                other.key == held.key && other.from <= held.from && held.from < other.until
            });
            others.count()
        };
        let mut held = self.locks_held.iter().filter(|held| held.from < held.until);
        let over = held.find(|held| beside(held) > usize::from(HOLDERS_MAX))?;
        Some(format!(
            "P12: {} sessions hold a key, {over:?}",
            beside(over)
        ))
    }

    fn of(&self, key: usize) -> Vec<Arrival> {
        let of = self.arrivals.iter().filter(|arrival| arrival.key == key);
        of.copied().collect()
    }

    /// P1. The starts in shared time are those of a token bucket. A window W holds at most burst +
    /// rate x (W + 2 ms). [`politely_core::gate::Pace`] keeps the 2 ms beyond the burst for timers.
    ///
    /// A request may be sent before its start by the drift of its clock over 5 s: 2 s of readings,
    /// 1 s until they are stale, and a horizon of 2 s. It may be sent after its start by `late`,
    /// and by the time that the answer to the best heartbeat took. Grants that the engine forgot
    /// may be granted again (P7), see [`Books::forgotten`].
    fn pace(&self, plan: &Plan, key: usize) -> Option<String> {
        let rate = plan.config.limits.rate_start;
        let burst = plan.config.limits.burst;
        let drift = 5.0 * DRIFT_PPM as f64 / 1e6;
        let way = plan.wire.longest() as f64 / 1e6;
        let arrivals = self.of(key);
        let mut worst: Option<(f64, String)> = None;
        for i in 0..arrivals.len() {
            let mut from = f64::MAX;
            for (j, last) in arrivals.iter().enumerate().skip(i) {
                from = from.min(last.at as f64 / 1e6 - last.late as f64 / 1e6 - way - drift);
                let until = last.at as f64 / 1e6 + drift;
                let bound = burst + rate * (until - from + 0.002);
                // Each grant may be short of a whole token, since Pace rounds.
                let count = (j - i + 1) as f64;
                let over = count * (1.0 - 1e-9) - bound;
                if over <= 0.0 || worst.as_ref().is_some_and(|(most, _)| over <= *most) {
                    continue;
                }
                let window = (from, until);
                let over = over
                    - self.forgotten(plan, key, window)
                    - self.misjudged(plan, window)
                    - self.granted_apart(plan, window)
                    - Self::shared_out(plan, window);
                if over > 0.0 && worst.as_ref().is_none_or(|(most, _)| over > *most) {
                    let text = format!(
                        "P1: k{key}: {count} arrivals in {from:.6}..{until:.6}, {over:.3} more than {burst} + {rate:.3}/s allow"
                    );
                    worst = Some((over, text));
                }
            }
        }
        worst.map(|(_, text)| text)
    }

    /// P7. Forgotten grants may be granted again, but no more than were forgotten, and no more than
    /// may be reserved ahead. With `wait` a failover forgets no grant that was delivered. A new
    /// cell begins with an empty bucket.
    fn forgotten(&self, plan: &Plan, key: usize, (from, until): (f64, f64)) -> f64 {
        let rate = plan.config.limits.rate_start;
        let horizon = HORIZON.as_secs_f64();
        let losses = self.losses.iter().filter(|loss| loss.key == key);
        let within = losses.filter(|loss| {
            let at = loss.at as f64 / 1e6;
            // Requests granted before are sent until a horizon and at most one and a half graces of
            // 0.5 s later.
            at <= until && at + horizon + 0.75 >= from
        });
        let again = within.filter(|loss| loss_of(plan, loss.at) == Kind::Some);
        again
            .map(|loss| (loss.grants as f64).min(rate * horizon))
            .sum()
    }

    /// Returns the excess from steps of the clock that are not seen: shorter than 0.1 s (STEP), or
    /// hidden by the round trips of two heartbeats.
    fn misjudged(&self, plan: &Plan, (from, until): (f64, f64)) -> f64 {
        let rate = plan.config.limits.rate_start;
        // A delayed heartbeat that is still answered in time hides as much as a call may take.
        let delayed = if plan.wire.delayed > 0.0 {
            CALL_TIMEOUT
        } else {
            0
        };
        let each = rate * (0.1 + (4 * plan.wire.longest() + delayed) as f64 / 1e6);
        let within = self.clock_sets.iter().filter(|at| {
            let at = **at as f64 / 1e6;
            at <= until && at + 10.0 >= from
        });
        within.count() as f64 * each
    }

    /// P2. A lease that the engine forgot does not count until its holder writes it again. If all
    /// holders are alive and connected, they do so before a new cell grants a permit.
    fn in_flight(&self, plan: &Plan, key: usize) -> Option<String> {
        let cap = i64::from(plan.config.limits.in_flight);
        let all_there = self.gone.is_empty() && plan.wire.loses_nothing();
        let losses: Vec<_> = self
            .losses
            .iter()
            .filter(|loss| loss.key == key)
            .filter(|loss| match loss_of(plan, loss.at) {
                Kind::Nothing => false,
                Kind::Some => true,
                Kind::All => !all_there,
            })
            .collect();
        // A grant from before may be delivered until a call times out.
        let known = self.of(key).into_iter().filter(|arrival| {
            let since = losses.iter().map(|loss| loss.at);
            // A fallback share may not know the last grants.
            let mut since = since.chain(plan.aways().map(|(began, _)| began));
            let forgotten =
                since.any(|at| arrival.granted <= at + CALL_TIMEOUT && arrival.end >= at);
            !forgotten && !self.told_nobody(plan, arrival)
        });
        let known: Vec<_> = known.collect();
        [Known::All, Known::Apart].into_iter().find_map(|to| {
            let mut side = known.clone();
            side.retain(|arrival| self.known_to(plan, arrival) == to);
            let (at, most) = most_at_once(&side).filter(|(_, most)| *most > cap)?;
            let at = at as f64 / 1e6;
            Some(format!(
                "P2: k{key}: {most} in flight at {at:.6}, cap {cap}"
            ))
        })
    }

    /// P4. Once the engine has the hold, nothing is granted until it is over. Permits granted
    /// before hold leases, of which there are no more than the cap.
    fn holds(&self, plan: &Plan, key: usize) -> Option<String> {
        let arrivals = self.of(key);
        let cap = plan.config.limits.in_flight as usize;
        let drift = 5 * SECOND * DRIFT_PPM / 1_000_000;
        for held in self.held.iter().filter(|held| held.key == key) {
            let Some(from) = held.committed else { continue };
            let mut until = held.at + held.length;
            until -= until.min(plan.wire.longest() + 2 * drift);
            if from == Micros::MAX
                || self
                    .losses
                    .iter()
                    .any(|loss| loss.key == key && loss.at >= held.at && loss.at <= until)
            {
                continue;
            }
            if self
                .clock_sets
                .iter()
                .any(|at| *at + 10 * SECOND >= held.at && *at <= until)
            {
                continue;
            }
            if self.were_apart(plan, held.at, until) {
                continue;
            }
            let within = arrivals
                .iter()
                .filter(|arrival| arrival.at > from && arrival.at < until);
            let within = within.count();
            if within > cap {
                return Some(format!(
                    "P4: k{key}: {within} arrivals in the Retry-After {:.6}..{:.6}, cap {cap}",
                    from as f64 / 1e6,
                    until as f64 / 1e6
                ));
            }
        }
        None
    }

    /// P8. Nothing is sent while the engine is unavailable. Its last answer may take as long as a
    /// call. Its grants may start a horizon later, or a call later, and be sent up to two graces of
    /// 0.5 s after their start.
    fn away(&self, plan: &Plan, key: usize) -> Option<String> {
        let mut most = HORIZON.as_micros() as Micros + 2 * CALL_TIMEOUT + SECOND;
        if plan.shares {
            most += ALONE.as_micros() as Micros;
        }
        let arrivals = self.arrivals.iter();
        let mut late = arrivals.filter(|arrival| arrival.key == key && arrival.away > most);
        let at = late.next()?.at as f64 / 1e6;
        Some(format!(
            "P8: k{key}: an arrival at {at:.6}, the engine long away"
        ))
    }

    /// P3. The cell holds the outcome of every delivered permit, and all other permits are
    /// cancelled.
    ///
    /// This holds under four conditions: no process was killed or cut off; nothing was forgotten;
    /// no call was carried out long after its time-out; no commit was in doubt for as long as a
    /// lease.
    fn balance(&self, plan: &Plan, tallies: &[Option<Tally>]) -> Option<String> {
        let mut all = Tally::default();
        for tally in tallies.iter().flatten() {
            if tally.granted != tally.reported + tally.cancelled + tally.expired + tally.live {
                return Some(format!("P3: {tally:?}"));
            }
            all.granted += tally.granted;
            all.reported += tally.reported;
            all.cancelled += tally.cancelled;
            all.expired += tally.expired;
            all.live += tally.live;
        }
        let lease = plan.config.lease.as_micros() as Micros;
        let late = plan.wire.delayed > 0.0 || self.doubt + SECOND >= lease;
        let apart = !self.splits.is_empty() || plan.aways().next().is_some();
        if late
            || apart
            || !self.losses.is_empty()
            || !self.gone.is_empty()
            || !self.clock_sets.is_empty()
        {
            return None;
        }
        // A permit that its holder gave up as expired may expire before that is written.
        let over = all.expired + all.live;
        let expired = over.checked_sub(self.abandoned);
        let told = self.reported == all.reported
            && expired.is_some_and(|expired| expired <= self.lease_over)
            && (all.cancelled + over).checked_sub(self.cancelled + self.abandoned)
                == all.granted.checked_sub(self.granted);
        (!told).then(|| {
            format!(
                "P3: the cells say {tallies:?}; delivered {}, reported {}, cancelled {}, abandoned {}",
                self.granted, self.reported, self.cancelled, self.abandoned
            )
        })
    }
}

/// Returns the largest number of requests at a time, and when.
fn most_at_once(arrivals: &[Arrival]) -> Option<(Micros, i64)> {
    let steps = |arrival: &Arrival| [(arrival.at, 1), (arrival.end, -1)];
    let mut steps: Vec<(Micros, i64)> = arrivals.iter().flat_map(steps).collect();
    // An end at the same time makes room for a start.
    steps.sort_unstable();
    let at_once = steps.iter().scan(0, |now, (at, step)| {
        *now += step;
        Some((*at, *now))
    });
    at_once.max_by_key(|(at, now)| (*now, std::cmp::Reverse(*at)))
}

/// The extent of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No grant that was sent.
    Nothing,
    Some,
    All,
}

fn loss_of(plan: &Plan, at: Micros) -> Kind {
    let mut kinds = plan
        .faults
        .iter()
        .filter_map(|(began, fault)| match *fault {
            Fault::Flush | Fault::Restart(Memory::Nothing, _) if *began == at => Some(Kind::All),
            Fault::Restart(Memory::Snapshot(_), _) if *began == at => Some(Kind::Some),
            Fault::Failover { cut, .. } if began + cut == at && plan.waits => Some(Kind::Nothing),
            Fault::Failover { cut, .. } if began + cut == at => Some(Kind::Some),
            _ => None,
        });
    kinds.next().unwrap_or(Kind::All)
}

/// Returns the time by which all requests from before the end of `plan.load` must be done.
pub(super) fn deadline(plan: &Plan) -> Micros {
    let over = plan.faults.iter().map(|(at, fault)| at + fault.lasts());
    let quiet = over.max().unwrap_or(0).max(plan.load);
    if !plan.fixed {
        // A law that learns may choose to wait.
        return quiet + 30 * SECOND;
    }
    let interval = (1e6 / plan.config.limits.rate_start.min(1.0)) as Micros;
    let waiting = (plan.coordinators * plan.workers * plan.keys) as u64;
    // Shared time may stand still for a minute. Then the leases of killed processes expire, and
    // then each caller gets its turn, at worst after a Retry-After or a rest.
    let lease = plan.config.lease.as_micros() as Micros;
    quiet + 70 * SECOND + 2 * lease + waiting * (4 * interval + 5 * SECOND + plan.work.service.1)
}
