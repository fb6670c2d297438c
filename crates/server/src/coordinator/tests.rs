//! Tests of acquire and report without HTTP, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use politely::core::config::Config;
use politely::core::key::Key;
use politely::{Clock, Explanation};
use politely_api::wire::{Answer, Grant, Item, KeyPatch, Next, Told, ToldAnswer, Want};

use super::operate::NotSet;
use super::{Aftermath, Coordinator, Settings};
use crate::watch::Worker;

mod adoption;
mod bad_pages;
mod budgets;
mod crawl_delay;
mod durable;
mod given_up;
mod llm_day;
mod room;
mod rules;
mod rules_of_answers;
mod scopes;
mod sessions;
#[expect(
    clippy::float_cmp,
    reason = "numbers that are set are in force to the bit"
)]
mod settings;
mod settled;
mod shared;
mod trouble;
mod waiting;
mod whose_fault;
mod worker_shares;

const AT_ONCE: Duration = Duration::ZERO;

impl NotSet {
    /// Returns the field with the invalid value.
    fn field(&self) -> &str {
        match self {
            Self::Wrong(error) => &error.field,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a coordinator with `config` whose background tasks run in tokio's paused time.
fn coordinator(config: Config) -> Coordinator {
    let settings = Settings {
        config,
        clock: Clock::tokio(),
        ..Settings::default()
    };
    let coordinator = Coordinator::new(settings).unwrap();
    tokio::spawn(coordinator.clone().tend());
    coordinator
}

fn item(key: &str, id: &str) -> Item {
    Item {
        key: Some(key.to_owned()),
        id: (!id.is_empty()).then(|| id.to_owned()),
        cost: 1.into(),
        slots: 1,
        ..Item::default()
    }
}

fn told(grant: &Grant) -> Told {
    Told {
        permit: grant.permit.clone(),
        status: Some(200),
        latency_ms: 20.0,
        attempt: 1,
        ..Told::default()
    }
}

fn refusal(grant: &Grant, retry_after: &str) -> Told {
    Told {
        status: Some(429),
        headers: BTreeMap::from([("Retry-After".to_owned(), retry_after.to_owned())]),
        ..told(grant)
    }
}

impl Coordinator {
    async fn one(&self, worker: &Arc<Worker>, item: Item, wait: Duration) -> Answer {
        let mut outcome = self
            .acquire(worker, &[item], Want::All, wait, Vec::new())
            .await;
        assert_eq!(outcome.answers.len(), 1);
        outcome.answers.remove(0)
    }

    fn tell(&self, worker: &Worker, told: &Told) -> ToldAnswer {
        self.report(worker, told, &mut Aftermath::default())
    }

    fn explain(&self, key: &str) -> Option<Explanation> {
        self.limiter().explain(&Key::parse(key).unwrap())
    }
}

trait Unwrapped {
    fn granted(self) -> Grant;
    fn wait(self) -> (u64, String, u32);
    fn refused(self) -> String;
}

impl Unwrapped for Answer {
    fn granted(self) -> Grant {
        match self {
            Self::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn wait(self) -> (u64, String, u32) {
        match self {
            Self::Wait {
                retry_in_ms,
                reason,
                position,
                ..
            } => (retry_in_ms, reason, position),
            other => panic!("not told to wait: {other:?}"),
        }
    }

    fn refused(self) -> String {
        match self {
            Self::Refused { reason, .. } => reason,
            other => panic!("not refused: {other:?}"),
        }
    }
}

/// Regression: after a lost answer, the worker was granted another of its keys, and the first
/// permit stayed in flight.
#[tokio::test(start_paused = true)]
async fn of_any_what_a_lost_answer_granted_comes_first() {
    let coordinator = coordinator(Config::fixed(1.0, 1.0));
    let worker = coordinator.worker("a");
    let one = async || {
        let items = [item("busy.example", "1"), item("free.example", "2")];
        let outcome = coordinator
            .acquire(&worker, &items, Want::Any(1), AT_ONCE, Vec::new())
            .await;
        outcome.answers.into_iter().next().unwrap().granted()
    };
    coordinator
        .one(&worker, item("busy.example", "0"), AT_ONCE)
        .await
        .granted();
    let lost = one().await;
    assert_eq!(lost.key, "free.example");
    assert!(lost.valid_for_ms > 0);
    tokio::time::advance(Duration::from_secs(2)).await;
    let again = one().await;
    assert_eq!(again.permit, lost.permit);
    assert_eq!(again.valid_for_ms, 0, "its time is over");
    assert_eq!(coordinator.limiter().stats().granted, 2);
}

#[tokio::test(start_paused = true)]
async fn asked_again_under_its_id_the_same_permit_is_answered_and_charged_once() {
    let coordinator = coordinator(Config::fixed(1.0, 1.0));
    let worker = coordinator.worker("a");
    let first = coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await
        .granted();
    let again = coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await
        .granted();
    assert_eq!(first.permit, again.permit);
    assert_eq!(coordinator.limiter().stats().granted, 1);
    // The id 1 of another worker is another request.
    let other = coordinator.worker("b");
    coordinator
        .one(&other, item("h.example", "1"), AT_ONCE)
        .await
        .wait();
    // After the report, the id cannot be used again.
    assert!(!coordinator.tell(&worker, &told(&first)).late);
    let reason = coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await
        .refused();
    assert!(reason.contains("a new id"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_report_twice_is_answered_the_same_and_counts_once() {
    let coordinator = coordinator(Config::crawler());
    let worker = coordinator.worker("a");
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let first = coordinator.tell(&worker, &refusal(&grant, "30"));
    assert!(!first.late);
    assert!(
        (30_000..33_000).contains(&first.hold_ms),
        "{}",
        first.hold_ms
    );
    let free = Next::Retry {
        after_ms: 0,
        free: true,
    };
    assert_eq!(first.next, free);
    let again = coordinator.tell(&worker, &refusal(&grant, "30"));
    assert_eq!((again.late, &again.next), (true, &first.next));
    assert_eq!(coordinator.limiter().stats().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_reports_what_another_holds() {
    let coordinator = coordinator(Config::crawler());
    let (a, b) = (coordinator.worker("a"), coordinator.worker("b"));
    let grant = coordinator
        .one(&a, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let stranger = coordinator.tell(&b, &refusal(&grant, "30"));
    assert_eq!(stranger.error.unwrap().field, "permit");
    let (cancelled, renewed) = (
        coordinator.cancel(&b, std::slice::from_ref(&grant.permit), false),
        coordinator.renew(&b, std::slice::from_ref(&grant.permit)),
    );
    assert_eq!((cancelled.lost.len(), renewed.lost.len()), (1, 1));
    assert!(!coordinator.tell(&a, &told(&grant)).late);
    assert_eq!(coordinator.limiter().stats().refused, 0);
}

#[tokio::test(start_paused = true)]
async fn lies_and_nonsense_are_named_and_move_nothing() {
    type Spoil = fn(&mut Told);
    let coordinator = coordinator(Config::crawler());
    let worker = coordinator.worker("a");
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let bad: [(&str, Spoil); 7] = [
        ("slot", |told| told.slot = u16::MAX),
        ("permit", |told| told.permit = "zz".to_owned()),
        ("latency_ms", |told| told.latency_ms = -1.0),
        ("latency_ms", |told| told.latency_ms = f64::NAN),
        ("status", |told| told.status = None),
        ("status", |told| told.status = Some(7)),
        ("method", |told| told.method = Some("G ET".to_owned())),
    ];
    for (field, spoil) in bad {
        let mut lie = told(&grant);
        spoil(&mut lie);
        assert_eq!(coordinator.tell(&worker, &lie).error.unwrap().field, field);
    }
    let mut unknown = told(&grant);
    unknown.permit = "ffffffffffffffff".to_owned();
    assert!(coordinator.tell(&worker, &unknown).late);
    let mut slow = told(&grant);
    slow.latency_ms = 1e300;
    assert!(!coordinator.tell(&worker, &slow).late);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_reports_leaks_nothing() {
    let mut config = Config::fixed(100.0, 4.0);
    config.limits.in_flight = 2;
    config.lease = Duration::from_secs(30);
    let coordinator = coordinator(config);
    let (dead, alive) = (coordinator.worker("dead"), coordinator.worker("alive"));
    for _ in 0..2 {
        coordinator
            .one(&dead, item("h.example", ""), AT_ONCE)
            .await
            .granted();
    }
    let began = coordinator.now();
    let grant = coordinator
        .one(&alive, item("h.example", ""), Duration::from_mins(1))
        .await
        .granted();
    let waited = coordinator.now().since(began);
    assert!((29.0..31.0).contains(&waited.as_secs_f64()), "{waited:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((coordinator.expired(), coordinator.live()), (2, 1));
    let stats = coordinator.watch().workers.stats(coordinator.now(), 9);
    let idle = |name: &str| {
        stats
            .iter()
            .find(|worker| worker.client == name)
            .map(|worker| worker.expired)
    };
    assert_eq!((idle("dead"), idle("alive")), (Some(2), Some(0)));
    coordinator.tell(&alive, &told(&grant));
}

#[tokio::test(start_paused = true)]
async fn a_late_report_still_extends_the_hold_and_moves_no_rate() {
    let mut config = Config::crawler();
    config.lease = Duration::from_secs(5);
    let coordinator = coordinator(config);
    let worker = coordinator.worker("a");
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let answer = coordinator.tell(&worker, &refusal(&grant, "60"));
    assert!(answer.late && answer.hold_ms >= 60_000, "{answer:?}");
    assert_eq!((coordinator.live(), coordinator.expired()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_body_that_is_coming_stays_taken() {
    let mut config = Config::fixed(100.0, 4.0);
    config.limits.in_flight = 1;
    let coordinator = coordinator(config);
    let worker = coordinator.worker("a");
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let head = Told {
        body_coming: true,
        ..told(&grant)
    };
    assert!(!coordinator.tell(&worker, &head).late);
    assert!(
        coordinator.tell(&worker, &head).late,
        "the head is told once"
    );
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .wait();
    assert_eq!(
        coordinator
            .renew(&worker, std::slice::from_ref(&grant.permit))
            .renewed
            .len(),
        1
    );
    assert!(!coordinator.tell(&worker, &told(&grant)).late);
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
}

/// P11: one refused URL does not slow the others, and the answer reports a fault of the URL.
#[tokio::test(start_paused = true)]
async fn a_url_that_alone_is_refused_waits_alone() {
    let coordinator = coordinator(Config::fixed(10.0, 1.0));
    let worker = coordinator.worker("a");
    let tell = async |url: &str, refused: bool| {
        let wait = Duration::from_secs(5);
        let grant = coordinator.one(&worker, item("h.example", ""), wait).await;
        let grant = grant.granted();
        let said = if refused {
            refusal(&grant, "2")
        } else {
            told(&grant)
        };
        let resource = Some(format!("https://h.example/{url}"));
        coordinator.tell(&worker, &Told { resource, ..said })
    };
    tell("a", false).await;
    let first = tell("bad", true).await;
    assert!(!first.url_fault && first.hold_ms >= 2_000);
    let began = tokio::time::Instant::now();
    tell("b", false).await;
    for page in 0..20 {
        let again = tell("bad", true).await;
        // A second refusal may still be a limit's, so its Retry-After holds the key.
        let is_held = again.hold_ms > 0;
        assert!(again.url_fault && is_held == (page == 0), "{again:?}");
        let Next::Retry { after_ms, .. } = again.next else {
            panic!("{again:?}");
        };
        assert!(after_ms >= 2_000, "the refused page waits by itself");
        tell(&format!("page {page}"), false).await;
    }
    // Two holds, and forty-one requests at ten per second.
    assert!(began.elapsed() < Duration::from_millis(4_400 + 4_200));
}

#[tokio::test(start_paused = true)]
async fn what_is_cancelled_gives_its_token_back() {
    let coordinator = coordinator(Config::fixed(0.1, 1.0));
    let worker = coordinator.worker("a");
    for _ in 0..3 {
        let grant = coordinator
            .one(&worker, item("h.example", "x"), AT_ONCE)
            .await
            .granted();
        let cancelled = coordinator.cancel(&worker, std::slice::from_ref(&grant.permit), false);
        assert_eq!(cancelled.cancelled, std::slice::from_ref(&grant.permit));
        let again = coordinator.cancel(&worker, std::slice::from_ref(&grant.permit), false);
        assert_eq!(again.lost, [grant.permit]);
    }
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    coordinator.cancel(&worker, &[grant.permit], true);
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .wait();
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_takes_nothing_along() {
    let coordinator = coordinator(Config::fixed(1.0, 1.0));
    let worker = coordinator.worker("a");
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    for _ in 0..50 {
        // Dropping the call is what a broken connection of the caller does.
        let call = coordinator.one(&worker, item("h.example", "gone"), Duration::from_secs(30));
        assert!(
            tokio::time::timeout(Duration::from_millis(5), call)
                .await
                .is_err()
        );
    }
    assert_eq!(coordinator.limiter().stats().waiting, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    coordinator
        .one(&worker, item("h.example", "gone"), AT_ONCE)
        .await
        .granted();
}

/// Regression: only the first departure returned, and the others kept their slots until the lease
/// ended.
#[tokio::test(start_paused = true)]
async fn a_permit_of_several_departures_returns_all_that_are_not_reported() {
    for reported in [false, true] {
        let mut config = Config::fixed(1_000.0, 10.0);
        config.declared = "10/h".parse().unwrap();
        let coordinator = coordinator(config);
        let worker = coordinator.worker("a");
        let several = Item {
            slots: 4,
            ..item("h.example", "")
        };
        let grant = coordinator.one(&worker, several, AT_ONCE).await.granted();
        assert_eq!(grant.slots, 4);
        if reported {
            coordinator.tell(&worker, &told(&grant));
        }
        for again in [false, true] {
            let permit = std::slice::from_ref(&grant.permit);
            let cancelled = coordinator.cancel(&worker, permit, false);
            assert_eq!(cancelled.cancelled.is_empty(), again);
            let known = coordinator.explain("h.example").unwrap();
            let left = known.budgets[0].remaining;
            assert_eq!((left, known.in_flight.0), (10 - u64::from(reported), 0));
        }
    }
}
