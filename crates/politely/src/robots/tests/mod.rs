//! Tests of the RFC's rules, the checks of other crawlers' suites, and hostile files.

mod delay;
mod google;
mod hostile;
mod properties;
mod wild;

use super::Robots;

fn robots(body: impl AsRef<[u8]>, agent: &str) -> Robots {
    Robots::from_response(Some(200), body.as_ref(), agent)
}

/// Returns whether `foobot` may request this path.
fn allows(body: &str, path: &str) -> bool {
    robots(body, "foobot").allows_path(path).allowed
}

#[track_caller]
fn check(body: impl AsRef<[u8]>, agent: &str, allowed: &[&str], disallowed: &[&str]) {
    let robots = robots(body, agent);
    for path in allowed {
        assert!(
            robots.allows_path(path).allowed,
            "{agent} at {path}: {:?}",
            robots.allows_path(path)
        );
    }
    for path in disallowed {
        assert!(
            !robots.allows_path(path).allowed,
            "{agent} at {path}: {:?}",
            robots.allows_path(path)
        );
    }
}
