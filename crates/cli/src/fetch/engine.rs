//! The run: workers take requests that may leave, and share this state.
//!
//! A worker takes the next request that may leave from the lanes, sends it, reports it, and
//! takes another. There is no queue between a dispatcher and its workers, and no task per URL. Idle
//! workers sleep. One of them, the watch, sleeps only until the next lane is due. It hands the
//! watch on when it finds work.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Names;
use super::add::LeftOut;
use super::crawl::Crawl;
use super::defaults::Defaults;
use super::filter::Filter;
use super::full_disk::{FullDisk, NO_ROOM, Place};
use super::lanes::{Job, Lanes, Take};
use super::limits::{Leave, Limits};
use super::report::failures::Failures;
use super::report::output::{Output, Written};
use super::report::talk::Talk;
use super::robots::Cached;
use super::state::once::OnceLog;
use super::state::runs::RunOfFolder;
use super::state::sent::SentLog;
use super::state::store::{Batch, Store};
use super::transport::client::Clients;
use super::transport::egresses::Egresses;
use super::warc::Warc;
use crate::config::Settings;
use crate::exit::io_words;
use crate::risks::Risks;
use crate::unavailable::Unavailable;
use politely::core::key::Key;
use politely::core::retry::Policy;
use politely::core::{Rng, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The state that all workers share.
pub(crate) struct Engine {
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) clients: Clients,
    pub(crate) egresses: Egresses,
    pub(crate) defaults: Defaults,
    pub(crate) filter: Filter,
    pub(crate) policy: Policy,
    pub(crate) crawl: Crawl,
    pub(crate) output: Output,
    pub(crate) warc: Option<Warc>,
    pub(crate) store: Option<Store>,
    pub(crate) sent: Option<SentLog>,
    pub(crate) once: Option<OnceLog>,
    /// The present run of the state folder.
    pub(super) run: Option<RunOfFolder>,
    pub(crate) failures: Failures,
    pub(crate) talk: Talk,
    pub(super) names: Names,
    lanes: Mutex<Shared>,
    /// Answers about robots.txt that are not stored yet.
    robots_kept: Mutex<Vec<(String, Cached)>>,
    /// Held while states are read and written.
    keeping: Mutex<()>,
    /// Held while pages are taken out of the crawl.
    pub(super) filling: tokio::sync::Mutex<()>,
    idle: Notify,
    watch: Notify,
    stop: AtomicBool,
    /// The reader of the results closed the pipe.
    closed: AtomicBool,
    /// The state folder or the temporary queue could not be written.
    pub(super) state_lost: AtomicBool,
    pub(crate) full_disk: FullDisk,
    /// Requests failed since the last answer in ways that may be this machine's fault.
    pub(super) suspects_machine: AtomicBool,
    /// The keys of several lanes whose states were restored.
    pub(super) restored: Mutex<HashSet<Key>>,
    seed: AtomicU64,
    /// The number of hosts of the run so far.
    hosts: AtomicUsize,
    /// The number of new pages of the run. Held while pages are added.
    pub(super) pages_new: Mutex<u64>,
    /// Whether `--max-pages` left out pages that answers name.
    pub(super) is_full: AtomicBool,
    pub(super) left_out: LeftOut,
}

/// The state under the one lock.
pub(crate) struct Shared {
    pub(crate) lanes: Lanes,
    /// The time until which the watch sleeps, if a worker is on watch.
    watching: Option<Timestamp>,
}

/// The parts of an engine.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) clients: Clients,
    pub(crate) defaults: Defaults,
    pub(crate) filter: Filter,
    pub(crate) policy: Policy,
    pub(crate) crawl: Crawl,
    pub(crate) output: Output,
    pub(crate) warc: Option<Warc>,
    pub(crate) store: Option<Store>,
    pub(crate) sent: Option<SentLog>,
    pub(crate) once: Option<OnceLog>,
    pub(crate) run: Option<RunOfFolder>,
    pub(crate) talk: Talk,
    pub(crate) names: Names,
}

