//! The policy in force: an operator's rules, from a file.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use parking_lot::{Mutex, RwLock};
use politely::core::key::Key;
use politely::policy::{CLIENT, PolicyError, RuleBook, is_label_value, may_bring};
use politely::{Plan, RequestView};
use politely_api::wire::{self, EventKind, Item};
use smallvec::SmallVec;
use url::Url;

use super::Coordinator;
use super::names::KEYS_MAX;
use super::policy_reads;
use super::report::error;
use crate::cells::CellError;

/// The text of the policy in force, and its file. The limiter has its rules.
#[derive(Default)]
pub(super) struct Rules {
    text: RwLock<String>,
    file: Mutex<Option<PathBuf>>,
    /// Whether the policy was read from the file and is not in the engine yet.
    is_unpublished: AtomicBool,
}

/// Why a policy is not put into force. The one before stays.
#[derive(Debug, thiserror::Error)]
pub enum PolicyRefused {
    /// The text is no policy.
    #[error(transparent)]
    Wrong(#[from] PolicyError),
    /// The policy has no rule.
    #[error("the policy has no rule, so it would lift all limits of rules")]
    Empty,
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
    /// The engine did not take the policy.
    #[error("the engine did not take the policy: {0}")]
    Engine(String),
}

impl From<CellError> for PolicyRefused {
    fn from(why: CellError) -> Self {
        Self::Engine(why.to_string())
    }
}

impl Rules {
    /// Returns the text of a policy that was read from the file and is not in the engine yet.
    pub(super) fn unpublished(&self) -> Option<String> {
        let is_unpublished = self.is_unpublished.load(Ordering::Acquire);
        is_unpublished.then(|| self.text.read().clone())
    }

    /// Notes that `text` is in the engine.
    pub(super) fn published(&self, text: &str) {
        if *self.text.read() == text {
            self.is_unpublished.store(false, Ordering::Release);
        }
    }
}

impl Coordinator {
    /// Puts the policy of `file` into force. Returns the number of its rules.
    ///
    /// # Errors
    /// The file cannot be read, it is no policy, or it has no rule and not `may_be_empty`. The
    /// policy before stays in force.
    pub fn load_policy(&self, file: &Path, may_be_empty: bool) -> Result<usize, PolicyRefused> {
        let text = policy_reads::read(file)?;
        let book = policy_reads::parse(&text, may_be_empty)?;
        Ok(self.use_file(file, book, text))
    }

    /// Puts the policy of `file` into force. Returns the number of its rules.
    pub(super) fn use_file(&self, file: &Path, book: RuleBook, text: String) -> usize {
        *self.0.rules.file.lock() = Some(file.to_owned());
        let is_new = *self.0.rules.text.read() != text;
        let count = self.put_in_force(book, text);
        if is_new {
            self.0.rules.is_unpublished.store(true, Ordering::Release);
        }
        count
    }

    /// Writes `text` into the engine and to the policy file, and puts it into force. Returns the
    /// number of its rules.
    ///
    /// # Errors
    /// The text is no policy, it has no rule and not `may_be_empty`, or it cannot be written. The
    /// policy before stays in force.
    pub(crate) async fn replace_policy(
        &self,
        text: String,
        may_be_empty: bool,
    ) -> Result<usize, PolicyRefused> {
        let has_place = self.0.policy_cell.get().is_some() || self.0.rules.file.lock().is_some();
        if !has_place {
            return Err(PolicyRefused::NoFile);
        }
        let (text, book) = apart(move || {
            let book = policy_reads::parse(&text, may_be_empty)?;
            Ok((text, book))
        })
        .await?;
        self.publish_policy(&text).await?;
        self.keep_and_follow(book, text).await
    }

