//! A key's state as bytes, and when a state may be forgotten.

use std::time::Duration;

use super::budgets::has_named_units;
use super::crawl_delay::Pause;
use super::evidence::Evidence;
use super::rule::RuleState;
use super::suspicion::Suspicion;
use super::told::ToldBudget;
use super::{Host, OperatorNumbers, Rare};
use crate::Timestamp;
use crate::budget::{DeclaredLimits, UnitCosts};
use crate::config::Config;
use crate::control::{Law, LawChoice};
use crate::gate::{FirstEnd, Lease, LeaseId};
use crate::lock::Locks;
use crate::pack::{pack, unpack};

/// The first byte of the serialised form. Another number is another layout.
const VERSION: u8 = 27;
/// The same layout after the parts that few keys have: a byte of flags, [`Extra`], [`Evidence`],
/// [`DeclaredLimits`], [`Locks`], [`RuleState`], [`ToldBudget`]s, [`Suspicion`].
const VERSION_EXTENDED: u8 = 28;
/// Flag: [`Extra`] is present. The next flag is for [`Evidence`].
const HAS_EXTRA: u8 = 1;
const HAS_EVIDENCE: u8 = 2;
/// Flag: the number of the key's cohort is present, after [`Extra`].
const HAS_COHORT: u8 = 4;
/// Flag: [`DeclaredLimits`] are present, after [`Evidence`].
const HAS_DECLARED: u8 = 8;
/// Flag: [`Locks`] are present, after [`DeclaredLimits`].
const HAS_LOCKS: u8 = 16;
/// Flag: a [`RuleState`] is present, after [`Locks`].
const HAS_RULE: u8 = 32;
/// Flag: [`ToldBudget`]s are present, after [`RuleState`].
const HAS_TOLD: u8 = 64;
/// Flag: a [`Suspicion`] is present, after the [`ToldBudget`]s.
const HAS_SUSPICION: u8 = 128;

/// Fields that few keys have, written in a fixed form before the other fields.
struct Extra {
    pause: Option<Pause>,
    law: Option<LawChoice>,
    learn: Option<bool>,
    crawl_delay_ms: Option<u32>,
    has_outcomes: bool,
}

impl Extra {
    /// Returns `None` if every field is absent.
    fn of(rare: &Rare) -> Option<Self> {
        let set = rare.operator.unwrap_or_default();
        let extra = Self {
            pause: rare.pause,
            law: set.law,
            learn: set.learn,
            crawl_delay_ms: set.crawl_delay_ms,
            has_outcomes: rare.has_outcomes,
        };
        let Self {
            pause: None,
            law: None,
            learn: None,
            crawl_delay_ms: None,
            has_outcomes: false,
        } = extra
        else {
            return Some(extra);
        };
        None
    }

    fn to_bytes(&self) -> [u8; 19] {
        let mut bytes = [0; 19];
        bytes[..12].copy_from_slice(&self.pause.map_or([0; 12], Pause::to_bytes));
        bytes[12] = self.law.map_or(0, LawChoice::number);
        bytes[13] = u8::from(self.learn == Some(false));
        bytes[14] = u8::from(self.has_outcomes);
        bytes[15..].copy_from_slice(&self.crawl_delay_ms.unwrap_or(u32::MAX).to_le_bytes());
        bytes
    }

    /// Returns `None` for bytes that [`Extra::to_bytes`] never writes.
    fn from_bytes(bytes: [u8; 19]) -> Option<Self> {
        let (pause, rest) = bytes.split_first_chunk()?;
        let &[law, frozen, has_outcomes, ref delay @ ..] = rest else {
            return None;
        };
        let delay_ms = u32::from_le_bytes(delay.try_into().ok()?);
        Some(Self {
            pause: (*pause != [0; 12]).then(|| Pause::from_bytes(*pause)),
            law: match law {
                0 => None,
                number => Some(LawChoice::of_number(number)?),
            },
            learn: (frozen == 1).then_some(false),
            crawl_delay_ms: (delay_ms < u32::MAX).then_some(delay_ms),
            has_outcomes: has_outcomes == 1,
        })
        .filter(|_| frozen <= 1 && has_outcomes <= 1)
    }

