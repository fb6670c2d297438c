//! Finished pages are queued again.

use politely_core::key::KeyKind;
use politely_frontier::{Answer, Frontier, NewPage, Next, PageStatus, Settings, Store, ValidPage};

use crate::support::{crawl, done, in_memory, moment, outcome, put, reopen, take_at, urls};

const A: &str = "https://a.com/1";
const A2: &str = "https://a.com/2";
const B: &str = "https://b.com/1";

fn put_again<S: Store>(
    frontier: &mut Frontier<S>,
    urls: &[&str],
    seconds: u64,
    again: impl FnMut(&PageStatus, &ValidPage) -> Option<Vec<u8>>,
) -> Vec<Answer> {
    let page = |url: &&str| ValidPage::new(NewPage::of_url(*url), KeyKind::Host).expect("a page");
    let pages: Vec<_> = urls.iter().map(page).collect();
    let answers = frontier.put_again(&crawl(), &pages, again, moment(seconds));
    answers.expect("a working store")
}

#[test]
fn a_finished_page_is_queued_again_once_also_after_a_restart() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2], 0);
    let unit = take_at(&mut frontier, 1, 0).expect("a unit");
    let kept = frontier.finish_page(
        unit.token,
        outcome(A, Next::Never),
        Some(b"v1".to_vec()),
        moment(1),
    );
    assert_eq!(kept.expect("the owner"), 0);
    // A page that waits, a new one and one that is given twice.
    let seen = |status: &PageStatus, _: &ValidPage| {
        assert_eq!((status.url.as_str(), &*status.metadata), (A, &b"v1"[..]));
        Some(b"v2".to_vec())
    };
    let answers = put_again(&mut frontier, &[A2, A, A, B], 2, seen);
    let (new, known) = (Answer::New, Answer::Known);
    assert_eq!(answers, [known.clone(), new.clone(), known.clone(), new]);
    let never = |_: &PageStatus, _: &ValidPage| panic!("the page waits");
    let mut frontier = reopen(&frontier, Settings::default(), moment(3));
    let answers = put_again(&mut frontier, &[A], 3, never);
    assert_eq!(answers.first(), Some(&known));
    let counts = frontier.counts(&crawl()).expect("the crawl");
    assert_eq!((counts.pages, counts.ready, counts.finished()), (3, 3, 0));
    let unit = take_at(&mut frontier, 9, 4).expect("a unit");
    assert_eq!(urls(&unit), [A2, A]);
    assert_eq!(unit.pages[1].metadata, b"v2");
    assert_eq!(put_again(&mut frontier, &[A], 4, never), [known]);
    let all = done(unit.token, &[A, A2]);
    frontier.give_back(all, moment(5)).expect("the owner");
    let status = frontier.page(&crawl(), A, None).expect("a crawl");
    let status = status.expect("a page");
    assert_eq!((status.again, &*status.metadata), (None, &b"v2"[..]));
}

#[test]
fn a_page_that_is_not_wanted_stays_finished() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A], 0);
    let unit = take_at(&mut frontier, 1, 0).expect("a unit");
    frontier
        .give_back(done(unit.token, &[A]), moment(1))
        .expect("the owner");
    assert_eq!(
        put_again(&mut frontier, &[A], 2, |_, _| None),
        [Answer::Known]
    );
    assert_eq!(take_at(&mut frontier, 1, 3), None);
}
