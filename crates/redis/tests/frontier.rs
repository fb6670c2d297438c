//! The promises of the frontier under random calls of three processes over one real Redis.
//!
//! A call may be broken off at any moment, as if its process were killed: between the change of a
//! domain and its note in the schedule, for example. A model knows what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use politely_core::Rng;
use politely_frontier::{
    Accepted, Answer, CrawlName, FrontierError, GiveBack, NewPage, Next, PageOutcome, Settings,
    Take, Token, Unit,
};
use politely_redis::frontier::RedisFrontier;
use politely_redis::redis::{Value, cmd, from_redis_value};
use politely_redis::{Command, Servers};
use politely_testkit::redis::RedisServer;

const PROCESSES: usize = 3;
/// Pages are few, so that calls often meet.
const DOMAINS: u64 = 4;
const PAGES: u64 = 60;
const STEPS: usize = 600;
const RUNS: u64 = 4;
/// Some leases end during the run, on any machine; others are given back before.
const LEASES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

/// A unit as its owner knows it.
struct Owned {
    token: Token,
    left: BTreeSet<String>,
    /// Whether another unit got one of its pages.
    is_over: bool,
}

struct World {
    processes: Vec<RedisFrontier>,
    crawl: CrawlName,
    rng: Rng,
    units: Vec<Owned>,
    /// Pages that were answered `new` or `known`.
    accepted: BTreeSet<String>,
    /// Pages whose last outcome was accepted.
    finished: BTreeSet<String>,
    /// Pages whose last outcome was said in a call that was broken off.
    in_doubt: BTreeSet<String>,
    highest: Token,
    broken: u32,
}

