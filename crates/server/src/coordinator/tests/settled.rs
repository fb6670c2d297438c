//! Permits are settled after a restart as they would have been before it: after a kill and after an
//! orderly end, whoever declared the limits.

use politely_api::wire::Change;

use super::durable::copied;
use super::*;
use crate::store::Store;

const LIMIT: u64 = 1_000;

/// The source of a key's limits.
#[derive(Clone, Copy, Debug)]
enum Declared {
    ByOperator,
    /// By a rule, for the keys that it matches.
    ByRule,
    /// By a rule, for an account.
    OfAccount,
}

/// How the coordinator ends before the next one begins.
#[derive(Clone, Copy, Debug)]
enum Stop {
    None,
    Kill,
    /// A kill after the states of all keys were saved.
    KillAfterSave,
    /// A kill, and all leases end before the next coordinator begins.
    KillAndLeasesEnd,
    Term,
}

const ALL: [Declared; 3] = [Declared::ByOperator, Declared::ByRule, Declared::OfAccount];
const ENDS: [Stop; 4] = [Stop::None, Stop::Kill, Stop::KillAfterSave, Stop::Term];

/// A coordinator, and its folder.
struct Place {
    dir: tempfile::TempDir,
    coordinator: Coordinator,
    declared: Declared,
}

impl Place {
    async fn new(declared: Declared) -> Self {
        let place = Self::over(tempfile::tempdir().unwrap(), declared);
        if let Declared::ByOperator = declared {
            let limits = KeyPatch {
                limits: Change::To(vec![format!("{LIMIT} tokens/h")]),
                ..KeyPatch::default()
            };
            let key = Key::parse(place.key()).unwrap();
            place.coordinator.patch_key(&key, &limits).await.unwrap();
        }
        place
    }

    fn over(dir: tempfile::TempDir, declared: Declared) -> Self {
        Self::over_ended(dir, declared, false)
    }

    fn over_ended(dir: tempfile::TempDir, declared: Declared, are_ended: bool) -> Self {
        let (store, mut kept) = Store::open(dir.path()).unwrap();
        for granted in kept.live.iter_mut().filter(|_| are_ended) {
            granted.lease_ms = 0;
        }
        let settings = Settings {
            config: Config::fixed(1_000.0, 100.0),
            ..Settings::default()
        };
        let coordinator = Coordinator::resume(settings, store, kept).unwrap();
        let account = match declared {
            Declared::ByOperator => None,
            Declared::ByRule => Some(""),
            Declared::OfAccount => Some("account = \"team\"\n"),
        };
        if let Some(account) = account {
            let limits = format!("limits = [\"{LIMIT} tokens/h\", \"50/h\"]\n");
            let rule = format!("[[rule]]\nmatch = [\"h.example\"]\n{account}{limits}");
            let file = dir.path().join("policy.toml");
            std::fs::write(&file, rule).unwrap();
            coordinator.load_policy(&file, false).unwrap();
        }
        Self {
            dir,
            coordinator,
            declared,
        }
    }

    fn key(&self) -> &'static str {
        match self.declared {
            Declared::OfAccount => "custom/team",
            _ => "h.example",
        }
    }

    async fn restarted(self, end: Stop) -> Self {
        match end {
            Stop::None => return self,
            Stop::Kill | Stop::KillAndLeasesEnd => {}
            Stop::KillAfterSave => {
                let store = self.coordinator.0.store.as_ref().unwrap();
                let saved = store.keep_all_now(self.coordinator.learned());
                saved.await.unwrap();
            }
            Stop::Term => assert!(self.coordinator.save().await),
        }
        let are_ended = matches!(end, Stop::KillAndLeasesEnd);
        Self::over_ended(copied(self.dir.path()), self.declared, are_ended)
    }

    async fn grant(&self, tokens: u64) -> Grant {
        let asked = Item {
            url: Some("https://h.example/".to_owned()),
            key: None,
            cost: serde_json::from_value(serde_json::json!({"tokens": tokens})).unwrap(),
            ..item("", "")
        };
        let worker = self.coordinator.worker("w");
        self.coordinator
            .one(&worker, asked, AT_ONCE)
            .await
            .granted()
    }

    async fn tell(&self, grant: &Grant, used: Option<u64>, body_coming: bool) {
        let mut report = told(grant);
        report.body_coming = body_coming;
        report
            .used
            .extend(used.map(|used| ("tokens".to_owned(), used)));
        let mut aftermath = Aftermath::default();
        let worker = self.coordinator.worker("w");
        let answer = self.coordinator.report(&worker, &report, &mut aftermath);
        assert!(answer.error.is_none(), "{answer:?}");
        self.coordinator.see_to(aftermath).await;
    }

    fn cancel(&self, grant: &Grant) -> bool {
        let worker = self.coordinator.worker("w");
        let permit = std::slice::from_ref(&grant.permit);
        let cancelled = self.coordinator.cancel(&worker, permit, false);
        cancelled.cancelled == permit
    }

    fn left(&self) -> u64 {
        self.coordinator.explain(self.key()).unwrap().budgets[0].remaining
    }
}

