//! Finds many words in a text in one pass, without regard to ASCII case.
//!
//! The search looks at every fourth position of the text only. A word of seven bytes or more that
//! occurs in the text covers one of these positions with three further bytes of itself. So each
//! word is known by the four groups of four bytes that begin at its first four bytes. Every page
//! has a title, so the groups of a word that begins with a tag are taken behind the tag. A bit set
//! tells whether a group of the text may be one of them, which costs an ordinary page about two
//! instructions a byte. The tables are built by the compiler.
//!
//! An automaton of the crate `aho-corasick` would replace this file. With it, the row `classify` of
//! `scripts/guard` counted 2,827 instructions instead of 932.

/// Length of a group, and the distance of two positions that are looked at.
const GROUP: usize = 4;
/// Length of the shortest word that covers a whole group, wherever it begins.
const WORD_MIN: usize = 2 * GROUP - 1;
/// Bits of a hash.
const HASH_BITS: u32 = 13;
const BITS: usize = 1 << HASH_BITS;

/// A fixed set of words. `GROUPS` is four times their number.
pub(super) struct Words<const GROUPS: usize> {
    texts: &'static [&'static [u8]],
    /// One bit for each hash of a group.
    hashes: [u64; BITS / 64],
    /// The groups in ascending order. Of equal groups, the one whose word begins first is first.
    groups: [Group; GROUPS],
}

/// Four bytes of a word.
#[derive(Clone, Copy)]
struct Group {
    bytes: u32,
    word: u8,
    /// The place of the group in the word.
    at: u8,
}

impl Group {
    const fn order(self) -> u64 {
        ((self.bytes as u64) << 16) | ((u8::MAX - self.at) as u64) << 8 | self.word as u64
    }
}

impl<const GROUPS: usize> Words<GROUPS> {
    /// Builds the tables.
    ///
    /// # Panics
    ///
    /// Panics at compile time if a word has fewer than seven bytes behind its tag, or if there are
    /// more than 256 words.
    pub(super) const fn new(texts: &'static [&'static [u8]]) -> Self {
        assert!(texts.len() <= 256 && texts.len() * GROUP == GROUPS);
        let mut hashes = [0; BITS / 64];
        let mut groups = [Group {
            bytes: 0,
            word: 0,
            at: 0,
        }; GROUPS];
        let mut filled = 0;
        while filled < GROUPS {
            let word = filled / GROUP;
            let text = texts[word];
            let tag = tag_length(text);
            assert!(text.len() >= tag + WORD_MIN);
            let at = tag + filled % GROUP;
            let bytes = fold([text[at], text[at + 1], text[at + 2], text[at + 3]]);
            let bit = hash(bytes);
            hashes[bit / 64] |= 1 << (bit % 64);
            let group = Group {
                bytes,
                word: word as u8,
                at: at as u8,
            };
            // An insertion sort, because the standard sorts cannot run in the compiler.
            let mut place = filled;
            while place > 0 && groups[place - 1].order() > group.order() {
                groups[place] = groups[place - 1];
                place -= 1;
            }
            groups[place] = group;
            filled += 1;
        }
        Self {
            texts,
            hashes,
            groups,
        }
    }

    /// Calls `found` with the position and the number of each occurrence, in the order of their
    /// positions behind the tags.
    pub(super) fn find(&self, text: &[u8], mut found: impl FnMut(usize, usize)) {
        for (number, group) in text.as_chunks::<GROUP>().0.iter().enumerate() {
            let bytes = fold(*group);
            let bit = hash(bytes);
            if self.hashes[bit / 64] & (1 << (bit % 64)) != 0 {
                self.compare(text, GROUP * number, bytes, &mut found);
            }
        }
    }

    #[cold]
    fn compare(
        &self,
        text: &[u8],
        position: usize,
        bytes: u32,
        found: &mut impl FnMut(usize, usize),
    ) {
        let first = self.groups.partition_point(|group| group.bytes < bytes);
        let equal = self.groups[first..]
            .iter()
            .take_while(|group| group.bytes == bytes);
        for group in equal {
            let (word, number) = (self.texts[usize::from(group.word)], usize::from(group.word));
            let begin = position.checked_sub(usize::from(group.at));
            let begin = begin.filter(|begin| {
                let same = text[*begin..].get(..word.len());
                same.is_some_and(|same| same.eq_ignore_ascii_case(word))
            });
            if let Some(begin) = begin {
                found(begin, number);
            }
        }
    }
}

/// Returns the length of the tag that `word` begins with.
const fn tag_length(word: &[u8]) -> usize {
    let mut end = 0;
    while word[0] == b'<' && word[end] != b'>' {
        end += 1;
    }
    if end == 0 { 0 } else { end + 1 }
}

/// Maps both cases of a letter to one value. Other bytes may share a value too.
const fn fold(bytes: [u8; GROUP]) -> u32 {
    u32::from_le_bytes(bytes) | 0x2020_2020
}

const fn hash(bytes: u32) -> usize {
    (bytes.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&[u8]; 5] = [
        b"abcabca",
        b"abcabcab",
        b"BCABCABX",
        b"aaaaaaa",
        b"<a>_[@`{]x",
    ];
    static WORDS: Words<20> = Words::new(&TEXTS);

    fn found(text: &[u8]) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        WORDS.find(text, |at, word| all.push((at, word)));
        all.sort_unstable();
        all
    }

    /// The same in the plain way.
    fn plain(text: &[u8]) -> Vec<(usize, usize)> {
        let is_at = |at: usize, word: &[u8]| {
            let same = text[at..].get(..word.len());
            same.is_some_and(|same| same.eq_ignore_ascii_case(word))
        };
        let pairs = (0..text.len()).flat_map(|at| (0..TEXTS.len()).map(move |word| (at, word)));
        pairs
            .filter(|(at, word)| is_at(*at, TEXTS[*word]))
            .collect()
    }

    #[test]
    fn overlapping_words_are_all_found() {
        assert_eq!(found(b"xabcABCab"), [(1, 0), (1, 1)]);
        assert_eq!(found(b"abcabcabx"), [(0, 0), (0, 1), (1, 2)]);
        assert_eq!(found(b"aaaaaaaaaaa").len(), 5);
        assert_eq!(found(b" <A>_[@`{]X"), [(1, 4)]);
        assert_eq!(found(b"<A>_{@`{]X"), [], "a brace is no bracket");
        assert_eq!(found(b">_[@`{]X"), [], "the tag is cut off");
        assert_eq!(found(b"abcabc"), []);
    }

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(text in "([abcABCx]|<a>_[{\\[]@`[{\\[]\\]x?){0,60}", many in "[abAB]{0,90}") {
            prop_assert_eq!(found(text.as_bytes()), plain(text.as_bytes()));
            prop_assert_eq!(found(many.as_bytes()), plain(many.as_bytes()));
        }
    }
}
