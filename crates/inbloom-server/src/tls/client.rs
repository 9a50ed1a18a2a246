//! The other side of TLS: a client that asks a server whether it is there.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

/// Why a server cannot be trusted, or not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The certificates cannot be read.
    #[error("--tls-ca {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// There is none in the file that can be used.
    #[error(
        "--tls-ca {}: no certificate in it; pass the server's own certificate or those of its \
         authorities, in PEM", path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A name that no certificate has.
    #[error("'{name}' is not a host name; pass the one in the server's certificate as --tls-name")]
    Name {
        /// The name.
        name: String,
    },
    /// rustls says no.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Agrees on keys with the server at the other end, which has to show a certificate for `name`: one
/// that is in the file, or one that an authority in the file vouches for. Bytes go over the socket when
/// something is written or read.
pub fn connect(
    stream: TcpStream,
    name: &str,
    trusted: &Path,
) -> Result<impl Read + Write + use<>, TrustError> {
    let failed = |error| TrustError::File { path: trusted.into(), error };
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(trusted).and_then(Iterator::collect).map_err(failed)?;
    if certificates.is_empty() {
        return Err(TrustError::Empty { path: trusted.into() });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    // One that is not fit for an authority may still be the server's own.
    roots.add_parsable_certificates(certificates.iter().cloned());
    let authorities = match roots.is_empty() {
        true => None,
        false => {
            let builder =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            Some(builder.build().map_err(|error| rustls::Error::General(error.to_string()))?)
        }
    };
    let known = Known { certificates, authorities, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(known))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| TrustError::Name { name: name.to_owned() })?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, stream))
}

/// The file of the authorities that this system trusts, if it is where most have it.
pub fn system_authorities() -> Option<PathBuf> {
    let of_system = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut files = named.into_iter().chain(of_system.map(PathBuf::from));
    files.find(|path| path.is_file())
}

/// Trusts the certificates that it was given, and those that the authorities among them vouch for.
///
/// A certificate that vouches for itself is usually marked as one of an authority, which webpki
/// does not take for a server's: the user has chosen it all the same.
#[derive(Debug)]
struct Known {
    certificates: Vec<CertificateDer<'static>>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|known| known == shown) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_server_cert(shown, between, name, ocsp, now),
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What an error of reading or writing is about, if it is one of TLS.
pub fn is_about_trust(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}
