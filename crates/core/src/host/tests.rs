use std::mem::size_of;

use super::*;

#[test]
fn a_key_is_small() {
    assert!(size_of::<Host>() <= 216, "{}", size_of::<Host>());
}
