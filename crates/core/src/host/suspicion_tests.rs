use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Rng;
use crate::config::Config;
use crate::control::LawConfig;
use crate::host::{AcquireRequest, Decision, Directions};

/// A host whose server refuses by `refuses`, and a caller that keeps refused pages.
struct Site {
    host: Host,
    config: Config,
    now: Timestamp,
    rng: Rng,
    /// When requests were sent.
    sent: Vec<Timestamp>,
}

impl Site {
    fn new() -> Self {
        let config = Config::api().with_law(LawConfig::Fixed).with_rate(10.0);
        Self {
            host: Host::new(&config, Timestamp::ZERO),
            config,
            now: Timestamp::ZERO,
            rng: Rng::new(7),
            sent: Vec::new(),
        }
    }

    /// Sends the request for `url` as soon as it may leave, and reports its answer.
    fn send(&mut self, url: &str, alike: Option<u32>, was_served: bool) -> Directions {
        let (signal, status) = match alike {
            Some(_) => (Signal::UrlError, 403),
            None => (Signal::Ok, 200),
        };
        let report = Report {
            status: Some(status),
            alike,
            was_served,
            ..Report::of(signal)
        };
        self.report(url, report)
    }

    /// Sends the request for `url` as soon as it may leave, and reports `report`.
    fn report(&mut self, url: &str, report: Report) -> Directions {
        let grant = loop {
            let asked = self
                .host
                .request(self.now, AcquireRequest::default(), &self.config);
            match asked {
                Decision::Granted(grant) => break grant,
                // A gate that waits for a report names the present time.
                Decision::Wait(wait) => self.now = wait.at.max(self.now + Duration::from_millis(1)),
            }
        };
        self.sent.push(self.now);
        let report = Report {
            resource: Some(Resource::of(url)),
            latency: Duration::from_millis(20),
            ..report
        };
        let (host, config) = (&mut self.host, &self.config);
        host.report(self.now, grant.lease, &report, config, &mut self.rng)
    }

    fn served(&mut self, pages: u32) {
        for page in 0..pages {
            assert_eq!(
                self.send(&format!("good/{page}"), None, false).doubt,
                Doubt::None
            );
        }
    }

    /// Sends pages that get the same answer until the host is suspected. Returns their number.
    fn until_suspected(&mut self) -> u32 {
        (1..50)
            .find(|page| {
                let doubt = self.send(&format!("bad/{page}"), Some(403), false).doubt;
                assert_ne!(doubt, Doubt::Limited);
                doubt == Doubt::Suspected
            })
            .expect("a host that refuses everything is suspected")
    }
}

#[test]
fn a_host_that_answers_different_pages_alike_is_suspected_after_three_or_four() {
    for pages in [1, 8, 100] {
        let mut site = Site::new();
        site.served(pages);
        assert!((3..=4).contains(&site.until_suspected()), "{pages}");
    }
}

#[test]
fn a_suspected_host_gets_few_requests_in_an_hour() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    let banned_at = site.now;
    for _ in 0..30 {
        let directions = site.send("good/0", Some(403), true);
        assert_eq!(directions.doubt, Doubt::Suspected);
        assert!(directions.quarantines > 1);
    }
    let within =
        |sent: &&Timestamp| **sent > banned_at && **sent < banned_at + Duration::from_hours(1);
    let asked = site.sent.iter().filter(within).count();
    assert!(asked <= 16, "{asked}");
}

#[test]
fn a_proof_and_a_refused_page_that_is_served_tell_a_limit() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    assert_eq!(site.send("good/0", None, true).doubt, Doubt::Checking);
    let checked = site.send("bad/1", None, false);
    assert_eq!(checked.doubt, Doubt::Limited);
    assert!(checked.event);
    assert_eq!(checked.quarantines, 0);
    assert_eq!(site.send("good/1", None, false).doubt, Doubt::None);
}

