//! Tests of coordinators over one engine: acknowledged changes are in the engine. They run in real
//! time, because the engine's thread has its own clock.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::Mutex;
use politely::cells::{Engine, EngineError, Heartbeat, Memory, OnNotice, Pending, Write, Written};
use politely::store::Unavailable;
use politely_api::wire::{Apply, Change, ConfigPatch, CrawlingPatch};

use super::super::config_cell::FollowedCell;
use super::super::operate::NotSet;
use super::super::policy_cell::POLICY_CELL;
use super::*;
use crate::cells::FOREVER;

mod limits;

const DAY: Duration = Duration::from_hours(24);

/// An engine that refuses writes of keys while `is_shut` is set.
struct Gated {
    memory: Memory,
    is_shut: Arc<AtomicBool>,
    /// While set, writes panic.
    is_broken: Arc<AtomicBool>,
    /// The lifetime of each cell.
    keeps: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl Engine for Gated {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        self.memory.read(cells)
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        assert!(!self.is_broken.load(SeqCst), "a test breaks the engine");
        if self.is_shut.load(SeqCst) {
            let failed = vec![Err(EngineError("shut".to_owned())); writes.len()];
            return Box::pin(std::future::ready(failed));
        }
        let mut keeps = self.keeps.lock();
        keeps.extend(
            writes
                .iter()
                .map(|write| (write.cell.to_string(), write.keep)),
        );
        drop(keeps);
        self.memory.compare_and_set(writes)
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        self.memory.heartbeat(epoch)
    }

