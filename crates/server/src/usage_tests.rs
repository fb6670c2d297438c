//! Tests of `usage.rs`.

use proptest::prelude::*;

use super::*;

fn at(hours: u64) -> Timestamp {
    Timestamp::ZERO + HOUR * 480_000 + HOUR * hours as u32
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn sums(usage: &Usage, by: UsageBy, hours: u32, now: Timestamp) -> Vec<(String, u64)> {
    let query = UsageQuery {
        by,
        step: format!("{hours}h").parse().unwrap(),
        ..UsageQuery::default()
    };
    let page = usage.page(&query, now);
    let row = |row: UsageRow| (row.name, row.counts.granted);
    page.rows.into_iter().map(row).collect()
}

fn work(usage: &Usage) {
    for (hour, worker, host, slots) in [
        (0, "ann\u{1f}w1", "a.example", 1),
        (0, "ann\u{1f}w2", "a.example", 2),
        (1, "bob\u{1f}w1", "b.example", 4),
        (2, "ann\u{1f}w1", "a.example", 8),
    ] {
        usage.granted(at(hour), worker, &key(host), slots, None);
    }
}

fn answered(usage: &Usage, hour: u64, worker: &str, status: Option<u16>, signal: Signal) {
    let report = Report {
        status,
        ..Report::of(signal)
    };
    usage.reported(at(hour), worker, &key("a.example"), &report);
}

#[test]
fn the_mix_of_answers_outlives_restarts_and_a_block_is_no_limit() {
    let folder = tempfile::tempdir().unwrap();
    let open = |hours| Usage::open(Some(folder.path()), at(hours));
    let usage = open(100);
    answered(&usage, 100, "w1", Some(200), Signal::Ok);
    answered(&usage, 101, "w1", Some(429), Signal::RateLimited);
    answered(&usage, 101, "w2", Some(403), Signal::Blocked);
    usage.granted(at(101), "w1", &key("b.example"), 1, None);
    usage.save_last(at(101));
    let usage = open(101);
    answered(&usage, 101, "w1", Some(403), Signal::UrlError);
    answered(&usage, 101, "w1", None, Signal::Unreachable);
    let counts = |name: Option<&str>, hours, hour| {
        let key = name.map(key);
        usage.answers(key.as_ref(), hours, at(hour))
    };
    let all = counts(Some("a.example"), 24, 101);
    let expected = serde_json::json!({
        "hours": 24,
        "answers": 5,
        "statuses": {"200": 1, "403": 2, "429": 1, "none": 1},
        "signals": {
            "blocked": 1, "ok": 1, "rate_limited": 1, "unreachable": 1, "url_error": 1,
        },
    });
    assert_eq!(serde_json::to_value(&all).unwrap(), expected);
    assert_eq!(counts(None, 24, 101), all);
    assert_eq!(counts(Some("b.example"), 24, 101).answers, 0);
    assert_eq!(counts(Some("a.example"), 1, 101).answers, 4);
    assert_eq!(counts(Some("a.example"), 24, 124).answers, 4);
    assert_eq!(counts(Some("a.example"), 24, 125).answers, 0);
}

#[test]
fn the_mix_of_all_answers_is_whole_however_many_accounts_there_are() {
    let usage = Usage::open(None, at(0));
    let accounts = PAGE_MAX as u64 + 1;
    for account in 0..accounts {
        let worker = format!("{account}\u{1f}w");
        answered(&usage, 0, &worker, Some(200), Signal::Ok);
    }
    assert_eq!(usage.answers(None, 1, at(0)).answers, accounts);
}

#[test]
fn names_that_are_escaped_in_a_file_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let usage = Usage::open(Some(folder.path()), at(0));
    let name = "a \"quoted\" \\ name";
    usage.granted(
        at(0),
        &format!("ann\u{1f}{name}"),
        &key("a.example"),
        1,
        None,
    );
    usage.save(at(1), SAVE_EVERY);
    let usage = Usage::open(Some(folder.path()), at(1));
    for (by, name) in [(UsageBy::Worker, name), (UsageBy::Account, "ann")] {
        let query = UsageQuery {
            by,
            name: Some(name.to_owned()),
            ..UsageQuery::default()
        };
        assert_eq!(usage.page(&query, at(1)).rows.len(), 1, "{name}");
    }
}

