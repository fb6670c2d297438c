//! Messages to systemd: readiness, the end, and the watchdog. Without systemd they do nothing.

use std::time::Duration;

use politely::Limiter;
use sd_notify::NotifyState;

/// Reports that the coordinator at `url` answers calls.
pub(crate) fn tell_ready(url: &str) {
    let status = format!("serving {url}");
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Reports that the coordinator ends.
pub(crate) fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Reports twice per period of the watchdog that the process works. Returns at once if systemd has
/// set no watchdog.
///
/// Each report first reads the totals of all keys. So a stalled runtime or a lock that is never
/// released ends the reports, and systemd starts the process again.
pub(crate) async fn feed_watchdog(limiter: Limiter) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    let pause = (period / 2).max(Duration::from_millis(100));
    loop {
        let _ = limiter.stats();
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(pause).await;
    }
}

/// Sends a message. An error is not reported, because the service manager notices its absence.
fn tell(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}
