//! A process that is killed between any two steps loses nothing, on disk.
//!
//! The test starts itself again as a child. The child works on a frontier on disk and prints each
//! answer after it got it. The test kills the child after a number of lines, many times, and then
//! compares the printed answers with what is on disk.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use politely_core::{Rng, Timestamp};
use politely_frontier::{
    Answer, Date, EmbeddedStore, Frontier, GiveBack, Moment, NewPage, Next, Settings, Store as _,
    Take,
};

use crate::support::{crawl, outcome, take};

const FOLDER: &str = "POLITELY_FRONTIER_KILL_FOLDER";
const SEED: &str = "POLITELY_FRONTIER_KILL_SEED";
const KILLS: u64 = 25;

fn open(folder: &Path) -> Frontier<EmbeddedStore> {
    let store = EmbeddedStore::open(folder, 8 << 20).expect("a folder for this process");
    Frontier::open(store, Settings::default(), 5, wall()).expect("a whole frontier")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the child is a real process with a real clock"
)]
fn wall() -> Moment {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let millis = u64::try_from(since.as_millis()).expect("before the year 9999");
    Moment {
        at: Timestamp::from_micros(millis * 1_000),
        date: Date::from_millis(millis).expect("before the year 9999"),
    }
}

/// The child: puts, takes and reports until it is killed. Without its variable it does nothing.
#[test]
fn child_of_the_kill_test() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let seed = std::env::var(SEED)
        .expect("a seed")
        .parse()
        .expect("a number");
    let mut rng = Rng::new(seed);
    let mut frontier = open(Path::new(&folder));
    let mut out = std::io::stdout();
    let mut say = |word: &str, url: &str| writeln!(out, "\n@{word} {url}").expect("a parent");
    say("open", "");
    for number in 0_u64.. {
        let domain = rng.next_u64() % 20;
        let url = format!("https://{domain}.com/{seed}-{number}");
        let answers = frontier
            .put(&crawl(), vec![NewPage::of_url(&url)], wall())
            .expect("put");
        assert_eq!(answers, [Answer::New]);
        if number % 16 == 0 {
            frontier.store().sync().expect("sync");
        }
        say("new", &url);
        if !rng.next_u64().is_multiple_of(3) {
            work(&mut frontier, &mut rng, &mut say);
        }
    }
}

fn work(frontier: &mut Frontier<EmbeddedStore>, rng: &mut Rng, say: &mut impl FnMut(&str, &str)) {
    // The lease is short, so that the units of children that were killed expire in the test.
    let wish = Take {
        lease: Duration::from_millis(200),
        shares_domain: false,
        ..take(3)
    };
    let unit = frontier
        .take(&wish, wall(), &mut |_, pages| Ok(pages))
        .expect("take");
    let Some(unit) = unit else { return };
    for page in &unit.pages {
        say("taken", &page.url);
    }
    let finished: Vec<_> = unit
        .pages
        .iter()
        .filter(|_| rng.next_u64().is_multiple_of(2))
        .collect();
    for page in &finished {
        say("finishing", &page.url);
    }
    let found = format!("https://found.com/{}", rng.next_u64());
    let words = GiveBack {
        outcomes: finished
            .iter()
            .map(|page| outcome(&page.url, Next::Never))
            .collect(),
        found: vec![NewPage::of_url(&found)],
        ..GiveBack::of_token(unit.token)
    };
    // A word that comes too late is refused, and its pages are handed out again.
    if frontier.give_back(words, wall()).is_ok() {
        say("new", &found);
        for page in &finished {
            say("finished", &page.url);
        }
    }
}

#[derive(Default)]
struct Printed {
    new: BTreeSet<String>,
    finishing: BTreeSet<String>,
    finished: BTreeSet<String>,
}

impl Printed {
    fn read(&mut self, line: &str) {
        let Some((word, url)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else {
            return;
        };
        let url = url.to_owned();
        match word {
            "new" => _ = self.new.insert(url),
            "taken" => assert!(!self.finished.contains(&url), "{url} was finished"),
            "finishing" => _ = self.finishing.insert(url),
            "finished" => _ = self.finished.insert(url),
            _ => {}
        }
    }
}

/// Starts a child, kills it after a number of lines, and reads everything that it printed.
fn kill_one(folder: &Path, seed: u64, lines_max: u64, printed: &mut Printed) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "kill::child_of_the_kill_test", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut seen = 0;
    for line in lines {
        let line = line.expect("text");
        seen += u64::from(line.starts_with('@'));
        // The pipe keeps lines whole, since they are far shorter than its atomic size.
        printed.read(&line);
        if seen == lines_max {
            child.kill().expect("a child that runs");
        }
    }
    child.wait().expect("a child that ended");
    assert!(
        seen >= lines_max,
        "the child ended by itself after {seen} lines"
    );
}

#[test]
fn no_acknowledged_page_is_lost_or_done_twice_when_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut printed = Printed::default();
    let mut rng = Rng::new(11);
    for seed in 0..KILLS {
        kill_one(folder.path(), seed, 1 + rng.next_u64() % 400, &mut printed);
    }
    let mut frontier = open(folder.path());
    let mut left = BTreeSet::new();
    // All leases are over a minute later.
    let later = Duration::from_mins(1);
    let now = Moment {
        at: wall().at + later,
        date: wall().date.after(later),
    };
    while let Some(unit) = frontier
        .take(&take(100), now, &mut |_, pages| Ok(pages))
        .expect("take")
    {
        for page in &unit.pages {
            let url = &page.url;
            assert!(!printed.finished.contains(url), "{url} was finished");
            assert!(left.insert(url.clone()), "{url} is in two units");
        }
        let finished = unit
            .pages
            .iter()
            .map(|page| outcome(&page.url, Next::Never));
        let words = GiveBack {
            outcomes: finished.collect(),
            ..GiveBack::of_token(unit.token)
        };
        frontier.give_back(words, now).expect("the owner");
    }
    for url in &printed.new {
        // A word may be in doubt: it was said, and the answer was lost.
        let is_there = left.contains(url) || printed.finishing.contains(url);
        assert!(is_there, "{url} was lost");
        let status = frontier.page(&crawl(), url, None).expect("a read");
        assert!(status.is_some(), "{url} is not known any more");
    }
    // Each child printed lines, so this does not depend on the speed of the machine.
    assert!(!printed.new.is_empty() && !printed.finished.is_empty());
}