    fn listen(&self, hear: OnNotice) {
        self.memory.listen(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        self.memory.watch(more, less)
    }
}

/// An engine that several coordinators share.
pub(super) struct Town {
    memory: Memory,
    is_shut: Arc<AtomicBool>,
    is_broken: Arc<AtomicBool>,
    keeps: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl Town {
    pub(super) fn new() -> Self {
        Self {
            memory: Memory::new(Clock::system()),
            is_shut: Arc::default(),
            is_broken: Arc::default(),
            keeps: Arc::default(),
        }
    }

    pub(super) async fn coordinator(&self) -> Coordinator {
        let coordinator = self.unread_coordinator();
        coordinator.limiter().ping().await.unwrap();
        coordinator.read_shared().await.unwrap();
        coordinator
    }

    /// Returns a coordinator that has not read the configuration and the policy yet.
    fn unread_coordinator(&self) -> Coordinator {
        let settings = Settings {
            config: Config::fixed(1_000.0, 8.0),
            ..Settings::default()
        };
        let engine = Gated {
            memory: self.memory.clone(),
            is_shut: Arc::clone(&self.is_shut),
            is_broken: Arc::clone(&self.is_broken),
            keeps: Arc::clone(&self.keeps),
        };
        let config = Arc::new(self.memory.clone());
        let coordinator =
            Coordinator::shared(settings, Arc::new(engine), Unavailable::Closed, None);
        coordinator.unwrap().share_config(config)
    }

    fn keep(&self, cell: &str) -> Duration {
        self.keeps.lock()[cell]
    }
}

fn key() -> Key {
    Key::parse("h.example").unwrap()
}

fn patch(rate: f64, hold: Option<Duration>) -> KeyPatch {
    KeyPatch {
        rate: Change::To(rate),
        hold_ms: hold.map(|hold| hold.as_millis() as u64),
        ..KeyPatch::default()
    }
}

fn burst(burst: f64) -> ConfigPatch {
    ConfigPatch {
        crawling: CrawlingPatch {
            rate_burst: Change::To(burst),
            ..CrawlingPatch::default()
        },
        ..ConfigPatch::default()
    }
}

#[tokio::test]
async fn an_operators_change_is_in_the_engine_when_it_is_answered() {
    let town = Town::new();
    let one = town.coordinator().await;
    one.patch_key(&key(), &patch(5.0, None)).await.unwrap();
    // The coordinator stops without a last write, as after kill -9.
    town.is_shut.store(true, SeqCst);
    drop(one);
    town.is_shut.store(false, SeqCst);
    let other = town.coordinator().await;
    assert_eq!(other.refresh(&key()).await, Ok(true));
    assert_eq!(other.numbers(&key()).rate, Change::To(5.0));
    let unknown = Key::parse("unknown.example").unwrap();
    assert_eq!(other.refresh(&unknown).await, Ok(false));
}

#[tokio::test]
async fn a_reset_at_one_coordinator_is_everybodys() {
    let town = Town::new();
    let (one, other) = (town.coordinator().await, town.coordinator().await);
    let limits = KeyPatch {
        limits: Change::To(vec!["2/30d".to_owned()]),
        ..KeyPatch::default()
    };
    one.patch_key(&key(), &limits).await.unwrap();
    let worker = one.worker("w");
    for id in ["1", "2"] {
        one.one(&worker, item("h.example", id), AT_ONCE)
            .await
            .granted();
    }
    let waits = one.one(&worker, item("h.example", "3"), AT_ONCE).await;
    assert_eq!(waits.wait().1, "budget");
    let reset = KeyPatch {
        reset_budget: Some("2/30day".to_owned()),
        ..KeyPatch::default()
    };
    // The other coordinator has to read the key first.
    other.patch_key(&key(), &reset).await.unwrap();
    assert_eq!(one.refresh(&key()).await, Ok(true));
    let left = one.explain("h.example").unwrap().budgets[0].remaining;
    assert_eq!(left, 2);
    one.one(&worker, item("h.example", "3"), AT_ONCE)
        .await
        .granted();
}

#[tokio::test]
async fn a_change_that_the_engine_does_not_take_is_not_acknowledged() {
    let town = Town::new();
    let one = town.coordinator().await;
    town.is_shut.store(true, SeqCst);
    let set = one.patch_key(&key(), &patch(5.0, None)).await;
    assert!(matches!(set, Err(NotSet::Unkept(_))), "{set:?}");
    town.is_shut.store(false, SeqCst);
    while one.last_error().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The repeated change is kept.
    one.patch_key(&key(), &patch(5.0, None)).await.unwrap();
    let other = town.coordinator().await;
    assert_eq!(other.refresh(&key()).await, Ok(true));
    assert_eq!(other.numbers(&key()).rate, Change::To(5.0));
}

#[tokio::test]
async fn a_retry_after_waits_for_the_engine_or_says_that_it_did_not() {
    let town = Town::new();
    let one = town.coordinator().await;
    let worker = one.worker("w");
    for (is_shut, not_durable) in [(true, vec![0]), (false, Vec::new())] {
        let name = format!("{is_shut}.example");
        let wait = Duration::from_secs(10);
        let grant = one.one(&worker, item(&name, ""), wait).await.granted();
        town.is_shut.store(is_shut, SeqCst);
        let mut aftermath = Aftermath::default();
        let answer = one.report(&worker, &refusal(&grant, "600"), &mut aftermath);
        assert!(answer.hold_ms > 0 && answer.error.is_none());
        aftermath.reported(0);
        assert_eq!(one.see_to(aftermath).await, not_durable);
        town.is_shut.store(false, SeqCst);
    }
    let other = town.coordinator().await;
    let held = Key::parse("false.example").unwrap();
    assert_eq!(other.refresh(&held).await, Ok(true));
    let wait = other.explain("false.example").unwrap().wait.unwrap();
    assert!(wait.at.since(other.now()) > Duration::from_secs(500));
}

/// Each coordinator learns of the other's grant when its own write to the engine conflicts.
#[tokio::test]
async fn a_crawl_delay_that_two_read_separates_their_requests() {
    const PAUSE_MS: u64 = 300;
    let town = Town::new();
    let coordinators = [town.coordinator().await, town.coordinator().await];
    let starts = coordinators.each_ref().map(|coordinator| async move {
        let worker = coordinator.worker("w");
        let item = Item {
            crawl_delay_ms: Some(PAUSE_MS),
            ..item("h.example", "")
        };
        let long = Duration::from_secs(30);
        let grant = coordinator.one(&worker, item, long).await.granted();
        let start = coordinator.now() + Duration::from_millis(grant.start_in_ms);
        tokio::time::sleep(start.since(coordinator.now())).await;
        coordinator.tell(&worker, &told(&grant));
        start
    });
    let starts = futures_util::future::join_all(starts).await;
    let gap = starts[0].since(starts[1]) + starts[1].since(starts[0]);
    assert!(gap >= Duration::from_millis(PAUSE_MS), "{gap:?}");
}

#[tokio::test]
async fn a_cell_outlives_its_hold_and_its_operators_settings() {
    let town = Town::new();
    let one = town.coordinator().await;
    let held = KeyPatch {
        hold_ms: Some((200 * DAY).as_millis() as u64),
        ..KeyPatch::default()
    };
    one.patch_key(&key(), &held).await.unwrap();
    let keep = town.keep("politely:{h.example}");
    assert!(keep > 229 * DAY, "{keep:?}");
    one.patch_key(&key(), &patch(5.0, None)).await.unwrap();
    assert!(town.keep("politely:{h.example}") > 30_000 * DAY);
    // A key without a hold and without settings is forgotten after a month.
    let grant = one
        .one(
            &one.worker("w"),
            item("i.example", ""),
            Duration::from_secs(10),
        )
        .await;
    grant.granted();
    assert_eq!(town.keep("politely:{i.example}"), 30 * DAY);
}

#[tokio::test]
async fn the_configuration_is_everybodys_and_outlives_all() {
    let town = Town::new();
    let [one, other] = [town.coordinator().await, town.coordinator().await];
    one.patch_config(&burst(3.0)).await.unwrap();
    other.refresh_config().await.unwrap();
    assert!((other.config().crawling.rate_burst - 3.0).abs() < 1e-9);
    // Two coordinators change the configuration at the same time, and both changes are kept.
    let start = ConfigPatch {
        crawling: CrawlingPatch {
            rate_start: Change::To(2.0),
            ..CrawlingPatch::default()
        },
        ..ConfigPatch::default()
    };
    let at_once = burst(4.0);
    let (first, second) = tokio::join!(one.patch_config(&at_once), other.patch_config(&start));
    first.unwrap();
    second.unwrap();
    drop((one, other));
    let third = town.coordinator().await;
    let config = third.config();
    let found = [config.crawling.rate_burst, config.crawling.rate_start];
    assert_eq!(found.map(|number| number.to_string()), ["4", "2"]);
    assert_eq!(config.version, 4);
    // An invalid change is refused and has no effect.
    let wrong = third.patch_config(&burst(0.1)).await;
    assert!(matches!(wrong, Err(NotSet::Wrong(_))), "{wrong:?}");
}

#[tokio::test]
async fn an_engine_that_lost_the_configuration_gets_it_back() {
    let town = Town::new();
    let one = town.coordinator().await;
    one.patch_config(&burst(3.0)).await.unwrap();
    let empty = Town::new();
    let again = Coordinator::clone(&one);
    // The same coordinator finds an empty engine.
    let cell = FollowedCell::new(Arc::new(empty.memory.clone()));
    again.go_by(&cell).await.unwrap();
    let other = empty.coordinator().await;
    assert!((other.config().crawling.rate_burst - 3.0).abs() < 1e-9);
}

#[tokio::test]
async fn the_end_of_the_engines_thread_is_told() {
    let town = Town::new();
    let one = town.coordinator().await;
    assert_eq!(one.last_error(), None);
    town.is_broken.store(true, SeqCst);
    let set = one.patch_key(&key(), &patch(5.0, None)).await;
    assert!(matches!(set, Err(NotSet::Unkept(_))), "{set:?}");
    let why = one.last_error().unwrap();
    assert!(why.contains("has ended; restart"), "{why}");
    let again = one.patch_key(&key(), &patch(6.0, None)).await;
    assert!(matches!(again, Err(NotSet::Refused(_))), "{again:?}");
}

/// Regression: with an engine no item counted as granted at once.
#[tokio::test]
async fn an_item_that_its_key_grants_at_the_first_decision_is_a_hit() {
    let town = Town::new();
    let one = town.coordinator().await;
    let (worker, wait) = (one.worker("w"), Duration::from_secs(10));
    let granted = async || {
        one.one(&worker, item("h.example", ""), wait)
            .await
            .granted()
    };
    // The bucket of a new cell is empty, and is full some milliseconds later.
    granted().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let hits = || one.0.at_once.load(SeqCst);
    let before = (hits(), one.limiter().stats().waits);
    for _ in 0..4 {
        granted().await;
    }
    assert_eq!(
        (hits(), one.limiter().stats().waits),
        (before.0 + 4, before.1)
    );
    let at_once = one.one(&worker, item("h.example", ""), AT_ONCE).await;
    at_once.granted();
    assert_eq!(hits(), before.0 + 5);
    let held = patch(1_000.0, Some(Duration::from_millis(200)));
    one.patch_key(&key(), &held).await.unwrap();
    granted().await;
    assert_eq!(
        (hits(), one.limiter().stats().waits),
        (before.0 + 5, before.1 + 1)
    );
    assert!(one.hit_rate() < 0.5);
}

#[tokio::test]
async fn an_id_of_another_coordinator_is_named_as_unknown() {
    let town = Town::new();
    let [one, other] = [town.coordinator().await, town.coordinator().await];
    let wait = Duration::from_secs(10);
    let workers = [one.worker("w"), other.worker("w")];
    let granted = one.one(&workers[0], item("h.example", "job-1"), wait);
    let permit = granted.await.granted().permit;
    let cancel = |at: &Coordinator, name: &str| {
        let answer = at.cancel(&at.worker("w"), &[name.to_owned()], false);
        [answer.cancelled, answer.lost, answer.unknown].map(|names| names.len())
    };
    assert_eq!(cancel(&other, "job-1"), [0, 0, 1]);
    assert_eq!(cancel(&one, "job-1"), [1, 0, 0]);
    // A permit that has ended is lost, at each coordinator.
    assert_eq!(cancel(&one, &permit), [0, 1, 0]);
    // The other coordinator grants nothing under the id.
    let again = other.one(&workers[1], item("h.example", "job-1"), wait);
    let reason = again.await.refused();
    assert!(reason.contains("cancelled"), "{reason}");
}

/// Regression: with an engine, a change for new keys was refused.
#[tokio::test]
async fn a_change_for_new_keys_is_everybodys_and_outlives_all() {
    let town = Town::new();
    let [one, other] = [town.coordinator().await, town.coordinator().await];
    let wait = Duration::from_secs(10);
    let workers = [one.worker("w"), other.worker("w")];
    let old = one.one(&workers[0], item("old.example", ""), wait);
    old.await.granted();
    let change = ConfigPatch {
        crawling: CrawlingPatch {
            rate_per_host: Change::To(50.0),
            ..CrawlingPatch::default()
        },
        apply: Apply::New,
    };
    one.patch_config(&change).await.unwrap();
    other.refresh_config().await.unwrap();
    let new = other.one(&workers[1], item("new.example", ""), wait);
    new.await.granted();
    let rates = async |coordinator: &Coordinator| {
        let mut rates = Vec::new();
        for name in ["old.example", "new.example"] {
            let key = Key::parse(name).unwrap();
            assert_eq!(coordinator.refresh(&key).await, Ok(true), "{name}");
            rates.push(coordinator.explain(name).unwrap().rate.to_string());
        }
        rates
    };
    assert_eq!(rates(&one).await, ["1000", "50"]);
    assert_eq!(rates(&other).await, ["1000", "50"]);
    drop((one, other));
    let third = town.coordinator().await;
    assert_eq!(rates(&third).await, ["1000", "50"]);
    third.patch_config(&burst(4.0)).await.unwrap();
    assert_eq!(rates(&third).await, ["50", "50"]);
}

#[tokio::test]
async fn all_coordinators_follow_the_last_policy() {
    let (town, dir) = (Town::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("rules.toml");
    let rules = |limit| format!("[[rule]]\nmatch = [\"h.example\"]\nlimits = [\"{limit}\"]\n");
    std::fs::write(&file, rules("5/h")).unwrap();
    let (a, b) = (town.coordinator().await, town.coordinator().await);
    a.load_policy(&file, false).unwrap();
    for coordinator in [&a, &b] {
        coordinator.refresh_policy().await.unwrap();
        assert_eq!(coordinator.policy_text(), rules("5/h"));
    }
    // A PUT needs no file where there is an engine, and reaches the files of the others.
    assert!(
        b.replace_policy("[[rule]]".to_owned(), false)
            .await
            .is_err()
    );
    assert_eq!(b.replace_policy(rules("7/h"), false).await.unwrap(), 1);
    a.refresh_policy().await.unwrap();
    assert_eq!(a.policy_text(), rules("7/h"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), rules("7/h"));
    // A restart with the file changes nothing, and a change of the file reaches the others.
    let again = town.coordinator().await;
    again.load_policy(&file, false).unwrap();
    again.refresh_policy().await.unwrap();
    std::fs::write(&file, rules("9/h")).unwrap();
    again.load_policy(&file, false).unwrap();
    again.refresh_policy().await.unwrap();
    b.refresh_policy().await.unwrap();
    assert_eq!(b.policy_text(), rules("9/h"));
    // A cell that was damaged by hand leaves the policy in force, and is told of.
    let cell = FollowedCell::named(POLICY_CELL, Arc::new(town.memory.clone()));
    let held = cell.read().await.unwrap();
    let mut value = held.clone().unwrap();
    *value.last_mut().unwrap() ^= 1;
    value[..16].copy_from_slice(&[7; 16]);
    let kept = (FOREVER, false);
    let written = cell.cells.write(&cell.name, held, value, kept).await;
    assert_eq!(written, Ok(Written::Done));
    let wrong = b.refresh_policy().await.unwrap_err();
    assert!(wrong.contains("is damaged"), "{wrong}");
    assert_eq!(b.policy_text(), rules("9/h"));
}
