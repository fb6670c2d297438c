//! The bytes of the journal: a header that identifies the file, then records with lengths and
//! checksums.
//!
//! A record is `length u16 · crc32 u32 · kind u8 · postcard`, little-endian. Length and checksum
//! cover kind and postcard. A killed process leaves whole bytes up to some place, so the first
//! record that is not whole ends the file.

use std::borrow::Cow;
use std::io::{self, Read};

use politely::UnitCosts;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

/// The header of a journal. One byte is the format, which is raised when the meaning of a record
/// changes.
pub(crate) const HEADER: &[u8; 19] = b"politely permits 4\n";
const FORMAT_AT: usize = HEADER.len() - 2;
const HEAD: usize = 6;

const GRANTED: u8 = b'G';
const GONE: u8 = b'X';
const DEPARTED: u8 = b'D';
const CARRIED: u8 = b'C';
const COMMITTED: u8 = b'S';

/// A granted permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted<'a> {
    /// The permit's number.
    pub permit: u64,
    /// The key that it was granted for.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// The start of its request, in microseconds of the coordinator's clock.
    pub start_us: u64,
    /// The end of its lease, in milliseconds after the start.
    pub lease_ms: u32,
    /// The hash of client and request id, which identifies a repeated request. 0 if the caller gave
    /// no id.
    pub wish: u64,
    /// The further keys of its request.
    #[serde(borrow)]
    pub others: Vec<Cow<'a, str>>,
    /// The estimated costs of its request in named units.
    pub units: UnitCosts,
    /// The client to which the permit was granted.
    #[serde(borrow)]
    pub client: Cow<'a, str>,
}

impl Granted<'_> {
    /// Returns a copy that owns its texts.
    pub fn into_owned(self) -> Granted<'static> {
        Granted {
            key: Cow::Owned(self.key.into_owned()),
            client: Cow::Owned(self.client.into_owned()),
            others: (self.others.into_iter())
                .map(|key| Cow::Owned(key.into_owned()))
                .collect(),
            ..self
        }
    }
}

/// The latest departure of a key, and what the key spent of its declared limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Departed<'a> {
    #[serde(borrow)]
    pub(crate) key: Cow<'a, str>,
    /// The start of its latest request, in microseconds of the coordinator's clock.
    pub(crate) start_us: u64,
    /// The version of `spent`. Of two records of a key, the one with the higher version is newer.
    pub(crate) version: u64,
    /// The bytes of [`Limiter::spent`](politely::Limiter::spent). Empty for a key without declared
    /// limits.
    #[serde(borrow)]
    pub(crate) spent: Cow<'a, [u8]>,
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A permit was granted. A later record of the same permit replaces it.
    Granted(Granted<'a>),
    /// A permit was reported, cancelled or expired.
    Gone(u64),
    /// A request of a key left or was settled.
    Departed(Departed<'a>),
    /// All live permits of the previous file are above this record.
    Carried,
    /// The number of the database's transactions.
    Committed(u64),
}

/// Appends a permit to `bytes`. Leaves `bytes` unchanged on an error, which means that its texts
/// are too long for a record.
pub(crate) fn granted(bytes: &mut Vec<u8>, granted: &Granted<'_>) -> io::Result<()> {
    seal(bytes, GRANTED, granted)
}

/// Appends the end of a permit to `bytes`.
pub(crate) fn gone(bytes: &mut Vec<u8>, permit: u64) {
    seal(bytes, GONE, &permit).expect("a number of at most ten bytes fits a record");
}

/// Appends a key's latest departure to `bytes`. Leaves `bytes` unchanged on an error, which means
/// that its texts are too long for a record.
pub(crate) fn departed(bytes: &mut Vec<u8>, departed: &Departed<'_>) -> io::Result<()> {
    seal(bytes, DEPARTED, departed)
}

/// Appends the mark after the live permits of the previous file to `bytes`.
pub(crate) fn carried(bytes: &mut Vec<u8>) {
    seal(bytes, CARRIED, &()).expect("one byte fits a record");
}

/// Appends the number of the database's transactions to `bytes`.
pub(crate) fn committed(bytes: &mut Vec<u8>, commits: u64) {
    seal(bytes, COMMITTED, &commits).expect("a number of at most ten bytes fits a record");
}

/// Returns the place of the first whole record in `bytes`.
pub(crate) fn find(bytes: &[u8]) -> Option<usize> {
    let is_record = |at: usize| {
        let kind = bytes.get(at + HEAD)?;
        if ![GRANTED, GONE, DEPARTED, CARRIED, COMMITTED].contains(kind) {
            return None;
        }
        Reader::new(&bytes[at..]).record().ok()?.map(drop)
    };
    (0..bytes.len()).find(|&at| is_record(at).is_some())
}

/// Appends `body` as a record of `kind`.
pub(crate) fn seal(bytes: &mut Vec<u8>, kind: u8, body: &impl Serialize) -> io::Result<()> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEAD]);
    bytes.push(kind);
    let written = postcard::serialize_with_flavor(body, Behind(bytes));
    let payload = &bytes[start + HEAD..];
    let Some(len) = written.ok().and_then(|()| payload.len().try_into().ok()) else {
        bytes.truncate(start);
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a permit whose texts are longer than a record",
        ));
    };
    let (len, sum): (u16, u32) = (len, crc32fast::hash(payload));
    bytes[start..start + 2].copy_from_slice(&len.to_le_bytes());
    bytes[start + 2..start + HEAD].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// A target for postcard that appends to a vector. `postcard::to_io` would write numbers byte by
