//! Connections to one server: plain TCP, TLS 1.3, or a unix socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::cluster_names::ClusterNames;
use crate::{Address, Error, TlsOptions};

/// Time to wait for the first bytes of a server, which show that it accepted the client's certificate.
const ACCEPTED_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of the server's settings that are read ahead.
const READ_AHEAD: usize = 256;
/// Interval and timeout of HTTP/2 keepalive pings.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Who named the address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressOrigin {
    /// The user: its certificate shows the name of the cluster.
    Endpoint,
    /// Another server: its certificate must show that name (A17).
    Server,
}

/// A channel to a server. It connects with its first use, and reconnects after a failure.
pub(crate) fn channel(
    at: &Address,
    source: AddressOrigin,
    tls: Option<(&TlsOptions, &Arc<ClusterNames>)>,
    connect_timeout: Duration,
) -> Result<Channel, Error> {
    let uri = |scheme: &str| -> Result<Uri, Error> {
        let authority = if at.unix_path().is_some() { "localhost" } else { at.as_str() };
        let invalid = |error| Error::config("addr", format!("addr: {at}: {error}"));
        format!("{scheme}://{authority}").parse().map_err(invalid)
    };
    let endpoint = Endpoint::from(uri("http")?)
        .connect_timeout(connect_timeout)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    if let Some(path) = at.unix_path() {
        return unix_channel(&endpoint, path);
    }
    let Some((tls, names)) = tls else { return Ok(endpoint.connect_lazy()) };
    // The library would refuse `https` without its own TLS, whose certificates cannot be replaced while it is connected.
    let endpoint = endpoint.origin(uri("https")?);
    let (at, tls, names) = (at.clone(), tls.clone(), names.clone());
    Ok(endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let (at, tls, names) = (at.clone(), tls.clone(), names.clone());
        async move { connect_tls(&at, source, &tls, &names).await.map(TokioIo::new) }
    })))
}

#[cfg(unix)]
fn unix_channel(endpoint: &Endpoint, path: &str) -> Result<Channel, Error> {
    let path = std::path::PathBuf::from(path);
    Ok(endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    })))
}

#[cfg(not(unix))]
fn unix_channel(_: &Endpoint, path: &str) -> Result<Channel, Error> {
    Err(Error::config("addr", format!("addr: unix:{path}: this system has no unix sockets; use HOST:PORT")))
}

/// Connects, and verifies the server's certificate against the host of its address; if another server named the address, also
/// against the name of the cluster (A17).
async fn connect_tls(
    at: &Address,
    source: AddressOrigin,
    options: &TlsOptions,
    names: &ClusterNames,
) -> io::Result<ReadAheadStream> {
    let config = options.config()?;
    let name = ServerName::try_from(at.host().to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect(at.as_str()).await?;
    // Requests are small, and callers wait for the replies.
    let _ = stream.set_nodelay(true);
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or_else(|| io::Error::other("the server has no certificate"))?;
    match source {
        AddressOrigin::Endpoint => names.learn(certificate),
        AddressOrigin::Server => names.require(certificate)?,
    }
    // In TLS 1.3 a server verifies the client after the client considers the handshake complete. Without this wait a refused
    // certificate would look like a request whose outcome is unknown.
    let mut first = vec![0; READ_AHEAD];
    let read = tokio::time::timeout(ACCEPTED_TIMEOUT, stream.read(&mut first)).await;
    first.truncate(match read {
        Ok(Ok(0)) => return Err(io::Error::other("the server closed the connection after the TLS handshake")),
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(refused(error)),
        // Another kind of server, which waits for the client.
        Err(_) => 0,
    });
    Ok(ReadAheadStream { stream, first, read: 0 })
}

/// Names the cause of an alert that the server sent instead of its settings.
fn refused(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => {
            io::Error::other(format!("the server refused the certificate of this client ({alert:?})"))
        }
        _ => error,
    }
}

/// A TLS connection on which the server has sent its first bytes.
struct ReadAheadStream {
    stream: TlsStream<TcpStream>,
    /// Bytes that were read ahead.
    first: Vec<u8>,
    /// How many of them were returned.
    read: usize,
}

impl AsyncRead for ReadAheadStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let ahead = &this.first[this.read..];
        if ahead.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let bytes = ahead.len().min(buf.remaining());
        buf.put_slice(&ahead[..bytes]);
        this.read += bytes;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAheadStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