    fn put(self, rare: &mut Rare) {
        (rare.pause, rare.has_outcomes) = (self.pause, self.has_outcomes);
        let mut set = rare.operator.unwrap_or_default();
        (set.law, set.learn, set.crawl_delay_ms) = (self.law, self.learn, self.crawl_delay_ms);
        rare.operator = (set != OperatorNumbers::default()).then_some(set);
    }
}

/// Why a serialised state cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Another version wrote it.
    #[error("state of version {0}, this reads up to {VERSION_EXTENDED}")]
    Version(u8),
    /// The bytes are not a state, or they are cut short.
    #[error("damaged state: {0}")]
    Damaged(postcard::Error),
}

impl Host {
    /// Returns the state as bytes: a version, then its fields (`pack/`).
    ///
    /// Equal states give equal bytes. A state that is read from them behaves as the original would.
    ///
    /// # Panics
    /// Never: every field has a serialised form.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        let rare = self.rare.as_ref();
        let extra = rare.and_then(|rare| Extra::of(rare));
        let evidence = rare.and_then(|rare| rare.evidence.as_ref());
        let cohort = self.cohort();
        let declared = rare.and_then(|rare| Some((rare.declared.as_ref()?, rare.is_by_rule)));
        let flags = u8::from(extra.is_some()) * HAS_EXTRA
            + u8::from(evidence.is_some()) * HAS_EVIDENCE
            + u8::from(cohort > 0) * HAS_COHORT
            + u8::from(declared.is_some()) * HAS_DECLARED
            + u8::from(self.locks().is_some()) * HAS_LOCKS
            + u8::from(self.rule().is_some()) * HAS_RULE
            + u8::from(self.has_told()) * HAS_TOLD
            + u8::from(self.suspicion().is_some()) * HAS_SUSPICION;
        if flags == 0 {
            bytes.push(VERSION);
        } else {
            bytes.extend([VERSION_EXTENDED, flags]);
        }
        if let Some(extra) = extra {
            bytes.extend(extra.to_bytes());
        }
        if cohort > 0 {
            bytes.extend(cohort.to_le_bytes());
        }
        if let Some(evidence) = evidence {
            bytes = postcard::to_extend(evidence, bytes).expect("every field serialises");
        }
        if let Some(declared) = declared {
            bytes = postcard::to_extend(&declared, bytes).expect("a text serialises");
        }
        if let Some(locks) = self.locks() {
            bytes = postcard::to_extend(locks, bytes).expect("every field serialises");
        }
        if let Some(rule) = self.rule() {
            bytes = postcard::to_extend(rule, bytes).expect("every field serialises");
        }
        if let Some(rare) = rare.filter(|rare| !rare.told.is_empty()) {
            bytes = postcard::to_extend(&rare.told, bytes).expect("every field serialises");
        }
        if let Some(suspicion) = self.suspicion() {
            bytes = postcard::to_extend(suspicion, bytes).expect("every field serialises");
        }
        pack(self, bytes).expect("every field has a packed form")
    }

    /// Reads a state. If the clock was set back, the state's times are brought within reach of
    /// `now`.
    ///
    /// Its leases stay. If their holders are known to be gone, call [`Host::forget_leases`].
    ///
    /// # Errors
    /// The bytes are another version's state, or damaged.
    pub fn restore(bytes: &[u8], now: Timestamp, config: &Config) -> Result<Self, RestoreError> {
        let mut host = Self::read(bytes)?;
        let set_back = host.pace.at().since(now);
        host.rebase(now, set_back, config);
        host.adopt(now, set_back, config);
        Ok(host)
    }

    /// Decodes a state that several processes share, whose clocks agree within milliseconds. All
    /// its times stay.
    ///
    /// The state is read at `now`, or at its own latest time if that is later. So tokens that the
    /// process with the fastest clock has spent are not spent again. That time is returned; pass it
    /// as `now` to the calls that follow. Otherwise this is [`Host::restore`].
    ///
    /// # Errors
    /// The bytes are another version's state, or damaged.
    pub fn thaw(
        bytes: &[u8],
        now: Timestamp,
        config: &Config,
    ) -> Result<(Self, Timestamp), RestoreError> {
        let mut host = Self::read(bytes)?;
        let now = host.pace.at().max(now);
        host.adopt(now, Duration::ZERO, config);
        Ok((host, now))
    }

    /// Returns the latest time in `snapshot`, or `None` if [`Host::restore`] refuses it.
    pub fn written_at(snapshot: &[u8]) -> Option<Timestamp> {
        Self::read(snapshot).ok().map(|host| host.pace.at())
    }

    /// Returns when the hold in force at `now` ends, or `None` without a hold.
    pub fn hold_ends(&self, now: Timestamp) -> Option<Timestamp> {
        self.hold.active(now).map(|(until, ..)| until)
    }

    fn read(bytes: &[u8]) -> Result<Self, RestoreError> {
        let short = postcard::Error::DeserializeUnexpectedEnd;
        let Some((&version, rest)) = bytes.split_first() else {
            return Err(RestoreError::Damaged(short));
        };
        let damaged = || RestoreError::Damaged(postcard::Error::SerdeDeCustom);
        let (flags, rest) = match rest.split_first() {
            _ if version != VERSION_EXTENDED => (0, rest),
            Some((&flags, rest)) => (flags, rest),
            None => return Err(damaged()),
        };
        let (extra, rest) = match rest.split_first_chunk() {
            _ if flags & HAS_EXTRA == 0 => (None, rest),
            Some((extra, rest)) => (Some(Extra::from_bytes(*extra).ok_or_else(damaged)?), rest),
            None => return Err(RestoreError::Damaged(short)),
        };
        let (cohort, rest) = match rest.split_first_chunk() {
            _ if flags & HAS_COHORT == 0 => (0, rest),
            Some((cohort, rest)) => (u32::from_le_bytes(*cohort), rest),
            None => return Err(RestoreError::Damaged(short)),
        };
        let (evidence, rest) = if flags & HAS_EVIDENCE != 0 {
            let read = postcard::take_from_bytes::<Box<Evidence>>(rest);
            let (evidence, rest) = read.map_err(RestoreError::Damaged)?;
            (Some(evidence), rest)
        } else {
            (None, rest)
        };
        let (declared, rest) = if flags & HAS_DECLARED != 0 {
            let read = postcard::take_from_bytes::<(DeclaredLimits, bool)>(rest);
            let (declared, rest) = read.map_err(RestoreError::Damaged)?;
            (Some(declared), rest)
        } else {
            (None, rest)
        };
        let (locks, rest) = if flags & HAS_LOCKS != 0 {
            let read = postcard::take_from_bytes::<Box<Locks>>(rest);
            let (locks, rest) = read.map_err(RestoreError::Damaged)?;
            (Some(locks), rest)
        } else {
            (None, rest)
        };
        let (rule, rest) = if flags & HAS_RULE != 0 {
            let read = postcard::take_from_bytes::<RuleState>(rest);
            let (rule, rest) = read.map_err(RestoreError::Damaged)?;
            (Some(rule), rest)
        } else {
            (None, rest)
        };
        let (told, rest) = if flags & HAS_TOLD != 0 {
            let read = postcard::take_from_bytes::<Vec<ToldBudget>>(rest);
            read.map_err(RestoreError::Damaged)?
        } else {
            (Vec::new(), rest)
        };
        let (suspicion, rest) = if flags & HAS_SUSPICION != 0 {
            let read = postcard::take_from_bytes::<Box<Suspicion>>(rest);
            let (suspicion, rest) = read.map_err(RestoreError::Damaged)?;
            (Some(suspicion), rest)
        } else {
            (None, rest)
        };
        let mut host: Self = match version {
            VERSION | VERSION_EXTENDED => unpack(rest),
            _ => return Err(RestoreError::Version(version)),
        }
        .map_err(RestoreError::Damaged)?;
        if let Some(extra) = extra {
            extra.put(host.rare());
        }
        if evidence.is_some() {
            host.rare().evidence = evidence;
        }
        if suspicion.is_some() {
            host.rare().suspicion = suspicion;
        }
        if cohort > 0 {
            host.rare().cohort = cohort;
        }
        if let Some((declared, is_by_rule)) = declared {
            let rare = host.rare();
            (rare.declared, rare.is_by_rule) = (Some(declared), is_by_rule);
        }
        if locks.is_some() {
            host.rare().locks = locks;
        }
        if rule.is_some() {
            host.rare().rule = rule;
        }
        if !told.is_empty() {
            host.rare().told = told;
        }
        if !host.plausible() {
            return Err(RestoreError::Damaged(postcard::Error::SerdeDeCustom));
        }
        Ok(host)
    }

    /// Moves all times back after the clock was set back by `set_back` and shows `now`.
    fn rebase(&mut self, now: Timestamp, set_back: Duration, config: &Config) {
        self.leases.rebase(set_back);
        self.first_end = FirstEnd::default();
        self.last_grant = self.last_grant - set_back;
        self.pace.rebase(now);
        self.hold.rebase(now);
        if let Some(rare) = &mut self.rare {
            rare.event.at = rare.event.at.min(now);
            if let Some(pause) = &mut rare.pause {
                pause.rebase(now);
            }
            let breaker = rare.breaker_config(config);
            rare.breaker.rebase(now, &breaker);
            rare.quarantine.rebase(now, &config.quarantine);
            if let Some(bytes) = &mut rare.bytes {
                bytes.rebase(now);
            }
            if let Some(spent) = &mut rare.spent
                && !set_back.is_zero()
            {
                spent.rebase(now);
            }
            if let Some(locks) = &mut rare.locks {
                locks.rebase(set_back);
            }
            if let Some(rule) = &mut rare.rule {
                rule.rebase(set_back);
            }
            for told in &mut rare.told {
                told.rebase(set_back);
            }
        }
    }

    /// Continues under `config`, which is not part of a state. The law's times move back by
    /// `set_back`.
    fn adopt(&mut self, now: Timestamp, set_back: Duration, config: &Config) {
        self.adopt_law(now, set_back, config);
        self.probe_returned();
    }

    /// Resumes after the process that kept this state died, and with it the record of its last
    /// grants.
    ///
    /// Nothing leaves for one interval after `newest`, the latest departure that may have been
    /// granted.
    pub fn resume_after(&mut self, now: Timestamp, newest: Timestamp, config: &Config) {
        let rate = self.bounds(now, config).rate;
        self.pace.empty(now, newest, &rate);
        self.last_grant = self.last_grant.max(newest);
    }

    /// Makes the ids of later leases at least `number << 32`, so that no id repeats one that was
    /// lost with the state. See [`Leases::generation`](crate::gate::Leases::generation).
    pub fn generation(&mut self, number: u32) {
        self.leases.generation(number);
    }

    /// Makes the ids of later leases at least `first`. See
    /// [`Leases::ids_from`](crate::gate::Leases::ids_from).
    pub fn ids_from(&mut self, first: LeaseId) {
        self.leases.ids_from(first);
    }

    /// Takes a slot for a permit that was granted before the process that kept this state died. The
    /// slot is taken until the lease expires.
    pub fn readmit(
        &mut self,
        start: Timestamp,
        lasts: Duration,
        estimate: &UnitCosts,
        config: &Config,
    ) -> LeaseId {
        self.last_grant = self.last_grant.max(start);
        self.first_end = FirstEnd::default();
        let lease = self.leases.take(start, lasts, false, false).id;
        // The bucket's levels since that departure are not known.
        self.leases.note_room(0.0, 0.0);
        // The limits that the estimate counts for may come into force later.
        if !estimate.is_empty() || has_named_units(self.declared(config)) {
            self.keep_estimate(lease, start, estimate.clone());
        }
        lease
    }

    /// Returns the leases that take a slot, oldest first.
    pub fn leases(&self) -> &[Lease] {
        self.leases.live()
    }

    /// Frees the slots of all leases, whose holders are gone. They count as expired.
    pub fn forget_leases(&mut self) {
        if self.leases.expire(Timestamp::NEVER).probe {
            self.probe_lost();
        }
        self.forget_estimates(Timestamp::ZERO);
        let suspicion = self.rare.as_mut().and_then(|rare| rare.suspicion.as_mut());
        if let Some(suspicion) = suspicion {
            suspicion.forget_kept();
        }
    }

    /// Returns whether calls of this type's methods could have led to this state. Restored bytes
    /// may be anything.
    fn plausible(&self) -> bool {
        let none = Rare::default();
        let rare = self.rare.as_deref().unwrap_or(&none);
        let (operator, bytes, evidence) = (rare.operator, rare.bytes, &rare.evidence);
        self.leases.plausible()
            && !self.pace.tokens().is_nan()
            && self.busy_rate > 0.0
            && bytes.is_none_or(|bytes| !bytes.tokens().is_nan())
            && (rare.spent.as_ref()).is_none_or(|spent| spent.is_plausible())
            && evidence
                .as_ref()
                .is_none_or(|evidence| evidence.is_plausible())
            && self.suspicion().is_none_or(Suspicion::is_plausible)
            && self.rule().is_none_or(RuleState::is_plausible)
            && self.locks().is_none_or(Locks::is_plausible)
            && operator.is_none_or(|set| {
                set.rate.is_none_or(|rate| rate > 0.0)
                    && set
                        .burst
                        .is_none_or(|burst| burst >= 1.0 && burst.is_finite())
                    && set.in_flight != Some(0)
            })
    }

    /// Returns whether the key can be evicted without a loss.
    ///
    /// A key stays while it has a lease, a hold, an open breaker, a strike, an operator's number, a
    /// stated quota or a debt. It also stays for a learned ceiling or a Crawl-delay, unless they
    /// are `forgettable`.
    pub fn evictable(&mut self, now: Timestamp, forgettable: bool, config: &Config) -> bool {
        self.expire(now);
        let rate = self.bounds(now, config).rate;
        // A bucket that is not full must stay: a key that returns with a new bucket would get a
        // second burst.
        let bytes_full = self
            .bytes(now, config)
            .is_none_or(|(bytes, rate)| bytes.is_full(now, &rate));
        self.leases.in_flight() == 0
            && self.pace.is_full(now, &rate)
            && bytes_full
            && self.has_whole_budgets(now, config)
            && self.hold.active(now).is_none()
            && self.rare.as_ref().is_none_or(|rare| rare.is_forgettable())
            && self.strikes == 0
            && self.rule().is_none_or(|rule| rule.is_past(now))
            && !self.has_told_at(now)
            && self.locks().is_none_or(|locks| locks.is_forgettable(now))
            && (forgettable || self.law.metrics().ceiling.is_none() && self.pause(now).is_none())
    }

    /// Returns whether the key may leave memory once its snapshot is saved.
    ///
    /// Budgets, learned limits and strikes return with the snapshot. A key stays while it has a
    /// lease, a lock or an estimate that a late report may exceed, and while it is in a state that
    /// operators look for: a hold, an open breaker, or an operator's number.
    pub fn may_leave(&mut self, now: Timestamp) -> bool {
        self.expire(now);
        self.forget_estimates(now);
        self.leases.in_flight() == 0
            && self.hold.active(now).is_none()
            && self
                .rare
                .as_ref()
                .is_none_or(|rare| rare.is_forgettable() && rare.estimates.is_empty())
            && self.locks().is_none_or(|locks| locks.is_forgettable(now))
    }
}
