//! Messages and service from their descriptions, without protoc.

use std::error::Error;
use std::path::Path;

use protox::prost::Message;

const ROOT: &str = "proto";
const SERVICE: &str = "proto/leasehold/v1/leasehold.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}");
    let files = protox::compile([Path::new(SERVICE)], [Path::new(ROOT)])?;
    let descriptions = Path::new(&std::env::var("OUT_DIR")?).join("leasehold.v1.bin");
    std::fs::write(descriptions, files.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::bounded_codec::BoundedCodec")
        // The rare and large are boxed, so that a batch of the frequent and small stays small.
        .boxed(".leasehold.v1.Request.operation.set_charter")
        .boxed(".leasehold.v1.Response.answer.refused")
        // They carry a secret, which must not reach a log.
        .skip_debug([
            ".leasehold.v1.Welcome",
            ".leasehold.v1.ResumeSession",
            ".leasehold.v1.Grant",
            ".leasehold.v1.CurrentLease",
            ".leasehold.v1.StampedToken",
            ".leasehold.v1.Delivery",
            ".leasehold.v1.ReadLease",
            ".leasehold.v1.WriteIntent",
            ".leasehold.v1.FillTask",
        ])
        .compile_fds(files)?;
    Ok(())
}
