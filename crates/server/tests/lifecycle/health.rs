//! gRPC health of a server that serves, decides nothing any more, or shuts down.

use leasehold_wire::problem_from_status;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::test_server::start_server;
use crate::transport_clients::{HttpConnection, with_timeout};

async fn connect(address: std::net::SocketAddr) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    HealthClient::new(endpoint.connect().await.expect("the server listens"))
}

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

async fn next(watch: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    with_timeout(watch.message()).await.expect("no error").map(|response| response.status())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_reports_each_of_its_services_until_it_shuts_down() {
    let server = start_server().await;
    let address = server.handle.address;
    let mut health = connect(address).await;
    let services = [
        "",
        "leasehold.v1.Leasehold",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    let mut watches = Vec::new();
    for service in services {
        let status = health.check(of(service)).await.expect("a known service").into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
        let mut watch = health.watch(of(service)).await.expect("a watch").into_inner();
        assert_eq!(next(&mut watch).await, Some(ServingStatus::Serving), "{service}");
        watches.push(watch);
    }
    for service in ["leasehold.v1", "Leasehold", "leasehold.v1.Leasehold/Acquire"] {
        let refused = health.check(of(service)).await.expect_err("unknown");
        assert_eq!(refused.code(), Code::NotFound, "{service}");
        let mut watch = health.watch(of(service)).await.expect("a watch may begin before the service").into_inner();
        assert_eq!(next(&mut watch).await, Some(ServingStatus::ServiceUnknown), "{service}");
    }
    let too_long = health.check(of(&"s".repeat(5_000))).await.expect_err("too long");
    assert_eq!(problem_from_status(&too_long).code, "RESOURCE_EXHAUSTED", "{too_long:?}");
    let mut http = HttpConnection::connect(address).await;
    let (status, body) = http.request("POST /grpc.health.v1.Health/Check", "", "{}").await;
    assert!(status == 400 && body.contains("content-type"), "{status} {body}");
    let stopping = tokio::spawn(server.handle.stop());
    for (watch, service) in watches.iter_mut().zip(services) {
        assert_eq!(next(watch).await, Some(ServingStatus::NotServing), "{service}");
        assert_eq!(next(watch).await, None, "{service}: the stream ends with the server");
    }
    with_timeout(stopping).await.expect("no panic");
}
