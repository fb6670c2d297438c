//! What is promised, checked on what happened, exactly: every bound follows from the schedule's own numbers.

use politely_core::gate::Tally;
use politely_core::host::HORIZON;

use super::apart::Known;
use super::books::{Arrival, Books};
use super::dice::{CALL_TIMEOUT, DRIFT_PPM, Micros, SECOND};
use super::plan::{Fault, Memory, Plan};
use politely_store::testing::FALLBACK_MAX as ALONE;

impl Books {
    /// All that is wrong.
    pub(super) fn check(&self, plan: &Plan, tallies: &[Option<Tally>]) -> Vec<String> {
        let mut wrongs = self.wrongs.clone();
        if self.granted == 0 && plan.faults.is_empty() {
            wrongs.push("nothing was granted".to_owned());
        }
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

    fn of(&self, key: usize) -> Vec<Arrival> {
        let of = self.arrivals.iter().filter(|arrival| arrival.key == key);
        of.copied().collect()
    }

    /// P1. Starts in shared time are a token bucket's: no window of W holds more than burst + rate x (W + 2 ms), the 2 ms
    /// being what [`politely_core::gate::Pace`] keeps beyond the burst for timers. A request leaves no earlier than its
    /// start, but for what its clock drifts from when the engine's was read (2 s of looks, 1 s until they are too old,
    /// HORIZON ahead: 5 s), and later by what `late` says and by how long the engine's answer to the best look took on
    /// its way back. Grants that the engine forgot may be given again (P7), see [`Books::forgotten`].
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
                // Each grant may be short of a whole token by what Pace takes for rounding.
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

    /// P7: what an engine forgot may be granted again, but never more than was forgotten, nor more than may be reserved
    /// ahead. With `wait` no failover forgets anything that left; and who finds nothing at all begins with nothing.
    fn forgotten(&self, plan: &Plan, key: usize, (from, until): (f64, f64)) -> f64 {
        let rate = plan.config.limits.rate_start;
        let horizon = HORIZON.as_secs_f64();
        let losses = self.losses.iter().filter(|loss| loss.key == key);
        let within = losses.filter(|loss| {
            let at = loss.at as f64 / 1e6;
            // Those granted before may leave until a horizon, and a grace of 0.5 s at most twice, after.
            at <= until && at + horizon + 1.0 >= from
        });
        let again = within.filter(|loss| loss_of(plan, loss.at) == Kind::Some);
        again
            .map(|loss| (loss.grants as f64).min(rate * horizon))
            .sum()
    }

    /// A clock that was set by less than 0.1 s (STEP) or by what the ways of two looks hide is not told from one that
    /// was not.
    fn misjudged(&self, plan: &Plan, (from, until): (f64, f64)) -> f64 {
        let rate = plan.config.limits.rate_start;
        // A request that is delayed and answered in time hides as much as a call may take.
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

    /// P2. Those whose leases the engine forgot are nobody's until their holders say so; where all holders are there and heard,
    /// they do before anybody is granted a permit from nothing at all.
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
        // What was granted before may be delivered as long as a call takes after.
        let known = self.of(key).into_iter().filter(|arrival| {
            let since = losses.iter().map(|loss| loss.at);
            // Who goes on with a share may not know what was granted last.
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

    /// P4. Once the engine has it, nothing is granted until it is over; what was granted before holds a lease, of which
    /// there are no more than the cap.
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

    /// P8. The engine's last answer may have taken as long as a call does, what it granted may start a horizon later, or as much
    /// later as a call takes, and leave up to two graces of 0.5 s after its start.
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

    /// P3. Where nobody was killed or away, nothing forgotten, no request carried out seconds after it was given up and no
    /// coordinator in doubt for as long as a lease (its permits may be over before anybody hears of them), every permit that was delivered is in the cell as what became of it,
    /// whether the engine stood still or not; and all that were not were cancelled.
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
        // One that its holder gave up for being over may be over before that is written.
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

/// How many at most, and since when.
fn most_at_once(arrivals: &[Arrival]) -> Option<(Micros, i64)> {
    let steps = |arrival: &Arrival| [(arrival.at, 1), (arrival.end, -1)];
    let mut steps: Vec<(Micros, i64)> = arrivals.iter().flat_map(steps).collect();
    // Who ends makes room for who begins.
    steps.sort_unstable();
    let at_once = steps.iter().scan(0, |now, (at, step)| {
        *now += step;
        Some((*at, *now))
    });
    at_once.max_by_key(|(at, now)| (*now, std::cmp::Reverse(*at)))
}

/// How much an engine forgot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing that left.
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

/// When all must be done that was asked for before `plan.load` ended.
pub(super) fn deadline(plan: &Plan) -> Micros {
    let over = plan.faults.iter().map(|(at, fault)| at + fault.lasts());
    let quiet = over.max().unwrap_or(0).max(plan.load);
    if !plan.fixed {
        // What a law learns to wait is its own to say.
        return quiet + 30 * SECOND;
    }
    let interval = (1e6 / plan.config.limits.rate_start.min(1.0)) as Micros;
    let waiting = (plan.coordinators * plan.workers * plan.keys) as u64;
    // Shared time may stand still for a minute; then leases of the dead run out; then each is served in its turn, at worst
    // after a Retry-After or a rest.
    let lease = plan.config.lease.as_micros() as Micros;
    quiet + 70 * SECOND + 2 * lease + waiting * (4 * interval + 5 * SECOND + plan.work.service.1)
}
