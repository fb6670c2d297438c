//! Records each request and each hold, and restores both after a kill.

use std::collections::HashMap;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely::Recovery;
use politely::core::key::Key;
use url::Url;

use super::runs::RunOfFolder;
use super::sent::Known;
use crate::exit::io_words;
use crate::fetch::engine::Engine;
use crate::fetch::input::ingest::Ingested;
use crate::fetch::lanes::Lane;
use crate::fetch::limits::Leave;
use crate::fetch::robots::{self, Rules, Standing};

impl Engine {
    /// Returns whether something that the state folder should hold was lost.
    pub(crate) fn is_state_lost(&self) -> bool {
        self.state_lost.load(Ordering::Relaxed)
    }

    /// Stops the run, because the state folder cannot be written and so the run could not be
    /// continued.
    pub(crate) fn lose_state(&self, why: &str) {
        if !self.state_lost.swap(true, Ordering::Relaxed) {
            let dir = self.settings.state.as_deref().unwrap_or(Path::new(""));
            self.talk.say(&format!(
                "error: cannot write state folder \"{}\": {why}; the run stops, start it again when that is mended",
                dir.display()
            ));
        }
        self.stop();
    }

    /// Records that the run ended by itself, if it did: the next `--again` begins another one.
    pub(crate) fn end_run(&self, ingested: &Ingested) {
        let (Some(store), Some(run)) = (&self.store, self.run) else {
            return;
        };
        let is_cut = ingested.cut || ingested.is_partial;
        if is_cut || self.is_stopping() || self.is_state_lost() || run.has_ended {
            return;
        }
        let run = RunOfFolder {
            has_ended: true,
            ..run
        };
        if let Err(why) = store.set_run(run) {
            self.lose_state(&why.to_string());
        }
    }

    /// Handles pages that cannot be read or written. Returns whether the run goes on later.
    pub(crate) fn crawl_failed(&self, why: &str) -> bool {
        if self.store.is_some() {
            return self.state_failed(why);
        }
        self.lose_crawl(why);
        false
    }

    /// Stops the run, because its pages cannot be read or written.
    pub(crate) fn lose_crawl(&self, why: &str) {
        if self.store.is_some() {
            return self.lose_state(why);
        }
        self.full_disk.list_missing();
        if !self.state_lost.swap(true, Ordering::Relaxed) {
            let dir = std::env::temp_dir();
            self.talk.say(&format!(
                "error: cannot keep the queue in \"{}\": {why}; the run stops, set TMPDIR to a folder with more room",
                dir.display()
            ));
        }
        self.stop();
    }

    /// Restores the keys that a killed process used. Each waits one interval after its last
    /// request.
    pub(crate) fn recover(&self, known: HashMap<String, Known>) {
        let (Some(sent), Some(store)) = (&self.sent, &self.store) else {
            return;
        };
        let now = self.limits.now();
        for (name, mut known) in known {
            let Ok(key) = name.parse::<Key>() else {
                continue;
            };
            let newest = known.newest(now);
            let state = known.state_or(store.key(&name).ok().flatten());
            let recovery = Recovery {
                state: state.as_deref(),
                spent: known.spent.as_deref(),
                newest,
            };
            self.limits.resume(&key, &recovery);
            self.restored
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(key.clone());
            sent.touch(key);
        }
    }

    /// Restores the stored state of `key` from `politely.redb`, unless that was done or the key has
    /// newer state.
    pub(crate) fn restore(&self, key: &Key, is_shared: bool) {
        let Some(store) = &self.store else { return };
        if is_shared {
            let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
            if !restored.insert(key.clone()) {
                return;
            }
        } else if self.limits.snapshot(key).is_some() {
            return;
        }
        if let Ok(Some(state)) = store.key(key.as_str()) {
            self.limits.restore(key, &state);
        }
    }

    /// Restores what earlier runs stored about the keys of `lane`, a new queue.
    pub(crate) fn introduce(&self, lane: &mut Lane) {
        let Some(store) = &self.store else { return };
        for keys in &lane.keys {
            for (i, key) in keys.iter().enumerate() {
                self.restore(key, i > 0);
            }
        }
        for key in self.limits.keys_of_rules(lane) {
            self.restore(&key, true);
        }
        if let (Ok(true), Ok(url)) = (store.is_http1(&lane.origin), Url::parse(&lane.origin)) {
            self.clients.http1_origins.restore(&url);
        }
        if let Ok(Some(known)) = store.known(&lane.origin) {
            lane.restore_known(known);
        }
        if let (Standing::Unknown, Ok(Some(cached))) = (&lane.robots, store.robots(&lane.origin)) {
            let age = robots::unix_now().saturating_sub(cached.fetched_unix_s);
            let left = robots::TTL.as_secs().saturating_sub(age);
            let (status, body) = cached
                .body
                .as_ref()
                .map_or((404, &b""[..]), |body| (200, body));
            // Its sitemaps are read once, also if an earlier run did not want them.
            let is_read = cached.has_sitemaps || !self.settings.site.reads_robots;
            if left > 0
                && is_read
                && let Some(rules) = Rules::of(Some(status), body, &self.settings.robots_token)
            {
                let until = self.limits.now() + Duration::from_secs(left);
                lane.robots = Standing::Known {
                    rules: rules.into(),
                    until,
                };
            }
        }
    }

    /// Records that a request with `leave` is about to leave. Returns `false` if that failed: the
    /// request must not leave.
    pub(crate) fn write_sent(&self, leave: &Leave) -> bool {
        let Some(sent) = &self.sent else { return true };
        let spent = |key: &Key| self.limits.spent(key);
        match sent.sent(leave.keys(), self.limits.now(), spent) {
            Ok(()) => true,
            Err(why) => {
                self.state_failed(&io_words(&why));
                false
            }
        }
    }

    /// Records what a request spent of the declared limits of its `keys`, after it was settled.
    pub(crate) fn write_spent(&self, keys: &[Key]) {
        let spent = |key: &Key| self.limits.spent(key);
        if let Some(sent) = &self.sent
            && let Err(why) = sent.settled(keys, self.limits.now(), spent)
        {
            self.state_failed(&io_words(&why));
        }
    }

    /// Records the learned state of `key`, whose requests are held.
    pub(crate) fn write_learned(&self, key: &Key) {
        if let Some(sent) = &self.sent
            && let Some(state) = self.limits.snapshot(key)
            && let Err(why) = sent.learned(key, &state, self.limits.now())
        {
            self.state_failed(&io_words(&why));
        }
    }
}
