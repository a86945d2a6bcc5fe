//! Generates the etcd client from `proto/etcd/rpc.proto` and the messages of OTLP from `proto/otlp/trace.proto`, without protoc.

use std::error::Error;
use std::path::Path;

const ROOT: &str = "proto";
const ETCD: &str = "proto/etcd/rpc.proto";
const OTLP: &str = "proto/otlp/trace.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}");
    let files = protox::compile([Path::new(ETCD)], [Path::new(ROOT)])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".etcdserverpb.KeyValue.value")
        .bytes(".etcdserverpb.PutRequest.value")
        // They contain a password and a token, which must not be logged.
        .skip_debug([".etcdserverpb.AuthenticateRequest", ".etcdserverpb.AuthenticateResponse"])
        .compile_fds(files)?;
    let files = protox::compile([Path::new(OTLP)], [Path::new(ROOT)])?;
    tonic_prost_build::configure().build_server(false).build_client(false).compile_fds(files)?;
    Ok(())
}
