//! Refusals among redirects, and among answers of the same kind that are ordinary.

use super::*;

/// Each page is reached by a redirect of the same host, and the targets are refused.
#[test]
fn redirects_between_refusals_end_no_run() {
    let mut site = Site::new();
    let redirect = |site: &mut Site, page: u32| {
        let moved = Report {
            status: Some(301),
            ..Report::of(Signal::Ok)
        };
        site.report(format!("page/{page}").as_str(), moved).doubt
    };
    for page in 0..12 {
        assert_eq!(redirect(&mut site, page), Doubt::None);
        site.served(1);
    }
    let suspected = (12..20).find(|page| {
        redirect(&mut site, *page);
        let doubt = site.send(&format!("title/{page}"), Some(403), false).doubt;
        doubt == Doubt::Suspected
    });
    assert!(suspected.is_some_and(|page| page < 16), "{suspected:?}");
}

/// Regression: neither status came often enough in a row.
#[test]
fn a_ban_that_alternates_between_two_statuses_is_found_and_ended() {
    let mut site = Site::new();
    site.served(12);
    let status = |page: u32| Some([401, 403][page as usize % 2]);
    let bad = |page: u32| format!("bad/{page}");
    let suspected = (0..6).find(|page| {
        let doubt = site.send(&bad(*page), status(*page), false).doubt;
        doubt == Doubt::Suspected
    });
    assert!(suspected.is_some(), "{:?}", site.host.suspicion());
    for page in 0..3 {
        let doubt = site.send("good/0", status(page), true).doubt;
        assert_eq!(doubt, Doubt::Suspected);
    }
    assert_eq!(site.send("good/0", None, true).doubt, Doubt::Limited);
}

/// Regression: such a list stopped its host for 11 s.
#[test]
fn pages_that_are_gone_among_others_never_stop_a_host() {
    let mut site = Site::new();
    for page in 0..100 {
        site.served(page % 3);
        let doubt = site.send(&format!("bad/{page}"), Some(404), true).doubt;
        assert_ne!(doubt, Doubt::Suspected, "{page}");
        site.served(1);
    }
}

/// Some pages are for members only, and later the host bans in the same status.
#[test]
fn a_ban_in_an_answer_that_was_ordinary_is_found_too() {
    let mut site = Site::new();
    site.served(8);
    while site.until_suspected() > 0 {
        site.send("good/0", None, true);
        site.send("bad/1", Some(403), true);
        site.send("good/0", None, true);
        if site.send("bad/1", Some(403), true).doubt == Doubt::None {
            break;
        }
    }
    site.served(8);
    let before = site.until_suspected();
    assert!((8..=16).contains(&before), "{before}");
    // A section of such pages costs one rest, and the next is longer.
    assert_eq!(site.send("good/0", None, true).doubt, Doubt::None);
    site.served(8);
    assert_eq!(site.until_suspected(), 32);
    for _ in 0..5 {
        let directions = site.send("good/0", Some(403), true);
        assert_eq!(directions.doubt, Doubt::Suspected);
    }
}