fn named(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    let rows = rows.iter();
    rows.map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn rows_are_summed_by_worker_key_or_account() {
    let usage = Usage::open(None, at(0));
    work(&usage);
    let by = |by| sums(&usage, by, 24, at(2));
    assert_eq!(by(UsageBy::Worker), named(&[("w1", 13), ("w2", 2)]));
    assert_eq!(
        by(UsageBy::Key),
        named(&[("a.example", 11), ("b.example", 4)])
    );
    assert_eq!(by(UsageBy::Account), named(&[("ann", 11), ("bob", 4)]));
    let hourly = sums(&usage, UsageBy::Account, 1, at(2));
    assert_eq!(hourly, named(&[("ann", 3), ("bob", 4), ("ann", 8)]));
}

#[test]
fn a_state_folder_keeps_them_for_thirty_days() {
    let folder = tempfile::tempdir().unwrap();
    let open = |hours| Usage::open(Some(folder.path()), at(hours));
    let usage = open(0);
    work(&usage);
    usage.save(at(2), SAVE_EVERY);
    // The current hour goes on after a restart, and nothing is counted twice.
    let usage = open(2);
    usage.granted(at(2), "ann\u{1f}w1", &key("a.example"), 1, None);
    usage.save(at(2), SAVE_EVERY);
    usage.save(at(2), SAVE_EVERY);
    let by_key = sums(&open(2), UsageBy::Key, 24, at(2));
    assert_eq!(by_key, named(&[("a.example", 12), ("b.example", 4)]));
    usage.save(at(721), SAVE_EVERY);
    assert_eq!(files(&folder.path().join(FOLDER)), [480_001, 480_002]);
    fs::write(folder.path().join(FOLDER).join("480001.gz"), "damage").unwrap();
    assert_eq!(
        sums(&open(3), UsageBy::Key, 24, at(3)),
        named(&[("a.example", 9)])
    );
}

fn incomplete(usage: &Usage, now: Timestamp) -> Vec<u64> {
    let page = usage.page(&UsageQuery::default(), now);
    let hours = page.incomplete.iter();
    hours.map(|at_s| at_s / 3_600 - 480_000).collect()
}

#[test]
fn a_killed_coordinator_makes_its_last_hour_incomplete_and_one_that_ended_none() {
    let folder = tempfile::tempdir().unwrap();
    let open = |hours| Usage::open(Some(folder.path()), at(hours));
    let usage = open(50);
    usage.granted(at(50), "w1", &key("a.example"), 1, None);
    usage.save_last(at(50));
    assert_eq!(incomplete(&open(51), at(51)), [0; 0]);
    // The one of hour 51 was killed. Later ends and kills forget nothing.
    open(52).save_last(at(52));
    let usage = open(53);
    usage.save(at(54), SAVE_EVERY);
    assert_eq!(incomplete(&usage, at(54)), [51]);
    let usage = open(55);
    assert_eq!(incomplete(&usage, at(55)), [51, 54]);
    let answers = usage.answers(None, 2, at(55));
    assert_eq!(answers.incomplete, [480_054 * 3_600]);
    // They are forgotten with the counts.
    usage.save(at(54 + 721), SAVE_EVERY);
    assert_eq!(usage.own.lock().lost().len(), 0);
}

#[test]
fn a_coordinator_without_a_folder_says_that_it_knows_nothing_before_its_start() {
    let usage = Usage::open(None, at(50));
    let known: Vec<_> = (27..=50).collect();
    assert_eq!(incomplete(&usage, at(50)), known);
    assert_eq!(incomplete(&usage, at(60)), known[10..]);
}

/// A batch of the fleet's log with one count of a worker in an hour.
fn batch(hour: u64) -> HourLines {
    let counts = UsageCounts {
        granted: 1,
        ..UsageCounts::default()
    };
    let line = Line {
        worker: "w1".to_owned(),
        key: "a.example".to_owned(),
        counts,
    };
    HourLines {
        hour: 480_000 + hour,
        lines: vec![line],
    }
}

/// A fleet's log, of which the engine keeps some batches, and a member that is killed.
struct Member {
    usage: Usage,
    folder: Option<tempfile::TempDir>,
    log: Vec<u64>,
    kept: usize,
    read: usize,
    hour: u64,
}

impl Member {
    fn start(folder: Option<tempfile::TempDir>, kept: usize, hour: u64) -> Self {
        let usage = Usage::open(folder.as_ref().map(tempfile::TempDir::path), at(hour));
        usage.share();
        Self {
            usage,
            folder,
            log: Vec::new(),
            kept,
            read: 0,
            hour,
        }
    }

    /// Reads up to `most` batches that are still in the engine.
    fn read(&mut self, most: usize) {
        self.read = self.read.max(self.log.len().saturating_sub(self.kept));
        for hour in self.log[self.read..].iter().take(most) {
            let number = self.read as u64;
            self.usage
                .add(7, number, Some(&batch(*hour)), at(self.hour));
            self.read += 1;
        }
    }

    fn restart(&mut self) {
        let folder = self.folder.take();
        let next = Self::start(folder, self.kept, self.hour);
        (self.usage, self.folder) = (next.usage, next.folder);
        self.read = 0;
    }

    fn save(&self) {
        self.usage.save(at(self.hour), SAVE_EVERY);
    }

    /// Saves, and is killed before the file of one hour was written.
    fn save_in_part(&mut self, place: usize) {
        let folder = self
            .folder
            .as_ref()
            .map(|folder| folder.path().join(FOLDER));
        let Some(folder) = folder else { return };
        let before = |hour| fs::read(folder.join(format!("{hour}.gz"))).ok();
        let old: Vec<_> = (480_000..480_010)
            .map(|hour| (hour, before(hour)))
            .collect();
        self.save();
        let (hour, content) = &old[place % old.len()];
        if let Some(content) = content {
            fs::write(folder.join(format!("{hour}.gz")), content).unwrap();
        }
        self.restart();
    }

    fn demand_honest(&mut self) -> Result<(), TestCaseError> {
        self.read(usize::MAX);
        let mut fleet = Roster::default();
        fleet.sign(self.usage.me(), at(self.hour), at(self.hour));
        self.usage.set_fleet_roster(fleet);
        let query = UsageQuery {
            from: Some(480_000 * 3_600),
            ..UsageQuery::default()
        };
        let page = self.usage.page(&query, at(self.hour));
        for hour in 0..=self.hour {
            let at_s = (480_000 + hour) * 3_600;
            let rows = page.rows.iter().filter(|row| row.at_s == at_s);
            let counted: u64 = rows.map(|row| row.counts.granted).sum();
            let real = self.log.iter().filter(|found| **found == hour).count() as u64;
            prop_assert!(counted <= real, "hour {}: {} of {}", hour, counted, real);
            let is_whole = counted == real;
            prop_assert!(is_whole || page.incomplete.contains(&at_s), "hour {}", hour);
            let is_short = self.log.len() <= self.kept;
            prop_assert!(!is_short || is_whole, "the log has all of hour {}", hour);
            prop_assert!(!is_short || page.incomplete.is_empty());
        }
        Ok(())
    }
}

proptest! {
    /// Nothing is counted twice, and an hour whose counts are missing is said to be incomplete,
    /// with and without a state folder, whenever the coordinator is killed.
    #[test]
    fn a_restarted_coordinator_counts_the_log_of_its_fleet_once_or_says_what_is_missing(
        has_folder in any::<bool>(),
        kept in prop_oneof![4_usize..40, Just(1_000)],
        steps in proptest::collection::vec((0_u8..12, 0_usize..20), 1..120),
    ) {
        let folder = has_folder.then(|| tempfile::tempdir().unwrap());
        let mut member = Member::start(folder, kept, 0);
        for (what, number) in steps {
            match what {
                0..=4 => {
                    // Counts of the hour before come late.
                    let late = u64::from(number % 5 == 0);
                    member.log.push(member.hour.saturating_sub(late));
                }
                5..=7 => member.read(number),
                8 => member.save(),
                9 => member.restart(),
                10 if kept == 1_000 => member.save_in_part(number),
                11 => member.hour = (member.hour + u64::from(number < 4)).min(9),
                _ => {}
            }
        }
        member.demand_honest()?;
    }
}