/// Time between two writes of learned state and buffered lines.
const KEEP_EVERY: Duration = Duration::from_secs(1);

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            settings,
            limits,
            clients,
            defaults,
            filter,
            policy,
            crawl,
            output,
            warc,
            store,
            sent,
            once,
            run,
            talk,
            names,
        } = parts;
        let lanes = Lanes::new(settings.robots, policy.clone());
        let lanes = lanes.limited_by_page(limits.depend_on_pages());
        let lanes = lanes.bounded(settings.hosts_max);
        // The seed is used for the jitter of retries only.
        let seed = AtomicU64::new(limits.now().as_micros() ^ u64::from(std::process::id()));
        Self {
            egresses: Egresses::new(&settings),
            settings,
            limits,
            clients,
            defaults,
            filter,
            policy,
            crawl,
            output,
            warc,
            store,
            sent,
            once,
            run,
            failures: Failures::default(),
            talk,
            names,
            lanes: Mutex::new(Shared {
                lanes,
                watching: None,
            }),
            robots_kept: Mutex::default(),
            keeping: Mutex::default(),
            filling: tokio::sync::Mutex::default(),
            idle: Notify::new(),
            watch: Notify::new(),
            stop: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            state_lost: AtomicBool::new(false),
            full_disk: FullDisk::default(),
            suspects_machine: AtomicBool::new(false),
            restored: Mutex::default(),
            seed,
            hosts: AtomicUsize::new(0),
            pages_new: Mutex::default(),
            is_full: AtomicBool::new(false),
            left_out: LeftOut::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the run: no further request is started, and those in flight are finished.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.idle.notify_one();
        self.watch.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns whether the reader of the results closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Wakes the watch, since something may be due sooner than it expects.
    pub(crate) fn look_again(&self) {
        self.watch.notify_one();
    }

    /// Wakes the lanes of hosts that the fleet's limits allow now, until the run ends. Reports an
    /// outage of the coordinator or engine, and an engine that began to lose writes.
    pub(crate) async fn heed(self: Arc<Self>) {
        let mut unavailable = Unavailable::new(&self.limits.shared_by);
        let mut risks = Risks::default();
        loop {
            let ready = tokio::time::timeout(KEEP_EVERY, self.limits.ready()).await;
            let trouble = self.limits.last_error();
            let news = unavailable.news(trouble.as_deref());
            for news in news.into_iter().chain(risks.news(self.limits.risks())) {
                self.talk.say(&news);
            }
            if self.limits.is_unavailable() && !self.is_stopping() {
                self.talk
                    .say("error: no coordinator answers, and --on-unavailable is stop");
                self.stop();
            }
            let Ok(keys) = ready else { continue };
            let mut shared = self.lock();
            let now = self.limits.now();
            for key in &keys {
                shared.lanes.ask_again(key, now);
            }
            drop(shared);
            self.look_again();
        }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts.load(Ordering::Relaxed)
    }

    /// Sets the number of hosts of the run so far.
    pub(crate) fn set_hosts(&self, hosts: usize) {
        self.hosts.store(hosts, Ordering::Relaxed);
    }

    pub(crate) fn rng(&self) -> Rng {
        Rng::new(
            self.seed
                .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed),
        )
    }

    /// Runs all workers until nothing is left or the run is stopped.
    pub(crate) async fn run(self: &Arc<Self>) {
        let mut workers = JoinSet::new();
        for _ in 0..self.settings.concurrency {
            workers.spawn(Arc::clone(self).work());
        }
        while let Some(ended) = workers.join_next().await {
            if let Err(died) = ended {
                // The worker's requests in flight never return. Without a stop the others would
                // wait for them.
                self.talk.say(&format!("error: a worker died: {died}"));
                self.stop();
            }
        }
    }

    async fn work(self: Arc<Self>) {
        loop {
            if self.is_stopping() {
                return self.pass_on();
            }
            let (take, on_watch) = self.take();
            match take {
                Take::Send(job) => self.send(job).await,
                Take::Resolve(lane) => self.resolve(lane).await,
                Take::Fill(lane, permit) => {
                    let first = self.fill(lane, permit.is_some()).await;
                    if let (Some(permit), Some((pending, why))) = (permit, first) {
                        self.leave_filled(lane, permit, pending, why).await;
                    }
                }
                Take::Drop(lane, pending, why) => self.dropped(lane, &pending, &why),
                Take::Finish(lane, page) => super::refusals::finish_kept(&self, lane, page),
                Take::Wait(until) if on_watch => {
                    self.keep_watch(until).await;
                    self.lock().watching = None;
                }
                Take::Wait(_) => self.idle.notified().await,
                Take::Done => return self.pass_on(),
            }
        }
    }

    /// Returns the next request, or whether this worker is on watch until there is one.
    fn take(&self) -> (Take<Leave>, bool) {
        let mut shared = self.lock();
        let Shared { lanes, watching } = &mut *shared;
        let now = self.limits.now();
        let take = lanes.take(now, |lane| {
            self.limits.may_leave(lane, self.egresses.bound(lane))
        });
        match take {
            Take::Wait(until) => {
                let until = until.unwrap_or(Timestamp::NEVER);
                match watching {
                    None => {
                        *watching = Some(until);
                        return (take, true);
                    }
                    Some(asleep) if until < *asleep => {
                        *asleep = until;
                        self.watch.notify_one();
                    }
                    Some(_) => {}
                }
            }
            Take::Done => {}
            // Another worker handles the lane that is due next, or keeps watch.
            _ if watching.is_none() || lanes.is_due(now) => self.idle.notify_one(),
            _ => {}
        }
        (take, false)
    }

    async fn keep_watch(&self, until: Option<Timestamp>) {
        let sleep = async {
            match until {
                Some(at) => tokio::time::sleep(at.since(self.limits.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = self.watch.notified() => {}
            // All other workers may be busy with long requests.
            () = self.idle.notified() => {}
        }
    }

    /// Ends this worker and wakes the next, which ends too.
    fn pass_on(&self) {
        self.idle.notify_one();
        self.watch.notify_one();
    }

    /// Stops the run: the reader of the results closed the pipe.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Writes buffered lines and, with `--state`, learned state, every second until the run ends.
    pub(crate) async fn keep_up(self: Arc<Self>) {
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            let engine = Arc::clone(&self);
            // Storage may be slow, and workers must not wait for it.
            let _ = tokio::task::spawn_blocking(move || engine.keep()).await;
        }
    }

    pub(crate) fn keep(&self) {
        match self.output.flush() {
            Written::Closed => self.close(),
            Written::Full(_) => self.no_room(Place::Output, NO_ROOM),
            _ => {}
        }
        self.look_for_room();
        if !self.full_disk.is_full()
            && let Err(why) = self.keep_state()
        {
            self.state_failed(&why);
        }
    }

    /// Writes learned state.
    ///
    /// # Errors
    /// It could not be written. The error is in words.
    pub(super) fn keep_state(&self) -> Result<(), String> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        // One call runs at a time: an older snapshot must not be written after a newer one.
        let _order = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        // The order matters: states that are read from now on cover all older records.
        let active = match self.sent.as_ref().map(SentLog::rotate) {
            Some(Ok(active)) => active,
            Some(Err(why)) => return Err(io_words(&why)),
            None => HashSet::new(),
        };
        let (mut keys, known): (HashSet<Key>, Vec<_>) = {
            let mut shared = self.lock();
            let dirty = shared.lanes.take_dirty();
            let known = dirty.iter().filter_map(|&id| shared.lanes.take_known(id));
            let known = known.collect();
            let keys = dirty.iter().flat_map(|&id| &shared.lanes.lane(id).keys);
            (keys.map(|keys| keys[0].clone()).collect(), known)
        };
        keys.extend(active);
        let robots = std::mem::take(&mut *self.robots_kept());
        let states = keys.iter().filter_map(|key| {
            let state = self.limits.snapshot(key)?.state;
            Some((key.as_str().to_owned(), state))
        });
        let batch = Batch {
            keys: states.collect(),
            robots,
            http1: self.clients.http1_origins.take_found(),
            known,
        };
        if batch.is_empty() {
            return Ok(());
        }
        if let Err(why) = store.keep(&batch) {
            // The next call writes them.
            self.robots_kept().extend(batch.robots);
            self.clients.http1_origins.put_back(batch.http1);
            self.lock().lanes.put_back_known(&batch.known);
            if let Some(sent) = &self.sent {
                for key in keys {
                    sent.touch(key);
                }
            }
            return Err(why);
        }
        if let Some(sent) = &self.sent {
            sent.forget_old();
        }
        Ok(())
    }

    /// Queues an answer about robots.txt for the next write.
    pub(crate) fn keep_robots(&self, origin: &str, cached: Cached) {
        if self.store.is_some() {
            self.robots_kept().push((origin.to_owned(), cached));
        }
    }

    fn robots_kept(&self) -> MutexGuard<'_, Vec<(String, Cached)>> {
        let kept = self.robots_kept.lock();
        kept.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn send(&self, job: Job<Leave>) {
        super::worker::send(self, job).await;
    }

    async fn resolve(&self, lane: u32) {
        super::resolve::resolve(self, lane).await;
    }
}
