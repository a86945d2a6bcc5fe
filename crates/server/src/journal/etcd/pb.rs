//! Messages and clients of etcd's API, generated from `proto/etcd/rpc.proto`.

#![allow(missing_docs, clippy::all, reason = "generated code with etcd's names")]

tonic::include_proto!("etcdserverpb");

pub use compare::{CompareResult, CompareTarget, TargetUnion};

use prost::bytes::Bytes;

impl Compare {
    fn equal(key: &[u8], target: CompareTarget, to: TargetUnion) -> Self {
        let (result, target) = (CompareResult::Equal as i32, target as i32);
        Self { result, target, key: key.to_vec(), target_union: Some(to) }
    }

    /// The key was last changed at this revision.
    pub fn changed_at(key: &[u8], revision: i64) -> Self {
        Self::equal(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
    }

    /// The key has this value.
    pub fn has(key: &[u8], value: &[u8]) -> Self {
        Self::equal(key, CompareTarget::Value, TargetUnion::Value(value.to_vec()))
    }

    /// The key exists.
    pub fn present(key: &[u8]) -> Self {
        let result = CompareResult::Greater as i32;
        Self { result, ..Self::equal(key, CompareTarget::Version, TargetUnion::Version(0)) }
    }

    /// The key does not exist.
    pub fn absent(key: &[u8]) -> Self {
        Self::equal(key, CompareTarget::Create, TargetUnion::CreateRevision(0))
    }
}

impl RequestOp {
    pub fn put(key: &[u8], value: impl Into<Bytes>, lease: i64) -> Self {
        let put = PutRequest { key: key.to_vec(), value: value.into(), lease };
        Self { request: Some(request_op::Request::RequestPut(put)) }
    }

    pub fn get(key: &[u8]) -> Self {
        let range = RangeRequest { key: key.to_vec(), ..Default::default() };
        Self { request: Some(request_op::Request::RequestRange(range)) }
    }

    pub fn delete(from: &[u8], end: &[u8]) -> Self {
        let delete = DeleteRangeRequest { key: from.to_vec(), range_end: end.to_vec() };
        Self { request: Some(request_op::Request::RequestDeleteRange(delete)) }
    }
}

impl TxnResponse {
    /// The result of the get at an index of the executed branch.
    pub fn got(&self, at: usize) -> Option<&KeyValue> {
        match self.responses.get(at)?.response.as_ref()? {
            response_op::Response::ResponseRange(range) => range.kvs.first(),
            _ => None,
        }
    }
}
