//! One test per rule of the calls.

use std::time::Duration;

use politely_frontier::{
    Answer, Counts, FrontierError, GiveBack, NewPage, Next, Priority, Settings, Spacing,
};

use crate::support::{
    LEASE, crawl, date, done, in_memory, moment, outcome, put, reopen, take, take_at, urls,
};

const A: &str = "https://a.com/1";
const A2: &str = "https://a.com/2";
const B: &str = "https://b.com/1";

#[test]
fn a_page_is_new_once_whatever_its_state() {
    let mut frontier = in_memory(Settings::default());
    assert_eq!(put(&mut frontier, &[A, A], 0), [Answer::New, Answer::Known]);
    let unit = take_at(&mut frontier, 9, 0).unwrap();
    // Known while its domain is owned; another page is new.
    assert_eq!(
        put(&mut frontier, &[A, A2], 0),
        [Answer::Known, Answer::New]
    );
    frontier
        .give_back(done(unit.token, &[A]), moment(1))
        .unwrap();
    assert_eq!(put(&mut frontier, &[A], 1), [Answer::Known]);
    let mut frontier = reopen(&frontier, Settings::default(), moment(2));
    assert_eq!(
        put(&mut frontier, &["HTTPS://A.com:443/1#x"], 2),
        [Answer::Known]
    );
    // Another crawl has its own pages.
    let other = "other".parse().unwrap();
    let answers = frontier
        .put(&other, vec![NewPage::of_url(A)], moment(2))
        .unwrap();
    assert_eq!(answers, [Answer::New]);
}

#[test]
fn a_unit_is_refilled_in_order_and_its_pages_return_after_a_restart() {
    let mut frontier = in_memory(Settings::default());
    let all: Vec<_> = (0..70)
        .map(|page| format!("https://a.com/{page}"))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    put(&mut frontier, &all, 0);
    let token = take_at(&mut frontier, 2, 0).unwrap().token;
    let next = frontier.refill(token, 40, moment(1)).unwrap();
    let found: Vec<_> = next.iter().map(|page| page.url.as_str()).collect();
    assert_eq!(found, all[2..42]);
    // Pages with an outcome leave the unit, also after a restart.
    let keep = |urls: &[&str]| GiveBack {
        keep: true,
        ..done(token, urls)
    };
    let accepted = frontier.give_back(keep(&all[1..41]), moment(2)).unwrap();
    assert_eq!(accepted.kept, 2);
    let mut frontier = reopen(&frontier, Settings::default(), moment(3));
    let error = frontier.give_back(keep(&[all[1]]), moment(3)).unwrap_err();
    assert!(matches!(error, FrontierError::NotInUnit(..)), "{error}");
    frontier.drop_unit(token, moment(3)).unwrap();
    let unit = take_at(&mut frontier, 99, 4).unwrap();
    let left: Vec<_> = [all[0]]
        .into_iter()
        .chain(all[41..].iter().copied())
        .collect();
    assert_eq!(urls(&unit), left);
    assert_eq!(frontier.refill(unit.token, 9, moment(5)).unwrap(), []);
    let error = frontier.refill(token, 9, moment(5)).unwrap_err();
    assert!(matches!(error, FrontierError::Stale(_)), "{error}");
}

#[test]
fn a_clock_that_was_set_back_holds_no_domain_after_a_restart() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2], 9_000);
    let token = take_at(&mut frontier, 1, 9_000).unwrap().token;
    frontier.drop_unit(token, moment(9_000)).unwrap();
    let mut frontier = reopen(&frontier, Settings::default(), moment(0));
    assert!(take_at(&mut frontier, 1, 0).is_some());
}

#[test]
fn a_paused_crawl_refills_no_unit() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2], 0);
    let token = take_at(&mut frontier, 1, 0).unwrap().token;
    frontier.pause(&crawl(), true, moment(1)).unwrap();
    assert_eq!(frontier.refill(token, 1, moment(1)).unwrap(), []);
    frontier.pause(&crawl(), false, moment(2)).unwrap();
    assert_eq!(frontier.refill(token, 1, moment(2)).unwrap().len(), 1);
}

