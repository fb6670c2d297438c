//! Random hosts in ordinary trouble, for tuning a law and for judging it.
//!
//! The sets of [`mod@crate::generate`] hold static limits without trouble. These sets hold nine
//! families of equal size: six in turn, and after them three in turn that were added later. There
//! is one set for tuning, [`train`], and one on which nothing is tuned, [`held_out`]. Both seeds
//! were written down before tuning began.
//!
//! | family | what is random |
//! | --- | --- |
//! | `calm` | limit of 0.5 to 60/s, no trouble |
//! | `fast` | limit of 50 to 1,000/s, or none in one of eight; round trip 20 ms, service 5 to 30 ms |
//! | `early outage` | one outage of 3 to 120 s, begins at 2 to 20 s |
//! | `outages` | one to four outages of 5 to 300 s |
//! | `blips` | outages of 0.5 to 3 s, one every 30 to 240 s |
//! | `noise` | 0.5 to 3 % of the answers are 429, 500, 502 or 503 |
//! | `slow spells` | one to four spells of 5 to 300 s; answers take 2 to 10 times as long |
//! | `told outages` | one to four outages of 5 to 300 s; a Retry-After comes late in each |
//! | `bad pages` | 0.5 to 5 % of the pages fail at every attempt: 500, 502, 503 or 504 |
//!
//! Limits, service times and signals are drawn as in [`mod@crate::generate`]. An outage answers
//! 500, 502, 503 or 504, closes the connections or stays silent. A run lasts 2,000 s / L, at least
//! 900 s and at most 2,700 s; a fast one lasts 600 s.

use politely_core::Rng;
use politely_target::Signals;
use politely_target::model::{FaultSpec, LimitSpec, Service};

use crate::generate::{below, greedy, limit, log_uniform, rounded, signals, title};
use crate::scenario::{BadPages, Scenario};

/// The seed of the scenarios for tuning. It was written down before tuning began.
pub const TRAIN_SEED: u64 = 20_261_125;

/// The seed of the scenarios for judging. It was written down before tuning began; nothing is tuned
/// on it.
pub const HELD_OUT_SEED: u64 = 27_182_818_284;

/// The number of scenarios of a family for tuning.
const TRAIN_COUNT: usize = 40;

/// The number of scenarios of a family for judging.
const HELD_OUT_COUNT: usize = 120;

/// The families that come first, in the order of tables.
pub const FAMILIES: [&str; 6] = ["calm", "fast", "early outage", "outages", "blips", "noise"];

/// The families that were added later. They come after all others, which so stay as they were.
pub const LATER_FAMILIES: [&str; 3] = ["slow spells", "told outages", "bad pages"];

/// The limits outside `fast`, in requests per second.
const RATES: (f64, f64) = (0.5, 60.0);
/// The limits of `fast`.
const FAST_RATES: (f64, f64) = (50.0, 1_000.0);
/// The length of a run of `fast`.
const FAST_S: f64 = 600.0;
/// Statuses of an outage; beside them it may reset connections or stay silent.
const STATUSES: [u16; 4] = [500, 502, 503, 504];
/// Statuses of noise.
const NOISE: [u16; 4] = [429, 500, 502, 503];

/// Returns the scenarios for tuning.
pub fn train() -> Vec<Scenario> {
    field("train-field", TRAIN_SEED, TRAIN_COUNT)
}

/// Returns the scenarios for judging.
pub fn held_out() -> Vec<Scenario> {
    field("held-field", HELD_OUT_SEED, HELD_OUT_COUNT)
}

/// Returns `count` scenarios of each family from `seed`.
pub fn field(set: &str, seed: u64, count: usize) -> Vec<Scenario> {
    let mut seeds = Rng::new(seed);
    let in_turn = |families: &'static [&str]| {
        (0..count * families.len()).map(|index| families[index % families.len()])
    };
    (in_turn(&FAMILIES).chain(in_turn(&LATER_FAMILIES)))
        .enumerate()
        .map(|(index, family)| {
            let mut scenario = draw(family, &mut Rng::new(seeds.next_u64()));
            scenario.name = format!("{set}-{index:03} {family}: {}", scenario.name);
            scenario
        })
        .collect()
}

fn draw(family: &str, rng: &mut Rng) -> Scenario {
    let is_fast = family == "fast";
    let (low, high) = if is_fast { FAST_RATES } else { RATES };
    let rate = log_uniform(rng, low, high);
    let (kind, limit) = limit(rng, rate);
    let unlimited = is_fast && below(rng, 8) == 0;
    let (kind, limit) = if unlimited {
        ("no limit", LimitSpec::None {})
    } else {
        (kind, limit)
    };
    let mean_ms = if is_fast {
        (5.0, 30.0)
    } else {
        (30.0, 1_000.0)
    };
    let service = Service {
        mean_ms: rounded(log_uniform(rng, mean_ms.0, mean_ms.1), 10.0),
        cv: rounded(rng.between(0.1, 0.8), 100.0),
    };
    let signals: Signals = signals(rng);
    let duration_s = if is_fast {
        FAST_S
    } else {
        (2_000.0 / rate).clamp(900.0, 2_700.0).round()
    };
    Scenario {
        family: Some(family.to_owned()),
        rtt_ms: if is_fast { 20.0 } else { 50.0 },
        faults: faults(family, duration_s, rng),
        bad_pages: (family == "bad pages").then(|| BadPages {
            share: rounded(rng.between(0.005, 0.05), 10_000.0),
            status: STATUSES[below(rng, STATUSES.len())],
        }),
        outage_told_from: (family == "told outages").then(|| rounded(rng.between(0.0, 0.8), 100.0)),
        ..greedy(title(kind, &limit), duration_s, service, limit, signals)
    }
}

