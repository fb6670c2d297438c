//! Tests of cancelled calls: a cancelled call frees its slots, and an id stands for one item.

use politely_api::wire::RefusedCode;

use super::*;

/// Returns a configuration of one request in flight, at a rate that never limits.
fn lock() -> Config {
    let mut config = Config::fixed(1_000.0, 1_000.0);
    config.limits.in_flight = 1;
    config
}

impl Coordinator {
    fn slots(&self, key: &str) -> u32 {
        self.explain(key)
            .map_or(0, |explained| explained.in_flight.0)
    }

    fn give_up(&self, worker: &Worker, names: &[&str]) -> (usize, usize) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let answer = self.cancel(worker, &names, false);
        (answer.cancelled.len(), answer.lost.len())
    }
}

/// Regression: after a lost answer, a worker could not name the permit that it cancels.
#[tokio::test(start_paused = true)]
async fn an_id_gives_back_what_a_lost_answer_granted() {
    let coordinator = coordinator(lock());
    let worker = coordinator.worker("w");
    let _lost = coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await;
    let stranger = coordinator.worker("stranger");
    assert_eq!(coordinator.give_up(&stranger, &["1"]), (0, 1));
    assert_eq!(coordinator.slots("h.example"), 1);
    assert_eq!(coordinator.give_up(&worker, &["1"]), (1, 0));
    assert_eq!(coordinator.slots("h.example"), 0);
    assert_eq!(coordinator.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_id_gives_back_all_departures_of_a_run() {
    let coordinator = coordinator(Config::fixed(1_000.0, 1_000.0));
    let worker = coordinator.worker("w");
    let run = Item {
        slots: 5,
        ..item("h.example", "1")
    };
    let grant = coordinator.one(&worker, run, AT_ONCE).await.granted();
    assert_eq!(grant.slots, 5);
    coordinator.tell(&worker, &told(&grant));
    assert_eq!(coordinator.give_up(&worker, &["1"]), (1, 0));
    assert_eq!((coordinator.slots("h.example"), coordinator.live()), (0, 0));
}

/// The acquire call may arrive after the cancel call of the same id.
#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_not_granted_later() {
    let coordinator = coordinator(lock());
    let worker = coordinator.worker("w");
    assert_eq!(coordinator.give_up(&worker, &["1"]), (0, 1));
    let answer = coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await;
    assert!(
        matches!(
            answer,
            Answer::Refused {
                code: RefusedCode::IdUsed,
                ..
            }
        ),
        "{answer:?}"
    );
    assert_eq!(coordinator.slots("h.example"), 0);
    // A call that waits for the id while it is cancelled is not granted either.
    let first = coordinator
        .one(&worker, item("h.example", "2"), AT_ONCE)
        .await
        .granted();
    let waiting = tokio::spawn({
        let (coordinator, worker) = (coordinator.clone(), Arc::clone(&worker));
        async move {
            coordinator
                .one(&worker, item("h.example", "3"), Duration::from_secs(30))
                .await
        }
    });
    while coordinator.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(coordinator.give_up(&worker, &["3"]), (1, 0));
    coordinator.tell(&worker, &told(&first));
    let reason = waiting.await.unwrap().refused();
    assert!(reason.contains("cancelled"), "{reason}");
    assert_eq!(coordinator.slots("h.example"), 0);
}

#[tokio::test(start_paused = true)]
async fn permits_of_an_answer_that_was_not_read_go_back_and_keep_their_turn() {
    let coordinator = coordinator(lock());
    let worker = coordinator.worker("w");
    let outcome = coordinator
        .acquire(
            &worker,
            &[item("h.example", "1")],
            Want::All,
            AT_ONCE,
            Vec::new(),
        )
        .await;
    coordinator.take_back(&worker, outcome.granted.into_iter());
    assert_eq!((coordinator.slots("h.example"), coordinator.live()), (0, 0));
    coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await
        .granted();
}

/// Regression: a request for the second key was answered with the permit of the first key.
#[tokio::test(start_paused = true)]
async fn the_same_id_for_another_item_is_an_error() {
    let coordinator = coordinator(Config::fixed(1.0, 10.0));
    let worker = coordinator.worker("w");
    let first = item("a.example", "1");
    let grant = coordinator
        .one(&worker, first.clone(), AT_ONCE)
        .await
        .granted();
    let others = [
        item("b.example", "1"),
        Item {
            cost: 2.into(),
            ..first.clone()
        },
        Item {
            slots: 2,
            ..first.clone()
        },
        Item {
            bytes: 2,
            ..first.clone()
        },
        Item {
            also: vec!["custom/acct".to_owned()],
            ..first.clone()
        },
    ];
    for other in others {
        for want in [Want::All, Want::Any(1)] {
            let outcome = coordinator
                .acquire(
                    &worker,
                    std::slice::from_ref(&other),
                    want,
                    AT_ONCE,
                    Vec::new(),
                )
                .await;
            let Some(Answer::Error { error, .. }) = outcome.answers.first() else {
                panic!("{other:?}: {:?}", outcome.answers)
            };
            assert_eq!(error.field, "id");
        }
    }
    let by_url = Item {
        url: Some("http://a.example/page".to_owned()),
        key: None,
        ..first
    };
    let again = coordinator.one(&worker, by_url, AT_ONCE).await.granted();
    assert_eq!(again.permit, grant.permit, "the URL names the same key");
}

/// Regression: an item whose cost exceeded the tokens was told to retry at once.
#[tokio::test(start_paused = true)]
async fn who_waits_is_not_told_to_come_too_early() {
    let coordinator = coordinator(Config::fixed(1.0, 20.0));
    let worker = coordinator.worker("w");
    let costly = || Item {
        cost: 15.into(),
        ..item("h.example", "")
    };
    coordinator.one(&worker, costly(), AT_ONCE).await.granted();
    let (retry_in_ms, ..) = coordinator.one(&worker, costly(), AT_ONCE).await.wait();
    assert_eq!(retry_in_ms, 10_000);
    let (retry_in_ms, ..) = coordinator
        .one(&worker, costly(), Duration::from_secs(2))
        .await
        .wait();
    assert_eq!(retry_in_ms, 8_000);
    tokio::time::sleep(Duration::from_millis(retry_in_ms)).await;
    coordinator.one(&worker, costly(), AT_ONCE).await.granted();
}