#[test]
fn a_domain_has_one_owner_and_returns_after_its_spacing() {
    let spacing = Spacing::Fixed(Duration::from_secs(5));
    let settings = Settings {
        spacing,
        ..Settings::default()
    };
    let mut frontier = in_memory(settings.clone());
    put(&mut frontier, &[A, A2], 0);
    let unit = take_at(&mut frontier, 1, 0).unwrap();
    assert_eq!(urls(&unit), [A]);
    assert_eq!(take_at(&mut frontier, 1, 1), None);
    frontier
        .give_back(done(unit.token, &[A]), moment(2))
        .unwrap();
    assert_eq!(frontier.wake(moment(2)), Some(Duration::from_secs(5)));
    // The pause survives a restart.
    let mut frontier = reopen(&frontier, settings, moment(3));
    assert_eq!(take_at(&mut frontier, 1, 6), None);
    assert_eq!(urls(&take_at(&mut frontier, 1, 7).unwrap()), [A2]);
}

#[test]
fn several_owners_have_different_pages() {
    let settings = Settings {
        owners_max: 2,
        ..Settings::default()
    };
    let mut frontier = in_memory(settings);
    put(&mut frontier, &[A, A2, "https://a.com/3"], 0);
    let one = take_at(&mut frontier, 1, 0).unwrap();
    let two = take_at(&mut frontier, 1, 0).unwrap();
    assert_eq!((urls(&one), urls(&two)), (vec![A], vec![A2]));
    assert!(two.token > one.token);
    assert_eq!(take_at(&mut frontier, 1, 0), None);
    frontier.drop_unit(one.token, moment(0)).unwrap();
    assert_eq!(urls(&take_at(&mut frontier, 1, 0).unwrap()), [A]);
}

#[test]
fn the_words_of_a_stale_owner_are_refused() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A], 0);
    let old = take_at(&mut frontier, 1, 0).unwrap();
    let is_stale = |result: Result<_, FrontierError>| matches!(result, Err(FrontierError::Stale(token)) if token == old.token);
    // The lease is over at its end, even if the page was not taken since.
    assert!(is_stale(
        frontier.give_back(done(old.token, &[A]), moment(60))
    ));
    let new = take_at(&mut frontier, 1, 60).unwrap();
    assert!(new.token > old.token);
    assert!(is_stale(
        frontier.give_back(done(old.token, &[A]), moment(61))
    ));
    assert!(is_stale(
        frontier
            .extend(old.token, LEASE, moment(61))
            .map(|_| unreachable())
    ));
    // A clock that steps back revives nothing.
    assert!(is_stale(
        frontier.give_back(done(old.token, &[A]), moment(1))
    ));
    assert!(
        frontier
            .give_back(done(new.token, &[A]), moment(61))
            .is_ok()
    );
    assert!(is_stale(
        frontier
            .drop_unit(old.token, moment(61))
            .map(|()| unreachable())
    ));
}

fn unreachable() -> politely_frontier::Accepted {
    unreachable!("a stale word was accepted")
}

#[test]
fn a_lease_survives_a_restart_and_can_be_extended() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A], 0);
    let unit = take_at(&mut frontier, 1, 0).unwrap();
    let hour = Duration::from_hours(1);
    assert_eq!(
        frontier.extend(unit.token, 2 * hour, moment(1)).unwrap(),
        hour
    );
    let mut frontier = reopen(&frontier, Settings::default(), moment(3_000));
    assert_eq!(take_at(&mut frontier, 1, 3_600), None);
    assert!(
        frontier
            .give_back(done(unit.token, &[A]), moment(3_600))
            .is_ok()
    );
}

