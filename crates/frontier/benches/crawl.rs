//! Runs a crawl in virtual time, and says how close it is to the best possible time.
//!
//! ```sh
//! cargo bench --profile dist -p politely-frontier --bench crawl -- DOMAINS WORKERS
//! ```

#[path = "../tests/it/virtual_crawl.rs"]
mod virtual_crawl;

use std::time::Duration;

use self::virtual_crawl::{Plan, run};

fn main() {
    // `cargo test --benches` passes flags of the test runner.
    let mut numbers = std::env::args().filter_map(|text| text.parse::<u32>().ok());
    let plan = Plan {
        domains: numbers.next().unwrap_or(1_000_000),
        workers: numbers.next().unwrap_or(40_000) as usize,
        interval_max: Duration::from_mins(2),
        pages_max: 5,
    };
    let run = run(plan, 1);
    let loss = run.total.as_secs_f64() / run.best.as_secs_f64() - 1.0;
    println!(
        "{} pages of {} domains with {} workers: {:?}, {:.2} % over the best possible time; the \
         longest wait of a domain {:?}",
        run.pages,
        plan.domains,
        plan.workers,
        run.total,
        loss * 100.0,
        run.longest_wait
    );
}
