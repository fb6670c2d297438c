//! The live units of work.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use politely_core::Timestamp;

use crate::Token;
use crate::queue::Ready;
use crate::rows::DomainId;

/// A live unit of work.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) domain: DomainId,
    pub(crate) expires: Timestamp,
    /// Whether other pages of the domain may be handed out meanwhile.
    pub(crate) shares_domain: bool,
    pub(crate) pages: Vec<Ready>,
}

/// The live units of work, by token, domain and expiry.
#[derive(Debug, Default)]
pub(crate) struct Units {
    held: HashMap<Token, Held, foldhash::fast::FixedState>,
    by_domain: BTreeSet<(DomainId, Token)>,
    by_expiry: BTreeSet<(Timestamp, Token)>,
}

impl Units {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns a unit that has not expired.
    pub(crate) fn live(&self, token: Token, now: Timestamp) -> Option<&Held> {
        self.held.get(&token).filter(|held| held.expires > now)
    }

    pub(crate) fn insert(&mut self, token: Token, held: Held) {
        self.by_domain.insert((held.domain, token));
        self.by_expiry.insert((held.expires, token));
        self.held.insert(token, held);
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Held> {
        let held = self.held.remove(&token)?;
        self.by_domain.remove(&(held.domain, token));
        self.by_expiry.remove(&(held.expires, token));
        Some(held)
    }

    /// Returns the units of a domain, and their tokens.
    pub(crate) fn of_domain(&self, domain: DomainId) -> impl Iterator<Item = (Token, &Held)> {
        let range = (domain, Token(0))..=(domain, Token(u64::MAX));
        let tokens = self.by_domain.range(range).map(|(_, token)| *token);
        tokens.filter_map(|token| Some((token, self.held.get(&token)?)))
    }

    /// Returns all units, and their tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &Held)> {
        self.held.iter().map(|(token, held)| (*token, held))
    }

    /// Returns the tokens of at most `most` units that have expired, the first expired first.
    pub(crate) fn expired(&self, now: Timestamp, most: usize) -> Vec<Token> {
        let expired = self.by_expiry.iter().take_while(|(at, _)| *at <= now);
        expired.take(most).map(|(_, token)| *token).collect()
    }

    /// Returns the time when the next unit expires.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|(at, _)| *at)
    }
}
