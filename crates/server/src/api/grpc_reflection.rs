//! gRPC server reflection: the services, methods and messages of this server, for generic clients such as grpcurl.
//!
//! It shows what the proto files in the repository and `/v1/openapi.json` show, and nothing of the state. It answers anyone, like them.

use tonic_reflection::server::{Builder, v1, v1alpha};

/// Largest request, in bytes: a name and the host.
const MAX_REFLECTION_MESSAGE: usize = 4 << 10;

/// The descriptions of everything that is served.
fn descriptions() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(leasehold_wire::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
        // Both versions describe each other.
        .include_reflection_service(false)
}

/// Both versions of the reflection service. Clients that were built before 2023 know only the older one.
pub fn services() -> (
    v1::ServerReflectionServer<impl v1::ServerReflection>,
    v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>,
) {
    let service = descriptions().build_v1().expect("the descriptions are part of the program");
    let alpha = descriptions().build_v1alpha().expect("the descriptions are part of the program");
    (service.max_decoding_message_size(MAX_REFLECTION_MESSAGE), alpha.max_decoding_message_size(MAX_REFLECTION_MESSAGE))
}