#[test]
fn pages_leave_by_priority_and_dates() {
    let mut frontier = in_memory(Settings::default());
    let page = |url: &str, priority, due: Option<u64>| NewPage {
        priority: Priority::new(priority).unwrap(),
        due: due.map(date),
        ..NewPage::of_url(url)
    };
    let pages = vec![
        page("https://a.com/low", 1, None),
        page("https://a.com/due", 9, Some(100)),
        page("https://a.com/past", 5, Some(0)),
        page("https://a.com/high", 8, None),
        page("https://a.com/never", 9, Some(200_000_000_000)),
    ];
    frontier.put(&crawl(), pages, moment(10)).unwrap();
    let unit = take_at(&mut frontier, 9, 10).unwrap();
    let early = [
        "https://a.com/high",
        "https://a.com/past",
        "https://a.com/low",
    ];
    assert_eq!(urls(&unit), early);
    frontier
        .give_back(done(unit.token, &early), moment(10))
        .unwrap();
    assert_eq!(frontier.wake(moment(10)), Some(Duration::from_secs(90)));
    let mut frontier = reopen(&frontier, Settings::default(), moment(20));
    let unit = take_at(&mut frontier, 9, 100).unwrap();
    assert_eq!(urls(&unit), ["https://a.com/due"]);
}

#[test]
fn a_page_returns_at_its_date_or_in_its_old_place() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2], 0);
    let unit = take_at(&mut frontier, 2, 0).unwrap();
    let outcomes = vec![outcome(A, Next::Unvisited), outcome(A2, Next::At(date(50)))];
    let words = GiveBack {
        outcomes,
        ..GiveBack::of_token(unit.token)
    };
    frontier.give_back(words, moment(1)).unwrap();
    let status = frontier.page(&crawl(), A2, None).unwrap().unwrap();
    assert_eq!((status.status, status.again), (Some(200), Some(date(50))));
    let unit = take_at(&mut frontier, 2, 1).unwrap();
    assert_eq!(urls(&unit), [A]);
    frontier
        .give_back(done(unit.token, &[A]), moment(1))
        .unwrap();
    assert_eq!(take_at(&mut frontier, 2, 49), None);
    assert_eq!(urls(&take_at(&mut frontier, 2, 50).unwrap()), [A2]);
}

#[test]
fn an_owner_may_report_a_part_and_keep_the_rest() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2], 0);
    let unit = take_at(&mut frontier, 2, 0).unwrap();
    let words = GiveBack {
        keep: true,
        found: vec![NewPage::of_url(B), NewPage::of_url(A), NewPage::of_url("b")],
        ..done(unit.token, &[A])
    };
    let accepted = frontier.give_back(words.clone(), moment(1)).unwrap();
    assert_eq!(accepted.kept, 1);
    assert!(matches!(
        accepted.answers[..],
        [Answer::New, Answer::Known, Answer::Invalid(_)]
    ));
    let again = frontier.give_back(words, moment(1));
    assert!(
        matches!(again, Err(FrontierError::NotInUnit(..))),
        "{again:?}"
    );
    assert_eq!(urls(&take_at(&mut frontier, 2, 1).unwrap()), [B]);
    assert_eq!(take_at(&mut frontier, 2, 1), None);
    frontier
        .give_back(done(unit.token, &[A2]), moment(2))
        .unwrap();
    let counts = frontier.counts(&crawl()).unwrap();
    let expected = Counts {
        domains: 2,
        pages: 3,
        leased: 1,
        ..Counts::default()
    };
    assert_eq!((counts, counts.finished()), (expected, 2));
}

#[test]
fn a_gate_puts_a_domain_off_or_thins_a_unit() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2, B], 0);
    let wait = Duration::from_secs(3);
    let mut gate = |domain: &str, _: u32| if domain == "a.com" { Err(wait) } else { Ok(1) };
    let unit = frontier
        .take(&take(9), moment(0), &mut gate)
        .unwrap()
        .unwrap();
    assert_eq!(urls(&unit), [B]);
    assert_eq!(frontier.take(&take(9), moment(0), &mut gate).unwrap(), None);
    assert_eq!(frontier.wake(moment(0)), Some(wait));
    let unit = frontier
        .take(&take(9), moment(3), &mut |_, _| Ok(1))
        .unwrap()
        .unwrap();
    assert_eq!(urls(&unit), [A]);
}

