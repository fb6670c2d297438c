//! What refusals and answers say.

use std::time::{Duration, SystemTime};

use politely_target::{
    FaultSpec, Headers, HostSpec, LimitSpec, RetryAfter, Robots, Signals, Target, Town,
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Client;

/// One request per hour, so that the second one is refused.
const HOURLY: LimitSpec = LimitSpec::FixedWindow {
    count: 1,
    window_s: 3600.0,
    aligned: false,
};

fn saying(name: &str, status: u16, retry_after: RetryAfter, headers: Headers) -> HostSpec {
    let mut host = HostSpec::new(name, HOURLY);
    host.signals = Signals {
        status,
        retry_after,
        headers,
    };
    host
}

#[tokio::test]
async fn each_host_says_no_in_its_own_way() {
    let town = Town::new(vec![
        saying("bare", 429, RetryAfter::None, Headers::None),
        saying("seconds", 503, RetryAfter::Seconds, Headers::Ietf),
        saying("date", 429, RetryAfter::Date, Headers::X),
    ]);
    let target = Target::start(town).await.unwrap();
    let mut answers = Vec::new();
    for host in target.hosts() {
        let mut client = Client::connect(host.addr).await;
        answers.push((client.get("/page/0").await, client.get("/page/0").await));
    }
    let (first, no) = &answers[0];
    assert_eq!((first.status, no.status), (200, 429));
    assert!(no.header("retry-after").is_none() && no.header("ratelimit").is_none());

    let (first, no) = &answers[1];
    assert_eq!(no.status, 503);
    // Refused within a second of the window's start, rounded up.
    assert_eq!(no.header("retry-after"), Some("3600"));
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"default\";q=1;w=3600")
    );
    assert_eq!(first.header("ratelimit"), Some("\"default\";r=0;t=3600"));
    assert_eq!(no.header("ratelimit"), Some("\"default\";r=0;t=3600"));

    let (first, no) = &answers[2];
    let date = httpdate::parse_http_date(no.header("retry-after").unwrap()).unwrap();
    let wait = date.duration_since(SystemTime::now()).unwrap();
    assert!(
        wait > Duration::from_secs(3500) && wait <= Duration::from_secs(3601),
        "{wait:?}"
    );
    assert_eq!(first.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(no.header("x-ratelimit-remaining"), Some("0"));
    let reset: u64 = no.header("x-ratelimit-reset").unwrap().parse().unwrap();
    let reset = SystemTime::UNIX_EPOCH + Duration::from_secs(reset);
    assert!(reset.duration_since(SystemTime::now()).unwrap() > Duration::from_secs(3500));
}

#[tokio::test]
async fn a_liar_announces_twice_the_limit_and_an_absurd_wait_is_no_hold() {
    let town = Town::new(vec![saying(
        "liar",
        429,
        RetryAfter::Absurd,
        Headers::Lying,
    )]);
    let target = Target::start(town).await.unwrap();
    let mut client = Client::connect(target.hosts()[0].addr).await;
    let (first, no) = (client.get("/page/0").await, client.get("/page/0").await);
    client.get("/page/0").await;
    assert_eq!((first.status, no.status), (200, 429));
    for answer in [first, no] {
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some("\"default\";q=2;w=3600"));
        assert_eq!(answer.header("ratelimit"), Some("\"default\";r=2;t=3600"));
        let wait = (answer.status == 429).then_some("315360000");
        assert_eq!(answer.header("retry-after"), wait);
    }
    let report = target.shutdown();
    assert_eq!(report.hosts[0].during_hold, 0);
}

#[tokio::test]
async fn too_many_refusals_ban_and_others_take_their_share() {
    let json = r#"{"hosts": [
        {"name": "strict", "limit": {"kind": "fixed_window", "count": 1, "window_s": 3600, "aligned": false},
         "faults": [{"kind": "ban", "refusals": 2, "for_s": 600}]},
        {"name": "stern", "limit": {"kind": "fixed_window", "count": 1, "window_s": 3600, "aligned": false},
         "signals": {"status": 503, "retry_after": "seconds"},
         "faults": [{"kind": "ban", "refusals": 1, "for_s": 600, "answer": "refusal"}]},
        {"name": "tired", "limit": {"kind": "day", "low": 5, "high": 20, "burst": 10, "period_s": 86400},
         "service": {"mean_ms": 0},
         "faults": [{"kind": "brownout", "from_s": 0, "to_s": 3600, "slower": 2, "share": 1}]},
        {"name": "busy", "limit": {"kind": "shared", "others_per_s": 1000,
         "of": {"kind": "walk", "low": 0.01, "high": 0.02, "burst": 3, "every_s": 10, "factor": 1.1}}}
    ]}"#;
    let target = Target::start(serde_json::from_str(json).unwrap())
        .await
        .unwrap();
    let mut statuses = Vec::new();
    for host in &target.hosts()[..3] {
        let mut client = Client::connect(host.addr).await;
        let mut of_host = Vec::new();
        for page in 0..5 {
            let answer = client.get(&format!("/page/{page}")).await;
            of_host.push((
                answer.status,
                answer.header("retry-after").map(str::to_owned),
            ));
        }
        statuses.push(of_host);
    }
    let codes = |host: usize| {
        statuses[host]
            .iter()
            .map(|(status, _)| *status)
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(0), [200, 429, 429, 429, 403]);
    assert_eq!(codes(1), [200, 503, 503, 503, 503]);
    assert_eq!(
        statuses[1][1].1.as_deref(),
        Some("3600"),
        "the window's end"
    );
    assert_eq!(statuses[1][4].1.as_deref(), Some("600"), "the ban's end");
    assert_eq!(codes(2), [503; 5]);
    // Three tokens and a thousand others a second: they have had them long since, or soon will.
    let mut client = Client::connect(target.hosts()[3].addr).await;
    let mut refused = false;
    for _ in 0..200 {
        refused |= client.get("/page/0").await.status == 429;
    }
    assert!(refused);
}

