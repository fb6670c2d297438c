//! Tests of failures that are not the host's, and of refusals that nobody listed.

use politely_api::wire::ErrorKind;

use super::*;

fn failed(grant: &Grant, error: ErrorKind) -> Told {
    Told {
        status: None,
        error: Some(error),
        ..told(grant)
    }
}

/// Acquires a permit for a page of `host` as soon as it may leave.
async fn page(coordinator: &Coordinator, worker: &Arc<Worker>, host: &str, page: u32) -> Grant {
    let asked = Item {
        url: Some(format!("https://{host}/{page}")),
        key: None,
        ..item("", "")
    };
    loop {
        match coordinator.one(worker, asked.clone(), AT_ONCE).await {
            Answer::Granted(grant) => return grant,
            other => {
                let (wait, ..) = other.wait();
                tokio::time::sleep(Duration::from_millis(wait.max(1))).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_served_and_then_refuses_all_in_a_status_that_is_on_no_list_loses_no_page() {
    let coordinator = coordinator(Config::api().with_rate(10.0));
    let worker = coordinator.worker("w");
    for number in 0..8 {
        let grant = page(&coordinator, &worker, "a.example", number).await;
        coordinator.tell(&worker, &told(&grant));
    }
    let banned = coordinator.now();
    let (mut lost, mut asked) = (0, 0);
    let mut advice = Next::Done;
    while coordinator.now().since(banned) < Duration::from_hours(1) {
        let grant = page(&coordinator, &worker, "a.example", 100 + asked).await;
        asked += 1;
        let refused = Told {
            status: Some(403),
            ..told(&grant)
        };
        advice = coordinator.tell(&worker, &refused).next;
        lost += u32::from(matches!(&advice, Next::GiveUp { reason } if reason.contains("final")));
    }
    assert!(lost <= 3 && asked < 20, "{lost} lost, {asked} asked");
    let Next::GiveUp { reason } = advice else {
        panic!("after an hour, the host is known to refuse everything")
    };
    assert_eq!(reason, "blocked by the host: 403 for every page");
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_network_pauses_and_no_host_learns_from_it() {
    let coordinator = coordinator(Config::api().with_rate(10.0));
    let (worker, other) = (coordinator.worker("w"), coordinator.worker("other"));
    let hosts = ["a.example", "b.example", "c.example", "d.example"];
    for host in hosts {
        let grant = page(&coordinator, &worker, host, 0).await;
        coordinator.tell(&worker, &told(&grant));
    }
    for host in &hosts[..3] {
        let grant = page(&coordinator, &worker, host, 1).await;
        let told = coordinator.tell(&worker, &failed(&grant, ErrorKind::Timeout));
        assert_eq!(told.error, None);
    }
    let before = coordinator.explain("d.example").unwrap().rate;
    let asked = item("d.example", "");
    let (wait, reason, _) = coordinator.one(&worker, asked, AT_ONCE).await.wait();
    assert_eq!(reason, "the worker's own network fails");
    assert!(wait <= 3_000, "{wait}");
    let began = coordinator.now();
    for number in 2..12 {
        let grant = page(&coordinator, &worker, "d.example", number).await;
        let answer = coordinator.tell(&worker, &failed(&grant, ErrorKind::Timeout));
        let retry = Next::Retry {
            after_ms: 3_000,
            free: true,
        };
        assert_eq!(answer.next, retry);
    }
    assert!(
        coordinator.now().since(began) >= Duration::from_secs(27),
        "one probe in 3 s"
    );
    let explained = coordinator.explain("d.example").unwrap();
    assert!(explained.rate >= before, "{} of {before}", explained.rate);
    assert_eq!(explained.in_flight.0, 0);
    // Another worker has a network of its own.
    page(&coordinator, &other, "d.example", 19).await;
    let grant = page(&coordinator, &worker, "a.example", 20).await;
    coordinator.tell(&worker, &told(&grant));
    page(&coordinator, &worker, "b.example", 20).await;
}
