//! The ladder of blame: own machine, way, host, page. One worker crawls several hosts while all
//! four levels are in trouble at random times. No page pays for a level above it.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use http::Method;
use politely_core::config::Config;
use politely_core::fault::machine::Trouble;
use politely_core::fault::{Company, Machine, Outage, Ways};
use politely_core::gate::LeaseId;
use politely_core::host::{AcquireRequest, Decision, Host};
use politely_core::retry::{Attempt, GiveUpReason, Next, Policy};
use politely_core::signal::{Failure, Report, Resource, Signal};
use politely_core::{Rng, Timestamp};
use proptest::prelude::*;

const BEGIN: Timestamp = Timestamp::from_micros(1_795_000_000_000_000);
const LATENCY: Duration = Duration::from_millis(20);
const HOSTS: usize = 4;
const WAYS: usize = 2;
const PAGES: usize = 150;
/// Further pages of each host. Without others, a page that fails is taken for one at fault after a
/// minute.
const MORE: usize = 600;

/// Seconds since the beginning.
type Spell = Range<u64>;

/// What goes wrong, and when.
#[derive(Clone, Debug)]
struct Troubles {
    machine: Vec<Spell>,
    ways: [Vec<Spell>; WAYS],
    /// No answer comes from the host.
    down: [Vec<Spell>; HOSTS],
    /// The host answers 403 to everything.
    refuses: [Vec<Spell>; HOSTS],
    /// One in so many pages of the first host always answers 500.
    bad_every: usize,
}

fn spells(begin: Range<u64>, length: Range<u64>) -> impl Strategy<Value = Vec<Spell>> {
    let spell = (begin, length).prop_map(|(begin, length)| begin..begin + length);
    prop::collection::vec(spell, 0..2)
}

fn troubles() -> impl Strategy<Value = Troubles> {
    (
        spells(15..200, 1..200),
        [spells(0..200, 1..100), spells(0..200, 1..100)],
        [(); HOSTS].map(|()| spells(15..200, 1..400)),
        [(); HOSTS].map(|()| spells(15..200, 1..7_200)),
        5..40_usize,
    )
        .prop_map(|(machine, ways, down, refuses, bad_every)| Troubles {
            machine,
            ways,
            down,
            refuses,
            bad_every,
        })
}

struct Site {
    host: Host,
    outage: Outage,
    pages: VecDeque<Page>,
    /// When requests met the refusing host, and the pages that were lost to it.
    refused: Vec<Timestamp>,
    lost: u32,
    ended: Timestamp,
}

impl Site {
    fn has_pages(&self) -> bool {
        self.pages.iter().any(|page| page.number < PAGES)
    }
}

struct Page {
    number: usize,
    attempt: Attempt,
    due: Timestamp,
}

struct Worker {
    troubles: Troubles,
    sites: Vec<Site>,
    machine: Machine,
    ways: Ways,
    policy: Policy,
    config: Config,
    rng: Rng,
    now: Timestamp,
    turn: usize,
    /// Its knowledge of a host's other pages. Without any, the failures of a host are refused
    /// connections.
    company: Company,
}

/// A request that has a permit.
struct Sending {
    site: usize,
    lease: LeaseId,
    page: Page,
}

impl Worker {
    fn new(troubles: Troubles, more: usize, company: Company, seed: u64) -> Self {
        let config = Config::fixed(2.0, 1.0);
        let page = |number| Page {
            number,
            attempt: Attempt::first(Method::GET),
            due: BEGIN,
        };
        let site = |_| Site {
            host: Host::new(&config, BEGIN),
            outage: Outage::default(),
            pages: (0..PAGES + more).map(page).collect(),
            refused: Vec::new(),
            lost: 0,
            ended: BEGIN,
        };
        Self {
            sites: (0..HOSTS).map(site).collect(),
            machine: Machine::default(),
            ways: Ways::new(WAYS),
            policy: Policy::crawler(),
            rng: Rng::new(seed),
            now: BEGIN,
            turn: 0,
            troubles,
            config,
            company,
        }
    }

    fn is_in(&self, spells: &[Spell]) -> bool {
        let second = self.now.since(BEGIN).as_secs();
        spells.iter().any(|spell| spell.contains(&second))
    }

    fn crawl(mut self) -> Self {
        while self.sites.iter().any(Site::has_pages) {
            assert!(self.now.since(BEGIN) < Duration::from_hours(24), "it ends");
            if let Err(probe) = self.machine.may_send(self.now, false) {
                self.now = probe;
                continue;
            }
            match self.next() {
                Ok(sending) => self.send(sending),
                Err(wake) => self.now = wake.max(self.now + Duration::from_millis(1)),
            }
        }
        self
    }

    /// Returns a page that may leave, or when to look again. The hosts take turns.
    fn next(&mut self) -> Result<Sending, Timestamp> {
        let mut wake = Timestamp::NEVER;
        for step in 0..HOSTS {
            let number = (self.turn + step) % HOSTS;
            let site = &mut self.sites[number];
            let due = site.pages.iter().map(|page| page.due).min();
            let Some(due) = due else { continue };
            if due > self.now {
                wake = wake.min(due);
                continue;
            }
            match (site.host).request(self.now, AcquireRequest::default(), &self.config) {
                Decision::Wait(wait) => wake = wake.min(wait.at),
                Decision::Granted(grant) => {
                    let due = site.pages.iter().enumerate();
                    let due = due.filter(|(_, page)| page.due <= self.now);
                    let (at, _) = due.min_by_key(|(_, page)| page.number).unwrap();
                    self.turn = number + 1;
                    return Ok(Sending {
                        site: number,
                        lease: grant.lease,
                        page: site.pages.remove(at).unwrap(),
                    });
                }
            }
        }
        Err(wake)
    }

