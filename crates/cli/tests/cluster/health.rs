//! gRPC health and reflection of a leader and a standby.

use std::time::Duration;

use leasehold_testkit::etcd::EtcdCluster;
use tokio::runtime::Runtime;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::Cluster;
use crate::support::{Server, TEST_TIMEOUT};

const SERVICES: [&str; 2] = ["", "leasehold.v1.Leasehold"];

async fn connect(server: &Server) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    HealthClient::new(endpoint.connect().await.expect("the server listens"))
}

fn check(runtime: &Runtime, server: &Server, service: &str) -> ServingStatus {
    runtime.block_on(async {
        let request = HealthCheckRequest { service: service.into() };
        let reply = connect(server).await.check(request).await.unwrap_or_else(|status| panic!("{service}: {status}"));
        reply.into_inner().status()
    })
}

fn next(runtime: &Runtime, watch: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    let message = runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, watch.message()).await });
    message.expect("a message in time").expect("no error").map(|response| response.status())
}

#[test]
fn only_the_leader_serves_by_the_health_protocol() {
    let runtime = Runtime::new().expect("a runtime");
    let mut cluster = Cluster::of(EtcdCluster::single(), 2);
    for service in SERVICES {
        assert_eq!(check(&runtime, &cluster.servers[0], service), ServingStatus::Serving, "{service}");
        assert_eq!(check(&runtime, &cluster.servers[1], service), ServingStatus::NotServing, "{service}");
    }
    let health = "grpc.health.v1.Health";
    assert_eq!(check(&runtime, &cluster.servers[1], health), ServingStatus::Serving, "it answers");
    let mut watches = Vec::new();
    for server in &cluster.servers {
        let watch = runtime.block_on(async { connect(server).await.watch(HealthCheckRequest::default()).await });
        watches.push(watch.expect("a watch").into_inner());
    }
    assert_eq!(next(&runtime, &mut watches[0]), Some(ServingStatus::Serving));
    assert_eq!(next(&runtime, &mut watches[1]), Some(ServingStatus::NotServing));
    let mut old = cluster.servers.remove(0);
    old.signal("TERM");
    assert_eq!(next(&runtime, &mut watches[0]), Some(ServingStatus::NotServing), "while it shuts down");
    assert_eq!(next(&runtime, &mut watches[0]), None, "the stream ends with the server");
    assert_eq!(old.wait(), Some(0));
    assert_eq!(next(&runtime, &mut watches[1]), None, "the stream of the standby ends when it leads, without an error");
    cluster.wait_for_leader();
    for service in SERVICES {
        // The new leader confirms that it leads.
        while check(&runtime, &cluster.servers[0], service) != ServingStatus::Serving {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
