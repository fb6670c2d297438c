//! Limited hosts in this process. The tests crawl them with other processes.

use politely_target::{HostSpec, Report, Target, Town};
use tokio::runtime::Runtime;

pub(crate) struct Hosts {
    pub(crate) runtime: Runtime,
    pub(crate) target: Target,
}

impl Hosts {
    pub(crate) fn start(hosts: Vec<HostSpec>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let target = runtime.block_on(Target::start(Town::new(hosts)));
        let target = target.expect("the hosts' addresses are free");
        Self { runtime, target }
    }

    /// Returns all pages in `shares` lists. Each list has pages of every host.
    pub(crate) fn lists(&self, shares: usize) -> Vec<Vec<String>> {
        let mut lists = vec![Vec::new(); shares];
        for host in self.target.hosts() {
            for (page, url) in host.page_urls().enumerate() {
                lists[page % shares].push(url);
            }
        }
        lists
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.target
            .judge()
            .hosts
            .iter()
            .map(|host| host.arrivals)
            .sum()
    }

    /// Stops the hosts and returns their report.
    pub(crate) fn end(self) -> Report {
        self.runtime.block_on(async { self.target.shutdown() })
    }
}
