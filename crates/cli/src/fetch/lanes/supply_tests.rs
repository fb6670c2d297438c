//! Tests of how lanes take their pages out of the crawl.

use super::*;

fn filled(lanes: &mut Lanes, id: LaneId, numbers: std::ops::Range<u64>, now: Timestamp) {
    let pages = numbers.map(|number| page("http://a/", number)).collect();
    assert!(lanes.filled(id, pages, now));
}

/// A lane that waits for a permit holds no page of the crawl.
#[test]
fn a_lane_takes_pages_out_of_the_crawl_when_it_has_a_permit() {
    let mut lanes = lanes(false, &[]);
    let id = lane(&mut lanes, "http://a/");
    lanes.add(id, 3, at(0.0));
    lanes.close_input();
    let later = |_: &Lane| -> Result<(), _> { Err(Refused::At(at(2.0))) };
    assert!(matches!(lanes.take(at(0.0), later), Take::Wait(Some(t)) if t == at(2.0)));
    assert!(matches!(take(&mut lanes, at(2.0)), Take::Fill(0, Some(()))));
    assert!(matches!(take(&mut lanes, at(2.0)), Take::Wait(None)));
    assert_eq!(lanes.fill_len(id, 256, at(2.0)), ("http://a".into(), 1));
    filled(&mut lanes, id, 0..1, at(2.0));
    let (first, why) = lanes.leave_filled(id, at(2.0)).unwrap();
    assert_eq!((number(&first), why, lanes.waiting()), (0, None, 2));
    assert!(matches!(take(&mut lanes, at(2.0)), Take::Fill(0, Some(()))));
    // It sent its page within half a second, so it takes more now.
    assert_eq!(lanes.fill_len(id, 256, at(2.1)).1, 4);
    filled(&mut lanes, id, 1..3, at(2.1));
    assert!(lanes.leave_filled(id, at(2.1)).is_some());
    assert_eq!(number(&sent(take(&mut lanes, at(2.1))).1), 2);
    for _ in 0..3 {
        lanes.came_back(id, at(2.2));
    }
    assert!(matches!(take(&mut lanes, at(2.2)), Take::Done));
}

#[test]
fn a_fast_lane_takes_further_pages_before_it_has_sent_the_last() {
    let mut lanes = lanes(false, &[]);
    let id = lane(&mut lanes, "http://a/");
    lanes.add(id, 1_000, at(0.0));
    let (mut next, mut units, mut idle) = (0, Vec::new(), 0);
    for step in 0..2_000 {
        let now = at(10.0 + f64::from(step) / 1_000.0);
        match take(&mut lanes, now) {
            Take::Fill(_, permit) => {
                let (_, len) = lanes.fill_len(id, 64, now);
                units.push(len);
                let end = (next + u64::from(len)).min(1_000);
                filled(&mut lanes, id, next..end, now);
                next = end;
                idle += u32::from(permit.is_some());
                if permit.is_some() {
                    lanes.leave_filled(id, now).unwrap();
                    lanes.came_back(id, now);
                }
            }
            Take::Send(_) => lanes.came_back(id, now),
            Take::Wait(_) => break,
            _ => panic!("nothing else"),
        }
    }
    assert_eq!((next, lanes.waiting()), (1_000, 0));
    assert_eq!(units[..5], [1, 4, 16, 64, 64]);
    assert_eq!(idle, 2, "later units came early");
}

/// A page that robots.txt forbids needs no permit, so its lane asks for none before it knows it.
#[test]
fn a_lane_with_rules_takes_its_pages_before_a_permit() {
    let mut lanes = lanes(true, &[]);
    let id = lane(&mut lanes, "http://a/");
    lanes.add(id, 2, at(0.0));
    sent(take(&mut lanes, at(0.0)));
    robots_come(&mut lanes, id, b"User-agent: *\nDisallow: /x");
    let never = |_: &Lane| -> Result<(), _> { Err(Refused::At(at(99.0))) };
    assert!(matches!(lanes.take(at(1.0), never), Take::Fill(0, None)));
    let pages = ["http://a/x", "http://a/y"].map(|url| page(url, 1));
    assert!(lanes.filled(id, pages.into(), at(1.0)));
    assert!(matches!(lanes.take(at(1.0), never), Take::Drop(..)));
    assert!(matches!(lanes.take(at(1.0), never), Take::Wait(Some(t)) if t == at(99.0)));
}

#[test]
fn a_host_that_is_given_up_ends_its_pages_in_the_crawl_too() {
    let mut lanes = lanes(false, &[]);
    let id = lane(&mut lanes, "http://a/");
    lanes.add(id, 3, at(0.0));
    lanes.close_input();
    let mut now = at(0.0);
    let (mut next, mut dropped) = (0, 0);
    loop {
        match take(&mut lanes, now) {
            Take::Fill(_, permit) => {
                filled(&mut lanes, id, next..next + 1, now);
                next += 1;
                if permit.is_some() {
                    let (mut pending, why) = lanes.leave_filled(id, now).unwrap();
                    assert_eq!(why, None);
                    for _ in 0..3 {
                        fail(&mut lanes, id, &mut pending, 1, now);
                        now = now + Duration::from_mins(15);
                    }
                    fail(&mut lanes, id, &mut pending, 1, now);
                    lanes.put_back(id, pending, now, now);
                    lanes.came_back(id, now);
                }
            }
            Take::Drop(..) => dropped += 1,
            Take::Done => break,
            Take::Wait(until) => now = until.unwrap(),
            _ => panic!("nothing else"),
        }
    }
    assert_eq!((next, dropped), (3, 3));
}
