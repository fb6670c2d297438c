//! The signature in a permit's name: a keyed hash of the permit and the client that holds it.
//!
//! A client that learns the number of another client's permit cannot report, renew or cancel it.
//! The secret is kept in the state folder across restarts. Coordinators that share an engine keep
//! the secret in a cell of it, so that each of them accepts the names of the others.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use politely::cells::Engine;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use smallvec::SmallVec;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::acquire::ENGINE_TIME;
use super::names::{MAC_LEN, Mac, Name};
use crate::cells::{CellError, Cells, FOREVER, unseal};

/// The file of the secret in the state folder.
const FILE: &str = "permits.secret";
/// The engine's cell of the secret.
const CELL: &str = "politely:permits";
/// The interval between two reads of the cell.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The pause after the engine did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// The number of earlier secrets whose names are still accepted.
const EARLIER_MAX: usize = 4;
/// The domain separation prefix of these signatures.
const LABEL: &[u8] = b"politely permit 1\0";

type Secret = [u8; 32];

/// Signs and verifies names.
pub(crate) struct Signer {
    keys: RwLock<Arc<Keys>>,
    shared: OnceLock<Shared>,
}

struct Keys {
    secret: Secret,
    signing: hmac::Key,
    earlier: Vec<hmac::Key>,
}

/// The engine that holds the secret of several coordinators.
struct Shared {
    cells: Cells,
    is_agreed: AtomicBool,
    /// The earliest time of the next read.
    next: tokio::sync::Mutex<Option<Instant>>,
}

impl Signer {
    /// Creates a signer with its own secret, which is kept in `folder` if there is one.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        let secret = match folder.map(kept) {
            None => random(),
            Some(Ok(secret)) => secret,
            Some(Err(why)) => {
                tracing::error!(
                    "cannot keep the secret of permits in {FILE}: {why}; \
                     permits of this run are late after a restart"
                );
                random()
            }
        };
        Self {
            keys: RwLock::new(Arc::new(Keys::new(secret, Vec::new()))),
            shared: OnceLock::new(),
        }
    }

    /// Shares the secret with all coordinators of `engine`.
    pub(super) fn share(&self, engine: Arc<dyn Engine>) {
        let shared = Shared {
            cells: Cells::new(engine),
            is_agreed: AtomicBool::new(false),
            next: tokio::sync::Mutex::new(None),
        };
        let _ = self.shared.set(shared);
    }

    /// Returns `name` with the signature for `client`.
    pub(super) fn sign(&self, client: &str, mut name: Name) -> Name {
        let keys = Arc::clone(&self.keys.read());
        name.mac = Some(mac(&keys.signing, client, &name));
        name
    }

    /// Returns whether `name` was granted to `client`.
    pub(super) fn is_signed(&self, client: &str, name: &Name) -> bool {
        let Some(given) = &name.mac else {
            return false;
        };
        let keys = Arc::clone(&self.keys.read());
        std::iter::once(&keys.signing)
            .chain(&keys.earlier)
            .any(|key| bool::from(mac(key, client, name).ct_eq(given)))
    }

    /// Reads the shared secret before the first name is signed or verified. Waits at most a second
    /// for the engine. While the engine is unavailable, the coordinator uses its own secret.
    pub(super) async fn agree(&self) {
        let Some(shared) = self.shared.get() else {
            return;
        };
        if shared.is_agreed.load(Ordering::Acquire) {
            return;
        }
        let mut next = shared.next.lock().await;
        let now = Instant::now();
        let is_early = next.is_some_and(|next| now < next);
        if is_early || shared.is_agreed.load(Ordering::Acquire) {
            return;
        }
        *next = Some(now + RETRY);
        self.look(shared).await;
    }

    /// Reads the cell, and writes the secret again if the engine has lost it.
    pub(super) async fn refresh(&self) {
        if let Some(shared) = self.shared.get() {
            self.look(shared).await;
        }
    }

    async fn look(&self, shared: &Shared) {
        let looked = tokio::time::timeout(ENGINE_TIME, self.exchange(&shared.cells)).await;
        if let Ok(Ok(secret)) = looked {
            self.adopt(secret);
            shared.is_agreed.store(true, Ordering::Release);
        }
    }

    /// Returns the secret of the cell. Writes this coordinator's secret into a cell without one.
    async fn exchange(&self, cells: &Cells) -> Result<Secret, CellError> {
        let name: Arc<str> = CELL.into();
        let of_value = |value: &[u8]| Secret::try_from(unseal(&name, value).ok()?).ok();
        let own = self.keys.read().secret;
        let held = cells.read(&name).await?;
        let change = |found: Option<&[u8]>| {
            let has_none = found.and_then(of_value).is_none();
            Ok::<_, CellError>(has_none.then(|| own.to_vec()))
        };
        let value = cells.update(&name, held, FOREVER, change).await?;
        Ok(value.as_deref().and_then(of_value).unwrap_or(own))
    }

    fn adopt(&self, secret: Secret) {
        let mut keys = self.keys.write();
        if keys.secret == secret {
            return;
        }
        let mut earlier = vec![keys.signing.clone()];
        earlier.extend(keys.earlier.iter().take(EARLIER_MAX - 1).cloned());
        *keys = Arc::new(Keys::new(secret, earlier));
    }
}

