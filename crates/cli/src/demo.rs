//! `politely demo`: fetches a town of limited hosts, and then shows their real limits.
//!
//! The town runs in this process on loopback. It is crawled as `politely fetch` would crawl a list.
//! The judge reports what each host allowed and saw. The limiter reports what it learned.

use std::collections::HashMap;

use politely_target::{HostReport, Target, Town};

use crate::args::DemoArgs;
use crate::config::{Knobs, Settings, SummaryForm};
use crate::exit::{Exit, Wrong};
use crate::fetch::{self, Sources};

pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Wrong> {
    let mut town = Town::demo();
    for host in &mut town.hosts {
        host.pages = args.pages.unwrap_or(host.pages);
    }
    // The hosts have their own thread: the crawl has its own runtime and must not starve them.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|why| Wrong(format!("no runtime: {why}")))?;
    let target = runtime
        .block_on(Target::start(town))
        .map_err(|why| Wrong(why.to_string()))?;
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
    eprintln!(
        "{} hosts, {} pages; each host has a limit nobody tells us",
        hosts.len(),
        urls.len()
    );
    let settings = Settings::layered(
        None,
        Knobs {
            summary: Some(SummaryForm::None),
            ..Knobs::default()
        },
    )?;
    let fetched = fetch::fetch(settings, Sources::open(&urls, None)?)?;
    let report = runtime.block_on(async { target.shutdown() });
    let learned: HashMap<_, _> = fetched.rates.into_iter().collect();

    println!(
        "{:<20} {:<44} {:>9} {:>6} {:>8} {:>7} {:>7}",
        "host", "allows", "learned/s", "pages", "refused", "took s", "best s"
    );
    for host in &report.hosts {
        println!(
            "{}",
            row(host, learned.get(&host.addr.to_string()).copied())
        );
    }
    let (took, best) = (report.took_s(), report.best_s());
    let pages: u64 = report.hosts.iter().map(|host| host.pages).sum();
    println!(
        "{pages} of {} pages, {:.1} % of requests refused, {took:.1} s where {best:.1} s is the best possible ({:.2} x)",
        urls.len(),
        report.refused_share() * 100.0,
        took / best
    );
    Ok(fetched.exit)
}

fn row(host: &HostReport, learned: Option<f64>) -> String {
    let secs =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |secs| format!("{secs:.1}"));
    let learned = learned.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}"));
    let allows: String = host.limit.chars().take(44).collect();
    format!(
        "{:<20} {allows:<44} {learned:>9} {:>6} {:>8} {:>7} {:>7}",
        host.host,
        host.pages,
        host.refused,
        secs(host.took_s),
        secs(host.best_s)
    )
}
