//! Which of two states, whoever asks and in whichever order.
//!
//! What was one state and went on apart is joined part by part, each by a total order of which the
//! more careful end is taken. So a join does not depend on the order of its parts, and repeating it
//! changes nothing.

use serde::Serialize;

/// Takes `theirs` if its key is less; of two with the same key, that whose serialised bytes are
/// less.
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

/// The serialised form.
fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, Vec::new()).expect("a Vec grows and every field serialises")
}
