//! Merges parts of two states in a total order.
//!
//! A state that was one and continued in two places is merged part by part. Each part has a total
//! order, and the more careful value wins. So the order of the merges does not matter, and a
//! repeated merge changes nothing.

use serde::Serialize;

/// Replaces `mine` by `theirs` if the key of `theirs` is less. With equal keys, the value with the
/// lesser serialised bytes wins.
pub(crate) fn least<T, K>(mine: &mut T, theirs: &T, key: impl Fn(&T) -> K)
where
    T: Clone + Serialize,
    K: Ord,
{
    let order = key(theirs).cmp(&key(mine));
    if order.then_with(|| bytes(theirs).cmp(&bytes(mine))).is_lt() {
        *mine = theirs.clone();
    }
}

/// Returns the serialised form.
fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, Vec::new()).expect("a Vec grows and every field serialises")
}