#[tokio::test]
async fn a_request_during_a_hold_is_counted_unless_it_was_on_its_way() {
    let mut town = Town::new(vec![
        saying("told", 429, RetryAfter::Seconds, Headers::None),
        saying("not told", 429, RetryAfter::None, Headers::None),
    ]);
    // The client here reads each answer before it sends again: nothing is on its way.
    town.grace_ms = 0;
    let target = Target::start(town).await.unwrap();
    for host in target.hosts() {
        let mut client = Client::connect(host.addr).await;
        for _ in 0..5 {
            client.get("/page/0").await;
        }
    }
    let report = target.judge();
    assert_eq!(
        report.host("told").unwrap().during_hold,
        3,
        "all after the first refusal"
    );
    assert_eq!(report.host("not told").unwrap().during_hold, 0);

    let mut town = Town::new(vec![saying("told", 429, RetryAfter::Date, Headers::None)]);
    town.grace_ms = 3_600_000;
    let target = Target::start(town).await.unwrap();
    let mut client = Client::connect(target.hosts()[0].addr).await;
    for _ in 0..5 {
        client.get("/page/0").await;
    }
    assert_eq!(
        target.shutdown().hosts[0].during_hold,
        0,
        "within the grace"
    );
}

#[tokio::test]
async fn blocks_outages_and_robots_answer_as_written() {
    let mut blocks = HostSpec::new("blocks", LimitSpec::None {});
    blocks.faults = vec![FaultSpec::Block {
        above_rps: 1.0,
        for_s: 3600.0,
    }];
    blocks.robots = Robots::Text("User-agent: *\nCrawl-delay: 2\n".to_owned());
    let mut down = HostSpec::new("down", LimitSpec::None {});
    down.faults = vec![FaultSpec::Outage {
        from_s: 0.0,
        to_s: 3600.0,
        status: 502,
    }];
    let mut closed = HostSpec::new("closed", LimitSpec::None {});
    closed.robots = Robots::Status(503);
    let target = Target::start(Town::new(vec![blocks, down, closed]))
        .await
        .unwrap();

    let mut client = Client::connect(target.host("blocks").unwrap().addr).await;
    assert_eq!(
        client.get("/robots.txt").await.body,
        "User-agent: *\nCrawl-delay: 2\n"
    );
    // However slow this machine is, two more in a row meet the limit of one per second at some
    // point.
    let mut last = client.get("/page/0").await;
    while last.status == 200 {
        last = client.get("/page/0").await;
    }
    assert_eq!(last.status, 403);
    assert!(last.body.contains("blocked"));
    let mut client = Client::connect(target.host("down").unwrap().addr).await;
    assert_eq!(client.get("/page/0").await.status, 502);
    let mut client = Client::connect(target.host("closed").unwrap().addr).await;
    assert_eq!(client.get("/robots.txt").await.status, 503);

    let report = target.shutdown();
    assert_eq!(report.host("blocks").unwrap().blocked, 1);
    assert_eq!(report.host("down").unwrap().failed, 1);
}

#[tokio::test]
async fn a_host_that_is_down_may_close_connections_or_stay_silent() {
    let (from_s, to_s) = (0.0, 3600.0);
    let mut closes = HostSpec::new("closes", LimitSpec::None {});
    closes.faults = vec![FaultSpec::Reset { from_s, to_s }];
    let mut silent = HostSpec::new("silent", LimitSpec::None {});
    silent.faults = vec![FaultSpec::Silence { from_s, to_s }];
    let target = Target::start(Town::new(vec![closes, silent]))
        .await
        .unwrap();
    let ask = async |host: &str| {
        let addr = target.host(host).unwrap().addr;
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let get = b"GET /page/0 HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(get).await.unwrap();
        stream
    };

    let mut stream = ask("closes").await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(answer, b"");

    let stream = ask("silent").await;
    while target.judge().host("silent").unwrap().failed == 0 {
        tokio::task::yield_now().await;
    }
    let read = stream.try_read(&mut [0; 1]);
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(target.shutdown().host("closes").unwrap().failed, 1);
}