/// byte.
struct Behind<'a>(&'a mut Vec<u8>);

impl Flavor for Behind<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Ours,
    /// The file is empty, has half a header, or has only the zeros of a power loss. It holds no
    /// records.
    Torn,
    /// The journal has another format, given by its character.
    Version(char),
    /// The file is not a journal.
    Foreign,
}

/// Reads records from a file or from memory.
pub(crate) struct Reader<R> {
    from: R,
    payload: Vec<u8>,
    /// The length of the header and the whole records read so far, in bytes.
    whole: u64,
}

impl<R: Read> Reader<R> {
    /// Creates a reader. For a whole file, call [`Self::header`] first.
    pub(crate) fn new(from: R) -> Self {
        Self {
            from,
            payload: Vec::new(),
            whole: 0,
        }
    }

    pub(crate) fn whole(&self) -> u64 {
        self.whole
    }

    pub(crate) fn header(&mut self) -> io::Result<Header> {
        let mut begin = [0; HEADER.len()];
        let len = fill(&mut self.from, &mut begin)?;
        let begin = &begin[..len];
        if begin == HEADER {
            self.whole = HEADER.len() as u64;
            return Ok(Header::Ours);
        }
        let same = begin.iter().zip(HEADER).take_while(|(a, b)| a == b).count();
        Ok(if same == len || begin.iter().all(|&byte| byte == 0) {
            Header::Torn
        } else if same == FORMAT_AT {
            Header::Version(char::from(begin[FORMAT_AT]))
        } else {
            Header::Foreign
        })
    }

    /// Reads the next record. Returns `None` at the end or at bytes that are no whole record, and
    /// must not be called after that.
    pub(crate) fn record(&mut self) -> io::Result<Option<Record<'_>>> {
        let mut head = [0; HEAD];
        if fill(&mut self.from, &mut head)? < HEAD {
            return Ok(None);
        }
        let [a, b, sum @ ..] = head;
        let len = usize::from(u16::from_le_bytes([a, b]));
        self.payload.resize(len, 0);
        if fill(&mut self.from, &mut self.payload)? < len
            || crc32fast::hash(&self.payload) != u32::from_le_bytes(sum)
        {
            return Ok(None);
        }
        let record = decode(&self.payload);
        if record.is_some() {
            self.whole += (HEAD + len) as u64;
        }
        Ok(record)
    }
}