impl World {
    fn new(url: &str, seed: u64) -> Self {
        let settings = Settings::default();
        let connect = |seed| RedisFrontier::connect(url, settings.clone(), seed).expect("a URL");
        Self {
            processes: (0..PROCESSES as u64)
                .map(|at| connect(seed * 10 + at))
                .collect(),
            crawl: format!("run-{seed}").parse().expect("a name"),
            rng: Rng::new(seed),
            units: Vec::new(),
            accepted: BTreeSet::new(),
            finished: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            highest: Token(0),
            broken: 0,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end
    }

    fn process(&mut self) -> usize {
        self.below(PROCESSES as u64) as usize
    }

    /// Returns the time after which a call is broken off. Most calls end before.
    fn patience(&mut self) -> Duration {
        match self.below(4) {
            0 => Duration::from_micros(self.rng.next_u64() % 2_000),
            _ => Duration::from_secs(20),
        }
    }

    async fn put(&mut self) {
        let count = 1 + self.below(4);
        let urls: Vec<_> = (0..count).map(|_| url(self.below(PAGES))).collect();
        let pages = urls.iter().map(NewPage::of_url).collect();
        let (at, patience) = (self.process(), self.patience());
        let put = self.processes[at].put(&self.crawl, pages);
        match tokio::time::timeout(patience, put).await {
            Err(_) => self.broken += 1,
            Ok(answers) => {
                let answers = answers.expect("an engine that answers");
                for (url, answer) in urls.into_iter().zip(answers) {
                    assert!(matches!(answer, Answer::New | Answer::Known), "{answer:?}");
                    let is_first = self.accepted.insert(url.clone());
                    assert!(is_first || answer == Answer::Known, "{url} was new twice");
                }
            }
        }
    }

    async fn take(&mut self) {
        let (at, patience) = (self.process(), self.patience());
        let lease = LEASES[self.below(2) as usize];
        let shares = self.below(2) == 0;
        let most = 1 + self.below(3) as usize;
        let taking = take_many(&self.processes[at], &self.crawl, most, lease, shares);
        match tokio::time::timeout(patience, taking).await {
            Err(_) => self.broken += 1,
            Ok(units) => units.iter().for_each(|unit| self.learn(unit)),
        }
    }

    /// Learns a unit that was handed out.
    fn learn(&mut self, unit: &Unit) {
        assert!(unit.token > self.highest, "the fencing token only grows");
        self.highest = unit.token;
        let left: BTreeSet<_> = unit.pages.iter().map(|page| page.url.clone()).collect();
        assert_eq!(left.len(), unit.pages.len());
        for url in &left {
            assert!(!self.finished.contains(url), "{url} was finished");
        }
        for other in &mut self.units {
            other.is_over |= !other.left.is_disjoint(&left);
        }
        self.units.push(Owned {
            token: unit.token,
            left,
            is_over: false,
        });
    }

    /// Lets an owner speak: it finishes some pages, keeps or returns the others, and finds a page.
    async fn speak(&mut self) {
        if self.units.is_empty() {
            return;
        }
        let place = self.below(self.units.len() as u64) as usize;
        let keep = self.below(2) == 0;
        let some = self.below(3);
        let found = url(self.below(PAGES));
        let unit = &self.units[place];
        let finished: Vec<_> = unit.left.iter().take(some as usize).cloned().collect();
        let outcomes = finished.iter().map(|url| PageOutcome {
            url: url.clone(),
            status: 200,
            next: Next::Never,
        });
        let words = GiveBack {
            outcomes: outcomes.collect(),
            found: vec![NewPage::of_url(&found)],
            keep,
            ..GiveBack::of_token(unit.token)
        };
        let lease = keep.then_some(LEASES[1]);
        let (at, patience) = (self.process(), self.patience());
        let speaking = give_back(&self.processes[at], &self.crawl, words, lease);
        match tokio::time::timeout(patience, speaking).await {
            Err(_) => {
                self.broken += 1;
                self.in_doubt.extend(finished);
                self.units.remove(place);
            }
            Ok(Err(FrontierError::Stale(_))) => self.units[place].is_over = true,
            Ok(Err(why)) => panic!("{why}"),
            Ok(Ok(accepted)) => {
                let unit = &mut self.units[place];
                assert!(!unit.is_over, "words of a stale owner were accepted");
                unit.left.retain(|url| !finished.contains(url));
                assert_eq!(
                    accepted.kept as usize,
                    if keep { unit.left.len() } else { 0 }
                );
                unit.is_over = accepted.kept == 0;
                self.finished.extend(finished);
                self.accepted.insert(found);
            }
        }
    }

    /// Visits all pages that are left, and checks that none is lost.
    async fn drain(self) {
        // Leases end, and domains that were offered are offered again.
        let mut visits: BTreeMap<String, u32> = BTreeMap::new();
        let mut idle = 0;
        while idle < 30 {
            self.processes[0]
                .mend(10_000)
                .await
                .expect("an engine that answers");
            let Some(unit) = take(&self.processes[1], &self.crawl, LEASES[1], false).await else {
                idle += 1;
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            idle = 0;
            for page in &unit.pages {
                assert!(
                    !self.finished.contains(&page.url),
                    "{} was finished",
                    page.url
                );
                *visits.entry(page.url.clone()).or_default() += 1;
            }
            let outcomes = unit.pages.into_iter().map(|page| PageOutcome {
                url: page.url,
                status: 200,
                next: Next::Never,
            });
            let words = GiveBack {
                outcomes: outcomes.collect(),
                ..GiveBack::of_token(unit.token)
            };
            let accepted = give_back(&self.processes[2], &self.crawl, words, None).await;
            accepted.expect("the owner");
        }
        assert!(visits.values().all(|visits| *visits == 1), "{visits:?}");
        for url in &self.accepted {
            let was_done = self.finished.contains(url) || self.in_doubt.contains(url);
            assert!(was_done || visits.contains_key(url), "{url} was lost");
        }
        let (counts, _) = self.processes[0]
            .counts(&self.crawl)
            .await
            .expect("a crawl");
        assert_eq!(
            (counts.ready, counts.dated, counts.leased),
            (0, 0, 0),
            "{counts:?}"
        );
        assert_eq!(counts.finished(), counts.pages);
        assert!(counts.pages >= self.accepted.len() as u64);
    }
}

async fn take(
    frontier: &RedisFrontier,
    crawl: &CrawlName,
    lease: Duration,
    shares_domain: bool,
) -> Option<Unit> {
    let units = take_many(frontier, crawl, 1, lease, shares_domain).await;
    units.into_iter().next()
}

/// Takes at most `most` domains in one call.
async fn take_many(
    frontier: &RedisFrontier,
    crawl: &CrawlName,
    most: usize,
    lease: Duration,
    shares_domain: bool,
) -> Vec<Unit> {
    let wish = Take {
        crawl: None,
        pages_max: 3,
        lease,
        shares_domain,
    };
    let offers = match frontier.offers(Some(crawl), most).await {
        Err(FrontierError::UnknownCrawl(_)) => return Vec::new(),
        offers => offers.expect("an engine that answers").offers,
    };
    let wanted = offers.into_iter().map(|offer| (offer, wish.clone()));
    let taken = frontier.take(&wanted.collect::<Vec<_>>()).await;
    let taken = taken.into_iter();
    let taken = taken.filter_map(|unit| unit.expect("an engine that answers"));
    taken.collect()
}

async fn give_back(
    frontier: &RedisFrontier,
    crawl: &CrawlName,
    words: GiveBack,
    lease: Option<Duration>,
) -> Result<Accepted, FrontierError> {
    let accepted = frontier.give_back(crawl, vec![(words, lease)]).await.pop();
    accepted.expect("one answer")
}

fn url(number: u64) -> String {
    format!("https://{}.com/{number}", number % DOMAINS)
}

#[expect(clippy::disallowed_methods, reason = "the engine's clock is real")]
async fn sleep(length: Duration) {
    tokio::time::sleep(length).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_is_lost_and_no_stale_word_is_accepted() {
    let redis = RedisServer::start("");
    for seed in 1..=RUNS {
        let mut world = World::new(&redis.url(), seed);
        for _ in 0..STEPS {
            match world.below(8) {
                0 | 1 => world.put().await,
                2..=4 => world.take().await,
                5 | 6 => world.speak().await,
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
        assert!(world.broken > 0 && !world.finished.is_empty());
        world.drain().await;
    }
}

/// Adds a page, and takes it as a unit.
async fn put_and_take(frontier: &RedisFrontier, crawl: &CrawlName, url: &str) -> Unit {
    let answers = frontier.put(crawl, vec![NewPage::of_url(url)]).await;
    assert_eq!(answers.expect("an engine that answers"), [Answer::New]);
    let unit = take(frontier, crawl, Duration::from_mins(1), false).await;
    unit.expect("a page that waits")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_at_once_share_the_domains_of_a_crawl() {
    let redis = RedisServer::start("");
    let connect = |seed| RedisFrontier::connect(&redis.url(), Settings::default(), seed);
    let (one, other) = (connect(1).expect("a URL"), connect(2).expect("a URL"));
    let crawl: CrawlName = "c".parse().expect("a name");
    let pages = (0..200).map(|number| NewPage::of_url(format!("https://{number}.com/")));
    let put = one.put(&crawl, pages.collect()).await;
    put.expect("an engine that answers");
    let lease = Duration::from_mins(1);
    let work = async |process: &RedisFrontier| {
        let mut units: Vec<Unit> = Vec::new();
        loop {
            let taken = take_many(process, &crawl, 20, lease, false).await;
            if taken.is_empty() {
                return units;
            }
            units.extend(taken);
        }
    };
    let (ones, others) = tokio::join!(work(&one), work(&other));
    assert!(!ones.is_empty() && !others.is_empty(), "both get work");
    let units = || ones.iter().chain(&others);
    let domains: BTreeSet<_> = units().map(|unit| &unit.domain).collect();
    assert_eq!((units().count(), domains.len()), (200, 200));
    let tokens: BTreeSet<_> = units().map(|unit| unit.token).collect();
    assert_eq!(tokens.len(), 200, "each unit has its own token");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_unit_of_a_call_has_its_own_answer() {
    let redis = RedisServer::start("");
    let frontier = RedisFrontier::connect(&redis.url(), Settings::default(), 1).expect("a URL");
    let crawl: CrawlName = "c".parse().expect("a name");
    let pages = (0..40).map(|number| NewPage::of_url(format!("https://{number}.com/")));
    let put = frontier.put(&crawl, pages.collect()).await;
    put.expect("an engine that answers");
    let lease = Duration::from_mins(1);
    let units = take_many(&frontier, &crawl, 4, lease, false).await;
    let [done, wrong, stale, kept] = &units[..] else {
        panic!("{units:?}");
    };
    let dropped = frontier.drop_unit(&crawl, stale.token).await;
    dropped.expect("a live unit");
    let visit = |unit: &Unit, url: &str| GiveBack {
        outcomes: vec![PageOutcome {
            url: url.to_owned(),
            status: 200,
            next: Next::Never,
        }],
        ..GiveBack::of_token(unit.token)
    };
    let found = vec![NewPage::of_url("https://new.com/")];
    let words = [
        GiveBack {
            found: found.clone(),
            ..visit(done, &done.pages[0].url)
        },
        visit(wrong, &done.pages[0].url),
        GiveBack {
            found,
            ..visit(stale, &stale.pages[0].url)
        },
        GiveBack {
            keep: true,
            ..GiveBack::of_token(kept.token)
        },
    ];
    let words = words.into_iter().map(|words| (words, Some(lease)));
    let answers = frontier.give_back(&crawl, words.collect()).await;
    let [Ok(done), Err(wrong), Err(stale), Ok(kept)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((&done.answers[..], done.kept), (&[Answer::New][..], 0));
    assert!(matches!(wrong, FrontierError::NotInUnit(..)), "{wrong}");
    assert!(matches!(stale, FrontierError::Stale(_)), "{stale}");
    assert_eq!(kept.kept, 1);
    let (counts, _) = frontier.counts(&crawl).await.expect("a crawl");
    let numbers = (counts.pages, counts.ready, counts.leased);
    assert_eq!(numbers, (41, 38, 2), "{counts:?}");
}

async fn delete(redis: &RedisServer, key: &str) {
    let servers = Servers::connect(&redis.url()).expect("a URL");
    let words = cmd("DEL").arg(key).to_owned();
    let mut answers = servers.change(vec![Command { key, words }]).await;
    let deleted = answers.pop().expect("one answer").expect("an engine");
    assert_eq!(deleted, Value::Int(1), "{key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_counter_never_repeats_a_token() {
    let redis = RedisServer::start("");
    let frontier = RedisFrontier::connect(&redis.url(), Settings::default(), 1).expect("a URL");
    let crawl: CrawlName = "c".parse().expect("a name");
    let first = put_and_take(&frontier, &crawl, "https://a.com/1").await;
    delete(&redis, "pf:{token}").await;
    let second = put_and_take(&frontier, &crawl, "https://b.com/1").await;
    assert!(second.token > first.token, "{first:?} {second:?}");
    for unit in [first, second] {
        let dropped = frontier.drop_unit(&crawl, unit.token).await;
        dropped.expect("a live unit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_an_owner_are_refused_after_all_is_lost() {
    let redis = RedisServer::start("");
    let frontier = RedisFrontier::connect(&redis.url(), Settings::default(), 1).expect("a URL");
    let crawl: CrawlName = "c".parse().expect("a name");
    let lost = put_and_take(&frontier, &crawl, "https://a.com/1").await;
    let servers = Servers::connect(&redis.url()).expect("a URL");
    let words = cmd("FLUSHALL");
    let key = "any";
    for answer in servers.change(vec![Command { key, words }]).await {
        answer.expect("an engine that answers");
    }
    let stale = frontier.drop_unit(&crawl, lost.token).await;
    assert!(matches!(stale, Err(FrontierError::Stale(_))), "{stale:?}");
    let live = put_and_take(&frontier, &crawl, "https://a.com/1").await;
    let stale = frontier.drop_unit(&crawl, lost.token).await;
    assert!(matches!(stale, Err(FrontierError::Stale(_))), "{stale:?}");
    let done = GiveBack {
        outcomes: vec![PageOutcome {
            url: "https://a.com/1".to_owned(),
            status: 200,
            next: Next::Never,
        }],
        ..GiveBack::of_token(live.token)
    };
    let accepted = give_back(&frontier, &crawl, done, None).await;
    assert_eq!(accepted.expect("the owner").kept, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_listed_from_the_oldest_and_only_while_they_live() {
    let redis = RedisServer::start("");
    let frontier = RedisFrontier::connect(&redis.url(), Settings::default(), 1).expect("a URL");
    let crawl: CrawlName = "c".parse().expect("a name");
    let mut tokens = Vec::new();
    for number in 0..5 {
        let url = format!("https://{number}.com/");
        tokens.push(put_and_take(&frontier, &crawl, &url).await.token);
    }
    let listed = async |most| {
        let units = frontier.units(&crawl, most).await.expect("a crawl");
        units.into_iter().map(|unit| unit.token).collect::<Vec<_>>()
    };
    assert_eq!(listed(2).await, tokens[..2]);
    let dropped = frontier.drop_unit(&crawl, tokens.remove(0)).await;
    dropped.expect("a live unit");
    assert_eq!(listed(9).await, tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_schedule_is_rebuilt_by_whichever_process_walks() {
    let redis = RedisServer::start("");
    let connect = |seed| RedisFrontier::connect(&redis.url(), Settings::default(), seed);
    let one = connect(1).expect("a URL");
    let other = connect(2).expect("a URL");
    let crawl: CrawlName = "c".parse().expect("a name");
    let page = NewPage::of_url("https://a.com/1");
    one.put(&crawl, vec![page]).await.expect("an engine");
    let servers = Servers::connect(&redis.url()).expect("a URL");
    let words = cmd("KEYS").arg("pf:{*#*").to_owned();
    let key = "any";
    let mut answers = servers.ask(vec![Command { key, words }]).await;
    let keys = answers.pop().expect("one answer").expect("an engine");
    let keys: Vec<String> = from_redis_value(keys).expect("names");
    assert!(!keys.is_empty());
    for key in keys {
        delete(&redis, &key).await;
    }
    let lease = Duration::from_mins(1);
    assert!(take(&one, &crawl, lease, false).await.is_none());
    let minute = Duration::from_mins(1);
    assert!(one.claim_mend(minute).await.expect("an engine"));
    assert!(!other.claim_mend(minute).await.expect("an engine"));
    one.mend(10_000).await.expect("an engine");
    assert!(take(&other, &crawl, lease, false).await.is_some());
}
