//! The pages of a crawl that vanish with its process.
//!
//! Such a crawl needs no tree of sorted tables: no page is looked up by its URL, and no step must
//! survive. So all pages are in one file, in the order in which they were added. A page names the
//! next page of its domain, so a page that waits takes no memory, and a domain takes 16 bytes.

use std::io::{self, Read, Seek, SeekFrom, Write};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::{Priority, TakenPage};

/// The place of the first page. A place of 0 means no page.
const FIRST: u64 = 1;
/// The bytes of pages that are written together.
const WRITE_LEN: usize = 256 << 10;
/// The bytes that are read for one page. Most pages fit, and a longer one costs a second read.
const READ_LEN: usize = 256;
/// The most bytes that are read at a time for several pages.
const READ_LEN_MAX: usize = 64 << 10;

/// The pages of a crawl that vanish with its process, in a file that only grows.
///
/// Each domain has a queue, and the caller numbers the domains from 0 on. A page is accepted once,
/// and leaves its queue for good when it is taken.
#[derive(Debug)]
pub struct Scratch<F> {
    file: F,
    /// The place of the next page.
    end: u64,
    /// The pages that are not written yet. They end at `end`.
    buffer: Vec<u8>,
    /// Written pages that got a successor: their places, and the places of the next pages.
    links: Vec<(u64, u64)>,
    /// The queues of the domains.
    queues: Vec<Queue>,
    /// The hashes of all pages, until no more are added.
    known: HashTable<Hash>,
    seed: u64,
}

/// The places of the first and the last page of a domain, 0 for none.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    first: u64,
    last: u64,
}

/// The bytes before the text of a page.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The place of the next page of the domain, 0 for none.
    next: u64,
    /// The length of the URL.
    url: usize,
    /// The length of the metadata.
    metadata: usize,
}

impl Head {
    const LEN: usize = 16;

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.next.to_le_bytes());
        bytes.extend((self.url as u32).to_le_bytes());
        bytes.extend((self.metadata as u32).to_le_bytes());
    }

    fn read(bytes: &[u8]) -> io::Result<Self> {
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (next, bytes) = bytes.split_first_chunk().ok_or_else(short)?;
        let (url, bytes) = bytes.split_first_chunk().ok_or_else(short)?;
        let metadata = bytes.first_chunk().ok_or_else(short)?;
        Ok(Self {
            next: u64::from_le_bytes(*next),
            url: u32::from_le_bytes(*url) as usize,
            metadata: u32::from_le_bytes(*metadata) as usize,
        })
    }
}

/// 96 bits of a URL's hash. Of 10^9 URLs, two have the same one with a probability of 10^-11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash([u32; 3]);

impl Hash {
    fn of(url: &str, seed: u64) -> Self {
        let hash = xxh3_128_with_seed(url.as_bytes(), seed);
        Self([hash as u32, (hash >> 32) as u32, (hash >> 64) as u32])
    }

    const fn short(&self) -> u64 {
        let Self([low, high, _]) = *self;
        (high as u64) << 32 | low as u64
    }
}

impl<F: Read + Write + Seek> Scratch<F> {
    /// Creates the queues of a crawl in an empty file. `seed` is a random number.
    pub fn new(file: F, seed: u64) -> Self {
        Self {
            file,
            end: FIRST,
            buffer: Vec::new(),
            links: Vec::new(),
            queues: Vec::new(),
            known: HashTable::new(),
            seed,
        }
    }

    /// Adds a page to the end of a domain's queue, and returns whether it is new.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The page is added nevertheless.
    pub fn push(&mut self, domain: u32, url: &str, metadata: &[u8]) -> io::Result<bool> {
        let hash = Hash::of(url, self.seed);
        let known = self
            .known
            .entry(hash.short(), |known| *known == hash, Hash::short);
        let Entry::Vacant(unknown) = known else {
            return Ok(false);
        };
        unknown.insert(hash);
        let place = self.end;
        let head = Head {
            next: 0,
            url: url.len(),
            metadata: metadata.len(),
        };
        head.write(&mut self.buffer);
        self.buffer.extend(url.as_bytes());
        self.buffer.extend(metadata);
        self.end += (Head::LEN + url.len() + metadata.len()) as u64;
        self.link(domain, place);
        if self.buffer.len() >= WRITE_LEN {
            self.flush()?;
        }
        Ok(true)
    }

