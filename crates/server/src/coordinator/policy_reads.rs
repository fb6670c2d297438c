//! The reads of a policy file: whether a changed text is put into force.

use std::path::{Path, PathBuf};

use politely::policy::{POLICY_MAX, RuleBook};

use super::Coordinator;
use super::rules::PolicyRefused;

/// Reads a policy file again and again.
///
/// A program may still be writing the file. So a new text counts when two reads in a row are equal.
#[derive(Debug)]
pub struct PolicyReads {
    file: PathBuf,
    may_be_empty: bool,
    /// The text of the last read.
    last: Option<String>,
}

/// The result of a read of the policy file.
#[derive(Debug)]
pub enum PolicyRead {
    /// The text is the one in force, with this number of rules.
    Unchanged(usize),
    /// The text is new. Read the file again after a moment.
    Unsettled,
    /// The policy from before stays in force.
    Kept(PolicyRefused),
    /// The policy is in force, with this number of rules.
    Applied(usize),
}

/// What a read means.
enum Meaning {
    Unchanged,
    Unsettled,
    Kept(PolicyRefused),
    Apply(Box<RuleBook>),
}

impl PolicyReads {
    /// Creates the reader of `file`. Without `may_be_empty`, a policy without a rule is refused.
    pub const fn new(file: PathBuf, may_be_empty: bool) -> Self {
        Self {
            file,
            may_be_empty,
            last: None,
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Decides what it means that `text` was read while `in_force` is in force.
    fn judge(&mut self, text: &str, in_force: &str) -> Meaning {
        let is_repeated = self.last.as_deref() == Some(text);
        if !is_repeated {
            self.last = Some(text.to_owned());
        }
        if text == in_force {
            Meaning::Unchanged
        } else if is_repeated {
            let book = parse(text, self.may_be_empty).map(Box::new);
            book.map_or_else(Meaning::Kept, Meaning::Apply)
        } else {
            Meaning::Unsettled
        }
    }
}

impl Coordinator {
    /// Reads a policy file again, and puts its text into force if that may be.
    pub fn reload_policy(&self, reads: &mut PolicyReads) -> PolicyRead {
        let text = match read(&reads.file) {
            Ok(text) => text,
            Err(why) => {
                reads.last = None;
                return PolicyRead::Kept(why);
            }
        };
        match reads.judge(&text, &self.policy_text()) {
            Meaning::Unchanged => {
                let book = self.0.limiter.policy();
                PolicyRead::Unchanged(book.map_or(0, |book| book.rules().len()))
            }
            Meaning::Unsettled => PolicyRead::Unsettled,
            Meaning::Kept(why) => PolicyRead::Kept(why),
            Meaning::Apply(book) => PolicyRead::Applied(self.use_file(&reads.file, *book, text)),
        }
    }
}

/// Reads the text of a policy file.
pub(super) fn read(file: &Path) -> Result<String, PolicyRefused> {
    let failed = |why| PolicyRefused::File {
        file: file.to_owned(),
        why,
    };
    let length = std::fs::metadata(file).map_err(failed)?.len();
    if length > POLICY_MAX as u64 {
        let why = format!("{length} bytes, at most {POLICY_MAX}");
        return Err(failed(std::io::Error::other(why)));
    }
    std::fs::read_to_string(file).map_err(failed)
}

/// Returns the rules of a policy.
///
/// # Errors
/// The text is no policy, or it has no rule and must have one.
pub(super) fn parse(text: &str, may_be_empty: bool) -> Result<RuleBook, PolicyRefused> {
    let book: RuleBook = text.parse()?;
    if book.rules().is_empty() && !may_be_empty {
        return Err(PolicyRefused::Empty);
    }
    Ok(book)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "[[rule]]\nmatch = [\"a.example\"]\nlimits = [\"5/s\"]\n";
    const NEW: &str = "[[rule]]\nmatch = [\"a.example\"]\nlimits = [\"7/s\"]\n";

    /// Returns the meaning of each of `texts` while `OLD` is in force.
    fn meanings(texts: &[&str], may_be_empty: bool) -> Vec<&'static str> {
        let mut reads = PolicyReads::new(PathBuf::new(), may_be_empty);
        let judged = texts.iter().map(|text| match reads.judge(text, OLD) {
            Meaning::Unchanged => "unchanged",
            Meaning::Unsettled => "unsettled",
            Meaning::Kept(PolicyRefused::Empty) => "empty",
            Meaning::Kept(_) => "broken",
            Meaning::Apply(_) => "apply",
        });
        judged.collect()
    }

    #[test]
    fn a_new_text_is_applied_at_the_second_equal_read() {
        assert_eq!(meanings(&[OLD, OLD], false), ["unchanged"; 2]);
        assert_eq!(meanings(&[NEW, NEW], false), ["unsettled", "apply"]);
        let written = ["", &NEW[..20], NEW, NEW];
        let expected = ["unsettled", "unsettled", "unsettled", "apply"];
        assert_eq!(meanings(&written, false), expected);
        let restored = [NEW, OLD, NEW];
        assert_eq!(
            meanings(&restored, false),
            ["unsettled", "unchanged", "unsettled"]
        );
    }

    #[test]
    fn a_text_without_a_rule_is_applied_only_if_it_may_be_empty() {
        for empty in ["", "\n", "# all rules were removed\n"] {
            assert_eq!(meanings(&[empty, empty], false), ["unsettled", "empty"]);
            assert_eq!(meanings(&[empty, empty], true), ["unsettled", "apply"]);
        }
    }

    #[test]
    fn a_text_that_was_cut_off_is_never_applied_at_once() {
        for length in 1..NEW.len() {
            let cut = &NEW[..length];
            let second = match cut.parse::<RuleBook>() {
                Ok(_) => "apply",
                Err(_) => "broken",
            };
            assert_eq!(meanings(&[cut, cut], true), ["unsettled", second], "{cut}");
            assert_eq!(meanings(&[cut, NEW], true), ["unsettled"; 2], "{cut}");
        }
    }
}