    fn send(&mut self, sending: Sending) {
        let mut preferred = self.turn;
        loop {
            let way = match self.ways.choose(self.now, preferred) {
                Ok(way) => way,
                Err(next_try) => return self.put_back(sending, next_try),
            };
            if !self.is_in(&self.troubles.ways[way]) {
                self.ways.worked(way, 0);
                break;
            }
            self.ways.failed(self.now, way);
            preferred = way + 1;
        }
        self.now = self.now + LATENCY;
        let site = sending.site;
        let is_down = self.is_in(&self.troubles.machine) || self.is_in(&self.troubles.down[site]);
        if is_down {
            let answered = self.sites[site].outage.has_answered();
            let host = site as u32;
            if (self.machine).failed(self.now, host, answered, Trouble::Silent) {
                return self.put_back(sending, self.now);
            }
        } else {
            self.machine.answered(self.now);
        }
        let report = self.report(&sending, is_down);
        self.tell(sending, &report);
    }

    /// Puts a page back that nothing was learned of.
    fn put_back(&mut self, sending: Sending, due: Timestamp) {
        let site = &mut self.sites[sending.site];
        (site.host).cancel(self.now, sending.lease, None, &self.config);
        site.pages.push_front(Page {
            due,
            ..sending.page
        });
    }

    fn report(&mut self, sending: &Sending, is_down: bool) -> Report {
        let (site, number) = (sending.site, sending.page.number);
        let is_bad = site == 0 && number % self.troubles.bad_every == 1;
        let report = if is_down {
            Report {
                failure: Some(match self.company {
                    Company::Unknown => Failure::Connect,
                    _ => Failure::Timeout,
                }),
                ..Report::of(Signal::Overloaded)
            }
        } else if self.is_in(&self.troubles.refuses[site]) {
            self.sites[site].refused.push(self.now);
            Report {
                status: Some(403),
                ..Report::of(Signal::UrlError)
            }
        } else if is_bad {
            Report {
                status: Some(500),
                ..Report::of(Signal::UrlError)
            }
        } else {
            Report {
                status: Some(200),
                ..Report::of(Signal::Ok)
            }
        };
        Report {
            resource: Some(Resource::of(&number.to_string())),
            latency: LATENCY,
            failed_before: sending.page.attempt.failures.own > 0,
            ..report
        }
    }

    fn tell(&mut self, sending: Sending, report: &Report) {
        let Sending {
            site: number,
            lease,
            mut page,
        } = sending;
        let is_bad = number == 0 && page.number % self.troubles.bad_every == 1;
        let (now, rng) = (self.now, &mut self.rng);
        let site = &mut self.sites[number];
        let told = (site.host).report(now, lease, report, &self.config, rng);
        let report = &Report {
            signal: told.meaning(report),
            ..report.clone()
        };
        let attempt = &mut page.attempt;
        let is_served = self.policy.is_served(report) && !told.doubts(report);
        if is_served {
            site.outage.served();
        }
        let company = self.company;
        let verdict = (self.policy).judge(&mut site.outage, attempt, report, &told, company, now);
        match (self.policy).decide(attempt, report, verdict, &mut [], rng, now) {
            Next::Done if page.number < PAGES => site.ended = now,
            Next::Done => {}
            Next::Retry { after, .. } => {
                page.attempt = page.attempt.clone().following(report, after);
                page.due = now + after;
                site.pages.push_back(page);
            }
            Next::GiveUp(GiveUpReason::Status(403) | GiveUpReason::RefusesAll(403)) => {
                site.lost += 1;
            }
            Next::GiveUp(why) => assert!(is_bad, "a good page is lost: {why}"),
        }
    }
}

proptest! {
    #[test]
    fn no_page_pays_for_its_host_a_way_or_the_machine(troubles in troubles(), seed in any::<u64>()) {
        let worker = Worker::new(troubles.clone(), MORE, Company::Untried, seed).crawl();
        let length = |spells: &[Spell]| -> u64 { spells.iter().map(|spell| spell.end - spell.start).sum() };
        let ways = troubles.ways.iter().map(|spells| length(spells)).max();
        for (number, site) in worker.sites.iter().enumerate() {
            let refuses = length(&troubles.refuses[number]);
            // The first pages that a host refuses look like forbidden pages.
            let lost_max = match refuses {
                0 => 0,
                1..120 => 3,
                _ => PAGES as u32,
            };
            prop_assert!(site.lost <= lost_max, "host {number} lost {} pages", site.lost);
            let of_first_hour =
                |at: &&Timestamp| at.since(site.refused[0]) < Duration::from_hours(1);
            let refused = site.refused.iter().filter(of_first_hour).count();
            prop_assert!(refused < 20, "host {number} refused {refused} in an hour");
            if refuses == 0 && troubles.down[number].is_empty() && number > 0 {
                let trouble = length(&troubles.machine) + ways.unwrap_or(0);
                let usual = Duration::from_secs(trouble + 60 + PAGES as u64 * 11 / 20);
                let took = site.ended.since(BEGIN);
                prop_assert!(took < usual, "host {number} took {took:?} of {usual:?}");
            }
        }
    }

    /// Its last pages fail alone, one after the other.
    #[test]
    fn no_page_pays_for_an_outage_if_nobody_knows_of_others(
        mut troubles in troubles(),
        seed in any::<u64>(),
    ) {
        troubles.refuses = Default::default();
        troubles.bad_every = usize::MAX;
        let worker = Worker::new(troubles, 0, Company::Unknown, seed).crawl();
        prop_assert!(worker.sites.iter().all(|site| site.pages.is_empty()));
    }
}
