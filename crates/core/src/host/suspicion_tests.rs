use std::collections::VecDeque;
use std::time::Duration;

use http::Method;
use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::control::LawConfig;
use crate::fault::{Company, Outage};
use crate::host::{AcquireRequest, Decision, Directions, Grant, Host};
use crate::retry::{Attempt, Next, Policy};
use crate::signal::{Alike, Resource};
use crate::{Rng, Timestamp};

#[path = "suspicion_among_others_tests.rs"]
mod among_others;
#[path = "suspicion_slow_limit_tests.rs"]
mod slow_limit;

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
        Self::with(Config::api().with_law(LawConfig::Fixed).with_rate(10.0))
    }

    fn with(config: Config) -> Self {
        Self {
            host: Host::new(&config, Timestamp::ZERO),
            config,
            now: Timestamp::ZERO,
            rng: Rng::new(7),
            sent: Vec::new(),
        }
    }

    /// Sends the request for `url` as soon as it may leave, and reports its answer.
    fn send(&mut self, url: &str, alike: Option<u32>, can_check: bool) -> Directions {
        self.report(url, answer(alike, can_check))
    }

    /// Sends the request for `url` as soon as it may leave, and reports `report`.
    fn report<'a>(&mut self, url: impl Into<Option<&'a str>>, report: Report) -> Directions {
        let grant = self.granted();
        self.told(grant, url, report)
    }

    /// Returns a permit as soon as there is one.
    fn granted(&mut self) -> Grant {
        loop {
            let asked = self
                .host
                .request(self.now, AcquireRequest::default(), &self.config);
            match asked {
                Decision::Granted(grant) => break grant,
                // A gate that waits for a report names the present time.
                Decision::Wait(wait) => self.now = wait.at.max(self.now + Duration::from_millis(1)),
            }
        }
    }

    /// Reports `report` on the request for `url`.
    fn told<'a>(
        &mut self,
        grant: Grant,
        url: impl Into<Option<&'a str>>,
        report: Report,
    ) -> Directions {
        self.sent.push(self.now);
        let report = Report {
            resource: url.into().map(Resource::of),
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

/// Returns the report on a page, or on a 403 that shares `alike` with others.
fn answer(alike: Option<u32>, can_check: bool) -> Report {
    let (signal, status) = match alike {
        Some(_) => (Signal::UrlError, 403),
        None => (Signal::Ok, 200),
    };
    Report {
        status: Some(status),
        alike: alike.map_or(Alike::Nothing, Alike::Of),
        can_check,
        ..Report::of(signal)
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
fn pages_that_are_refused_again_after_two_proofs_make_their_answer_ordinary() {
    let mut site = Site::new();
    site.served(8);
    site.until_suspected();
    let began = site.now;
    site.send("good/0", None, true);
    assert_eq!(site.send("bad/1", Some(403), false).doubt, Doubt::Suspected);
    site.send("good/0", None, true);
    assert_eq!(site.send("bad/2", Some(403), false).doubt, Doubt::None);
    assert!(site.now.since(began) < Duration::from_secs(13));
    let began = site.now;
    let mut rests = 0;
    for page in 0..100 {
        let directions = site.send(&format!("more/{page}"), Some(403), false);
        if directions.doubt == Doubt::Suspected {
            rests += 1;
            assert_eq!(site.send("good/0", None, true).doubt, Doubt::None);
        }
    }
    assert_eq!(rests, 2, "after 16 and 32 in a row");
    assert!(
        site.now.since(began) < Duration::from_secs(16),
        "10/s and rests"
    );
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
    for (signal, status) in [
        (Signal::Overloaded, None),
        (Signal::Unreachable, None),
        (Signal::RateLimited, Some(429)),
        (Signal::UrlError, Some(500)),
    ] {
        let directions = site.report(
            "good/0",
            Report {
                status,
                can_check: true,
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

/// An answer with `status` to a worker that keeps no pages, and cannot ask for one again.
fn plain(status: u16) -> Report {
    Report {
        status: Some(status),
        ..Report::of(if status == 200 {
            Signal::Ok
        } else {
            Signal::UrlError
        })
    }
}

#[test]
fn a_worker_without_proofs_is_told_to_ask_again_for_pages_that_a_suspected_host_refused() {
    let mut site = Site::new();
    site.served(8);
    let mut refused = 0;
    while !site
        .report(&*format!("bad/{refused}"), plain(403))
        .doubts(&plain(403))
    {
        refused += 1;
    }
    assert!((2..=3).contains(&refused), "{refused}");
    let began = site.now;
    let directions = site.report("bad/9", plain(200));
    assert_eq!((directions.doubt, directions.quarantines), (Doubt::None, 0));
    assert!(site.now.since(began) >= RESTS.rest_min);
}

#[test]
fn a_ban_of_a_worker_without_proofs_gets_few_requests_in_an_hour() {
    let mut site = Site::new();
    site.served(8);
    let banned_at = site.now;
    let mut directions = Directions::unknown(site.now);
    for page in 0..30 {
        directions = site.report(&*format!("page/{page}"), plain(403));
    }
    assert!(directions.refuses_all());
    let within =
        |sent: &&Timestamp| **sent > banned_at && **sent < banned_at + Duration::from_hours(1);
    let asked = site.sent.iter().filter(within).count();
    assert!(asked <= 16, "{asked}");
}

/// Requests 2,000 pages of a host that answers 403 above 3/s: to all requests of a window of ten
/// seconds, or to some of them. Returns the pages that the worker takes for forbidden, and the
/// refusals.
fn crawl_of_a_limit(is_window: bool, alike: Alike) -> (usize, usize) {
    let mut site = Site::with(Config::api());
    let mut pages: VecDeque<u32> = (0..2_000).collect();
    let (mut lost, mut refused, mut served) = (0, 0, Vec::<Timestamp>::new());
    while let Some(page) = pages.pop_front() {
        let (length, most) = if is_window { (10, 30) } else { (1, 3) };
        let began = site.now - Duration::from_secs(length);
        let recent = served.iter().rev().take_while(|at| **at > began);
        let may_serve = recent.count() < most;
        let answer = Report {
            alike,
            ..plain(if may_serve { 200 } else { 403 })
        };
        let directions = site.report(&*page.to_string(), answer.clone());
        if may_serve {
            served.push(site.now);
        } else {
            refused += 1;
            let is_limit = directions.meaning(&answer) == Signal::RateLimited;
            if is_limit || directions.doubts(&answer) {
                pages.push_front(page);
            } else {
                lost += 1;
            }
        }
    }
    (lost, refused)
}

#[test]
fn a_limit_that_answers_403_is_learned_by_workers_without_proofs() {
    for is_window in [true, false] {
        let (lost, refused) = crawl_of_a_limit(is_window, Alike::Status);
        let (all_lost, _) = crawl_of_a_limit(is_window, Alike::Nothing);
        assert!(
            lost <= 10 && refused < 100 && all_lost > 200,
            "{is_window} {lost} {refused} {all_lost}"
        );
    }
}

/// A page that always answers what proved to be a limit is a bad page, and its tries end.
#[test]
fn a_page_that_always_answers_a_known_limit_is_given_up() {
    let (policy, mut outage) = (Policy::crawler(), Outage::default());
    let mut site = Site::new();
    site.served(8);
    let mut bad = 0;
    while !site
        .report(&*format!("bad/{bad}"), plain(403))
        .doubts(&plain(403))
    {
        bad += 1;
    }
    site.report("next", plain(200));
    let last = format!("bad/{bad}");
    assert_eq!(site.report(&*last, plain(200)).doubt, Doubt::Limited);
    let mut attempt = Attempt::first(Method::GET);
    for other in 0..150 {
        outage.served();
        site.report(&*format!("other/{other}"), plain(200));
        let directions = site.report("forbidden", plain(403));
        let answer = Report {
            signal: directions.meaning(&plain(403)),
            ..plain(403)
        };
        assert_eq!(answer.signal, Signal::RateLimited);
        let company = Company::Untried;
        let now = site.now;
        let verdict = policy.judge(
            &mut outage,
            &mut attempt,
            &answer,
            &directions,
            company,
            now,
        );
        let next = policy.decide(&attempt, &answer, verdict, &mut [], &mut site.rng, now);
        let Next::Retry { after, .. } = next else {
            assert!(other < 101, "{other}");
            return;
        };
        attempt = attempt.following(&answer, after);
    }
    panic!("it is requested for ever");
}

#[test]
fn missing_pages_and_wrong_requests_make_no_host_suspected() {
    for status in [400, 404, 410, 422, 500] {
        let mut site = Site::new();
        site.served(8);
        for page in 0..50 {
            let directions = site.report(&*format!("bad/{page}"), plain(status));
            assert_eq!(directions.doubt, Doubt::None, "{status}");
        }
    }
}

#[test]
fn reports_without_a_url_count_as_reports_about_different_ones() {
    let mut site = Site::new();
    site.served(8);
    let doubts = [(); 4].map(|()| site.report(None, plain(403)).doubt);
    assert_eq!(doubts[3], Doubt::Suspected);
}

proptest! {
    /// P11: lists with a share of forbidden pages cost workers without proofs some rests each,
    /// until a page that is refused again makes the answer ordinary.
    #[test]
    fn a_share_of_forbidden_pages_costs_few_rests_without_proofs(
        share in 0.05..0.4f64,
        seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut rested = [0.0; 21];
        for rested in &mut rested {
            let mut site = Site::new();
            site.served(8);
            let began = site.now;
            let mut again = VecDeque::new();
            for page in 0..300 {
                let mut ask = |page: u32, status: u16| {
                    let directions = site.report(&*format!("page/{page}"), plain(status));
                    (directions.doubt != Doubt::Limited, directions.doubts(&plain(status)))
                };
                let status = if rng.unit() < share { 403 } else { 200 };
                let (is_right, is_kept) = ask(page, status);
                prop_assert!(is_right);
                if is_kept {
                    again.push_back(page);
                } else if let Some(page) = again.pop_front() {
                    let (is_right, is_kept) = ask(page, 403);
                    prop_assert!(is_right);
                    again.extend(is_kept.then_some(page));
                }
            }
            *rested = site.now.since(began).as_secs_f64() - 30.0;
        }
        // A run by chance may look like a ban for long, so the median counts.
        rested.sort_by(f64::total_cmp);
        prop_assert!(rested[10] < 40.0, "{rested:?}");
    }

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
