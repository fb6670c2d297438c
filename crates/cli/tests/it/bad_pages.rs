//! Tests that bad pages and outages cost no other page.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::misbehaving::{Server, Then, respond};
use crate::run::{Said, politely, run};

/// How a page fails.
type Fault = fn(&mut TcpStream) -> std::io::Result<Then>;

const FAULTS: [(&str, Fault); 9] = [
    ("429", |stream| {
        respond(stream, "429 Too Many Requests", "", "")
    }),
    ("503 with Retry-After", |stream| {
        respond(stream, "503 Service Unavailable", "Retry-After: 1\r\n", "")
    }),
    ("403 with Retry-After", |stream| {
        respond(stream, "403 Forbidden", "Retry-After: 1\r\n", "")
    }),
    ("500", |stream| respond(stream, "500 Oh No", "", "")),
    ("502", |stream| respond(stream, "502 Bad Gateway", "", "")),
    ("504", |stream| {
        respond(stream, "504 Gateway Timeout", "", "")
    }),
    ("reset", |_| Ok(Then::Close)),
    ("short body", |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")?;
        Ok(Then::Close)
    }),
    ("broken coding", |stream| {
        respond(stream, "200 OK", "Content-Encoding: gzip\r\n", "no gzip")
    }),
];

fn good(stream: &mut TcpStream) -> std::io::Result<Then> {
    respond(stream, "200 OK", "", "page")
}

/// Sends one request at a time, so that requests arrive in the order of departure.
fn in_order() -> Command {
    let mut command = politely();
    command.args(["fetch", "--profile", "api", "--law", "fixed"]);
    command.args(["--rate", "50", "--in-flight", "1", "--retries", "1"]);
    command
}

fn fetched(said: &Said) -> usize {
    let rows = said.rows();
    rows.iter().filter(|row| row["error"].is_null()).count()
}

/// Returns the attempts in order. A request that a closed kept connection left unprocessed is
/// repeated at once, and that repetition is no attempt.
fn attempts(server: &Server) -> Vec<String> {
    let mut asked: Vec<_> = server.times().into_iter().map(|(path, _)| path).collect();
    asked.dedup();
    asked
}

/// Runs `case` for each of `cases` at the same time.
fn for_each<T: Copy + Send + Sync>(cases: &[T], case: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        for &one in cases {
            let case = &case;
            scope.spawn(move || case(one));
        }
    });
}

fn is_refusal(fault: &str) -> bool {
    fault == "429" || fault.ends_with("Retry-After")
}

#[test]
fn a_bad_page_is_tried_again_after_all_others() {
    for_each(&FAULTS, |(name, fault)| {
        let server = Server::start(move |path, stream| match path {
            "/2" => fault(stream),
            _ => good(stream),
        });
        let urls = (0..12).map(|i| server.url(&i.to_string()));
        let said = run(in_order().args(["--give-up-after", "2s"]).args(urls));
        assert_eq!(fetched(&said), 11, "{name}: {}", said.err);
        let asked = attempts(&server);
        // A refusal that slowed the host is asked for once more at once, to tell whose it is.
        let turns = 12 + usize::from(is_refusal(name));
        let first: BTreeSet<_> = asked.iter().take(turns).collect();
        assert_eq!(first.len(), 12, "{name}: {asked:?}");
        assert!(
            asked[turns..].iter().all(|path| path == "/2"),
            "{name}: {asked:?}"
        );
        assert!(asked.len() <= 12 + 3, "{name}: {asked:?}");
    });
}

/// P11 (docs/reference/promises.md): a mix of faults, each with a URL of its own, delays no good
/// page.
#[test]
fn good_pages_are_served_in_turn_whatever_is_between_them() {
    let server = Server::start(|path, stream| match path[1..].parse::<usize>() {
        // This test leaves out refusals and Retry-After, because they hold the host once.
        Ok(page) if page % 2 == 1 => FAULTS[3 + page / 2 % 6].1(stream),
        _ => good(stream),
    });
    let urls = (0..24).map(|i| server.url(&i.to_string()));
    let said = run(in_order().args(["--give-up-after", "2s"]).args(urls));
    assert_eq!(fetched(&said), 12, "{}", said.err);
    let asked = attempts(&server);
    let first: BTreeSet<_> = asked.iter().take(24).collect();
    assert_eq!(first.len(), 24, "{asked:?}");
}

