//! The builder of a limiter whose permits come from a coordinator.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use politely_api::client::{Client, ClientError};
use politely_api::wire::NAME_MAX;
use politely_core::config::Config;
use tokio::sync::Notify;

use super::call::Transport;
use super::lock::LockClient;
use super::session::{OnUnavailable, Session};
use super::{Coordinator, Shared, driver};
use crate::backend::Backend;
use crate::clock::Clock;
use crate::limiter::{Builder, Limiter};

/// Builds a [`Limiter`] whose permits come from a coordinator.
#[derive(Clone)]
pub struct CoordinatorBuilder {
    url: String,
    client: Option<String>,
    labels: BTreeMap<String, String>,
    token: Option<String>,
    ca: Option<PathBuf>,
    on_unavailable: OnUnavailable,
    clock: Option<Clock>,
    /// Whether the builder before has limits of its own.
    has_limits: bool,
}

/// Why the limiter cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorError {
    /// The coordinator's URL or the token is invalid, or certificates cannot be read.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The client's name is not 1 to 128 bytes long.
    #[error("a client's name is 1 to 128 bytes long")]
    Name,
    /// The builder has limits, which a coordinator keeps.
    #[error("the coordinator keeps the limits; set them on `politely serve`, or with set_rate")]
    Limits,
    /// The thread for the calls cannot be started.
    #[error("no thread: {0}")]
    Thread(String),
}

impl CoordinatorBuilder {
    pub(crate) fn new(url: String, clock: Option<Clock>) -> Self {
        Self {
            url,
            client: None,
            labels: BTreeMap::new(),
            token: None,
            ca: None,
            on_unavailable: OnUnavailable::Wait,
            clock,
            has_limits: false,
        }
    }

    /// Sets the name of this worker, 1 to 128 bytes. Each worker needs a name of its own. Default:
    /// the process id and a random number.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client = Some(name.into());
        self
    }

    /// Sets the labels of this worker, at most 8: values for the names of keys in the coordinator's
    /// policy, such as `github/{token_name}`. Default: none.
    ///
    /// A name has 1 to 32 lowercase letters, digits and `_`; a value has 1 to 128 characters. The
    /// coordinator refuses requests with other labels.
    #[must_use]
    pub fn labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the coordinator's token, if it requires one.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets a PEM file with one or more certificates of authorities to trust, in addition to those
    /// of this machine.
    ///
    /// The environment variable `SSL_CERT_FILE` may name a file to trust in place of those of this
    /// machine.
    #[must_use]
    pub fn ca(mut self, pem: impl Into<PathBuf>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Sets what to do while no coordinator answers. Default: [`OnUnavailable::Wait`].
    #[must_use]
    pub const fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> Self {
        self.on_unavailable = on_unavailable;
        self
    }

    /// Builds the limiter. The coordinator need not be reachable yet.
    ///
    /// # Errors
    /// The URL, name, token or authority is invalid, the builder has limits, or the thread cannot
    /// be started.
    pub fn build(self) -> Result<Limiter, CoordinatorError> {
        let transport = Client::new(&self.url, self.token.as_deref(), self.ca.as_deref())?;
        let locks = Some(transport.clone());
        self.build_with(transport, locks)
    }

    pub(super) fn build_with(
        self,
        transport: impl Transport,
        locks: Option<Client>,
    ) -> Result<Limiter, CoordinatorError> {
        let seed = foldhash::fast::RandomState::default().hash_one(std::process::id());
        let name = || format!("{}-{:06x}", std::process::id(), seed & 0xff_ffff);
        let client = self.client.unwrap_or_else(name);
        if client.is_empty() || client.len() > NAME_MAX {
            return Err(CoordinatorError::Name);
        }
        if self.has_limits {
            return Err(CoordinatorError::Limits);
        }
        let clock = self.clock.unwrap_or_else(Clock::system);
        let session = Session::new(client.clone(), seed).labelled(self.labels);
        let shared = Arc::new(Shared {
            locks: locks.map(|http| LockClient {
                client: http,
                name: client,
            }),
            session: Mutex::new(session.going_on(self.on_unavailable)),
            clock: clock.clone(),
            wake: Notify::new(),
            ready: Notify::new(),
            call_ended: Notify::new(),
        });
        driver::start(Arc::clone(&shared), transport)?;
        let backend = Backend::Coordinator(Coordinator(shared));
        Ok(Limiter::new(backend, clock))
    }
}

impl std::fmt::Debug for CoordinatorBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoordinatorBuilder")
            .field("url", &self.url)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Takes permits from the coordinator at `url` instead of from this process.
    ///
    /// The URL is `http://127.0.0.1:7077`, for example, or begins with `https`. Several
    /// coordinators that share their keys are listed with commas: `http://a:7077,http://b:7077`.
    /// Only the clock of this builder applies. The coordinator keeps the limits, the capacity and
    /// the queues. With other limits than the default, [`CoordinatorBuilder::build`] fails.
    pub fn coordinator(self, url: impl Into<String>) -> CoordinatorBuilder {
        let has_limits = self.config != Config::default();
        #[cfg(feature = "policy")]
        let has_limits = has_limits || self.policy.is_some();
        CoordinatorBuilder {
            has_limits,
            ..CoordinatorBuilder::new(url.into(), self.clock)
        }
    }
}
