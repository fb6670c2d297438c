//! Tests with hosts that refuse in ways that no list has: a status, or a short page with status
//! 200.

use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::misbehaving::{Server, Then, respond};
use crate::run::{Said, politely, run};

const HTML: &str = "Content-Type: text/html; charset=utf-8\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
/// Pages that a host serves before it refuses.
const SERVED: usize = 8;
/// How long a host refuses: the first rest of a suspected host is longer.
const BAN: Duration = Duration::from_millis(1_500);

/// Sends one request at a time, so that a host's answers come in order.
fn in_order() -> Command {
    let mut command = politely();
    command.args(["fetch", "--profile", "api", "--law", "fixed"]);
    command.args(["--rate", "50", "--in-flight", "1"]);
    command
}

fn page(path: &str, stream: &mut TcpStream) -> std::io::Result<Then> {
    // Each page has words of its own, as pages have.
    let words = path
        .bytes()
        .map(|byte| format!("{byte:b} ").replace(['0', '1'], "xy"));
    let text: String = words
        .zip(path.chars())
        .map(|(word, letter)| word + &letter.to_string())
        .collect();
    respond(stream, "200 OK", HTML, &format!("<p>{text}</p>"))
}

/// Starts a host that serves some pages, then gives all the answer `refuse` for a while, and then
/// serves again.
fn banning(refuse: fn(&mut TcpStream) -> std::io::Result<Then>) -> (Server, &'static AtomicUsize) {
    let refused: &'static AtomicUsize = Box::leak(Box::default());
    let state = Mutex::new((0, None::<Instant>));
    let server = Server::start(move |path, stream| {
        let is_refused = {
            let (served, since) = &mut *state.lock().expect("not poisoned");
            let is_banned =
                *served >= SERVED && since.get_or_insert_with(Instant::now).elapsed() < BAN;
            *served += usize::from(!is_banned);
            is_banned
        };
        if !is_refused {
            return page(path, stream);
        }
        refused.fetch_add(1, Ordering::Relaxed);
        refuse(stream)
    });
    (server, refused)
}

fn letters(number: usize) -> String {
    let letter = |digit: usize| char::from(b'a' + digit as u8);
    format!("{}{}", letter(number / 26), letter(number % 26))
}

fn fetch(server: &Server, pages: usize) -> Said {
    run(in_order().args((0..pages).map(|number| server.url(&letters(number)))))
}

fn fetched(said: &Said) -> usize {
    said.rows()
        .iter()
        .filter(|row| row["error"].is_null())
        .count()
}

#[test]
fn a_ban_in_a_status_that_is_not_listed_costs_few_requests_and_no_page() {
    let (server, refused) = banning(|stream| respond(stream, "418 No", "", "no"));
    let said = fetch(&server, 30);
    assert_eq!(fetched(&said), 30, "{}", said.out);
    let refused = refused.load(Ordering::Relaxed);
    assert!((3..=6).contains(&refused), "{refused}");
    assert_eq!(
        said.lines("several pages in a row").len(),
        1,
        "{}",
        said.err
    );
    assert_eq!(said.code, 0);
}

#[test]
fn a_ban_that_alternates_between_statuses_costs_few_requests_and_no_page() {
    let (server, refused) = banning(|stream| {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let status = ["401 No", "403 No"][TURN.fetch_add(1, Ordering::Relaxed) % 2];
        respond(stream, status, "", "no")
    });
    let said = fetch(&server, 30);
    assert_eq!(fetched(&said), 30, "{}", said.out);
    let refused = refused.load(Ordering::Relaxed);
    assert!((3..=6).contains(&refused), "{refused}");
}

/// The first run ended, or was killed, before the ban began.
#[test]
fn a_ban_that_a_later_run_meets_costs_few_requests_and_no_page() {
    let (server, refused) = banning(|stream| respond(stream, "418 No", "", "no"));
    let state = tempfile::tempdir().unwrap();
    for pages in [0..SERVED, SERVED..30] {
        let count = pages.len();
        let mut command = in_order();
        command.arg("--state").arg(state.path());
        let said = run(command.args(pages.map(|number| server.url(&letters(number)))));
        assert_eq!(fetched(&said), count, "{}", said.out);
    }
    let refused = refused.load(Ordering::Relaxed);
    assert!((3..=6).contains(&refused), "{refused}");
}

/// A list of `http://` URLs of an `https://` site, or of one that has another name now.
#[test]
fn a_ban_of_a_host_behind_lasting_redirects_costs_few_requests_and_no_page() {
    let (server, refused) = banning(|stream| respond(stream, "418 No", "", "no"));
    let site = server.url("");
    let front = Server::start(move |path, stream| {
        let to = format!("Location: {site}{}\r\n", path.trim_start_matches('/'));
        respond(stream, "301 Moved Permanently", &to, "")
    });
    let said = fetch(&front, 30);
    assert_eq!(fetched(&said), 30, "{}", said.out);
    let refused = refused.load(Ordering::Relaxed);
    assert!((3..=6).contains(&refused), "{refused}");
}

/// The host takes 25 requests a second and answers the others with a status that is on no list. One
/// page always gets that answer.
#[test]
fn a_limit_that_answers_some_requests_in_an_unlisted_status_loses_few_pages() {
    let last = Mutex::new(None::<Instant>);
    let forbidden = letters(100);
    let is_forbidden = format!("/{forbidden}");
    let server = Server::start(move |path, stream| {
        let is_refused = path == is_forbidden || {
            let mut last = last.lock().expect("not poisoned");
            let is_early = last.is_some_and(|at| at.elapsed() < Duration::from_millis(40));
            if !is_early {
                *last = Some(Instant::now());
            }
            is_early
        };
        if !is_refused {
            return page(path, stream);
        }
        respond(stream, "451 Too Much", "", "no")
    });
    let mut command = politely();
    command.args(["fetch", "--profile", "api"]);
    let said = run(command.args((0..200).map(|number| server.url(&letters(number)))));
    // The first ones look like pages that are forbidden.
    assert!((193..200).contains(&fetched(&said)), "{}", said.out);
    let why = said.errors()[&forbidden].clone();
    let why = why.expect("it is never served");
    assert!(why.starts_with("451"), "{why}");
}