    /// Puts a page at the end of a domain's queue.
    fn link(&mut self, domain: u32, place: u64) {
        let domain = domain as usize;
        if self.queues.len() <= domain {
            self.queues.resize(domain + 1, Queue::default());
        }
        let unwritten = self.end - self.buffer.len() as u64;
        let queue = &mut self.queues[domain];
        let last = std::mem::replace(&mut queue.last, place);
        if queue.first == 0 {
            queue.first = place;
        } else if let Some(at) = last.checked_sub(unwritten) {
            self.buffer[at as usize..][..8].copy_from_slice(&place.to_le_bytes());
        } else {
            self.links.push((last, place));
        }
    }

    /// Writes the pages that are in the buffer, and then the links to them. A call that failed can
    /// be repeated.
    fn flush(&mut self) -> io::Result<()> {
        let place = self.end - self.buffer.len() as u64;
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(&self.buffer)?;
        for (place, next) in &self.links {
            self.file.seek(SeekFrom::Start(*place))?;
            self.file.write_all(&next.to_le_bytes())?;
        }
        self.buffer.clear();
        self.links.clear();
        Ok(())
    }

    /// Frees the memory that only adding pages needs. No page may be added after this.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        self.known = HashTable::new();
        self.buffer = Vec::new();
        self.links = Vec::new();
        Ok(())
    }

    /// Takes at most `most` pages from the front of a domain's queue. Each has the default priority
    /// and no attempts.
    ///
    /// # Errors
    /// Fails if the file cannot be written or read. No page is taken then.
    pub fn pop(&mut self, domain: u32, most: usize) -> io::Result<Vec<TakenPage>> {
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        let mut pages = Vec::new();
        let Some(&(mut queue)) = self.queues.get(domain as usize) else {
            return Ok(pages);
        };
        let mut window = Window {
            start: 0,
            bytes: Vec::new(),
            len: (most * READ_LEN).min(READ_LEN_MAX),
        };
        while queue.first != 0 && pages.len() < most {
            let (page, next) = window.page(&mut self.file, queue.first)?;
            pages.push(page);
            queue.first = next;
        }
        self.queues[domain as usize] = queue;
        Ok(pages)
    }
}

/// A part of the file that was read.
struct Window {
    start: u64,
    bytes: Vec<u8>,
    /// The bytes to read at a time.
    len: usize,
}

impl Window {
    /// Returns the page at a place, and the place of the next page.
    fn page(&mut self, file: &mut (impl Read + Seek), place: u64) -> io::Result<(TakenPage, u64)> {
        let Head {
            next,
            url,
            metadata,
        } = Head::read(self.read(file, place, Head::LEN)?)?;
        let text = self.read(file, place + Head::LEN as u64, url + metadata)?;
        let (url, metadata) = text.split_at(url);
        let damaged = |_| io::Error::from(io::ErrorKind::InvalidData);
        let page = TakenPage {
            url: String::from_utf8(url.to_vec()).map_err(damaged)?,
            priority: Priority::default(),
            metadata: metadata.to_vec(),
            attempts: 0,
            free: 0,
        };
        Ok((page, next))
    }