impl Keys {
    fn new(secret: Secret, earlier: Vec<hmac::Key>) -> Self {
        Self {
            secret,
            signing: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            earlier,
        }
    }
}

/// Hashes the permit and its client. Each part has a fixed length or a length prefix, so different
/// inputs never have the same encoding.
fn mac(key: &hmac::Key, client: &str, name: &Name) -> Mac {
    let mut text: SmallVec<[u8; 512]> = SmallVec::new();
    let mut part = |bytes: &[u8]| text.extend_from_slice(bytes);
    part(LABEL);
    part(&(client.len() as u64).to_le_bytes());
    part(client.as_bytes());
    part(&name.number.0.to_le_bytes());
    part(&name.slots.to_le_bytes());
    for (key, lease) in &name.leases {
        let key = key.as_str();
        part(&lease.0.to_le_bytes());
        part(&(key.len() as u64).to_le_bytes());
        part(key.as_bytes());
    }
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&hmac::sign(key, &text).as_ref()[..MAC_LEN]);
    mac
}

fn random() -> Secret {
    let mut secret = [0; 32];
    if SystemRandom::new().fill(&mut secret).is_err() {
        for (i, part) in secret.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&RandomState::new().hash_one(i).to_le_bytes());
        }
    }
    secret
}

/// Reads the secret in `folder`, or creates one there that only its owner can read.
fn kept(folder: &Path) -> io::Result<Secret> {
    let path = folder.join(FILE);
    match std::fs::read(&path) {
        Ok(bytes) => {
            if let Ok(secret) = bytes.try_into() {
                return Ok(secret);
            }
            tracing::warn!("{FILE} is damaged and is replaced; earlier permits are late");
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(why),
    }
    let secret = random();
    let new = folder.join("permits.secret.new");
    let mut file = crate::private::create(&new)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use politely::Clock;
    use politely::cells::Memory;
    use politely::core::gate::LeaseId;
    use politely::core::key::Key;

    use super::super::names::Number;
    use super::*;

    fn name(number: u64, slots: u16, leases: &[(&str, u64)]) -> Name {
        let lease = |(key, lease): &(&str, u64)| (Key::parse(key).unwrap(), LeaseId(*lease));
        Name {
            number: Number(number),
            slots,
            mac: None,
            leases: leases.iter().map(lease).collect(),
        }
    }

    #[test]
    fn a_signature_binds_every_part_and_the_client() {
        let signer = Signer::new(None);
        let good = signer.sign("w", name(7, 2, &[("a.example", 3)]));
        assert!(signer.is_signed("w", &good));
        let read_back: Name = good.to_string().parse().unwrap();
        assert!(signer.is_signed("w", &read_back));
        for client in ["", "W", "w2", "other"] {
            assert!(!signer.is_signed(client, &good), "{client}");
        }
        for other in [
            name(8, 2, &[("a.example", 3)]),
            name(7, 3, &[("a.example", 3)]),
            name(7, 2, &[("a.example", 4)]),
            name(7, 2, &[("b.example", 3)]),
            name(7, 2, &[]),
            name(7, 2, &[("a.example", 3), ("b.example", 1)]),
        ] {
            assert!(!signer.is_signed("w", &other), "unsigned");
            let mac = good.mac;
            assert!(!signer.is_signed("w", &Name { mac, ..other }));
        }
        assert!(!Signer::new(None).is_signed("w", &good), "another secret");
    }

    #[test]
    fn a_state_folder_keeps_the_secret_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let signed = Signer::new(Some(folder.path())).sign("w", name(1, 1, &[]));
        assert!(Signer::new(Some(folder.path())).is_signed("w", &signed));
        let file = folder.path().join(FILE);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&file, b"half").unwrap();
        assert!(!Signer::new(Some(folder.path())).is_signed("w", &signed));
    }

    #[tokio::test]
    async fn coordinators_of_one_engine_accept_each_others_names() {
        let engine = Memory::new(Clock::system());
        let signers = [(); 3].map(|()| {
            let signer = Signer::new(None);
            signer.share(Arc::new(engine.clone()));
            signer
        });
        // A name that was signed before the engine answered remains valid at its own coordinator.
        let early = signers[0].sign("w", name(1, 1, &[]));
        for signer in &signers {
            signer.agree().await;
        }
        for signer in &signers {
            let signed = signer.sign("w", name(2, 1, &[("a.example", 3)]));
            assert!(signers.iter().all(|other| other.is_signed("w", &signed)));
        }
        assert!(signers[0].is_signed("w", &early));
    }
}
