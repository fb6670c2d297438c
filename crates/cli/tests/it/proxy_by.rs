//! Tests of `--proxy-by attempt|page|host`, and of pages that a host blocked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::misbehaving::{Server, Then, respond};
use crate::run::{fast, fetch_at, run};

const PROXIES: usize = 3;

/// Starts proxies that answer each page themselves: with `answer` for the number of the proxy and
/// the URL.
fn proxies(
    answer: impl Fn(usize, &str) -> &'static str + Send + Sync + Clone + 'static,
) -> Vec<Server> {
    (0..PROXIES)
        .map(|number| {
            let answer = answer.clone();
            Server::start(move |url, stream| {
                let (status, headers) = answer(number, url).split_once('|').unwrap();
                respond(stream, status, headers, "page")
            })
        })
        .collect()
}

fn through(command: &mut Command, proxies: &[Server], by: &str) {
    for proxy in proxies {
        command.args(["--proxy", &format!("http://{}", proxy.address)]);
    }
    command.args(["--proxy-by", by]);
}

/// Returns the numbers of the proxies that got requests, by what `of` makes of their URLs.
fn used(proxies: &[Server], of: impl Fn(&str) -> String) -> BTreeMap<String, BTreeSet<usize>> {
    let mut used = BTreeMap::<_, BTreeSet<_>>::new();
    for (number, proxy) in proxies.iter().enumerate() {
        for url in proxy.counts().into_keys() {
            used.entry(of(&url)).or_default().insert(number);
        }
    }
    used
}

fn host(url: &str) -> String {
    url.split('/').nth(2).unwrap().to_owned()
}

/// Fetches some pages of each of five hosts, of which each fails twice. Returns the proxies.
fn fetched(by: &str, key: &str) -> Vec<Server> {
    let failed = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let proxies = proxies(move |_, url| {
        let failures = &mut *failed.lock().unwrap();
        let failures = failures.entry(url.to_owned()).or_default();
        *failures += 1;
        let is_good = *failures > 2;
        if is_good {
            "200 OK|"
        } else {
            "500 Internal Server Error|"
        }
    });
    let urls = (0..24).map(|n| format!("http://host-{}.example/{n}", n % 5));
    let mut command = fast();
    through(&mut command, &proxies, by);
    let said = run(command.args(["--key", key]).args(urls));
    assert_eq!(said.code, 0, "{by}: {}", said.err);
    proxies
}

#[test]
fn a_page_or_a_host_keeps_its_proxy_and_by_default_neither_does() {
    let one =
        |used: BTreeMap<String, BTreeSet<usize>>| used.values().all(|proxies| proxies.len() == 1);
    for key in ["host", "egress-host"] {
        let by_attempt = fetched("attempt", key);
        assert!(!one(used(&by_attempt, str::to_owned)), "{key}");
        let by_page = fetched("page", key);
        assert!(one(used(&by_page, str::to_owned)), "{key}");
        assert!(!one(used(&by_page, host)), "{key}");
        let by_host = fetched("host", key);
        let of_hosts = used(&by_host, host);
        assert!(one(of_hosts.clone()), "{key}: {of_hosts:?}");
        let all: BTreeSet<_> = of_hosts.into_values().flatten().collect();
        assert_eq!(all.len(), PROXIES, "hosts are spread over the proxies");
    }
}

