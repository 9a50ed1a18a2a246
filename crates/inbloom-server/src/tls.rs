//! Connections in the clear and under TLS, as one type.
//!
//! rustls does the work, with the primitives of ring: TLS 1.2 and 1.3, its defaults, and nothing
//! that was a mistake of the past. There is no certificate of clients: who a client is, AUTH says.

pub mod client;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take to agree on keys. A handshake is two round trips and a signature.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A certificate and its key, ready to be shown to clients.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificates cannot be read.
    #[error("--tls-cert {}: {error}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// There is none in the file.
    #[error(
        "--tls-cert {}: no '-----BEGIN CERTIFICATE-----' in it; pass the certificate chain of the \
         server in PEM", path.display()
    )]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The key cannot be read.
    #[error(
        "--tls-key {}: {error}; pass the private key of the certificate in PEM, without a \
         passphrase", path.display()
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// They do not go together, or rustls does not take one of them.
    #[error(
        "--tls-cert {} and --tls-key {}: {error}; pass the key of this certificate",
        certificate.display(), key.display()
    )]
    Pair {
        /// The certificates.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What rustls says.
        error: rustls::Error,
    },
}

impl Tls {
    /// Reads a certificate, with those between it and the root behind it, and its private key, both
    /// in PEM.
    ///
    /// # Errors
    ///
    /// Files that cannot be read, that hold something else, or that do not go together.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let failed = |error| TlsError::Certificate { path: certificate.into(), error };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(failed)?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { path: certificate.into() });
        }
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| TlsError::Key { path: key.into(), error })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| TlsError::Pair {
                certificate: certificate.into(),
                key: key.into(),
                error,
            })?;
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    /// Agrees on keys with a client that has just come.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let handshake = tokio::time::timeout(HANDSHAKE, self.0.accept(stream));
        let stream = handshake.await.map_err(|_| {
            let seconds = HANDSHAKE.as_secs();
            io::Error::new(io::ErrorKind::TimedOut, format!("no TLS handshake in {seconds} s"))
        })??;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// A connection. One `match` for each read and each write: no table of functions, and nothing at
/// all in the way of those in the clear.
pub(crate) enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Under TLS. In a box: it is some hundred bytes, and most connections are not.
    Tls(Box<TlsStream<TcpStream>>),
    /// Neither any more, after a handshake that failed.
    Closed,
}

impl Stream {
    /// Reads what has arrived.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes as much as the socket takes at once. All was written when it has taken all bytes, and
    /// `poll_flush` is ready.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Waits for bytes that were taken, and encrypted, but not yet sent.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) | Stream::Closed => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    /// Says that nothing more is written, if the socket takes it at once. A client under TLS tells an
    /// end from a cut by it.
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let _ = match self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Closed => Poll::Ready(Ok(())),
        };
        Poll::Ready(())
    }
}