#[test]
fn answers_of_good_status_that_are_all_alike_after_others_are_refusals() {
    let refusals: [fn(&mut TcpStream) -> std::io::Result<Then>; 6] = [
        |stream| {
            let style = ".box { margin: 0 auto; color: red }\n".repeat(1_500);
            let incident = Instant::now().elapsed().as_nanos();
            let text = format!("<style>{style}</style><h1>Slow down</h1> incident 4-{incident}");
            respond(stream, "200 OK", HTML, &text)
        },
        |stream| {
            let incident = Instant::now().elapsed().as_nanos();
            let text = format!("<h1>Slow down</h1> incident {incident}-fee1-dead");
            respond(stream, "200 OK", HTML, &text)
        },
        |stream| {
            respond(
                stream,
                "200 OK",
                JSON,
                r#"{"code":-412,"message":"banned"}"#,
            )
        },
        |stream| respond(stream, "200 OK", "", "Too fast."),
        |stream| respond(stream, "200 OK", HTML, ""),
        |stream| respond(stream, "302 Found", "Location: /login?next=x\r\n", ""),
    ];
    std::thread::scope(|scope| {
        for (kind, refuse) in refusals.into_iter().enumerate() {
            scope.spawn(move || {
                let (server, refused) = banning(refuse);
                let said = fetch(&server, 30);
                assert_eq!(fetched(&said), 30, "{kind}: {}", said.out);
                let refused = refused.load(Ordering::Relaxed);
                assert!((3..=6).contains(&refused), "{kind}: {refused}");
                // A refused page was requested again, and its row is that of the page.
                let attempts: u64 = said
                    .rows()
                    .iter()
                    .filter_map(|row| row["attempts"].as_u64())
                    .sum();
                assert_eq!(attempts as usize, 30 + refused, "{kind}: {}", said.out);
            });
        }
    });
}

#[test]
fn a_section_of_pages_that_are_gone_keeps_its_answers() {
    let server = Server::start(|path, stream| match path.as_bytes()[1] {
        b'b' => respond(stream, "404 Not Found", "", "gone"),
        _ => page(path, stream),
    });
    let said = fetch(&server, 60);
    let rows = said.rows();
    let gone = rows.iter().filter(|row| row["status"] == 404).count();
    assert_eq!((gone, fetched(&said)), (26, 34), "{}", said.out);
    let again = server.counts().values().filter(|count| **count > 1).count();
    assert!(
        again <= 3,
        "the proof, and two pages that were refused: {:?}",
        server.counts()
    );
}

#[test]
fn the_last_pages_of_a_list_end_with_their_own_answers() {
    let server = Server::start(|path, stream| match path {
        "/ad" | "/ae" => respond(stream, "403 Forbidden", "", "private"),
        _ => page(path, stream),
    });
    let said = fetch(&server, 5);
    let errors = said.errors();
    assert_eq!(
        errors["ad"].as_deref(),
        Some("403 Forbidden"),
        "{}",
        said.out
    );
    assert_eq!((fetched(&said), said.code), (3, 1));
}

/// Regression: the ways to the pages looked alike, so the host was suspected before one was taken.
#[test]
fn pages_behind_links_for_one_request_are_no_refusals() {
    let server = Server::start(|path, stream| match path.split_once('?') {
        None => {
            let to = format!("Location: /file?id={}\r\n", &path[1..]);
            respond(stream, "303 See Other", &to, "")
        }
        Some((_, id)) => page(&format!("/{}", &id["id=".len()..]), stream),
    });
    let said = fetch(&server, 12);
    assert_eq!(fetched(&said), 12, "{}", said.out);
    assert!(server.counts().values().all(|count| *count == 1));
}

/// Regression: a first page that is too long had no text, so all others were unlike it.
#[test]
fn a_page_that_failed_tells_nothing_about_others_and_is_no_proof() {
    let server = Server::start(|path, stream| match path {
        "/aa" => respond(stream, "200 OK", "", &"long ".repeat(100)),
        _ => respond(stream, "200 OK", JSON, r#"{"results":[]}"#),
    });
    let mut command = in_order();
    command.args(["--max-body", "100B"]);
    let said = run(command.args((0..12).map(|number| server.url(&letters(number)))));
    assert_eq!(fetched(&said), 11, "{}", said.out);
    assert!(server.counts().values().all(|count| *count == 1));
}

/// RFC 9110, 15.4.3: the original URL stays the address of a page behind a temporary redirect.
#[test]
fn a_link_for_one_request_that_fails_is_made_again() {
    let made = AtomicUsize::new(0);
    let server = Server::start(move |path, stream| match path {
        "/download" => {
            let token = made.fetch_add(1, Ordering::Relaxed);
            respond(
                stream,
                "302 Found",
                &format!("Location: /file?{token}\r\n"),
                "",
            )
        }
        "/file?0" => Ok(Then::Close),
        _ => page(path, stream),
    });
    let said = run(in_order().args([server.url("download"), server.url("other")]));
    assert_eq!(fetched(&said), 2, "{}", said.out);
    assert_eq!(server.counts()["/file?0"], 1, "{:?}", server.counts());
}