#[test]
fn a_host_keeps_its_cookies_with_its_proxy() {
    let proxies = proxies(|number, _| match number {
        0 => "200 OK|Set-Cookie: from=first; Path=/\r\n",
        1 => "200 OK|Set-Cookie: from=second; Path=/\r\n",
        _ => "200 OK|Set-Cookie: from=third; Path=/\r\n",
    });
    let mut command = fast();
    through(&mut command, &proxies, "host");
    let urls = (0..12).map(|n| format!("http://host-{}.example/{n}", n % 3));
    let said = run(command.args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    for (number, proxy) in proxies.iter().enumerate() {
        let hosts: BTreeSet<_> = proxy.counts().keys().map(|url| host(url)).collect();
        assert_eq!(hosts.len(), 1, "proxy {number}");
    }
}

#[test]
fn a_host_whose_proxy_is_dead_gets_another_one_and_no_attempt_is_spent() {
    for by in ["page", "host"] {
        let alive = proxies(|_, _| "200 OK|");
        let mut command = fast();
        command.args(["--proxy", "http://127.0.0.1:1", "--retries", "0"]);
        through(&mut command, &alive, by);
        let urls = (0..24).map(|n| format!("http://host-{}.example/{n}", n % 4));
        let said = run(command.args(urls));
        assert_eq!(said.code, 0, "{by}: {}", said.err);
        assert!(said.rows().iter().all(|row| row["attempts"] == 1), "{by}");
        if by == "host" {
            let of_hosts = used(&alive, host);
            assert!(
                of_hosts.values().all(|proxies| proxies.len() == 1),
                "{of_hosts:?}"
            );
        }
    }
}

/// What proxies say that do not work.
const BROKEN: [&[u8]; 3] = [
    b"",
    b"SSH-2.0-x\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut",
];

/// Starts a proxy that breaks its answers for the URLs that `breaks` names.
fn breaking(said: &'static [u8], breaks: fn(&str) -> bool) -> Server {
    Server::start(move |url, stream| {
        if !breaks(url) {
            return respond(stream, "200 OK", "", "page");
        }
        stream.write_all(said)?;
        Ok(Then::Close)
    })
}

#[test]
fn a_proxy_whose_answers_break_is_set_aside_and_no_attempt_is_spent() {
    for said in BROKEN {
        for by in ["attempt", "page", "host"] {
            let mut proxies = proxies(|_, _| "200 OK|");
            proxies.push(breaking(said, |_| true));
            let mut command = fast();
            through(&mut command, &proxies, by);
            let urls = (0..24).map(|n| format!("http://host-{}.example/{n}", n % 4));
            let said = run(command.args(["--retries", "0"]).args(urls));
            assert_eq!(said.code, 0, "{by}: {}", said.err);
            assert!(said.rows().iter().all(|row| row["attempts"] == 1), "{by}");
            let aside = said.lines("it is set aside");
            let broken = proxies[PROXIES].address.to_string();
            assert!(!aside.is_empty(), "{by}: {}", said.err);
            assert!(
                aside.iter().all(|line| line.contains(&broken)),
                "{by}: {}",
                said.err
            );
        }
    }
}

#[test]
fn an_answer_that_breaks_through_every_proxy_is_the_hosts_fault() {
    for said in BROKEN {
        let is_of_bad = |url: &str| url.contains("//bad.");
        let proxies = [(); 2].map(|()| breaking(said, is_of_bad));
        let mut command = fast();
        through(&mut command, &proxies, "attempt");
        let good = (0..12).map(|n| format!("http://host-{}.example/{n}", n % 4));
        let said = run((command.args(["--retries", "0"]).args(good)).arg("http://bad.example/bad"));
        assert_eq!(said.code, 1, "{}", said.err);
        let errors = said.errors();
        let failed: Vec<_> = errors.iter().filter(|(_, error)| error.is_some()).collect();
        assert!(failed.len() == 1 && errors["bad"].is_some(), "{failed:?}");
        assert!(said.lines("set aside").is_empty(), "{}", said.err);
    }
}

#[test]
fn a_retry_takes_another_proxy_than_the_one_where_the_page_failed() {
    let proxies = proxies(|number, _| match number {
        0 => "500 Internal Server Error|",
        _ => "200 OK|",
    });
    let mut command = fast();
    through(&mut command, &proxies, "attempt");
    let urls = (0..24).map(|n| format!("http://host-{}.example/{n}", n % 4));
    let said = run(command.args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let repeated = proxies[0].counts().into_values().any(|times| times > 1);
    assert!(!repeated, "{:?}", proxies[0].counts());
}

#[test]
fn a_page_that_was_blocked_through_one_proxy_is_not_asked_for_again() {
    let proxies = proxies(|number, url| {
        if number == 0 && url.ends_with("/blocked") {
            "403 Forbidden|cf-mitigated: challenge\r\n"
        } else {
            "200 OK|"
        }
    });
    let mut command = fast();
    through(&mut command, &proxies, "attempt");
    let said = run(command.args(["http://a.example/blocked", "http://a.example/1"]));
    assert_eq!(said.code, 1, "{}", said.err);
    let used = used(&proxies, str::to_owned);
    assert_eq!(used["http://a.example/blocked"], BTreeSet::from([0]));
}

/// The host refuses the last pages once each, as after a limit. The other proxies would serve
/// them. With a fourth page the answer would be known for a limit, and count like a 429.
#[test]
fn pages_that_may_be_refused_are_asked_for_again_through_the_same_proxy() {
    const GOOD: usize = 10;
    const REFUSED: usize = 3;
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let proxies = proxies(move |_, url| {
        let number: usize = url.rsplit('/').next().unwrap().parse().unwrap();
        if number >= GOOD && seen.lock().unwrap().insert(number) {
            "403 Forbidden|"
        } else {
            "200 OK|"
        }
    });
    let mut command = fetch_at("50");
    through(&mut command, &proxies, "attempt");
    let urls = (0..GOOD + REFUSED).map(|n| format!("http://a.example/{n}"));
    let said = run(command
        .args(["--in-flight", "1", "--concurrency", "1"])
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let used = used(&proxies, str::to_owned);
    assert!(used.values().any(|proxies| proxies.contains(&1)));
    for number in GOOD..GOOD + REFUSED {
        let proxies = &used[&format!("http://a.example/{number}")];
        assert_eq!(proxies.len(), 1, "{number}: {proxies:?}");
    }
}

#[test]
fn without_a_proxy_the_flag_is_refused() {
    let said = run(fast().args(["--proxy-by", "page", "http://a.example/"]));
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("--proxy-by has an effect only with --proxy"),
        "{}",
        said.err
    );
}