#[test]
fn an_operator_blocks_delays_and_pauses() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2], 0);
    frontier
        .block(&crawl(), "a.com", Some(date(10)), moment(0))
        .unwrap();
    let mut frontier = reopen(&frontier, Settings::default(), moment(1));
    assert_eq!(take_at(&mut frontier, 1, 9), None);
    // A blocked domain still accepts pages.
    assert_eq!(put(&mut frontier, &["https://a.com/3"], 9), [Answer::New]);
    let unit = take_at(&mut frontier, 1, 10).unwrap();
    frontier
        .delay(&crawl(), "a.com", Duration::from_secs(5), moment(10))
        .unwrap();
    frontier
        .give_back(done(unit.token, &[A]), moment(11))
        .unwrap();
    assert_eq!(take_at(&mut frontier, 1, 14), None);
    frontier.pause(&crawl(), true, moment(16)).unwrap();
    assert_eq!(take_at(&mut frontier, 1, 16), None);
    let mut frontier = reopen(&frontier, Settings::default(), moment(17));
    assert_eq!(take_at(&mut frontier, 1, 30), None);
    frontier.pause(&crawl(), false, moment(30)).unwrap();
    assert!(take_at(&mut frontier, 1, 30).is_some());
    let status = frontier.domains(&crawl(), "", 9, moment(30)).unwrap();
    assert_eq!(status[0].delay, Duration::from_secs(5));
    let unknown = frontier.block(&crawl(), "c.com", None, moment(30));
    assert!(matches!(unknown, Err(FrontierError::UnknownDomain(..))));
}

#[test]
fn purged_pages_stay_known_and_deleted_ones_are_new() {
    for restart in [false, true] {
        let mut frontier = in_memory(Settings::default());
        put(&mut frontier, &[A, A2, B], 0);
        let unit = take_at(&mut frontier, 1, 0).unwrap();
        frontier.purge(&crawl(), Some("a.com"), moment(0)).unwrap();
        let stale = frontier.drop_unit(unit.token, moment(0));
        assert!(matches!(stale, Err(FrontierError::Stale(_))));
        if restart {
            frontier = reopen(&frontier, Settings::default(), moment(1));
        }
        assert_eq!(put(&mut frontier, &[A], 1), [Answer::Known]);
        assert_eq!(urls(&take_at(&mut frontier, 9, 1).unwrap()), [B]);
        frontier.delete(&crawl(), Some("a.com"), moment(1)).unwrap();
        assert_eq!(put(&mut frontier, &[A, B], 1), [Answer::New, Answer::Known]);
        frontier.delete(&crawl(), None, moment(1)).unwrap();
        if restart {
            frontier = reopen(&frontier, Settings::default(), moment(2));
        }
        let unknown = frontier.counts(&crawl());
        assert!(matches!(unknown, Err(FrontierError::UnknownCrawl(_))));
        while frontier.sweep(2, moment(2)).unwrap() {}
        assert_eq!(put(&mut frontier, &[A, B], 2), [Answer::New, Answer::New]);
        while frontier.sweep(2, moment(2)).unwrap() {}
        assert_eq!(frontier.counts(&crawl()).unwrap().ready, 2);
        assert_eq!(take_at(&mut frontier, 9, 2).unwrap().pages.len(), 1);
    }
}

#[test]
fn a_failed_attempt_is_counted_until_a_visit_succeeds() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A], 0);
    let mut seen = Vec::new();
    for (seconds, is_free) in [(1, true), (2, false), (3, true)] {
        let unit = take_at(&mut frontier, 1, seconds).expect("a page that is due");
        seen.push((unit.pages[0].attempts, unit.pages[0].free));
        let at = date(seconds + 1);
        let words = GiveBack {
            outcomes: vec![outcome(A, Next::Retry { at, is_free })],
            ..GiveBack::of_token(unit.token)
        };
        frontier
            .give_back(words, moment(seconds))
            .expect("the owner");
    }
    let unit = take_at(&mut frontier, 1, 4).expect("a page that is due");
    seen.push((unit.pages[0].attempts, unit.pages[0].free));
    assert_eq!(seen, [(0, 0), (1, 1), (2, 1), (3, 2)]);
    let words = GiveBack {
        outcomes: vec![outcome(A, Next::At(date(5)))],
        ..GiveBack::of_token(unit.token)
    };
    frontier.give_back(words, moment(4)).expect("the owner");
    let unit = take_at(&mut frontier, 1, 5).expect("a page that is due");
    assert_eq!((unit.pages[0].attempts, unit.pages[0].free), (0, 0));
}
