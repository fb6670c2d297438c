use super::*;
use crate::rows::QueueId;

const CRAWL: CrawlId = CrawlId(1);

fn moment(seconds: u64) -> Moment {
    Moment {
        at: Timestamp::from_micros(seconds * 1_000_000),
        date: Date::from_millis(seconds * 1_000).unwrap(),
    }
}

fn schedule(crawls: u32) -> Schedule {
    let mut schedule = Schedule::new(1);
    for id in 1..=crawls {
        let name = format!("crawl-{id}").parse().unwrap();
        schedule.add_crawl(CrawlId(id), Crawl::new(name, false));
    }
    schedule
}

fn domain(crawl: CrawlId, priority: u8) -> Domain {
    let mut domain = Domain::new(crawl, QueueId(0));
    domain.add_ready(Priority::new(priority).unwrap());
    domain.pages = 1;
    domain
}

/// Hands out the next domain and gives it back at once, with a pause of a second.
fn turn(schedule: &mut Schedule, crawl: Option<CrawlId>, now: Moment) -> Option<DomainId> {
    let id = schedule.next(crawl, now)?;
    let mut domain = *schedule.domain(id)?;
    schedule.serve(domain.crawl, 1);
    domain.next = now.at + Duration::from_secs(1);
    schedule.set(id, domain, now);
    Some(id)
}

#[test]
fn domains_are_handed_out_by_time() {
    let mut schedule = schedule(1);
    for (id, second) in [(1, 3), (2, 1), (3, 2)] {
        let mut domain = domain(CRAWL, 5);
        domain.next = moment(second).at;
        schedule.set(DomainId(id), domain, moment(0));
    }
    assert_eq!(schedule.next(None, moment(0)), None);
    assert_eq!(schedule.wake(moment(0)), Some(Duration::from_secs(1)));
    // All are due at the same call, and still leave in the order of their times.
    for id in [2, 3, 1] {
        assert_eq!(turn(&mut schedule, None, moment(9)), Some(DomainId(id)));
    }
}

#[test]
fn a_low_priority_does_not_starve() {
    let mut schedule = schedule(1);
    schedule.set(DomainId(0), domain(CRAWL, 0), moment(0));
    let mut last_low = 0;
    for second in 0..2_000 {
        let urgent = DomainId(u32::try_from(second).unwrap() + 1);
        schedule.set(urgent, domain(CRAWL, 9), moment(second));
        let id = turn(&mut schedule, None, moment(second)).unwrap();
        if id == DomainId(0) {
            last_low = second;
        } else {
            schedule.remove(id);
        }
    }
    assert!(last_low >= 540, "{last_low}");
}

#[test]
fn crawls_take_turns_whatever_their_size() {
    let mut schedule = schedule(2);
    for id in 0..1_000 {
        schedule.set(DomainId(id), domain(CRAWL, 9), moment(0));
    }
    // The second crawl comes late. It gets half from then on, and nothing for the time before.
    for _ in 0..100 {
        turn(&mut schedule, None, moment(0));
    }
    for id in 1_000..1_100 {
        schedule.set(DomainId(id), domain(CrawlId(2), 0), moment(0));
    }
    let ids: Vec<_> = (0..100)
        .filter_map(|_| turn(&mut schedule, None, moment(0)))
        .collect();
    assert_eq!(ids.iter().filter(|id| id.0 >= 1_000).count(), 50);
}

#[test]
fn a_paused_crawl_hands_out_nothing() {
    let mut schedule = schedule(1);
    schedule.set(DomainId(1), domain(CRAWL, 5), moment(0));
    schedule.crawl_mut(CRAWL).unwrap().is_paused = true;
    assert_eq!(schedule.next(Some(CRAWL), moment(0)), None);
    assert_eq!(schedule.wake(moment(0)), None);
}

#[test]
fn a_blocked_domain_waits_for_the_date_and_follows_its_steps() {
    let mut schedule = schedule(1);
    let blocked_until = moment(100).date;
    let orders = Orders {
        blocked_until,
        ..Orders::default()
    };
    schedule.set_orders(DomainId(1), orders);
    schedule.set(DomainId(1), domain(CRAWL, 5), moment(50));
    // The wall clock steps back: the date is further away than before.
    let back = Moment {
        date: moment(10).date,
        ..moment(60)
    };
    assert_eq!(schedule.next(None, back), None);
    assert_eq!(schedule.wake(back), Some(Duration::from_secs(90)));
    // It steps ahead: the date has come.
    let ahead = Moment {
        date: blocked_until,
        ..moment(61)
    };
    assert_eq!(schedule.next(None, ahead), Some(DomainId(1)));
}