    /// Puts the policy of another coordinator into force, and writes it to the policy file.
    pub(super) async fn follow_policy(&self, text: String) -> Result<(), PolicyRefused> {
        let (text, book) = apart(move || {
            let book = text.parse::<RuleBook>()?;
            Ok((text, book))
        })
        .await?;
        self.keep_and_follow(book, text).await?;
        let text = "the policy was changed by another coordinator";
        self.0.watch.announce(EventKind::Config, None, text);
        Ok(())
    }

    async fn keep_and_follow(&self, book: RuleBook, text: String) -> Result<usize, PolicyRefused> {
        let coordinator = self.clone();
        apart(move || {
            let file = coordinator.0.rules.file.lock();
            if let Some(path) = file.as_ref() {
                write(path, &text).map_err(|why| PolicyRefused::File {
                    file: path.clone(),
                    why,
                })?;
            }
            drop(file);
            Ok(coordinator.put_in_force(book, text))
        })
        .await
    }

    /// Returns the text of the policy in force.
    pub(crate) fn policy_text(&self) -> String {
        self.0.rules.text.read().clone()
    }

    fn put_in_force(&self, book: RuleBook, text: String) -> usize {
        let count = book.rules().len();
        self.0.limiter.set_policy(book);
        *self.0.rules.text.write() = text;
        count
    }

    /// Returns what the policy says about an item, and adds the keys of its rules to `keys`. `url`
    /// is the URL of the request, if it names one. Returns `None` if there is neither a URL nor a
    /// policy.
    ///
    /// # Errors
    /// A label is missing, or there are too many keys.
    pub(super) fn plan(
        &self,
        asked: &Item,
        client: &str,
        url: Option<&Url>,
        keys: &mut SmallVec<[Key; 1]>,
    ) -> Result<Option<Arc<Plan>>, wire::Error> {
        if url.is_none() && !self.0.limiter.has_policy() {
            return Ok(None);
        }
        let method = method_of(asked.method.as_deref());
        let method = method.ok_or_else(|| error("method", "is not a method"))?;
        let labels = |name: &str| match name {
            CLIENT => Some(client),
            name => asked.labels.get(name).map(String::as_str),
        };
        let plan = self.0.limiter.plan(RequestView {
            keys: keys.to_vec(),
            url,
            method: &method,
            labels: &|name| labels(name),
        });
        let plan = plan.map_err(|missing| error("labels", &missing.to_string()))?;
        let added = &plan.keys().as_slice()[keys.len()..];
        keys.extend(added.iter().cloned());
        if keys.len() > KEYS_MAX {
            let detail = format!("with the keys of the policy there are more than {KEYS_MAX} keys");
            return Err(error("also", &detail));
        }
        Ok(Some(Arc::new(plan)))
    }
}

/// Checks the labels of an item, or of a call of the frontier.
pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), wire::Error> {
    if labels.len() > wire::LABELS_MAX {
        return Err(error("labels", "at most 8 labels"));
    }
    for (name, value) in labels {
        if !may_bring(name) {
            let shown: String = name.chars().take(40).collect();
            let detail = format!(
                "\"{}\" is no label; use 1 to 32 lowercase letters, digits and `_`, but not `host`, \
                 `site` or `client`",
                shown.escape_debug()
            );
            return Err(error("labels", &detail));
        }
        if !is_label_value(value) {
            let rule = "must have 1 to 128 characters and no control characters";
            return Err(error(&format!("labels.{name}"), rule));
        }
    }
    Ok(())
}

/// Returns a method, or GET if the request names none.
pub(super) fn method_of(name: Option<&str>) -> Option<Method> {
    match name {
        None => Some(Method::GET),
        Some(name) => Method::from_bytes(name.as_bytes()).ok(),
    }
}

/// Runs `work` where it delays no call: a policy of 100,000 rules takes a moment.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PolicyRefused> + Send + 'static,
) -> Result<T, PolicyRefused> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(PolicyRefused::Engine("its task was cancelled".to_owned())))
}

/// Replaces the file at `path` as a whole, so that a crash leaves the old text or the new one. A
/// link stays, and the file that it names is replaced.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
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
