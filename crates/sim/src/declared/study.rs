//! The cases, and the table of all clients in all cases.

use std::time::Duration;

use politely_core::budget::DeclaredLimits;
use politely_core::{Rng, Timestamp};

use super::fixed_window::FixedWindows;
use super::keeper::{Keeper, Polite};
use super::moving_window::MovingWindow;
use super::run::run;
use super::server::Server;
use super::usage_router::UsageRouter;

/// Runs per row.
const SEEDS: u64 = 5;
/// A whole minute and hour of the clients' clocks, in seconds since 1970.
const BEGIN_S: u64 = 1_795_003_200;
/// The midnights of Berlin from the 24th to the 27th of October 2026, in seconds since 1970. The
/// 25th has 25 hours.
const MIDNIGHTS_S: [u64; 4] = [1_792_792_800, 1_792_879_200, 1_792_969_200, 1_793_055_600];

/// Creates a client; `None` if it knows no such limits.
type Start = fn(DeclaredLimits, Timestamp) -> Option<Box<dyn Keeper>>;

/// The clients with their names in tables.
const KEEPERS: [(&str, Start); 4] = [
    ("politely", |limits, now| {
        Some(Box::new(Polite::new(limits, now)))
    }),
    ("fixed-window", |limits, _| {
        Some(Box::new(FixedWindows::new(&limits)))
    }),
    ("moving-window", |limits, _| {
        Some(Box::new(MovingWindow::new(&limits)))
    }),
    ("usage-router", |limits, _| {
        Some(Box::new(UsageRouter::new(&limits)?))
    }),
];

/// One line of the study: the worst of five runs.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptLimits {
    /// The declared limits.
    pub limits: &'static str,
    /// The client.
    pub client: &'static str,
    /// The smallest share of the limit that was used most, 0 to 1.
    pub used: f64,
    /// The largest share of requests that the server refused, 0 to 1.
    pub refused: f64,
    /// The most requests that were sent.
    pub sent: u64,
}

/// Declared limits, and a server that enforces them.
pub(super) struct Case {
    pub(super) text: &'static str,
    pub(super) begin: Timestamp,
    /// The length of a run. It begins in the first hour after `begin`, at a time of its own.
    pub(super) length: Duration,
    /// The tokens of a request, from and to; `None` where tokens are not limited.
    pub(super) tokens: Option<(u64, u64)>,
    /// The boundaries of calendar windows.
    pub(super) midnights_s: &'static [u64],
}

/// The limits that the project's promises name.
pub(super) fn cases() -> Vec<Case> {
    let case = |text, hours, tokens| Case {
        text,
        begin: Timestamp::from_micros(BEGIN_S * 1_000_000),
        length: Duration::from_hours(hours),
        tokens,
        midnights_s: &[],
    };
    vec![
        case("10/s; 300/min", 1, None),
        case("5000/h", 12, None),
        Case {
            begin: Timestamp::from_micros(MIDNIGHTS_S[0] * 1_000_000),
            midnights_s: &MIDNIGHTS_S,
            ..case("1000/day@Europe/Berlin", 72, None)
        },
        case("500/min; 200k tokens/min", 1, Some((200, 600))),
    ]
}

impl Case {
    pub(super) fn limits(&self) -> DeclaredLimits {
        self.text.parse().expect("a limit")
    }

    fn row(&self, (client, start): (&'static str, Start)) -> Option<KeptLimits> {
        let mut row = KeptLimits {
            limits: self.text,
            client,
            used: f64::INFINITY,
            refused: 0.0,
            sent: 0,
        };
        for seed in 1..=SEEDS {
            let mut rng = Rng::new(seed);
            let begin = self.begin + Duration::from_hours(1).mul_f64(rng.unit());
            let mut keeper = start(self.limits(), begin)?;
            let server = Server::new(self, begin, &mut rng);
            let (server, sent) = run(self, begin, &mut *keeper, server, rng);
            row.used = row.used.min(server.used());
            row.refused = row.refused.max(server.refused() as f64 / sent as f64);
            row.sent = row.sent.max(sent);
        }
        Some(row)
    }
}

/// Runs every client in every case, five times each.
pub fn study() -> Vec<KeptLimits> {
    let rows = |case: Case| KEEPERS.map(|keeper| case.row(keeper));
    cases().into_iter().flat_map(rows).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(name: &str) -> (&'static str, Start) {
        let found = KEEPERS.into_iter().find(|(known, _)| *known == name);
        found.unwrap()
    }

    /// P10, and how much of the limits a client may leave unused.
    #[test]
    fn politely_uses_declared_limits_and_is_never_refused() {
        for case in cases() {
            let row = case.row(KEEPERS[0]).unwrap();
            assert_eq!(row.refused.to_bits(), 0, "{row:?}");
            let least = if case.tokens.is_some() { 0.95 } else { 0.98 };
            assert!(row.used >= least, "{row:?}");
        }
    }

    /// Windows of the client's clock, exact windows without room for the network, and tokens that
    /// count after the answer.
    #[test]
    fn the_others_are_refused() {
        let cases = cases();
        for (case, client, refused) in [
            (&cases[0], "fixed-window", 0.002..0.02),
            (&cases[2], "moving-window", 0.01..0.1),
            (&cases[3], "fixed-window", 0.005..0.05),
            (&cases[3], "moving-window", 0.001..0.01),
            (&cases[3], "usage-router", 0.01..0.1),
        ] {
            let row = case.row(keeper(client)).unwrap();
            assert!(refused.contains(&row.refused), "{row:?}");
        }
        assert_eq!(cases[0].row(keeper("usage-router")), None);
    }

    #[test]
    fn same_seed_same_row() {
        let case = &cases()[0];
        for keeper in KEEPERS {
            assert_eq!(case.row(keeper), case.row(keeper), "{}", keeper.0);
        }
    }
}
