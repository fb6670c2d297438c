//! `politely demo`: fetches a town of limited hosts, and then shows their real limits.
//!
//! The town runs in this process on loopback. A client without limits crawls it first, and loses
//! pages. Then a town with the same limits is crawled as `politely fetch` would crawl a list. The
//! judge reports what each host allowed and saw. The limiter reports what it found.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use politely_target::{HostReport, Target, Town};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::args::DemoArgs;
use crate::config::{Knobs, Settings, SummaryForm};
use crate::exit::{Exit, Wrong, runtime};
use crate::fetch::{self, KeyEnd, Names, Sources};

/// The number of requests that the client without limits has in flight at each host. Scrapy's
/// default is 8.
const NAIVE_IN_FLIGHT: usize = 8;
/// The width of the column `limit`: the longest limit of the demo. The table then fits 120 columns.
const LIMIT_COLUMNS: usize = 37;
/// Time between two lines about the client without limits.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// The time-out of the client without limits.
const NAIVE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Wrong> {
    let mut town = Town::demo();
    for host in &mut town.hosts {
        host.pages = args.pages.unwrap_or(host.pages);
    }
    // The hosts have their own thread: the crawl has its own runtime and must not starve them.
    let runtime = runtime(Builder::new_multi_thread().worker_threads(1))?;
    let start = |town: Town| {
        let started = runtime.block_on(Target::start(town));
        started.map_err(|why| Wrong(why.to_string()))
    };

    let target = start(town.clone())?;
    let pages: usize = target
        .hosts()
        .iter()
        .map(|host| host.page_urls().count())
        .sum();
    eprintln!(
        "{} hosts with hidden limits, {pages} pages; first a client without limits:",
        target.hosts().len()
    );
    let took = runtime.block_on(async {
        tokio::select! {
            took = fetch_without_limits(&target) => took,
            never = tell(&target) => match never {},
        }
    });
    let report = runtime.block_on(async { target.shutdown() });
    println!(
        "without limits: {} of {pages} pages lost, {:.1} % of requests refused, {:.1} s",
        pages as u64 - fetched_pages(&report.hosts),
        report.refused_share() * 100.0,
        took.as_secs_f64()
    );

    let target = start(town)?;
    // The URLs are mixed, host after host, as in the list of a real crawl.
    let hosts: Vec<Vec<String>> = target
        .hosts()
        .iter()
        .map(|host| host.page_urls().collect())
        .collect();
    let longest = hosts.iter().map(Vec::len).max().unwrap_or(0);
    let urls: Vec<String> = (0..longest)
        .flat_map(|i| hosts.iter().filter_map(move |host| host.get(i).cloned()))
        .collect();
    let names = target.hosts().iter();
    let names: Names = names
        .map(|host| (host.addr.to_string(), host.name.clone()))
        .collect();
    eprintln!("with politely, the same limits and pages:");
    let settings = Settings::layered(
        None,
        Knobs {
            // A line per page would push the progress off the screen.
            output: Some(PathBuf::from("/dev/null")),
            summary: Some(SummaryForm::None),
            ..Knobs::default()
        },
    )?;
    let fetched = fetch::fetch(settings, Sources::open(&urls, None)?, names, None)?;
    let report = runtime.block_on(async { target.shutdown() });
    let found: HashMap<String, KeyEnd> = fetched
        .keys
        .into_iter()
        .map(|key| (key.name.clone(), key))
        .collect();

    println!(
        "{:<18} {:<LIMIT_COLUMNS$} {:>7} {:>7} {:<21} {:>5} {:>7} {:>6} {:>6}",
        "host",
        "limit",
        "limit/s",
        "found/s",
        "held back by",
        "pages",
        "refused",
        "took s",
        "best s"
    );
    for host in &report.hosts {
        println!("{}", row(host, found.get(&host.addr.to_string())));
    }
    let (took, best) = (report.took_s(), report.best_s());
    println!(
        "with politely: {} of {pages} pages lost, {:.1} % of requests refused, {took:.1} s where {best:.1} s is the best possible ({:.2} x)",
        pages as u64 - fetched_pages(&report.hosts),
        report.refused_share() * 100.0,
        took / best
    );
    println!(
        "found/s: pages served in the last ten seconds of each host. Next: politely fetch --input urls.txt \
         --output results.jsonl"
    );
    Ok(fetched.exit)
}

/// Says every few seconds what the hosts have seen so far.
async fn tell(target: &Target) -> Infallible {
    loop {
        tokio::time::sleep(TELL_EVERY).await;
        let report = target.judge();
        let refused: u64 = report.hosts.iter().map(|host| host.refused).sum();
        let fetched = fetched_pages(&report.hosts);
        eprintln!("{fetched} fetched, {refused} refused");
    }
}

fn fetched_pages(hosts: &[HostReport]) -> u64 {
    hosts.iter().map(|host| host.pages).sum()
}

/// Requests each page once, as fast as the hosts answer. Returns how long it took.
async fn fetch_without_limits(target: &Target) -> Duration {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let began = Instant::now();
    let mut hosts = JoinSet::new();
    for host in target.hosts() {
        let (client, mut urls) = (
            client.clone(),
            host.page_urls().collect::<Vec<_>>().into_iter(),
        );
        hosts.spawn(async move {
            let mut requests = JoinSet::new();
            loop {
                while requests.len() < NAIVE_IN_FLIGHT
                    && let Some(url) = urls.next()
                {
                    let client = client.clone();
                    // The judge counts the pages, so the answer is only read to its end.
                    requests.spawn(tokio::time::timeout(NAIVE_TIMEOUT, async move {
                        let answer = client.get(url.parse().ok()?).await.ok()?;
                        answer.into_body().collect().await.ok()
                    }));
                }
                if requests.join_next().await.is_none() {
                    return;
                }
            }
        });
    }
    hosts.join_all().await;
    began.elapsed()
}

fn row(host: &HostReport, found: Option<&KeyEnd>) -> String {
    let secs =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |secs| format!("{secs:.1}"));
    let rate =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |per_s| format!("{per_s:.2}"));
    let held_back_by = found.map_or("-", |key| &key.held_back_by);
    let limit: String = host.limit.chars().take(LIMIT_COLUMNS).collect();
    format!(
        "{:<18} {limit:<LIMIT_COLUMNS$} {:>7} {:>7} {held_back_by:<21} {:>5} {:>7} {:>6} {:>6}",
        host.host,
        rate(host.limit_per_s),
        rate(host.accepted_10s),
        host.pages,
        host.refused,
        secs(host.took_s),
        secs(host.best_s)
    )
}