#[test]
fn a_page_that_is_refused_again_after_the_proof_makes_its_answer_ordinary() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    site.send("good/0", None, true);
    assert_eq!(site.send("bad/1", Some(403), false).doubt, Doubt::None);
    let began = site.now;
    for page in 0..100 {
        let directions = site.send(&format!("more/{page}"), Some(403), false);
        assert_eq!((directions.doubt, directions.quarantines), (Doubt::None, 0));
    }
    assert!(site.now.since(began) < Duration::from_secs(11), "10/s");
    assert_eq!(site.send("other", Some(404), false).doubt, Doubt::Unclear);
}

#[test]
fn a_killed_caller_that_lost_its_refused_pages_goes_on() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    site.send("good/0", None, true);
    let bytes = site.host.snapshot();
    site.host = Host::restore(&bytes, site.now, &site.config).unwrap();
    site.host.forget_leases();
    let directions = site.send("next", None, false);
    assert_eq!((directions.doubt, directions.quarantines), (Doubt::None, 0));
}

#[test]
fn a_proof_without_an_answer_is_sent_again() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    for signal in [Signal::Overloaded, Signal::Unreachable, Signal::RateLimited] {
        let directions = site.report(
            "good/0",
            Report {
                was_served: true,
                ..Report::of(signal)
            },
        );
        assert_eq!(directions.doubt, Doubt::Suspected, "{signal:?}");
    }
    assert_eq!(site.send("good/0", None, true).doubt, Doubt::Checking);
}

#[test]
fn a_caller_without_a_proof_goes_on_once_a_page_is_served() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    assert_eq!(site.send("bad/9", Some(403), false).doubt, Doubt::Suspected);
    let directions = site.send("next", None, false);
    assert_eq!((directions.doubt, directions.quarantines), (Doubt::None, 0));
}

#[test]
fn a_host_that_never_served_is_not_suspected() {
    let mut site = Site::new();
    for page in 0..20 {
        let directions = site.send(&format!("bad/{page}"), Some(403), false);
        assert_eq!(directions.doubt, Doubt::None);
    }
}

#[test]
fn one_page_that_is_refused_again_and_again_makes_no_host_suspected() {
    let mut site = Site::new();
    site.served(8);
    for _ in 0..50 {
        assert_ne!(site.send("bad", Some(403), false).doubt, Doubt::Suspected);
    }
}

proptest! {
    /// P11: a list with a share of dead pages loses at most a few seconds.
    #[test]
    fn a_share_of_bad_pages_costs_few_rests(share in 0.05..0.6f64, seed in any::<u64>()) {
        let (mut site, mut rng) = (Site::new(), Rng::new(seed));
        site.served(8);
        let began = site.now;
        let mut next = None;
        for page in 0..600 {
            let is_bad = rng.unit() < share;
            let directions = match next.take() {
                Some(Doubt::Suspected) => {
                    site.send("good/0", None, true);
                    site.send("bad/0", Some(404), false)
                }
                _ if is_bad => site.send(&format!("bad/{page}"), Some(404), false),
                _ => site.send(&format!("page/{page}"), None, false),
            };
            prop_assert_ne!(directions.doubt, Doubt::Limited);
            next = Some(directions.doubt);
        }
        prop_assert!(site.now.since(began) < Duration::from_secs(60 + 20), "{:?}", site.now.since(began));
    }

    #[test]
    fn a_state_in_doubt_is_restored_to_the_byte(answers in proptest::collection::vec(0..4u32, 1..60)) {
        let mut site = Site::new();
        site.served(3);
        for (page, answer) in answers.into_iter().enumerate() {
            let alike = (answer > 0).then_some(400 + answer);
            site.send(&format!("{}", page % 20), alike, page % 5 == 0);
            let bytes = site.host.snapshot();
            let restored = Host::restore(&bytes, site.now, &site.config).unwrap();
            prop_assert_eq!(restored.snapshot(), bytes);
        }
    }
}
