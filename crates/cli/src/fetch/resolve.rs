//! The address of a lane's host, where that is its key.

use politely::core::key::Key;
use url::Url;

use super::engine::Engine;
use super::lanes::LaneId;

/// Resolves the address of a lane's host. If that fails, its key is the host, and the fetch will
/// report the reason.
pub(crate) async fn resolve(engine: &Engine, lane: LaneId) {
    let origin = engine.lock().lanes.lane(lane).origin.to_string();
    let Ok(url) = Url::parse(&origin) else { return };
    let host = url.host_str().unwrap_or_default().to_owned();
    let looking_up = engine.clients.resolver().lookup(&host);
    let lookup = tokio::time::timeout(engine.settings.timeout, looking_up).await;
    // The smallest address, so that all runs and hosts of one machine agree.
    let address = lookup
        .ok()
        .and_then(Result::ok)
        .and_then(|found| found.into_iter().min());
    let key = address.map(Key::address).or_else(|| Key::of_url(&url).ok());
    let keys = key
        .into_iter()
        .map(|key| engine.limits.with_shared(key, &url))
        .collect();
    {
        let mut shared = engine.lock();
        let now = engine.limits.now();
        shared.lanes.resolved(lane, keys, now);
        engine.introduce(shared.lanes.lane_mut(lane));
    }
    engine.look_again();
}
