//! Health and reflection answer anyone, show nothing of the state, and describe everything that is served.

use std::collections::BTreeSet;

use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use crate::access_server::AccessServer;
use crate::endpoints::METHODS;
use crate::transport_clients::{acquire, with_timeout};

/// Methods that answer anyone. Every other method has an action.
const OPEN: [&str; 4] = [
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// A reflection stream that stays open between its requests, as generic clients use it.
struct Reflection {
    requests: futures::channel::mpsc::UnboundedSender<ServerReflectionRequest>,
    replies: tonic::Streaming<ServerReflectionResponse>,
}

impl Reflection {
    async fn open(channel: Channel) -> Self {
        let (requests, sent) = futures::channel::mpsc::unbounded();
        let ask = |message| requests.unbounded_send(request(message)).expect("the stream is open");
        // The server sends its head when the first request has arrived.
        ask(MessageRequest::ListServices(String::new()));
        let opened = with_timeout(ServerReflectionClient::new(channel).server_reflection_info(sent)).await;
        let mut replies = opened.expect("reflection answers").into_inner();
        with_timeout(replies.message()).await.expect("a reply").expect("a reply");
        Self { requests, replies }
    }

    async fn ask(&mut self, message: MessageRequest) -> MessageResponse {
        self.requests.unbounded_send(request(message)).expect("the stream is open");
        let reply = with_timeout(self.replies.message()).await.expect("no error").expect("a reply");
        reply.message_response.expect("a result")
    }

    async fn services(&mut self) -> BTreeSet<String> {
        match self.ask(MessageRequest::ListServices(String::new())).await {
            MessageResponse::ListServicesResponse(list) => list.service.into_iter().map(|one| one.name).collect(),
            other => panic!("a list of services: {other:?}"),
        }
    }

    /// The file that describes a service.
    async fn file_of(&mut self, service: &str) -> FileDescriptorProto {
        let found = match self.ask(MessageRequest::FileContainingSymbol(service.into())).await {
            MessageResponse::FileDescriptorResponse(found) => found.file_descriptor_proto,
            other => panic!("a file: {other:?}"),
        };
        prost::Message::decode(found[0].as_slice()).expect("a description")
    }
}

fn request(message: MessageRequest) -> ServerReflectionRequest {
    ServerReflectionRequest { host: String::new(), message_request: Some(message) }
}

/// The methods of the services in a file, with their services.
fn methods(file: &FileDescriptorProto) -> impl Iterator<Item = String> {
    file.service.iter().flat_map(|service| {
        let name = format!("{}.{}", file.package(), service.name());
        service.method.iter().map(move |method| format!("{name}/{}", method.name()))
    })
}

async fn channel(address: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("it listens")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_described_method_has_an_action_or_answers_anyone() {
    let mut server = AccessServer::start(&[]).await;
    let channel = channel(server.listen_as("uid:7").await).await;
    let mut reflection = Reflection::open(channel).await;
    let mut described = BTreeSet::new();
    for service in reflection.services().await {
        described.extend(methods(&reflection.file_of(&service).await));
    }
    let of_leases = METHODS.iter().map(|(method, _)| format!("leasehold.v1.Leasehold/{method}"));
    let expected: BTreeSet<_> = of_leases.chain(OPEN.map(str::to_owned)).collect();
    assert_eq!(described, expected);
    let file = reflection.file_of("leasehold.v1.ListLeasesRequest").await;
    assert!(file.name().ends_with("view.proto") && file.source_code_info.is_some(), "{}", file.name());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_sees_health_and_descriptions_and_nothing_of_the_state() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.client_as(crate::access_server::ADMIN).await;
    admin.acquire(acquire("secret/name", "w")).await.expect("an administrator acquires");
    for principal in ["uid:7", "local", "anonymous", ""] {
        let channel = channel(server.listen_as(principal).await).await;
        let mut health = HealthClient::new(channel.clone());
        let status = health.check(HealthCheckRequest::default()).await.expect("anyone may check").into_inner();
        assert_eq!(status.status(), ServingStatus::Serving, "{principal:?}");
        let watch = health.watch(HealthCheckRequest::default()).await.expect("anyone may watch");
        let first = with_timeout(watch.into_inner().message()).await.expect("no error").expect("a status");
        assert_eq!(first.status(), ServingStatus::Serving, "{principal:?}");
        let services = Reflection::open(channel.clone()).await.services().await;
        assert_eq!(services.len(), 4, "{principal:?}: {services:?}");
        let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
        let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
        let requests = futures::stream::iter([request]);
        let mut older = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let replies = older.server_reflection_info(requests).await.expect("the older version answers too");
        let reply = replies.into_inner().message().await.expect("no error").expect("a reply");
        let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
            reply.message_response
        else {
            panic!("a list of services: {reply:?}")
        };
        assert_eq!(list.service.into_iter().map(|one| one.name).collect::<BTreeSet<_>>(), services);
    }
}

/// A stream of reflection requests breaks after 4 KiB, because a short request of anyone is answered with a whole file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflection_stream_is_bounded() {
    let server = AccessServer::start(&[]).await;
    let mut reflection = Reflection::open(channel(server.handle.address).await).await;
    let (mut answered, mut received) = (0, 0);
    let error = loop {
        let message = MessageRequest::FileContainingSymbol("leasehold.v1.Leasehold".into());
        if reflection.requests.unbounded_send(request(message)).is_err() {
            break None;
        }
        match with_timeout(reflection.replies.message()).await {
            Ok(Some(reply)) => (answered, received) = (answered + 1, received + prost::Message::encoded_len(&reply)),
            Ok(None) => break None,
            Err(status) => break Some(status),
        }
        assert!(answered < 5_000, "the stream has no limit");
    };
    // 29 bytes each; a generic client reads a few dozen files.
    assert!((100..=145).contains(&answered), "{answered} answers, then {error:?}");
    assert!(received > 4 << 10, "files were read: {received} bytes");
}

#[test]
fn the_description_of_the_messages_is_complete() {
    let set: FileDescriptorSet = prost::Message::decode(leasehold_wire::FILE_DESCRIPTOR_SET).expect("a description");
    let files: BTreeSet<_> = set.file.iter().map(|file| file.name().to_owned()).collect();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/proto/leasehold/v1");
    let names = std::fs::read_dir(folder).expect("a folder").flatten().map(|file| file.file_name());
    let protos: BTreeSet<_> = names.map(|name| format!("leasehold/v1/{}", name.to_string_lossy())).collect();
    assert_eq!(files, protos);
}
