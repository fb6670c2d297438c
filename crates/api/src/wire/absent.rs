//! Defaults of absent fields, and predicates that omit fields with their default value.

pub(super) const fn one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) const fn is_one(number: &u16) -> bool {
    *number == 1
}

/// Returns whether a field has the default of its type: zero, false, empty, or no change.
pub(super) fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}