/// Regression: the limits of a rule came into force with the next request, so estimates were
/// dropped at the restart. Usage was lost, or was added to the estimate.
#[tokio::test]
async fn permits_are_settled_after_each_end_whoever_declared_the_limits() {
    for declared in ALL {
        for end in ENDS {
            for is_request_first in [false, true] {
                let place = Place::new(declared).await;
                let mut out = Vec::new();
                for _ in 0..4 {
                    out.push(place.grant(100).await);
                }
                let place = place.restarted(end).await;
                if is_request_first {
                    place.grant(1).await;
                }
                place.tell(&out[0], Some(10), false).await;
                place.tell(&out[1], Some(150), false).await;
                assert!(place.cancel(&out[2]));
                place.tell(&out[3], None, false).await;
                if !is_request_first {
                    place.grant(1).await;
                }
                assert_eq!(
                    place.left(),
                    739,
                    "{declared:?}, {end:?}, {is_request_first}"
                );
            }
        }
    }
}

/// Regression: the estimate was in force again after a restart, though the head's report had
/// corrected it. So the final report put back what others had spent.
#[tokio::test]
async fn a_final_report_after_a_restart_corrects_what_the_head_reported() {
    for declared in ALL {
        for end in ENDS {
            for (head, body) in [(Some(25), 90), (Some(600), 90), (None, 90), (Some(25), 700)] {
                let place = Place::new(declared).await;
                let (grant, other) = (place.grant(500).await, place.grant(100).await);
                place.tell(&grant, head, true).await;
                let place = place.restarted(end).await;
                let held = head.unwrap_or(500);
                assert_eq!(
                    place.left(),
                    LIMIT.saturating_sub(held + 100),
                    "{declared:?}, {end:?}"
                );
                place.tell(&grant, Some(body), false).await;
                place.tell(&other, Some(100), false).await;
                assert_eq!(
                    place.left(),
                    LIMIT - body - 100,
                    "{declared:?}, {end:?}, {head:?}"
                );
            }
        }
    }
}

/// Regression: permits whose leases ended while no coordinator ran were forgotten, so what exceeded
/// their estimates was lost.
#[tokio::test]
async fn a_report_owes_its_excess_if_the_lease_ended_while_no_coordinator_ran() {
    for declared in ALL {
        let place = Place::new(declared).await;
        let mut out = Vec::new();
        for _ in 0..4 {
            out.push(place.grant(100).await);
        }
        let place = place.restarted(Stop::KillAndLeasesEnd).await;
        assert_eq!(place.coordinator.0.permits.live(), 0);
        place.tell(&out[0], Some(10), false).await;
        place.tell(&out[1], Some(150), false).await;
        assert!(!place.cancel(&out[2]));
        place.tell(&out[3], None, false).await;
        assert_eq!(place.left(), LIMIT - 450, "{declared:?}");
    }
}

/// Regression: the journal forgot a permit when its lease ended. After a restart what exceeded its
/// estimate was lost.
#[tokio::test]
async fn a_report_owes_its_excess_if_the_coordinator_restarts_after_the_lease() {
    for declared in ALL {
        for end in ENDS {
            let place = Place::new(declared).await;
            let grant = place.grant(100).await;
            let coordinator = &place.coordinator;
            coordinator.sweep(coordinator.now() + Config::default().lease);
            assert_eq!(coordinator.0.permits.live(), 0);
            let place = place.restarted(end).await;
            place.tell(&grant, Some(150), false).await;
            assert_eq!(place.left(), LIMIT - 150, "{declared:?}, {end:?}");
        }
    }
}

/// Regression: a permit whose head was reported was forgotten when its lease ended, and the final
/// usage with it.
#[tokio::test(start_paused = true)]
async fn the_final_usage_counts_after_the_lease_ended_while_the_body_came() {
    for head in [None, Some(5), Some(50)] {
        let mut config = Config::fixed(1_000.0, 100.0);
        config.declared = format!("{LIMIT} tokens/h").parse().unwrap();
        let lease = config.lease;
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
            coordinator: coordinator(config),
            declared: Declared::ByOperator,
        };
        let grant = place.grant(10).await;
        place.tell(&grant, head, true).await;
        tokio::time::sleep(lease + Duration::from_secs(5)).await;
        assert_eq!(place.coordinator.0.permits.live(), 0);
        for _ in 0..2 {
            place.tell(&grant, Some(90), false).await;
            assert_eq!(place.left(), LIMIT - 90, "{head:?}");
        }
    }
}

/// Regression: the journal had the end of a cancelled permit, and not its refund.
#[tokio::test]
async fn what_a_cancelled_permit_gives_back_outlives_a_kill() {
    for declared in ALL {
        for end in ENDS {
            let place = Place::new(declared).await;
            let (cancelled, other) = (place.grant(50).await, place.grant(100).await);
            assert!(place.cancel(&cancelled));
            let place = place.restarted(end).await;
            assert_eq!(place.left(), LIMIT - 100, "{declared:?}, {end:?}");
            assert!(!place.cancel(&cancelled));
            assert!(place.cancel(&other));
            assert_eq!(place.left(), LIMIT, "{declared:?}, {end:?}");
        }
    }
}
