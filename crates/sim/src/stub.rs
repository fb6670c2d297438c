//! Stands in for what other branches bring, under the same names; deleted when they are merged.
#![expect(missing_docs, reason = "it stands in")]

use politely_target::Signals;
use politely_target::model::{LimitSpec, Service};

use crate::scenario::{Demand, Scenario};

fn bucket(name: &str, rate: f64, burst: u32) -> Scenario {
    Scenario {
        name: name.to_owned(),
        duration_s: 900.0,
        demand: Demand::Greedy { connections: 64 },
        rtt_ms: 50.0,
        service: Service::default(),
        limit: LimitSpec::TokenBucket { rate, burst },
        signals: Signals::default(),
        faults: Vec::new(),
        workers: 1,
        coordinated: true,
    }
}

pub fn suite() -> Vec<Scenario> {
    vec![
        bucket("bucket-2", 2.0, 5),
        bucket("bucket-50", 50.0, 50),
        bucket("bucket-500", 500.0, 100),
    ]
}

pub mod generate {
    use crate::scenario::Scenario;

    pub fn train() -> Vec<Scenario> {
        generate(1, 200)
    }

    pub fn held_out() -> Vec<Scenario> {
        generate(2, 800)
    }

    fn generate(seed: u64, count: usize) -> Vec<Scenario> {
        let mut rng = politely_core::Rng::new(seed);
        (0..count)
            .map(|i| {
                let rate = libm::exp2(rng.between(-1.0, 6.0));
                super::bucket(&format!("random-{i}"), rate, 1 + i as u32 % 20)
            })
            .collect()
    }
}

pub mod rivals {
    use politely_core::{Rng, Timestamp};

    use crate::client::{Answer, Client, Reply};
    use crate::scenario::Scenario;

    pub const NAMES: &[&str] = &["one-per-second"];

    struct OnePerSecond(Timestamp, u64);

    impl Client for OnePerSecond {
        fn ask(&mut self, now: Timestamp) -> Answer {
            if now < self.0 {
                return Answer::At(self.0);
            }
            self.0 = now + std::time::Duration::from_secs(1);
            self.1 += 1;
            Answer::Go(self.1)
        }

        fn hear(&mut self, _: Timestamp, _: &Reply, _: &mut Rng) {}
    }

    pub fn build(name: &str, _: &Scenario, _: u64) -> Option<Box<dyn Client>> {
        (name == "one-per-second").then(|| Box::new(OnePerSecond(Timestamp::ZERO, 0)) as _)
    }
}

pub mod backoff {
    pub struct Row {
        pub backoff: &'static str,
        pub clients: u32,
        pub calls: f64,
        pub time_s: f64,
    }

    pub fn study(_: u64) -> Vec<Row> {
        let kinds = [
            ("none", 0.5, 0.12),
            ("exponential", 0.4, 0.4),
            ("equal", 0.09, 0.30),
            ("full", 0.08, 0.16),
            ("decorrelated", 0.083, 0.2),
        ];
        let mut rows = Vec::new();
        for (backoff, calls, time) in kinds {
            for clients in (20..=200).step_by(20) {
                let n = f64::from(clients);
                rows.push(Row {
                    backoff,
                    clients,
                    calls: calls * n * n,
                    time_s: time * n,
                });
            }
        }
        rows
    }
}
