//! What may be forgotten.
