//! The handshake of one connection: its TLS stream, and the identity that its certificate proves.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use super::certificate;
use super::membership::Membership;
use super::state::TlsHandle;
use crate::identity::{Identity, Via};

/// First byte of every TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Reply to an HTTP/1 request without TLS.
const PLAINTEXT_REPLY: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 55\r\nconnection: close\r\n\r\n\
                                 this port requires TLS 1.3; use https:// in the address";
/// Bytes of such a request that are read, so that its sender reads the reply.
const PLAINTEXT_BYTES: u64 = 64 << 10;
/// Time to read them.
const PLAINTEXT_TIMEOUT: Duration = Duration::from_secs(1);

/// An accepted connection.
pub struct TlsPeer {
    /// The encrypted stream.
    pub stream: TlsStream<TcpStream>,
    /// Who the peer is.
    pub identity: Identity,
    /// Whether it still belongs here; none without a certificate.
    pub membership: Option<Arc<Membership>>,
    /// Whether the peer chose HTTP/2.
    pub is_http2: bool,
}

/// A handshake failed.
#[derive(Debug)]
pub enum HandshakeError {
    /// The peer does not speak TLS.
    Plaintext,
    /// The connection ended.
    Io(io::Error),
    /// TLS failed: the peer's version, certificate or message.
    Tls(Error),
}

impl HandshakeError {
    /// The result in metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Io(_) => "closed",
            Self::Tls(Error::NoCertificatesPresented) => "no_certificate",
            Self::Tls(Error::InvalidCertificate(_)) => "certificate",
            Self::Tls(Error::PeerIncompatible(_)) => "version",
            Self::Tls(_) => "protocol",
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plaintext => f.write_str("the peer does not speak TLS"),
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(tls) => Self::Tls(tls.clone()),
            None => Self::Io(error),
        }
    }
}

/// Reads the ClientHello. Until it is complete the peer costs no more than its bytes.
pub async fn read_hello(mut stream: TcpStream) -> Result<StartHandshake<TcpStream>, HandshakeError> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    if first[0] != HANDSHAKE_RECORD {
        let _ = tokio::time::timeout(PLAINTEXT_TIMEOUT, refuse_plaintext(&mut stream, first[0])).await;
        return Err(HandshakeError::Plaintext);
    }
    Ok(LazyConfigAcceptor::new(Acceptor::default(), stream).await?)
}

/// Performs the rest of the handshake. Nothing of HTTP is read before the peer's certificate is verified (A2). Without a certificate,
/// where that is allowed, the peer is anonymous, and each request must prove its identity.
pub async fn accept(
    hello: StartHandshake<TcpStream>,
    tls: &Arc<TlsHandle>,
    peer: SocketAddr,
) -> Result<TlsPeer, HandshakeError> {
    // The epoch of this configuration: bundles that change during the handshake are compared afterwards.
    let (config, epoch) = tls.config();
    let stream = hello.into_stream(config).await?;
    let (_, connection) = stream.get_ref();
    let is_http2 = connection.alpn_protocol() == Some(b"h2");
    let Some(chain) = connection.peer_certificates() else {
        // rustls has refused the handshake already if a certificate is required.
        return match tls.certificate_optional() {
            true => Ok(TlsPeer { stream, identity: Identity::anonymous(Some(peer)), membership: None, is_http2 }),
            false => Err(HandshakeError::Tls(Error::NoCertificatesPresented)),
        };
    };
    let chain: Vec<_> = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
    let malformed = || HandshakeError::Tls(Error::NoCertificatesPresented);
    let certificate = chain.first().ok_or_else(malformed)?;
    let name = certificate::PeerName::of_client(certificate).map_err(|_| malformed())?;
    let (_, not_after) = certificate::validity(certificate).ok_or_else(malformed)?;
    let identity = Identity {
        principal: name.principal().into(),
        via: Via::Certificate,
        credential: certificate::credential(certificate).into(),
        peer: Some(peer),
        not_after: Some(not_after),
    };
    let membership = Some(Membership::new(tls.clone(), chain, not_after, epoch));
    Ok(TlsPeer { stream, identity, membership, is_http2 })
}

/// Answers an HTTP/1 request, and reads it, because a close with unread bytes would discard the reply.
async fn refuse_plaintext(stream: &mut TcpStream, first: u8) -> io::Result<()> {
    if !first.is_ascii_uppercase() {
        return Ok(());
    }
    let mut head = [0; 4];
    let peeked = stream.peek(&mut head).await?;
    if head[..peeked].starts_with(b"PRI") {
        return Ok(());
    }
    stream.write_all(PLAINTEXT_REPLY).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(PLAINTEXT_BYTES), &mut tokio::io::sink()).await.map(drop)
}
