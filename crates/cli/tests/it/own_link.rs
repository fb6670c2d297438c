//! This machine's own link goes away while some hosts have not answered yet.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::misbehaving::{Server, respond};
use crate::run::{fast, rows_of, run};

const STRANGERS: usize = 5;
/// Longer than hosts that never answered are tried for here.
const AWAY: Duration = Duration::from_secs(8);

/// The time at which the link went away.
#[derive(Clone, Default)]
struct Link(Arc<OnceLock<Instant>>);

impl Link {
    /// The link goes away, unless it did before. Returns once it is there again.
    fn wait(&self) {
        let since = *self.0.get_or_init(Instant::now);
        std::thread::sleep((since + AWAY).saturating_duration_since(Instant::now()));
    }
}

/// Starts a server that answers `answered` requests, and the others when `link` is there.
fn start(link: &Link, answered: usize) -> Server {
    let (link, asked) = (link.clone(), std::sync::Mutex::new(0));
    Server::start(move |_, stream| {
        let number = {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            *asked
        };
        if number > answered {
            link.wait();
        }
        respond(stream, "200 OK", "", "page")
    })
}

#[test]
fn a_host_that_has_not_answered_yet_is_not_given_up_while_the_link_is_away() {
    let link = Link::default();
    let known = start(&link, 1);
    let strangers: Vec<_> = (0..STRANGERS).map(|_| start(&link, 0)).collect();
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.jsonl");
    let servers = std::iter::once(&known).chain(&strangers);
    let urls = servers.flat_map(|server| (0..3).map(|page| server.url(&page.to_string())));
    let said = run(fast()
        .args(["--timeout", "500ms", "--give-up-after", "3s"])
        .arg("-o")
        .arg(&results)
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.err.contains("this machine seems to be at fault"),
        "{}",
        said.err
    );
    let rows = rows_of(&results);
    assert_eq!(rows.len(), 3 * (STRANGERS + 1));
    assert!(
        rows.iter().all(|row| row["error"].is_null()),
        "{rows:#?}\n{}",
        said.err
    );
}
