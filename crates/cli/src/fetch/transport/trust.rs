//! The certificates of servers that a run accepts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;

use super::ways::BoxError;
use crate::config::ConnectSettings;

/// Returns a TLS configuration that trusts this machine's authorities and those of `--ca`, or with
/// `--insecure` every certificate.
pub(super) fn tls(settings: &ConnectSettings) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if settings.is_insecure {
        Arc::new(Anything(Arc::clone(&provider)))
    } else {
        let own = match &settings.ca {
            None => Vec::new(),
            Some(file) => CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|why| format!("--ca {}: {why}", file.display()))?,
        };
        if let Some(file) = settings.ca.as_ref().filter(|_| own.is_empty()) {
            return Err(format!("--ca {}: no certificate in it", file.display()).into());
        }
        Arc::new(Verifier::new_with_extra_roots(own, Arc::clone(&provider))?)
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // required for a verifier that is not a list of authorities
        .with_custom_certificate_verifier(verifier);
    Ok(config.with_no_client_auth())
}

/// Accepts every certificate. The server must have its key nevertheless.
#[derive(Debug)]
struct Anything(Arc<CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
