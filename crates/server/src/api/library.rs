//! What the libraries below say about a message, as a problem.

use leasehold_wire::{Code, METADATA_CODE, from_status, v1};
use tonic::Status;

/// What is wrong with a message. None if it is not the message: the connection broke, or the peer gave up.
pub fn of_library(status: &Status) -> Option<v1::Problem> {
    if status.metadata().contains_key(METADATA_CODE) {
        return Some(from_status(status));
    }
    match status.code() {
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => {
            let max = leasehold_wire::ASK_BYTES as u64;
            let told = v1::Problem::of(Code::ResourceExhausted, "too many bytes in one message; send less at once");
            Some(v1::Problem { limit: "message_bytes".into(), max: Some(max), ..told })
        }
        tonic::Code::Unimplemented => {
            let said = "no such call in this version; compare the versions of both sides";
            Some(v1::Problem {
                field: "method".into(),
                want: Some(1),
                ..v1::Problem::of(Code::UnsupportedVersion, said)
            })
        }
        tonic::Code::Internal | tonic::Code::InvalidArgument => {
            let said = "not a message of this service; check the versions of both sides";
            Some(v1::Problem::of(Code::FrameError, said))
        }
        _ => None,
    }
}
