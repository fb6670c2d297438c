//! The domains of all crawls, by id.

use crate::rows::DomainId;
use crate::schedule::Domain;

/// The domains that are allocated together.
const CHUNK: usize = 1_024;

/// The domains of all crawls, by id.
///
/// Ids are given out in order and never again, so a place in a list costs less memory than an entry
/// of a hash table, and growing copies no domain.
#[derive(Debug, Default)]
pub(super) struct Domains {
    /// Chunks without a domain are freed.
    chunks: Vec<Option<Chunk>>,
    len: usize,
}

#[derive(Debug)]
struct Chunk {
    domains: Box<[Option<Domain>]>,
    len: usize,
}

impl Domains {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, id: DomainId) -> Option<&Domain> {
        let (chunk, place) = place(id);
        self.chunks.get(chunk)?.as_ref()?.domains[place].as_ref()
    }

    pub(super) fn insert(&mut self, id: DomainId, domain: Domain) {
        let (chunk, place) = place(id);
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let chunk = self.chunks[chunk].get_or_insert_with(|| Chunk {
            domains: vec![None; CHUNK].into(),
            len: 0,
        });
        if chunk.domains[place].replace(domain).is_none() {
            chunk.len += 1;
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, id: DomainId) -> Option<Domain> {
        let (at, place) = place(id);
        let chunk = self.chunks.get_mut(at)?.as_mut()?;
        let removed = chunk.domains[place].take()?;
        chunk.len -= 1;
        self.len -= 1;
        if chunk.len == 0 {
            self.chunks[at] = None;
        }
        Some(removed)
    }

    /// Returns all domains, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            let domains = chunk.iter().flat_map(|chunk| chunk.domains.iter());
            let id = move |place| DomainId((at * CHUNK + place) as u32);
            domains
                .enumerate()
                .filter_map(move |(place, domain)| Some((id(place), domain.as_ref()?)))
        })
    }
}

const fn place(id: DomainId) -> (usize, usize) {
    let id = id.0 as usize;
    (id / CHUNK, id % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{CrawlId, QueueId};

    #[test]
    fn a_domain_is_found_under_its_id_until_it_is_removed() {
        let mut domains = Domains::default();
        let ids = [0, 1, 1_023, 1_024, 5_000].map(DomainId);
        for id in ids {
            domains.insert(id, Domain::new(CrawlId(1), QueueId(id.0)));
        }
        domains.insert(ids[0], Domain::new(CrawlId(2), QueueId(0)));
        assert_eq!(domains.len(), ids.len());
        assert!(domains.iter().map(|(id, _)| id).eq(ids));
        assert_eq!(domains.get(ids[0]).unwrap().crawl, CrawlId(2));
        for id in ids {
            assert_eq!(domains.get(id).unwrap().queue, QueueId(id.0));
            assert!(domains.remove(id).is_some());
            assert!(domains.get(id).is_none() && domains.remove(id).is_none());
        }
        assert_eq!((domains.len(), domains.iter().count()), (0, 0));
        assert!(domains.chunks.iter().all(Option::is_none));
        assert!(domains.get(DomainId(u32::MAX)).is_none());
    }

    #[test]
    fn a_domain_costs_72_bytes() {
        assert_eq!(size_of::<Option<Domain>>(), 72);
    }
}
