//! Tests of two coordinators over one engine, one of which stops. They run in real time, because
//! the engine's thread has its own clock.

use politely::cells::Memory;
use politely::store::Unavailable;

use super::*;

const WAIT: Duration = Duration::from_secs(10);

fn two(config: &Config) -> [Coordinator; 2] {
    let engine = Memory::new(Clock::system());
    [(); 2].map(|()| {
        let settings = Settings {
            config: config.clone(),
            ..Settings::default()
        };
        Coordinator::shared(
            settings,
            Arc::new(engine.clone()),
            Unavailable::Closed,
            None,
        )
        .unwrap()
    })
}

/// Returns a config of so low a rate that a permit may be used for 100 ms. On a busy machine
/// one may come later: it is cancelled, and another one granted.
fn config() -> Config {
    let mut config = Config::fixed(5.0, 8.0);
    config.limits.in_flight = 2;
    config
}

impl Coordinator {
    async fn adopt_and_tell(&self, worker: &Arc<Worker>, told: &Told) -> ToldAnswer {
        let permits = [(told.permit.as_str(), Some(told.slot))];
        self.adopt(worker, permits.into_iter()).await;
        self.tell(worker, told)
    }

    async fn adopt_named(&self, worker: &Arc<Worker>, permits: &[String]) {
        let permits = permits.iter().map(|name| (name.as_str(), None));
        self.adopt(worker, permits).await;
    }

    /// Returns the counts of a key: granted, reported, cancelled, expired, in flight.
    async fn books(&self, key: &str) -> (u64, u64, u64, u64, u32) {
        assert!(self.limiter().flush(WAIT).await);
        let explained = self.limiter().explain(&Key::parse(key).unwrap()).unwrap();
        let tally = explained.tally;
        let (granted, reported) = (tally.granted, tally.reported);
        (
            granted,
            reported,
            tally.cancelled,
            tally.expired,
            explained.in_flight.0,
        )
    }
}

#[tokio::test]
async fn a_report_to_another_counts_once() {
    let [one, other] = two(&config());
    let mut asked = item("h.example", "first");
    asked.also = vec!["custom/a,b.c".to_owned()];
    let grant = one.one(&one.worker("w"), asked, WAIT).await.granted();
    assert!(
        grant.permit.ends_with(".custom%2Fa%2Cb.c"),
        "{}",
        grant.permit
    );
    let worker = other.worker("w");
    assert!(!other.adopt_and_tell(&worker, &told(&grant)).await.late);
    assert_eq!(other.books("h.example").await, (1, 1, 0, 0, 0));
    assert_eq!(other.books("custom/a,b.c").await.4, 0);
    // The report is repeated at both coordinators, as after a lost answer.
    assert!(other.adopt_and_tell(&worker, &told(&grant)).await.late);
    one.adopt_and_tell(&one.worker("w"), &told(&grant)).await;
    assert_eq!(one.books("h.example").await.1, 1);
    let stats = &other.watch().workers.stats(other.now(), 9)[0];
    assert_eq!(
        (stats.granted, stats.reported, stats.late, stats.live),
        (1, 1, 1, 0)
    );
}

#[tokio::test]
async fn a_refusal_holds_the_key_however_late_it_comes() {
    let [one, other] = two(&config());
    let grant = one
        .one(&one.worker("w"), item("h.example", ""), WAIT)
        .await
        .granted();
    one.tell(&one.worker("w"), &told(&grant));
    assert!(one.limiter().flush(WAIT).await);
    let answer = other
        .adopt_and_tell(&other.worker("w"), &refusal(&grant, "30"))
        .await;
    assert!(answer.late && answer.hold_ms > 29_000, "{answer:?}");
    assert_eq!((other.live(), other.expired()), (0, 0));
}

#[tokio::test]
async fn each_departure_of_several_is_one_of_its_own() {
    let [one, other] = two(&config());
    let mut asked = item("h.example", "");
    asked.slots = 2;
    let grant = one.one(&one.worker("w"), asked, WAIT).await.granted();
    assert_eq!(grant.slots, 2);
    let worker = other.worker("w");
    for slot in 0..2 {
        let told = Told {
            slot,
            ..told(&grant)
        };
        assert!(!other.adopt_and_tell(&worker, &told).await.late);
    }
    assert_eq!(other.books("h.example").await, (2, 2, 0, 0, 0));
}

#[tokio::test]
async fn it_is_renewed_and_given_back() {
    let [one, other] = two(&config());
    let asked = [item("h.example", "a"), item("h.example", "b")];
    let mut permits = Vec::new();
    for asked in asked {
        let grant = one.one(&one.worker("w"), asked, WAIT).await.granted();
        permits.push(grant.permit);
    }
    let worker = other.worker("w");
    other.adopt_named(&worker, &permits).await;
    assert_eq!(other.renew(&worker, &permits).renewed.len(), 2);
    assert_eq!(
        (
            other.live(),
            other.out_of(&Key::host("h.example").unwrap()).len()
        ),
        (2, 2)
    );
    assert_eq!(other.cancel(&worker, &permits, false).cancelled, permits);
    assert_eq!(other.books("h.example").await, (2, 0, 2, 0, 0));
    other.adopt_named(&worker, &permits).await;
    assert_eq!(other.cancel(&worker, &permits, false).lost, permits);
    assert_eq!(other.renew(&worker, &permits).lost, permits);
}

#[tokio::test]
async fn two_calls_that_bring_the_same_keep_it() {
    let [one, other] = two(&config());
    let grant = one
        .one(&one.worker("w"), item("h.example", ""), WAIT)
        .await
        .granted();
    let worker = other.worker("w");
    let permits = [grant.permit.clone(), grant.permit.clone()];
    other.adopt_named(&worker, &permits).await;
    assert_eq!(other.books("h.example").await, (1, 0, 0, 0, 1));
    assert_eq!(other.live(), 1);
    assert!(!other.tell(&worker, &told(&grant)).late);
}

#[tokio::test]
async fn one_that_ends_leaves_its_permits_to_the_others() {
    let [one, other] = two(&config());
    let grant = one
        .one(&one.worker("w"), item("h.example", ""), WAIT)
        .await
        .granted();
    one.close();
    one.save().await;
    drop(one);
    let worker = other.worker("w");
    assert!(!other.adopt_and_tell(&worker, &told(&grant)).await.late);
}

#[tokio::test(start_paused = true)]
async fn where_keys_are_not_shared_a_name_has_no_leases() {
    let coordinator = coordinator(config());
    let worker = coordinator.worker("w");
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let number = grant.permit.split('-').next().unwrap();
    assert!(u64::from_str_radix(number, 16).is_ok(), "{}", grant.permit);
    let mut lie = told(&grant);
    lie.permit += ".1.h.example";
    let answer = coordinator.adopt_and_tell(&worker, &lie).await;
    assert_eq!(answer.error.unwrap().field, "permit");
    assert_eq!(
        coordinator.renew(&worker, &[lie.permit.clone()]).lost,
        [lie.permit]
    );
}
