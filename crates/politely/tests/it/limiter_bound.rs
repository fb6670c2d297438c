//! Tests that memory is bounded, and that no important state is evicted for it.

use std::time::Duration;

use proptest::prelude::*;

use politely::core::gate::HoldReason;
use politely::{
    AcquireError, Clock, Config, Full, Key, Limiter, RefusalReason, Report, SetError, Signal,
};

use crate::limiter_line::{key, ok, settle, steady};

fn bounded(capacity: usize, config: Config) -> Limiter {
    let builder = Limiter::builder().clock(Clock::tokio()).capacity(capacity);
    builder.seed(1).config(config).build().unwrap()
}

fn nth(i: usize) -> Key {
    key(&format!("h{i}.example"))
}

#[tokio::test(start_paused = true)]
async fn idle_keys_make_room_and_the_bound_holds() {
    let limiter = bounded(100, steady(10.0));
    for i in 0..1_000 {
        limiter.acquire(&nth(i)).await.unwrap().report(&ok());
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(limiter.stats().keys <= 100);
    }
    let stats = limiter.stats();
    assert_eq!((stats.keys, stats.evicted), (100, 900));
    assert_eq!(limiter.keys().len(), 100);
}

proptest::proptest! {
    /// A key remembers the place of its state. That place may now hold the state of another key, or
    /// belong to another limiter.
    #[test]
    fn a_kept_key_finds_its_own_state(steps in prop::collection::vec((0..12_usize, 0..2_usize), 0..200)) {
        let limiters = [1, 2].map(|i| bounded(3, steady(1e6 * f64::from(i))));
        let kept: Vec<Key> = (0..12).map(nth).collect();
        for (i, limiter) in steps {
            let limiter = &limiters[limiter];
            let permit = limiter.try_acquire(&kept[i]).unwrap();
            for (other, kept) in kept.iter().enumerate() {
                let in_flight = |key| limiter.explain(key).map(|it| it.in_flight.0);
                let found = in_flight(kept);
                prop_assert_eq!(found, in_flight(&nth(other)));
                prop_assert!(found.is_none_or(|found| (found == 1) == (other == i)), "{other} {found:?}");
            }
            prop_assert!(limiter.stats().keys <= 3);
            drop(permit);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_matters_is_never_forgotten() {
    let limiter = bounded(7, Config::api());
    let [leased, held, waited_for, configured, rated, refused, broken] = [
        "leased",
        "held",
        "waited",
        "configured",
        "rated",
        "refused",
        "broken",
    ]
    .map(|name| key(&format!("{name}.example")));
    let permit = limiter.try_acquire(&leased).unwrap();
    limiter
        .hold(&held, Duration::from_secs(100_000), HoldReason::Operator)
        .unwrap();
    limiter
        .hold(&waited_for, Duration::from_secs(500), HoldReason::Operator)
        .unwrap();
    let waiting = tokio::spawn({
        let (limiter, waited_for) = (limiter.clone(), waited_for.clone());
        async move {
            limiter
                .acquire(&waited_for)
                .await
                .map(|permit| permit.report(&ok()))
        }
    });
    limiter.configure(&configured, steady(1.0)).unwrap();
    limiter.set_rate(&rated, 1.0, 1.0).unwrap();
    let refusal = Report::of(Signal::RateLimited);
    limiter.try_acquire(&refused).unwrap().report(&refusal);
    for _ in 0..5 {
        let permit = limiter.acquire(&broken).await.unwrap();
        permit.report(&Report::of(Signal::Unreachable));
    }
    settle().await;
    for i in 0..200 {
        let newcomer = nth(i);
        assert_eq!(
            limiter.try_acquire(&newcomer).unwrap_err().reason,
            RefusalReason::Full
        );
        assert_eq!(
            limiter.acquire(&newcomer).await.unwrap_err(),
            AcquireError::Full
        );
    }
    for key in [
        &leased,
        &held,
        &waited_for,
        &configured,
        &rated,
        &refused,
        &broken,
    ] {
        assert!(limiter.explain(key).is_some(), "{key} was forgotten");
    }
    // Now the queue, the hold and the lease end. The keys that have no other state are evicted, and
    // the rest stay.
    assert!(!permit.report(&ok()).late);
    waiting.await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    for i in 0..20 {
        limiter.acquire(&nth(i)).await.unwrap().report(&ok());
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    for key in [&held, &configured, &rated, &refused, &broken] {
        assert!(limiter.explain(key).is_some(), "{key} was forgotten");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_goes_once_saved_and_comes_back() {
    let limiter = bounded(1, Config::api());
    let host = key("example.com");
    limiter
        .try_acquire(&host)
        .unwrap()
        .report(&Report::of(Signal::RateLimited));
    tokio::time::advance(Duration::from_secs(100)).await;
    limiter.acquire(&host).await.unwrap().report(&ok());
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(
        limiter.try_acquire(&nth(0)).unwrap_err().reason,
        RefusalReason::Full
    );
    let before = limiter.explain(&host).unwrap();
    let saved = limiter.snapshot(&host).unwrap();
    limiter.try_acquire(&nth(0)).unwrap().report(&ok());
    assert!(limiter.explain(&host).is_none());
    tokio::time::advance(Duration::from_secs(100)).await;
    limiter.restore(&host, &saved).unwrap();
    let after = limiter.explain(&host).unwrap();
    assert_eq!((before.law, before.refused), (after.law, after.refused));
    assert!(limiter.restore(&host, &saved[..5]).is_err());
    assert_eq!(
        limiter.explain(&host).unwrap(),
        after,
        "what was known stays"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_permit_does_not_touch_the_newcomer_in_its_slot() {
    let mut config = steady(1_000.0);
    config.lease = Duration::from_secs(1);
    let limiter = bounded(1, config);
    let (old, new) = (key("old.example"), key("new.example"));
    let (reported, dropped) = (
        limiter.try_acquire(&old).unwrap(),
        limiter.acquire(&old).await.unwrap(),
    );
    tokio::time::advance(Duration::from_secs(5)).await;
    let fresh = [
        limiter.acquire(&new).await.unwrap(),
        limiter.acquire(&new).await.unwrap(),
    ];
    assert!(reported.renew().is_none());
    assert!(reported.report(&Report::of(Signal::RateLimited)).late);
    drop(dropped);
    let told = limiter.explain(&new).unwrap();
    assert_eq!(
        (told.in_flight.0, told.refused, told.tally.granted),
        (2, 0, 2)
    );
    for permit in fresh {
        assert!(!permit.report(&ok()).late);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_from_before_a_restore_or_configuration_touches_nothing() {
    // Regression: lease ids start again after an eviction, and an old permit freed a slot that
    // another permit held.
    let limiter = bounded(10, steady(1_000.0));
    let host = key("example.com");
    let empty = {
        limiter
            .hold(&host, Duration::from_secs(1), HoldReason::Operator)
            .unwrap();
        limiter.unpark(&host);
        limiter.snapshot(&host).unwrap()
    };
    for begin_anew in [true, false] {
        let old = [
            limiter.acquire(&host).await.unwrap(),
            limiter.acquire(&host).await.unwrap(),
        ];
        if begin_anew {
            limiter.configure(&host, steady(1_000.0)).unwrap();
        } else {
            limiter.restore(&host, &empty).unwrap();
        }
        let fresh = [
            limiter.acquire(&host).await.unwrap(),
            limiter.acquire(&host).await.unwrap(),
        ];
        let [first, second] = old;
        assert!(first.report(&Report::of(Signal::RateLimited)).late);
        drop(second);
        assert_eq!(limiter.explain(&host).unwrap().in_flight.0, 2);
        for permit in fresh {
            assert!(!permit.report(&ok()).late);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_served_after_a_restore_or_configuration() {
    let limiter = bounded(10, steady(1_000.0));
    let host = key("example.com");
    limiter.try_acquire(&host).unwrap().report(&ok());
    let saved = limiter.snapshot(&host).unwrap();
    for begin_anew in [true, false] {
        limiter
            .hold(&host, Duration::from_mins(50), HoldReason::Operator)
            .unwrap();
        let waiting = tokio::spawn({
            let (limiter, host) = (limiter.clone(), host.clone());
            async move {
                limiter
                    .acquire(&host)
                    .await
                    .map(|permit| permit.report(&ok()))
            }
        });
        settle().await;
        let began = limiter.now();
        if begin_anew {
            limiter.configure(&host, steady(1_000.0)).unwrap();
        } else {
            limiter.restore(&host, &saved).unwrap();
        }
        waiting.await.unwrap().unwrap();
        assert!(
            limiter.now().since(began) < Duration::from_millis(10),
            "at once"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_keys() {
    let limiter = bounded(100_000, steady(1.0));
    for i in 0..100_000 {
        limiter.try_acquire(&nth(i)).unwrap().report(&ok());
    }
    let stats = limiter.stats();
    assert_eq!(
        (stats.keys, stats.granted, stats.reported),
        (100_000, 100_000, 100_000)
    );
    assert!(
        stats.memory / stats.keys <= 600,
        "{} bytes a key",
        stats.memory / stats.keys
    );
    for i in (0..100_000).step_by(1_000) {
        assert!(
            limiter.explain(&nth(i)).unwrap().wait.is_some(),
            "each is known"
        );
    }
}

/// Regression: a full registry accepted settings and dropped them without an error.
#[tokio::test(start_paused = true)]
async fn a_full_registry_says_so_to_who_sets_something() {
    let limiter = bounded(1, steady(10.0));
    let full = |result| assert_eq!(result, Err(SetError::Full(Full)));
    let state = {
        let other = bounded(1, steady(10.0));
        other.try_acquire(&nth(0)).unwrap().report(&ok());
        other.snapshot(&nth(0)).unwrap()
    };
    let permit = limiter.try_acquire(&nth(0)).unwrap();
    let hour = Duration::from_hours(1);
    assert_eq!(limiter.hold(&nth(1), hour, HoldReason::Operator), Err(Full));
    full(limiter.set_rate(&nth(1), 1.0, 1.0));
    full(limiter.configure(&nth(1), steady(1.0)));
    full(limiter.restore(&nth(1), &state));
    limiter.unpark(&nth(1));
    assert_eq!(limiter.keys(), [nth(0)]);
    // For a key that the limiter knows, the setting works as before.
    limiter.set_rate(&nth(0), 1.0, 1.0).unwrap();
    permit.report(&ok());
}

/// Regression: each of these calls created an unused key, and reported a wrong rate as an error in
/// `rate_start`.
#[tokio::test(start_paused = true)]
async fn what_changes_nothing_evicts_nobody() {
    let limiter = bounded(1, steady(10.0));
    limiter.acquire(&nth(0)).await.unwrap().report(&ok());
    tokio::time::advance(Duration::from_mins(1)).await;
    limiter.unpark(&nth(1));
    limiter.forget(&nth(1));
    assert!(limiter.restore(&nth(1), b"nonsense").is_err());
    let wrong = limiter.set_rate(&nth(1), 0.0, 1.0).unwrap_err();
    assert_eq!(wrong.to_string(), "rate must be a number above 0, not 0");
    assert_eq!(limiter.keys(), [nth(0)]);
}

/// Regression: the request waited for its own slot for ever.
#[tokio::test(start_paused = true)]
async fn who_is_shown_each_key_may_call() {
    let limiter = bounded(10, steady(10.0));
    limiter.acquire(&nth(0)).await.unwrap().report(&ok());
    let mut shown = 0;
    limiter.each(|key, _, _| shown += usize::from(limiter.explain(key).is_some()));
    assert_eq!(shown, 1);
}

/// Regression: the list of learned keys grew with every evicted key. The registry reuses a key's
/// place, and the list then named the new key once for each of its predecessors.
#[tokio::test(start_paused = true)]
async fn what_was_learned_is_listed_once() {
    let limiter = bounded(10, steady(10.0));
    for i in 0..1_000 {
        limiter.acquire(&nth(i)).await.unwrap().report(&ok());
        tokio::time::advance(Duration::from_millis(200)).await;
    }
    assert_eq!(limiter.take_learned().len(), 10);
    assert_eq!(limiter.take_learned(), []);
}

/// Regression: each waiting request was counted twice, and a late refusal was counted without its
/// report.
#[tokio::test(start_paused = true)]
async fn the_books_count_each_once() {
    let mut config = steady(1.0);
    config.lease = Duration::from_secs(5);
    let limiter = bounded(10, config);
    for _ in 0..4 {
        limiter.acquire(&nth(0)).await.unwrap().report(&ok());
    }
    assert_eq!(limiter.stats().turned_away, 3);
    let permit = limiter.acquire(&nth(0)).await.unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    permit.report(&Report::of(Signal::RateLimited));
    let stats = limiter.stats();
    assert_eq!((stats.late, stats.refused), (1, 0));
}
