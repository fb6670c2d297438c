//! Calls without checks by the model.

use super::*;

impl World {
    /// Calls every method that a user of `host` may call, without checks by the model.
    pub(crate) fn poke(&mut self, host: &mut Host, now: Timestamp, i: u64) {
        const SIGNALS: [Signal; 6] = [
            Signal::Ok,
            Signal::RateLimited,
            Signal::Overloaded,
            Signal::Unreachable,
            Signal::Blocked,
            Signal::UrlError,
        ];
        let config = &self.config;
        let ask = AcquireRequest {
            slots: 3,
            horizon: Duration::from_secs(i),
            cost: i as u16 % 3,
            bytes: i,
            ..AcquireRequest::default()
        };
        let lease = match host.request(now, ask, config) {
            Decision::Granted(grant) => grant.lease,
            Decision::Wait(_) => LeaseId(i),
        };
        let report = Report {
            latency: Duration::from_millis(i),
            ..Report::of(SIGNALS[i as usize % SIGNALS.len()])
        };
        host.report(now, lease, &report, config, &mut self.rng);
        host.cancel(now, LeaseId(lease.0.wrapping_add(1)), unused(false), config);
        host.renew(now, LeaseId(lease.0.wrapping_add(2)), config);
        host.set(now, OperatorNumbers::rate(1.0 + i as f64, 2.0), config);
        let told = CrawlDelay {
            pause: Duration::from_millis(i * 10),
            fresh: Duration::from_secs(5),
        };
        host.crawl_delay(now, told, config);
        host.look(now, config);
        if i.is_multiple_of(7) {
            host.forget(now, config);
            host.resume_after(now, now + Duration::from_secs(i), config);
        }
        let _ = host.explain(now, config).line(now);
        host.evictable(now, i.is_multiple_of(2), config);
        let _ = host.snapshot();
        if i == 15 {
            host.forget_leases();
            host.unpark(now, config);
        }
    }
}
