//! What follows an answer to a robots.txt: its origin is open, closed for a while, or given up.

use super::engine::Engine;
use super::lanes::LaneId;
use super::last::{Last, came_back};
use super::robots::{self, Cached, Rules, Standing};
use super::site;
use super::transport::answer::Came;
use url::Url;

/// Handles the answer to the robots.txt of lane `of`, last requested on lane `lane`, or its final
/// failure.
pub(super) fn robots_over(
    engine: &Engine,
    lane: LaneId,
    of: LaneId,
    last: &Last<'_>,
    error: Option<&str>,
) {
    let now = engine.limits.now();
    let answer = match last.came {
        // Rules that cannot be decoded are unknown, and the origin is closed as after a 5xx.
        Came::Answer(answer) if answer.spoiled.is_some() && answer.status.is_success() => None,
        Came::Answer(answer) => Some((answer.status.as_u16(), &answer.start)),
        Came::Failed(..) => None,
    };
    let rules = match answer {
        // Too many redirects, or a redirect without a target, means "unavailable": there are no
        // rules.
        Some((300..=399, _)) => Rules::of(Some(404), b"", &engine.settings.robots_token),
        Some((status, body)) => Rules::of(Some(status), body, &engine.settings.robots_token),
        None => None,
    };
    let mut unkept = None;
    let mut has_sitemaps = false;
    if engine.settings.site.reads_robots
        && let (true, Some((200..=299, body))) = (rules.is_some(), answer)
    {
        match read_sitemaps(engine, of, last, body) {
            Ok(are_read) => has_sitemaps = are_read,
            Err(why) => unkept = Some(why),
        }
    }
    let rules = rules.filter(|_| unkept.is_none());
    let error = unkept.as_deref().or(error);
    if rules.is_some() {
        let origin = engine.lock().lanes.lane(of).origin.to_string();
        let body = answer
            .filter(|(status, _)| (200..=299).contains(status))
            .map(|(_, body)| body.to_vec());
        engine.keep_robots(
            &origin,
            Cached {
                fetched_unix_s: robots::unix_now(),
                body,
                has_sitemaps,
            },
        );
    }
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let standing = std::mem::replace(&mut lanes.lane_mut(of).robots, Standing::Unknown);
    let standing = if let Some(rules) = rules {
        Standing::Known {
            rules: rules.into(),
            until: now + robots::TTL,
        }
    } else {
        // An answer may change later. A host that could not be reached in all its attempts is given
        // up.
        let patient = lanes.lane(lane).outage.given_up().is_none()
            && lanes.lane(of).pages_waiting() > 1
            && !lanes.only_closed_left();
        standing.unavailable(&robots::Unusable {
            why: error.unwrap_or("no answer"),
            for_good: matches!(last.came, Came::Failed(..)),
            patient,
            not_before: now + last.report.retry_after.unwrap_or_default(),
            now,
        })
    };
    lanes.robots_answered(of, standing, now);
    came_back(lanes, lane, now, Some(last), None);
}

/// Adds the sitemaps that the robots.txt of lane `of` names to the crawl. A host that only a
/// redirect led to has no part in the run. Returns whether it has.
fn read_sitemaps(
    engine: &Engine,
    of: LaneId,
    last: &Last<'_>,
    body: &[u8],
) -> Result<bool, String> {
    let (origin, has_pages) = {
        let shared = engine.lock();
        let lane = shared.lanes.lane(of);
        (lane.origin.to_string(), lane.has_own_pages())
    };
    let Ok(home) = Url::parse(&origin) else {
        return Ok(false);
    };
    if has_pages {
        let sitemaps = site::of_robots(body, last.url, &home).sitemaps;
        let added = engine.add_sitemaps(&sitemaps);
        added.inspect_err(|why| {
            engine.crawl_failed(why);
        })?;
    }
    Ok(has_pages)
}
