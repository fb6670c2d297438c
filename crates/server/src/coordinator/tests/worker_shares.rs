//! Tests of workers that go on with their shares, in virtual time.

use politely_api::wire::{KeyLimit, SharePlace, WorkerShare};

use super::*;

const LASTS: Duration = Duration::from_mins(1);

/// Returns a coordinator that allows shares and grants 10/s of each key, or of `limits` as well.
fn allowing(limits: &str) -> Coordinator {
    let mut config = Config::fixed(10.0, 1.0);
    if !limits.is_empty() {
        config.declared = limits.parse().unwrap();
    }
    let settings = Settings {
        config,
        clock: Clock::tokio(),
        ..Settings::default()
    };
    let coordinator = Coordinator::new(settings).unwrap().allow_shares(LASTS);
    tokio::spawn(coordinator.clone().tend());
    coordinator
}

impl Coordinator {
    fn share(&self, worker: &str, told: SharePlace) -> Option<WorkerShare> {
        self.hear_share(worker, Some(told));
        self.tell_share(worker, Some(told))
    }
}

fn sent(permit: &str, status: Option<u16>) -> Told {
    Told {
        permit: permit.to_owned(),
        sent: Some(Box::new(item("a.example", ""))),
        status,
        attempt: 1,
        ..Told::default()
    }
}

#[tokio::test(start_paused = true)]
async fn without_permission_a_worker_is_told_neither_a_share_nor_a_limit() {
    let coordinator = coordinator(Config::fixed(10.0, 1.0));
    assert_eq!(coordinator.share("w", SharePlace::default()), None);
    let worker = coordinator.worker("w");
    let granted = coordinator
        .one(&worker, item("a.example", ""), AT_ONCE)
        .await;
    assert_eq!(granted.granted().limit, None);
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_told_for_a_key_alone_without_declared_limits() {
    for (limits, also, is_told) in [
        ("", "", true),
        ("", "custom/a", false),
        ("100/day", "", false),
    ] {
        let coordinator = allowing(limits);
        let worker = coordinator.worker("w");
        let mut asked = item("a.example", "");
        asked
            .also
            .extend((!also.is_empty()).then(|| also.to_owned()));
        let granted = coordinator.one(&worker, asked, AT_ONCE).await.granted();
        let rate = granted.limit.map(|KeyLimit { rate, .. }| rate);
        assert_eq!(rate, is_told.then_some(10.0), "{limits} {also}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_turns_of_a_silent_worker_are_left_to_it_until_its_time_is_over() {
    let coordinator = allowing("");
    let worker = coordinator.worker("w");
    let mut place = SharePlace::default();
    coordinator.hear_share("w", None);
    for _ in 0..3 {
        coordinator.share("other", place);
        place = SharePlace {
            workers: 2,
            place: 1,
        };
    }
    let mut counts = [0; 3];
    let began = coordinator.now();
    loop {
        let at = coordinator.now().since(began);
        if at > Duration::from_secs(90) {
            break;
        }
        let granted = coordinator
            .one(&worker, item("a.example", ""), Duration::from_millis(50))
            .await;
        let Answer::Granted(grant) = granted else {
            continue;
        };
        coordinator.tell(&worker, &told(&grant));
        counts[match at.as_secs() {
            0..=1 => 0,
            3..58 => 1,
            61.. => 2,
            _ => continue,
        }] += 1;
    }
    // The other worker has every second turn.
    assert!((18..=21).contains(&counts[0]), "{counts:?}");
    assert!((270..=281).contains(&counts[1]), "{counts:?}");
    assert!(counts[2] >= 280, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_left_on_a_share_counts_once_in_declared_limits() {
    let coordinator = allowing("100/day");
    let worker = coordinator.worker("w");
    for _ in 0..2 {
        for (permit, status) in [("mine-1", Some(200)), ("mine-2", None)] {
            let answer = coordinator.tell(&worker, &sent(permit, status));
            assert_eq!(answer.error, None, "{permit}");
            assert_eq!(answer.permit, permit);
        }
    }
    let known = coordinator.explain("a.example").unwrap();
    assert_eq!(known.budgets[0].remaining, 98);
    assert_eq!(known.in_flight.0, 0);
    assert_eq!(known.tally.reported, 1);
}
