//! Measures the frontier in a Redis or Valkey that runs already, and deletes what it wrote.
//!
//! ```text
//! redis-server --port 6399 --save '' &
//! cargo bench --profile dist -p politely-redis --features frontier --bench frontier -- \
//!     redis://127.0.0.1:6399 1000000 100000 10
//! ```
//!
//! Arguments: URL, pages, domains, pages of a domain in a row. A line tells pages per second of the
//! wall clock, and per second that the engine used its processor. The first is the rate of this
//! process and the engine together; the second is what one core of the engine can do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use politely_frontier::{
    Answer, CrawlName, GiveBack, NewPage, Next, PageOutcome, Settings, Take, TakenPage, Unit,
};
use politely_redis::frontier::RedisFrontier;
use politely_redis::redis::{Client, InfoDict, cmd};

/// The pages of one call, as the coordinator's `put` sends them.
const BATCH: usize = 5_000;
/// The calls at a time.
const CALLERS: usize = 4;
const UNITS: usize = 20_000;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let [url, rest @ ..] = &args[..] else {
        println!("name a server that may be filled: redis://127.0.0.1:6399 PAGES DOMAINS");
        return;
    };
    let number = |at: usize, default| {
        rest.get(at)
            .map_or(default, |text: &String| text.parse().expect("a number"))
    };
    let (pages, domains) = (number(0, 200_000), number(1, 20_000));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure(url, pages, domains, number(2, 10)));
}

async fn measure(url: &str, pages: usize, domains: usize, in_row: usize) {
    let frontier = RedisFrontier::connect(url, Settings::default(), 7).expect("a URL");
    let frontier = Arc::new(frontier);
    let crawl: CrawlName = "bench".parse().expect("a name");
    for (what, wanted) in [("new", Answer::New), ("known", Answer::Known)] {
        let meter = Meter::start(url);
        let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let callers = (0..CALLERS).map(|_| {
            let (frontier, next) = (Arc::clone(&frontier), Arc::clone(&next));
            let (crawl, wanted) = (crawl.clone(), wanted.clone());
            tokio::spawn(async move {
                loop {
                    let first = next.fetch_add(BATCH, std::sync::atomic::Ordering::Relaxed);
                    let batch = first..(first + BATCH).min(pages);
                    if batch.is_empty() {
                        return;
                    }
                    let batch: Vec<_> = batch.map(|number| page(number, domains, in_row)).collect();
                    let answers = loop {
                        match frontier.put(&crawl, batch.clone()).await {
                            Ok(answers) => break answers,
                            Err(why) => println!("again, since {why}"),
                        }
                    };
                    assert!(
                        answers
                            .iter()
                            .all(|answer| *answer == wanted || *answer == Answer::Known)
                    );
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("a caller");
        }
        meter.tell(&format!("put of {what} pages, {domains} domains"), pages);
    }
    for (callers, units) in [(1, 1), (8, 1), (1, 64), (8, 64)] {
        exchange(url, &frontier, &crawl, callers, units).await;
    }
    frontier.delete(&crawl, None).await.expect("an answer");
    while entries(url) > 3 {
        frontier.mend(10_000).await.expect("an answer");
    }
}

/// Takes units of ten pages and gives them back, by some callers with so many units in a call.
async fn exchange(
    url: &str,
    frontier: &Arc<RedisFrontier>,
    crawl: &CrawlName,
    callers: usize,
    units: usize,
) {
    let meter = Meter::start(url);
    let work = (0..callers).map(|_| {
        let (frontier, crawl) = (Arc::clone(frontier), crawl.clone());
        tokio::spawn(async move {
            let mut spent = Vec::new();
            let mut done = 0;
            while done < UNITS / callers {
                let began = clock();
                let taken = take(&frontier, &crawl, units).await;
                spent.push(began.elapsed());
                if taken.is_empty() {
                    break;
                }
                done += taken.len();
                let words = taken.into_iter().map(|unit| (visited(unit), None));
                let accepted = frontier.give_back(&crawl, words.collect()).await;
                assert!(accepted.iter().all(Result::is_ok), "an owner was refused");
            }
            (done, spent)
        })
    });
    let (mut done, mut spent) = (0, Vec::new());
    for caller in work.collect::<Vec<_>>() {
        let (units, calls) = caller.await.expect("a caller");
        done += units;
        spent.extend(calls);
    }
    meter.tell(
        &format!("take and done by {callers} callers with {units} units a call"),
        done,
    );
    spent.sort_unstable();
    let at = |share: usize| spent[(spent.len() - 1) * share / 100];
    println!("  of it take: median {:?}, p99 {:?}", at(50), at(99));
}

/// Returns the words of an owner that visited all pages.
fn visited(unit: Unit) -> GiveBack {
    let outcome = |page: TakenPage| PageOutcome {
        url: page.url,
        status: 200,
        next: Next::Never,
    };
    GiveBack {
        outcomes: unit.pages.into_iter().map(outcome).collect(),
        ..GiveBack::of_token(unit.token)
    }
}

/// Takes as many units, or none if nothing waits.
async fn take(frontier: &RedisFrontier, crawl: &CrawlName, units: usize) -> Vec<Unit> {
    let take = Take {
        crawl: None,
        pages_max: 10,
        lease: Duration::from_mins(1),
        shares_domain: false,
    };
    loop {
        let found = frontier.offers(Some(crawl), units).await;
        let offers = found.expect("an answer").offers.into_iter();
        let wanted: Vec<_> = offers.map(|offer| (offer, take.clone())).collect();
        let taken = frontier.take(&wanted).await.into_iter();
        let taken: Vec<_> = taken.filter_map(|unit| unit.expect("an answer")).collect();
        if !taken.is_empty() || wanted.is_empty() {
            return taken;
        }
    }
}

fn page(number: usize, domains: usize, in_row: usize) -> NewPage {
    // A crawler finds pages of a few domains at a time.
    let domain = (number / in_row).wrapping_mul(7_919) % domains;
    NewPage::of_url(format!(
        "https://www.example-{domain}.com/a/path/of/usual/length/{number}.html"
    ))
}

/// The time that passes here and on the engine's processor.
struct Meter {
    url: String,
    began: Instant,
    engine: f64,
}

impl Meter {
    fn start(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            began: clock(),
            engine: processor(url),
        }
    }

    fn tell(self, what: &str, count: usize) {
        let (wall, engine) = (
            self.began.elapsed().as_secs_f64(),
            processor(&self.url) - self.engine,
        );
        let memory = info(&self.url, "memory")
            .get::<u64>("used_memory")
            .unwrap_or(0);
        println!(
            "{what}: {:.0}/s, {:.0} per engine core and second, {} MB in the engine",
            count as f64 / wall,
            count as f64 / engine.max(1e-9),
            memory >> 20
        );
    }
}

fn info(url: &str, section: &str) -> InfoDict {
    let mut connection = Client::open(url)
        .and_then(|client| client.get_connection())
        .expect("a server");
    cmd("INFO")
        .arg(section)
        .query(&mut connection)
        .expect("an answer")
}

/// Returns the seconds for which the engine has used a processor.
fn processor(url: &str) -> f64 {
    let info = info(url, "cpu");
    let part = |name| info.get::<f64>(name).unwrap_or(0.0);
    part("used_cpu_sys_main_thread") + part("used_cpu_user_main_thread")
}

fn entries(url: &str) -> u64 {
    let mut connection = Client::open(url)
        .and_then(|client| client.get_connection())
        .expect("a server");
    cmd("DBSIZE").query(&mut connection).expect("an answer")
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn clock() -> Instant {
    Instant::now()
}
