//! The policy in force: an operator's rules, from a file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use politely::core::key::Key;
use politely::policy::{POLICY_MAX, PolicyError, RuleBook, Verdict};
use smallvec::SmallVec;
use url::Url;

use super::Coordinator;

/// The rules in force and their file.
#[derive(Default)]
pub(super) struct Rules {
    now: RwLock<Arc<Policy>>,
    /// Whether a policy was ever in force. Keys may then have limits of rules that are gone.
    were_any: AtomicBool,
    file: Mutex<Option<PathBuf>>,
}

#[derive(Default)]
struct Policy {
    book: RuleBook,
    text: String,
}

/// Why a policy is not put into force. The one before stays.
#[derive(Debug, thiserror::Error)]
pub enum PolicyRefused {
    /// The text is no policy.
    #[error(transparent)]
    Wrong(#[from] PolicyError),
    /// The file cannot be read or written.
    #[error("cannot use the policy file {}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error.
        why: std::io::Error,
    },
    /// The coordinator has no policy file.
    #[error("the coordinator has no policy file; start it with --policy FILE")]
    NoFile,
}

impl Coordinator {
    /// Puts the policy of `file` into force. Returns the number of its rules.
    ///
    /// # Errors
    /// The file cannot be read, or it is no policy. The policy before stays in force.
    pub fn load_policy(&self, file: &Path) -> Result<usize, PolicyRefused> {
        let failed = |why| PolicyRefused::File {
            file: file.to_owned(),
            why,
        };
        let length = std::fs::metadata(file).map_err(failed)?.len();
        if length > POLICY_MAX as u64 {
            let why = format!("{length} bytes, at most {POLICY_MAX}");
            return Err(failed(std::io::Error::other(why)));
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        let book: RuleBook = text.parse()?;
        *self.0.rules.file.lock() = Some(file.to_owned());
        Ok(self.put_in_force(book, text))
    }

    /// Writes `text` to the policy file and puts it into force. Returns the number of its rules.
    ///
    /// # Errors
    /// The text is no policy, or the file cannot be written. The policy before stays in force.
    pub(crate) fn replace_policy(&self, text: String) -> Result<usize, PolicyRefused> {
        let book: RuleBook = text.parse()?;
        let file = self.0.rules.file.lock();
        let path = file.as_ref().ok_or(PolicyRefused::NoFile)?;
        write(path, &text).map_err(|why| PolicyRefused::File {
            file: path.clone(),
            why,
        })?;
        Ok(self.put_in_force(book, text))
    }

    /// Returns the text of the policy in force.
    pub(crate) fn policy_text(&self) -> String {
        self.0.rules.now.read().text.clone()
    }

    fn put_in_force(&self, book: RuleBook, text: String) -> usize {
        let count = book.rules().len();
        self.0.rules.were_any.store(true, Ordering::Relaxed);
        *self.0.rules.now.write() = Arc::new(Policy { book, text });
        count
    }

    /// Gives each key the limits of its rule, and adds the keys of accounts. `url` is the URL of the
    /// request, if it names one.
    pub(super) fn apply_rules(&self, url: Option<&Url>, keys: &mut SmallVec<[Key; 1]>) {
        if !self.0.rules.were_any.load(Ordering::Relaxed) {
            return;
        }
        let policy = Arc::clone(&self.0.rules.now.read());
        let mut accounts: SmallVec<[Key; 1]> = SmallVec::new();
        for (i, key) in keys.iter().enumerate() {
            let verdict = match url.filter(|_| i == 0) {
                Some(url) => policy.book.of_url(url, key),
                None => policy.book.of_key(key),
            };
            // If there is no room for the key, the request for a permit fails with that error.
            let own = verdict.and_then(Verdict::own_limits);
            let _ = self.0.limiter.follow_rule(key, own);
            if let Some((account, limits)) = verdict.and_then(Verdict::account) {
                let _ = self.0.limiter.follow_rule(account, Some(limits));
                if !keys.contains(account) && !accounts.contains(account) {
                    accounts.push(account.clone());
                }
            }
        }
        keys.extend(accounts);
    }
}

/// Replaces the file at `path` as a whole, so that a crash leaves the old text or the new one.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = std::fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