fn decode(payload: &[u8]) -> Option<Record<'_>> {
    let (&kind, body) = payload.split_first()?;
    match kind {
        GRANTED => body_of(body).map(Record::Granted),
        GONE => body_of(body).map(Record::Gone),
        DEPARTED => body_of(body).map(Record::Departed),
        CARRIED => body_of(body).map(|()| Record::Carried),
        COMMITTED => body_of(body).map(Record::Committed),
        _ => None,
    }
}

fn body_of<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((body, [])) => Some(body),
        _ => None,
    }
}

/// Reads until `buffer` is full or the input ends. Returns the number of bytes read.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn sample(permit: u64) -> Granted<'static> {
        Granted {
            permit,
            key: "example.com".into(),
            start_us: 1_700_000_000_000_000,
            lease_ms: 30_000,
            wish: 7,
            client: "worker-1".into(),
            others: vec!["custom/account".into()],
            units: UnitCosts::new([("tokens", 9)]).unwrap(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = HEADER.to_vec();
        granted(&mut bytes, &sample(u64::MAX)).unwrap();
        gone(&mut bytes, u64::MAX);
        let mut reader = Reader::new(bytes.as_slice());
        assert_eq!(reader.header().unwrap(), Header::Ours);
        assert_eq!(
            reader.record().unwrap(),
            Some(Record::Granted(sample(u64::MAX)))
        );
        assert_eq!(reader.record().unwrap(), Some(Record::Gone(u64::MAX)));
        assert_eq!(reader.record().unwrap(), None);
        assert_eq!(reader.whole(), bytes.len() as u64);
    }

    #[test]
    fn a_text_too_long_for_a_record_is_refused_and_leaves_nothing() {
        let long = Granted {
            key: "x".repeat(1 << 16).into(),
            ..sample(1)
        };
        let mut bytes = b"before".to_vec();
        assert!(granted(&mut bytes, &long).is_err());
        assert_eq!(bytes, b"before");
    }

    #[test]
    fn a_header_says_whose_file_it_is() {
        let header = |bytes: &[u8]| Reader::new(bytes).header().unwrap();
        assert_eq!(header(HEADER), Header::Ours);
        for torn in 0..HEADER.len() {
            assert_eq!(header(&HEADER[..torn]), Header::Torn);
            assert_eq!(header(&vec![0; torn * 9]), Header::Torn);
        }
        assert_eq!(header(b"politely permits 2\nmore"), Header::Version('2'));
        assert_eq!(header(b"something else entirely"), Header::Foreign);
        assert_eq!(header(b"else"), Header::Foreign);
    }

    proptest! {
           /// Random bytes almost never have a valid checksum, so half of the cases are sealed.
           #[test]
           fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300), kind in prop_oneof![Just(GRANTED), Just(GONE), Just(DEPARTED), Just(CARRIED), Just(COMMITTED), any::<u8>()]) {
               let mut sealed = Vec::new();
               seal(&mut sealed, kind, &bytes.as_slice()).unwrap();
               // Without postcard's length prefix, the bytes are the body itself.
               let raw = [&[kind], bytes.as_slice()].concat();
               let mut body = (raw.len() as u16).to_le_bytes().to_vec();
               body.extend_from_slice(&crc32fast::hash(&raw).to_le_bytes());
               body.extend_from_slice(&raw);
               for bytes in [bytes, sealed, body] {
                   let mut reader = Reader::new(bytes.as_slice());
                   while let Some(record) = reader.record().unwrap() {
                       let mut again = Vec::new();
                       match &record {
                           Record::Granted(permit) => granted(&mut again, permit).unwrap(),
                           Record::Gone(permit) => gone(&mut again, *permit),
                           Record::Departed(key) => departed(&mut again, key).unwrap(),
                           Record::Carried => carried(&mut again),
                           Record::Committed(commits) => committed(&mut again, *commits),
                       }
                       let mut reader = Reader::new(again.as_slice());
    prop_assert_eq!(reader.record().unwrap(), Some(record));
                   }
                   prop_assert!(reader.whole() <= bytes.len() as u64);
               }
           }
       }
}
