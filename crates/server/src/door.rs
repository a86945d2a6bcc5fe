//! One port for everything: gRPC, HTTP, health and figures, with a bound on open connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use leasehold_wire::v1::leasehold_server::LeaseholdServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::api::{Api, Calls};
use crate::room::{Place, Room};

/// Serves until told to close.
pub async fn serve(listener: TcpListener, api: Api, room: Arc<Room>, mut closed: watch::Receiver<bool>) {
    let listener = Bounded { listener, room };
    let closing = async move {
        // The sender goes away with the server; that closes the doors too.
        let _ = closed.wait_for(|closed| *closed).await;
    };
    let served = axum::serve(listener, router(api)).with_graceful_shutdown(closing).await;
    served.expect("serving ends only by closing");
}

/// Everything that is served.
pub fn router(api: Api) -> Router {
    let calls = LeaseholdServer::new(Calls(api.clone()))
        .max_decoding_message_size(leasehold_wire::MESSAGE_BYTES)
        .max_encoding_message_size(4 * leasehold_wire::MESSAGE_BYTES);
    let grpc = tonic::service::Routes::new(calls).into_axum_router();
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .merge(crate::api::routes())
        .with_state(api)
        .merge(grpc)
}

/// Ready when a turn answers.
async fn ready(State(api): State<Api>) -> Response {
    match tokio::time::timeout(Duration::from_secs(2), api.look(|grantor| grantor.time())).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "no turn has answered for two seconds\n").into_response(),
    }
}

async fn metrics(State(api): State<Api>) -> Response {
    match api.look(|grantor| grantor.status()).await {
        Ok(status) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], api.meter.text(&status)).into_response()
        }
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem.message).into_response(),
    }
}

/// A listener that takes no more connections than it has room for; the others wait at the kernel's door.
struct Bounded {
    listener: TcpListener,
    room: Arc<Room>,
}

/// A connection and its place.
pub struct Placed {
    stream: TcpStream,
    _place: Place,
}

impl Listener for Bounded {
    type Io = Placed;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Placed, SocketAddr) {
        let place = self.room.enter().await;
        let mut told = false;
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // Answers are small and waited for.
                    let _ = stream.set_nodelay(true);
                    return (Placed { stream, _place: place }, from);
                }
                // A connection that broke while it was made, or no file handle left: the next one may do.
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!("cannot take a connection: {error}");
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

mod io_of_placed {
    //! A placed connection reads and writes like the connection it is.

    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Placed;

    impl AsyncRead for Placed {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Placed {
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
}
