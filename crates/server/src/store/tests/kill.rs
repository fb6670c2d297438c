//! Tests with a real kill -9. A child process grants, ends, holds and learns, and prints what was
//! acknowledged.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::*;

const FOLDER: &str = "POLITELY_STORE_CHILD";

/// Starts this test program again as a child that runs only `test`, in `dir`.
pub(super) fn child(test: &str, dir: &Path, shell: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$@\""), "sh"])
        .arg(env::current_exe().expect("a program"))
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let out = child.stdout.take().expect("piped");
    (child, BufReader::new(out))
}

/// Returns the folder if this process is a child.
pub(super) fn folder() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

/// Prints one line in one write. It bypasses the test harness, which captures the output of tests.
pub(super) fn say(line: &str) {
    let mut out = io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes())
        .and_then(|()| out.flush())
        .expect("the parent listens");
}

fn open(dir: &Path) -> (Store, Kept) {
    // The journal is replaced many times in the life of a child, because its limit is small and it
    // has no pause.
    Store::open_with(dir, 4_096, Duration::ZERO, Durability::Kill).unwrap()
}

#[test]
fn lives_until_it_is_killed() {
    let Some(dir) = folder() else { return };
    let (store, kept) = open(&dir);
    let (store, boot) = (&store, kept.boot);
    let end = |permit: u64| {
        say(&format!("ending {permit}"));
        store.gone(&[permit]);
        say(&format!("ended {permit}"));
    };
    kept.live.iter().step_by(2).for_each(|old| end(old.permit));
    // Both threads share one count. With two counts, the newest start of all might be in neither of
    // the two files.
    let next = AtomicU64::new(boot << 32);
    let grants = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            say(&format!("granting {number}"));
            let key = format!("host-{}", number % 3);
            assert!(store.granted(&[permit(number, &key)], &[]));
            say(&format!("granted {number}"));
            if !number.is_multiple_of(8) {
                end(number);
            }
        }
    };
    let holds = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        for number in boot << 32.. {
            store.learned([
                ("held".to_owned(), state(number)),
                (format!("learned-{}", number % 99), state(number)),
            ]);
            let kept = store.keep_now(vec![("held".to_owned(), state(number))]);
            runtime.block_on(kept).expect("kept");
            say(&format!("held {number}"));
        }
    };
    thread::scope(|scope| {
        scope.spawn(grants);
        scope.spawn(grants);
        scope.spawn(holds);
    });
}

/// The lines that the child printed, in their order.
#[derive(Default)]
struct Said {
    /// Permits that were acknowledged as granted, and whose end was not begun.
    out: BTreeSet<u64>,
    /// Permits whose grant or end was begun and not acknowledged. They may be live or not.
    either: BTreeSet<u64>,
    newest: HashMap<String, u64>,
    held: u64,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let Some((word, number)) = line.split_once(' ') else {
            return;
        };
        let Ok(number) = number.parse() else { return };
        match word {
            "granting" => {
                self.either.insert(number);
            }
            "granted" => {
                self.either.remove(&number);
                self.out.insert(number);
                let newest = self
                    .newest
                    .entry(format!("host-{}", number % 3))
                    .or_default();
                *newest = number.max(*newest);
            }
            "ending" => {
                self.out.remove(&number);
                self.either.insert(number);
            }
            "ended" => {
                self.either.remove(&number);
            }
            "held" => self.held = number,
            _ => {}
        }
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_twenty_times_it_forgets_nothing_acknowledged() {
    let dir = tempdir().unwrap();
    let mut said = Said::default();
    let mut replaced = false;
    for life in 1..=20_usize {
        let (child, out) = child(
            "store::tests::kill::lives_until_it_is_killed",
            dir.path(),
            "",
        );
        let mut child = Killed(child);
        let mut lines = out.lines().map(|line| line.expect("text"));
        // The child is killed after up to 4,000 lines, spread by a multiplication. The exact moment
        // depends on the scheduler.
        let until = life * 7_919 % 4_001;
        lines.by_ref().take(until).for_each(|line| said.hear(&line));
        child.0.kill().unwrap();
        lines.for_each(|line| said.hear(&line));
        child.0.wait().unwrap();

        let (store, kept) = open(dir.path());
        let live: BTreeSet<u64> = kept.live.iter().map(|granted| granted.permit).collect();
        let lost: Vec<_> = said.out.difference(&live).collect();
        assert!(lost.is_empty(), "life {life}: out and forgotten: {lost:?}");
        let mut risen = live
            .difference(&said.out)
            .filter(|one| !said.either.contains(one));
        assert_eq!(risen.next(), None, "life {life}: gone and live again");
        for (key, number) in &said.newest {
            let newest = kept.newest.get(key).copied().unwrap_or_default();
            assert!(newest >= number * 10, "life {life}: {key}");
        }
        let held = states(&store).get("held").copied().unwrap_or_default();
        assert!(held >= said.held, "life {life}: {held} was {}", said.held);
        replaced |= dir.path().join("permits.journal.old").exists();
        (said.out, said.either) = (live, BTreeSet::new());
    }
    assert!(replaced && said.held > 0 && !said.newest.is_empty());
}