fn faults(family: &str, duration_s: f64, rng: &mut Rng) -> Vec<FaultSpec> {
    match family {
        "early outage" => {
            let from_s = rng.between(2.0, 20.0);
            let length_s = log_uniform(rng, 3.0, 120.0);
            vec![outage(from_s, length_s, rng)]
        }
        "outages" => spells(duration_s, rng, outage),
        "told outages" => spells(duration_s, rng, |from_s, length_s, rng| FaultSpec::Outage {
            from_s: rounded(from_s, 10.0),
            to_s: rounded(from_s + length_s, 10.0),
            status: STATUSES[below(rng, STATUSES.len())],
        }),
        "slow spells" => spells(duration_s, rng, |from_s, length_s, rng| {
            FaultSpec::Brownout {
                from_s: rounded(from_s, 10.0),
                to_s: rounded(from_s + length_s, 10.0),
                slower: rounded(log_uniform(rng, 2.0, 10.0), 10.0),
                share: 0.0,
                status: 503,
            }
        }),
        "blips" => {
            let every_s = log_uniform(rng, 30.0, 240.0);
            let (mut faults, mut at_s) = (Vec::new(), every_s * rng.between(0.5, 1.5));
            while at_s < duration_s {
                let length_s = rng.between(0.5, 3.0);
                faults.push(outage(at_s, length_s, rng));
                at_s += every_s * rng.between(0.5, 1.5);
            }
            faults
        }
        "noise" => vec![FaultSpec::Noise {
            share: rounded(rng.between(0.005, 0.03), 10_000.0),
            status: NOISE[below(rng, NOISE.len())],
        }],
        _ => Vec::new(),
    }
}

/// Returns one to four faults of 5 to 300 s.
fn spells(
    duration_s: f64,
    rng: &mut Rng,
    fault: impl Fn(f64, f64, &mut Rng) -> FaultSpec,
) -> Vec<FaultSpec> {
    let count = 1 + below(rng, 4);
    // Each has a part of the run for itself, so that they do not overlap.
    let part_s = duration_s / count as f64;
    (0..count)
        .map(|index| {
            let length_s = log_uniform(rng, 5.0, 300.0).min(part_s * 0.8);
            let room_s = part_s - length_s;
            let from_s = part_s * index as f64 + rng.between(0.05, 1.0) * room_s;
            fault(from_s, length_s, rng)
        })
        .collect()
}

fn outage(from_s: f64, length_s: f64, rng: &mut Rng) -> FaultSpec {
    let (from_s, to_s) = (rounded(from_s, 10.0), rounded(from_s + length_s, 10.0));
    match below(rng, STATUSES.len() + 2) {
        0 => FaultSpec::Reset { from_s, to_s },
        1 => FaultSpec::Silence { from_s, to_s },
        other => FaultSpec::Outage {
            from_s,
            to_s,
            status: STATUSES[other - 2],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_as_large_as_they_say_and_the_families_equal() {
        for (set, count) in [(train(), TRAIN_COUNT), (held_out(), HELD_OUT_COUNT)] {
            for family in FAMILIES.into_iter().chain(LATER_FAMILIES) {
                let of = set
                    .iter()
                    .filter(|one| one.family.as_deref() == Some(family));
                assert_eq!(of.count(), count, "{family}");
            }
        }
    }

    /// The generator must not change after tuning began; otherwise the sets would not be the same.
    #[test]
    fn the_sets_are_the_ones_written_down() {
        let hash = |set: &[Scenario]| {
            let json = serde_json::to_string(&set).unwrap();
            json.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3) // FNV-1a, 64 bits
            })
        };
        let (train, held_out) = (train(), held_out());
        let first = (hash(&train[..240]), hash(&held_out[..720]));
        assert_eq!(first, (0xcfa0_624b_7cd3_31b7, 0x67bc_267b_2fca_7cf8));
        let later = (hash(&train[240..]), hash(&held_out[720..]));
        assert_eq!(later, (0x29f5_74cd_d937_ec5c, 0xd6c5_cd76_6a3d_0c03));
    }

    #[test]
    fn all_are_valid_and_a_file_carries_them_unchanged() {
        let set = field("random", 7, 100);
        for one in &set {
            one.validate().unwrap();
        }
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(Scenario::read(&json).unwrap(), set);
    }
}
