//! One value of the database: its version and checksum, then its bytes.
//!
//! A value is `version u64 · crc32 u32 · bytes`, little-endian. The checksum covers name, version
//! and bytes, so a value under a wrong name counts as damaged too.

/// The length of version and checksum, in bytes.
const HEAD: usize = 12;

/// A value with its version, which orders all values of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Versioned {
    pub(super) version: u64,
    pub(super) bytes: Vec<u8>,
}

/// The error of a value whose checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

fn checksum(name: &str, version: [u8; 8], bytes: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(name.as_bytes());
    hash.update(&version);
    hash.update(bytes);
    hash.finalize()
}

/// Returns the bytes to be written under `name`.
pub(super) fn seal(name: &str, value: &Versioned) -> Vec<u8> {
    let version = value.version.to_le_bytes();
    let sum = checksum(name, version, &value.bytes);
    let mut sealed = Vec::with_capacity(HEAD + value.bytes.len());
    sealed.extend_from_slice(&version);
    sealed.extend_from_slice(&sum.to_le_bytes());
    sealed.extend_from_slice(&value.bytes);
    sealed
}

/// Returns version and bytes of a value that was read under `name`.
pub(super) fn open<'a>(name: &str, sealed: &'a [u8]) -> Result<(u64, &'a [u8]), Damaged> {
    let (version, rest) = sealed.split_first_chunk().ok_or(Damaged)?;
    let (sum, bytes) = rest.split_first_chunk().ok_or(Damaged)?;
    if checksum(name, *version, bytes) != u32::from_le_bytes(*sum) {
        return Err(Damaged);
    }
    Ok((u64::from_le_bytes(*version), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen() {
        let value = Versioned {
            version: 7,
            bytes: b"state".to_vec(),
        };
        let sealed = seal("example.com", &value);
        assert_eq!(open("example.com", &sealed), Ok((7, &b"state"[..])));
        assert_eq!(open("example.org", &sealed), Err(Damaged));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open("example.com", &flipped), Err(Damaged), "bit {bit}");
        }
        for cut in 0..sealed.len() {
            assert_eq!(open("example.com", &sealed[..cut]), Err(Damaged));
        }
    }
}
