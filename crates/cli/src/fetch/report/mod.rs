//! The results of a run: result lines, saved bodies, progress, the summary and messages.

mod eta;
mod extension;
pub(super) mod failures;
pub(super) mod form;
pub(super) mod last_answer;
pub(super) mod output;
pub(super) mod page_fields;
pub(super) mod progress;
pub(super) mod save;
pub(super) mod summary;
pub(super) mod talk;
