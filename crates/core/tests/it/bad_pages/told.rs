//! Bad pages, reported one by one.

use super::*;

/// A host whose pages are reported one by one.
struct Told {
    crawl: Crawl,
}

impl Told {
    fn new() -> Self {
        let config = Config::fixed(10.0, 1.0);
        Self {
            crawl: Crawl::of(Vec::new(), config, 1),
        }
    }

    /// Sends a request for `url` as soon as it may leave, and reports `page`.
    fn tell(&mut self, url: &str, page: Page) -> Directions {
        let crawl = &mut self.crawl;
        let lease = loop {
            match crawl
                .host
                .request(crawl.now, AcquireRequest::default(), &crawl.config)
            {
                Decision::Granted(grant) => break grant.lease,
                Decision::Wait(wait) => crawl.now = wait.at.max(crawl.now),
            }
        };
        crawl.now = crawl.now + ROUND_TRIP;
        let report = page.report(url);
        (crawl.host).report(crawl.now, lease, &report, &crawl.config, &mut crawl.rng)
    }

    fn serve(&mut self, count: usize) {
        for i in 0..count {
            let told = self.tell(&format!("good {i}"), Page::Good);
            assert!(!told.url_fault && !told.event);
        }
    }

    fn held(&self, told: Directions) -> bool {
        told.hold_until > self.crawl.now
    }
}

#[test]
fn a_refusal_counts_at_first_sight_and_then_for_its_url_alone() {
    let refused = Page::Status(429, 30);
    let mut host = Told::new();
    host.serve(20);
    let first = host.tell("bad", refused);
    assert!(first.event && !first.url_fault && host.held(first));
    host.serve(1);
    // A second refusal may still be caused by a limit: its Retry-After holds the host, but the rate
    // stays.
    let second = host.tell("bad", refused);
    assert!(second.url_fault && !second.event && host.held(second));
    host.serve(1);
    for _ in 0..9 {
        let again = host.tell("bad", refused);
        assert!(again.url_fault && !again.event && !host.held(again));
        host.serve(1);
    }
    // After it is served, the URL is like any other.
    host.tell("bad", Page::Good);
    let anew = host.tell("bad", refused);
    assert!(!anew.url_fault && host.held(anew));
}

#[test]
fn a_real_limit_is_noticed_at_its_first_refusal() {
    let mut host = Told::new();
    host.serve(20);
    for i in 0..3 {
        let told = host.tell(&format!("page {i}"), Page::Status(429, 2));
        assert!(told.event && !told.url_fault && host.held(told), "{i}");
    }
}

#[test]
fn two_urls_in_a_row_are_trouble_of_a_host_that_seldom_fails() {
    for bad in [Page::Status(504, 0), Page::Status(502, 0), Page::Reset] {
        let mut host = Told::new();
        host.serve(20);
        assert!(host.tell("a", bad).url_fault);
        assert!(host.tell("a", bad).url_fault, "the same URL counts once");
        let second = host.tell("b", bad);
        assert!(second.event && !second.url_fault, "{bad:?}");
    }
}

#[test]
fn a_host_that_never_served_rests_after_one_url() {
    let mut host = Told::new();
    let began = host.crawl.now;
    for i in 0..6 {
        assert_eq!(host.tell("only", Page::Status(504, 0)).url_fault, i == 0);
    }
    let (now, config) = (host.crawl.now, host.crawl.config.clone());
    assert!(now.since(began) < Duration::from_secs(1));
    let wait = host.crawl.host.explain(now, &config).wait;
    assert_eq!(wait.map(|wait| wait.reason), Some(Reason::Breaker));
}

/// A client polls one URL. The host's outage is noticed without a request for a second URL.
#[test]
fn a_lone_url_that_was_served_rests_its_host_in_the_end() {
    let mut host = Told::new();
    for _ in 0..20 {
        host.tell("only", Page::Good);
    }
    let blamed = (0..8).filter(|_| !host.tell("only", Page::Reset).url_fault);
    assert_eq!(blamed.count(), 3);
}

#[test]
fn a_page_that_is_gone_holds_nobody() {
    for status in [404, 410, 301] {
        let mut host = Told::new();
        let told = host.tell("gone", Page::Status(status, 7_200));
        assert!(!host.held(told), "{status}");
    }
}
