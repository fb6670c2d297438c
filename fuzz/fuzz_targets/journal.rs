//! Reads any bytes as the coordinator's journal, up to the first incomplete record. Nothing panics,
//! and a record that was read can be written and read again unchanged.
#![no_main]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a file of the coordinator, of which only the parser is called"
)]

#[path = "../../crates/server/src/store/record.rs"]
mod record;

use libfuzzer_sys::fuzz_target;

use crate::record::{HEADER, Header, Reader, Record};

fuzz_target!(|input: (Vec<u8>, Vec<Vec<u8>>)| {
    let (bytes, payloads) = input;
    read(&bytes);
    // Random bytes never have a valid checksum, so the second input is sealed with correct ones.
    let mut sealed = HEADER.to_vec();
    for payload in payloads {
        sealed.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        sealed.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        sealed.extend_from_slice(&payload);
    }
    read(&sealed);
});

fn read(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    if reader.header().expect("memory can be read") != Header::Ours {
        assert_eq!(reader.whole(), 0);
        return;
    }
    while let Some(record) = reader.record().expect("memory can be read") {
        let mut again = Vec::new();
        match &record {
            Record::Granted(permit) => {
                record::granted(&mut again, permit).expect("as short as what was read");
            }
            Record::Gone(permit) => record::gone(&mut again, *permit),
            Record::Carried => record::carried(&mut again),
            Record::Committed(number) => record::committed(&mut again, *number),
        }
        let mut again = Reader::new(again.as_slice());
        assert_eq!(again.record().expect("memory can be read"), Some(record));
    }
    assert!(reader.whole() <= bytes.len() as u64);
}