/// P11 as a property: any mix of faults over the pages of one host, up to half of them.
///
/// This counts the requests before the last good page, and the holds between them, because times
/// depend on the machine. A hold lasts a second or longer, which is fifty intervals.
#[test]
fn any_mix_of_bad_pages_costs_few_requests_and_few_holds() {
    const PAGES: u64 = 60;
    let seeds: Vec<(u64, u64)> = (0..8).map(|seed| (seed, 2 + seed)).collect();
    for_each(&seeds, |(seed, every)| {
        let fault = move |page: u64| {
            if seed == 0 {
                return (page % every == 1).then_some(FAULTS[1].1);
            }
            let mix = (page + 1)
                .wrapping_mul(seed)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mix = (mix ^ (mix >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
            let which = usize::try_from(mix / every).unwrap() % FAULTS.len();
            (mix % every == 0).then_some(FAULTS[which].1)
        };
        let server = Server::start(move |path, stream| {
            let page = path[1..].parse().expect("a page's number");
            fault(page).unwrap_or(good)(stream)
        });
        let urls = (0..PAGES).map(|i| server.url(&i.to_string()));
        let said = run(in_order().args(["--give-up-after", "2s"]).args(urls));
        let bad = (0..PAGES).filter(|page| fault(*page).is_some()).count();
        assert_eq!(fetched(&said), PAGES as usize - bad, "{seed}: {}", said.err);

        let times = server.times();
        // Later, a page that was served is asked for again, to tell what the bad ones mean.
        let mut served = BTreeSet::new();
        let is_new_good = |(path, _): &(String, _)| {
            fault(path[1..].parse().unwrap()).is_none() && served.insert(path.clone())
        };
        let is_new_good: Vec<bool> = times.iter().map(is_new_good).collect();
        let last = is_new_good.iter().rposition(|is_new| *is_new).unwrap();
        let gaps = times[..=last].windows(2).map(|pair| pair[1].1 - pair[0].1);
        let holds = gaps
            .filter(|gap| *gap >= std::time::Duration::from_millis(900))
            .count();
        assert!(bad > 3, "{seed}: {bad} bad pages");
        assert!(
            last < 66,
            "{seed}: {last} requests before the last good page"
        );
        assert!(holds <= 6, "{seed}: {holds} holds for {bad} bad pages");
    });
}

/// During an outage the host answers nothing else. The outage comes in the middle or at the start.
#[test]
fn an_outage_loses_no_page() {
    const FAILING: usize = 7;
    let cases: Vec<_> = [1, 3, 4, 5, 6]
        .into_iter()
        .flat_map(|fault| [(fault, 0), (fault, 4)])
        .collect();
    for_each(&cases, |(fault, begin)| {
        let (name, fault) = FAULTS[fault];
        let asked = AtomicUsize::new(0);
        let server = Server::start(move |_, stream| {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            if (begin..begin + FAILING).contains(&number) {
                fault(stream)
            } else {
                good(stream)
            }
        });
        let urls = (0..12).map(|i| server.url(&i.to_string()));
        let said = run(in_order().args(urls));
        assert_eq!(said.code, 0, "{name} from {begin}: {}", said.err);
        assert_eq!(fetched(&said), 12, "{name} from {begin}");
    });
}

#[test]
fn a_dead_host_is_given_up_and_all_its_pages_say_why() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let busy = Server::start(|_, stream| FAULTS[5].1(stream));
    for (url, words) in [
        (format!("http://{address}/"), "the host never answered, in "),
        (busy.url(""), "the host served nothing for"),
    ] {
        let urls = (0..30).map(|i| format!("{url}{i}"));
        let said = run(in_order().args(["--give-up-after", "2s"]).args(urls));
        assert_eq!(said.code, 1);
        let rows = said.rows();
        assert_eq!(rows.len(), 30, "{}", said.err);
        for row in rows {
            let why = row["error"].as_str().unwrap();
            assert!(why.contains(words), "{why}");
        }
    }
    assert!(busy.times().len() < 30, "a host in trouble is left alone");
}

#[test]
fn a_dead_host_with_one_page_ends_by_its_attempts() {
    let server = Server::start(|_, stream| FAULTS[5].1(stream));
    let said = run(in_order().arg(server.url("a")));
    assert_eq!((said.code, server.times().len()), (1, 2), "{}", said.err);
    let error = said.errors()["a"].clone().unwrap();
    assert_eq!(error, "504 Gateway Timeout (failed 2 times)");
}

#[test]
fn a_robots_txt_of_4xx_is_asked_once_and_means_no_rules() {
    let cases = ["401 No", "403 No", "404 No", "410 No", "420 No"];
    for_each(&cases, |status| {
        let server = Server::start(move |path, stream| match path {
            "/robots.txt" => respond(stream, status, "Retry-After: 1\r\n", ""),
            _ => good(stream),
        });
        let said = run(politely().args(["fetch", "--rate", "10", &server.url("a")]));
        assert_eq!(said.code, 0, "{status}: {}", said.err);
        let asked: Vec<_> = server.times().into_iter().map(|(path, _)| path).collect();
        assert_eq!(asked, ["/robots.txt", "/a"], "{status}");
    });
}

/// Regression: such a redirect wrote a result line of its own.
#[test]
fn a_robots_txt_that_leads_to_no_host_means_no_rules() {
    let server = Server::start(|path, stream| match path {
        "/robots.txt" => respond(stream, "301 Moved", "Location: http://a..b/\r\n", ""),
        _ => good(stream),
    });
    let said = run(politely().args(["fetch", "--rate", "10", &server.url("a")]));
    assert_eq!((said.code, said.rows().len()), (0, 1), "{}", said.err);
}

#[test]
fn a_retry_after_of_a_page_that_is_gone_or_moved_is_no_business_of_the_others() {
    let cases = ["404 Gone", "410 Gone", "301 Moved"];
    for_each(&cases, |status| {
        let server = Server::start(move |path, stream| match path {
            "/1" => respond(stream, status, "Retry-After: 7200\r\nLocation: /x\r\n", ""),
            _ => good(stream),
        });
        let urls = (0..4).map(|i| server.url(&i.to_string()));
        let said = run(in_order().args(urls));
        assert_eq!(fetched(&said), 3, "{status}: {}", said.err);
    });
}

#[test]
fn a_plain_line_says_how_long_a_host_served_nothing() {
    let server = Server::start(|_, stream| FAULTS[5].1(stream));
    let urls = (0..9).map(|i| server.url(&i.to_string()));
    let said = run(in_order().args(["--give-up-after", "11s"]).args(urls));
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(!said.lines("no answer for ").is_empty(), "{}", said.err);
}

#[test]
fn the_servers_word_on_retries_and_an_account_without_credit_are_obeyed() {
    let server = Server::start(|path, stream| match path {
        "/again" => {
            static ASKED: AtomicUsize = AtomicUsize::new(0);
            if ASKED.fetch_add(1, Ordering::Relaxed) > 0 {
                return good(stream);
            }
            respond(stream, "409 Conflict", "x-should-retry: true\r\n", "")
        }
        "/never" => respond(stream, "503 Busy", "x-should-retry: false\r\n", ""),
        "/spent" => respond(stream, "429 Spent", "", r#"{"code":"insufficient_quota"}"#),
        _ => good(stream),
    });
    let pages = ["page", "again", "never", "spent"];
    let said = run(in_order().args(pages.map(|page| server.url(page))));
    let errors = said.errors();
    assert_eq!(errors["again"], None, "{}", said.out);
    assert!(
        errors["never"].is_some() && errors["spent"].is_some(),
        "{}",
        said.out
    );
    let counts = server.counts();
    let sent = pages.map(|page| counts[&format!("/{page}")]);
    assert_eq!(sent, [1, 2, 1, 1]);
}