    /// Returns `len` bytes at a place.
    fn read(&mut self, file: &mut (impl Read + Seek), place: u64, len: usize) -> io::Result<&[u8]> {
        let is_inside = |at: usize| self.bytes.len() >= at + len;
        let at = place.checked_sub(self.start).map(|at| at as usize);
        if let Some(at) = at.filter(|at| is_inside(*at)) {
            return Ok(&self.bytes[at..at + len]);
        }
        self.start = place;
        self.bytes.resize(self.len.max(len), 0);
        file.seek(SeekFrom::Start(place))?;
        let mut found = 0;
        while found < len {
            match file.read(&mut self.bytes[found..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => found += more,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        self.bytes.truncate(found);
        Ok(&self.bytes[..len])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn scratch() -> Scratch<Cursor<Vec<u8>>> {
        Scratch::new(Cursor::default(), 7)
    }

    fn urls(pages: &[TakenPage]) -> Vec<&str> {
        pages.iter().map(|page| page.url.as_str()).collect()
    }

    #[test]
    fn pages_leave_in_their_order_with_their_metadata() {
        let mut scratch = scratch();
        for (domain, url, metadata) in [(0, "a", ""), (2, "b", "x"), (0, "c", "yz")] {
            assert!(scratch.push(domain, url, metadata.as_bytes()).unwrap());
        }
        assert!(!scratch.push(0, "a", b"again").unwrap());
        let pages = scratch.pop(0, 9).unwrap();
        assert_eq!(urls(&pages), ["a", "c"]);
        assert_eq!(pages[1].metadata, b"yz");
        assert_eq!(scratch.pop(0, 9).unwrap(), []);
        assert!(!scratch.push(0, "c", b"").unwrap(), "a page is taken once");
        assert_eq!(urls(&scratch.pop(2, 1).unwrap()), ["b"]);
        assert_eq!(scratch.pop(1, 1).unwrap(), []);
        assert_eq!(scratch.pop(9, 1).unwrap(), []);
    }

    #[test]
    fn a_page_of_any_length_is_found() {
        let mut scratch = scratch();
        let lens = [0, 1, READ_LEN, READ_LEN_MAX, WRITE_LEN + 1, 3];
        let metadata: Vec<_> = lens.iter().map(|len| vec![b'm'; *len]).collect();
        for (number, metadata) in metadata.iter().enumerate() {
            assert!(scratch.push(0, &number.to_string(), metadata).unwrap());
        }
        let pages = scratch.pop(0, 99).unwrap();
        let found: Vec<_> = pages.into_iter().map(|page| page.metadata).collect();
        assert_eq!(found, metadata);
    }

    #[test]
    fn a_closed_crawl_hands_out_its_pages() {
        let mut scratch = scratch();
        for url in ["a", "b"] {
            assert!(scratch.push(0, url, b"").unwrap());
        }
        scratch.close().unwrap();
        assert_eq!(scratch.known.capacity(), 0);
        assert_eq!(urls(&scratch.pop(0, 9).unwrap()), ["a", "b"]);
    }

    /// A file that takes a number of bytes and then has no room.
    struct Disk {
        file: Cursor<Vec<u8>>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.room);
            self.room -= len;
            if len == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.file.write(&bytes[..len])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Disk {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.file.read(bytes)
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    #[test]
    fn a_full_disk_loses_no_page_once_it_has_room() {
        for room in 0..100 {
            let file = Cursor::default();
            let mut scratch = Scratch::new(Disk { file, room: 21 }, 7);
            let mut found = Vec::new();
            scratch.push(0, "first", b"").unwrap();
            found.extend(scratch.pop(1, 1).unwrap());
            scratch.push(0, "second", b"").unwrap();
            scratch.push(0, "third", b"").unwrap();
            scratch.file.room = room;
            found.extend(scratch.pop(0, 1).unwrap_or_default());
            scratch.push(0, "fourth", b"").unwrap();
            scratch.file.room = 1_000;
            found.extend(scratch.pop(0, 9).unwrap());
            assert_eq!(urls(&found), ["first", "second", "third", "fourth"]);
        }
    }

    proptest! {
        #[test]
        fn each_queue_is_first_in_first_out(
            calls in prop::collection::vec((0_u32..4, 0_u16..300, 0_usize..5), 0..200),
        ) {
            let mut scratch = scratch();
            let (mut known, mut queues) = (HashSet::new(), vec![VecDeque::new(); 4]);
            for (domain, page, most) in calls {
                let url = format!("{domain}/{page}");
                let is_new = known.insert(url.clone());
                prop_assert_eq!(scratch.push(domain, &url, &[]).unwrap(), is_new);
                let queue = &mut queues[domain as usize];
                if is_new {
                    queue.push_back(url);
                }
                if page % 3 == 0 {
                    let len = queue.len().min(most);
                    let expected: Vec<_> = queue.drain(..len).collect();
                    let found = scratch.pop(domain, most).unwrap();
                    prop_assert_eq!(urls(&found), expected);
                }
            }
        }
    }
}
