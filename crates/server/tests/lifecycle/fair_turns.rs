//! Requests of several identities in one queue: the flood of one delays no other (A12).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use leasehold_server::access::{AccessControl, AccessFile};
use leasehold_server::api;
use leasehold_server::identity::{Identity, Via, on_behalf_of};
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use leasehold_server::transport::{AllowedHosts, ListenConfig, Listener, ServeTask, TransportLimits};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::transport_clients::{GrpcClient, SessionStream, acquire, connect};
use crate::turn_size::{BlockableLocation, JournalControl, request_all, wait_for_queue};

const FLOODER: &str = "uid:1";
const WORKER: &str = "uid:2";

/// A session stream of an identity, and the listener that gives it.
async fn stream_as(server: &ServerHandle, control: &AccessControl, principal: &str) -> (SessionStream, ServeTask) {
    let (client, serving) = client_as(server, control, principal).await;
    (SessionStream::open(client).await, serving)
}

/// A client of an identity, and the listener that gives it.
pub async fn client_as(server: &ServerHandle, control: &AccessControl, principal: &str) -> (GrpcClient, ServeTask) {
    let identity = Identity { principal: principal.into(), via: Via::Uid, ..Identity::local(None) };
    let identity = Arc::new(identity);
    let identify = move |request: Request, next: Next| on_behalf_of(identity.clone(), next.run(request));
    let router = api::router(server.api().clone(), TransportLimits::default()).layer(from_fn(identify));
    let config = ListenConfig {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        insecure_listen: false,
        tls: None,
        bearers: None,
        is_restricted: true,
        limits: TransportLimits::default(),
        traffic: control.traffic().clone(),
        allowed_hosts: AllowedHosts::new([]),
    };
    let listener = Listener::bind(config).await.expect("a free port can be bound");
    let serving = listener.serve(router);
    (connect(listener.address).await, serving)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_another_identity_is_not_behind_those_that_were_queued_before_it() {
    const FLOOD: usize = 500;
    let grant = |principal: &str| format!("[[grant]]\nprincipal = {principal:?}\nrole = \"holder\"\nprefix = \"\"\n");
    let file = AccessFile::parse(&format!("{}{}", grant(FLOODER), grant(WORKER))).expect("the file is valid");
    let access = Arc::new(AccessControl::new(&file));
    let control = Arc::new(JournalControl::default());
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        access: access.clone(),
        ..ServerConfig::default()
    };
    let server = start(BlockableLocation(control.clone()), config).await.expect("a server starts on a free port");
    let (mut flooder, _serves_flooder) = stream_as(&server, &access, FLOODER).await;
    let (mut worker, _serves_worker) = stream_as(&server, &access, WORKER).await;
    let (mut blocker, _serves_blocker) = stream_as(&server, &access, WORKER).await;
    control.block(&mut blocker).await;
    let names = |of: &str, count| (0..count).map(|i| Operation::Acquire(acquire(&format!("{of}/{i}"), ""))).collect();
    let flood = request_all(&mut flooder, names("flood", FLOOD), 100);
    let work = async {
        wait_for_queue(&server, FLOOD).await;
        let queued_last = request_all(&mut worker, names("work", 1), 1);
        let unblock = async {
            wait_for_queue(&server, FLOOD + 1).await;
            control.unblock();
        };
        tokio::join!(queued_last, unblock).0
    };
    let (flooded, worked) = tokio::join!(flood, work);
    let number = |answer: &Answer| match answer {
        Answer::Granted(grant) => grant.token_number,
        other => panic!("not granted: {other:?}"),
    };
    let before = flooded.iter().filter(|answer| number(answer) < number(&worked[0])).count();
    assert!(before <= 1, "{before} requests of the flood were decided before the one of another identity");
    server.stop().await;
}
