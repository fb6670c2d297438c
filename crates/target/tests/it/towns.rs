//! Towns: files, addresses, the whole run.

use std::collections::HashSet;
use std::net::IpAddr;

use politely_target::{Args, HostSpec, LimitSpec, Target, TargetError, Town, run};

#[tokio::test]
async fn each_host_has_its_own_loopback_address() {
    let target = Target::start(Town::full()).await.unwrap();
    let addresses: HashSet<IpAddr> = target.hosts().iter().map(|host| host.addr.ip()).collect();
    assert_eq!(addresses.len(), 16);
    assert!(addresses.iter().all(IpAddr::is_loopback));
    assert_eq!(target.hosts()[3].page_urls().count(), 150);
}

#[tokio::test]
async fn an_address_in_use_is_an_error_that_names_it() {
    let target = Target::start(Town::new(vec![HostSpec::new("one", LimitSpec::None {})]))
        .await
        .unwrap();
    let mut second = Town::new(vec![HostSpec::new("two", LimitSpec::None {})]);
    second.port = target.hosts()[0].addr.port();
    let error = Target::start(second).await.unwrap_err();
    assert!(matches!(error, TargetError::Listen { .. }), "{error}");
    assert!(
        error.to_string().contains("127.0.0.1") && error.to_string().contains("two"),
        "{error}"
    );
}

fn load(json: &str) -> Result<Town, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town.json");
    std::fs::write(&path, json).unwrap();
    Town::load(&path).map_err(|error| error.to_string())
}

#[test]
fn a_town_file_needs_names_and_limits_only() {
    let town =
        load(r#"{"hosts":[{"name":"a","limit":{"kind":"leaky","rate":2,"queue":5}}]}"#).unwrap();
    assert_eq!(
        (town.hosts[0].signals.status, town.hosts[0].pages),
        (429, 150)
    );
    let json = serde_json::to_string(&Town::full()).unwrap();
    assert_eq!(load(&json).unwrap(), Town::full());
}

#[test]
fn the_example_is_a_town() {
    let town = load(include_str!("../../examples/town.json")).unwrap();
    assert_eq!(town.hosts.len(), 3);
}

#[test]
fn a_bad_town_file_is_one_clear_error() {
    for (json, says) in [
        (r#"{"hosts":[],"prot":80}"#, "unknown field `prot`"),
        (r#"{"hosts":[]}"#, "1 to 10000 hosts"),
        (
            r#"{"hosts":[{"name":"a","limit":{"kind":"none"},"signals":{"staus":429}}]}"#,
            "unknown field `staus`",
        ),
        (
            r#"{"hosts":[{"name":"a","limit":{"kind":"none"},"faults":[{"kind":"noise","chare":1}]}]}"#,
            "`chare`",
        ),
        (
            r#"{"hosts":[{"name":"a","limit":{"kind":"token_bucket","rate":-1,"burst":1}}]}"#,
            "host a: rate",
        ),
        (
            r#"{"hosts":[{"name":"a","limit":{"kind":"none"},"signals":{"status":200}}]}"#,
            "status",
        ),
        (
            r#"{"hosts":[{"name":"a","limit":{"kind":"none"}},{"name":"a","limit":{"kind":"none"}}]}"#,
            "two hosts are called a",
        ),
        ("nonsense", "line 1"),
    ] {
        let error = load(json).unwrap_err();
        assert!(error.contains(says), "{json}: {error}");
    }
    assert!(
        Town::named("/nowhere/town.json")
            .unwrap_err()
            .to_string()
            .contains("/nowhere/town.json")
    );
}

#[tokio::test]
async fn run_names_the_hosts_and_ends_with_the_judges_table() {
    let (mut data, mut talk) = (Vec::new(), Vec::new());
    let args = Args {
        town: "demo".to_owned(),
        ..Args::default()
    };
    run(args, &mut data, &mut talk, async {}).await.unwrap();
    let (data, talk) = (
        String::from_utf8(data).unwrap(),
        String::from_utf8(talk).unwrap(),
    );
    assert_eq!(talk.lines().count(), 17);
    assert!(talk.starts_with("http://127.0.0.1:"), "{talk}");
    let lines: Vec<&str> = data.lines().collect();
    let (last, table) = lines.split_last().unwrap();
    assert_eq!(table.len(), 18);
    assert!(
        table[0].starts_with("host") && table[0].ends_with("best s"),
        "{data}"
    );
    let width = table[0].chars().count();
    assert!(
        table.iter().all(|line| line.chars().count() == width),
        "{data}"
    );
    assert_eq!(
        *last,
        "0 pages in 0 requests, 0.0 % refused; 0.0 s, at best 0.0 s"
    );

    let (mut data, args) = (
        Vec::new(),
        Args {
            town: "demo".to_owned(),
            json: true,
            ..Args::default()
        },
    );
    let report = run(args, &mut data, &mut Vec::new(), async {})
        .await
        .unwrap();
    assert_eq!(
        serde_json::from_slice::<politely_target::Report>(&data).unwrap(),
        report
    );
}
