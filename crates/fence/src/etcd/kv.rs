//! The requests to etcd that a fence needs: read keys, and change keys if the mark is unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tonic::transport::Channel;

use super::KvChange;
use super::pb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::pb::kv_client::KvClient;
use super::pb::request_op::Request;
use super::pb::response_op::Response;
use super::pb::{Compare, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest};
use crate::{Error, FenceRefusal, MarkLoss};

/// The value of a key, and the etcd cluster that returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyState {
    /// `None` if the key does not exist.
    pub(super) text: Option<String>,
    /// Id of the etcd cluster.
    pub(super) home: String,
}

/// A client of etcd.
#[derive(Clone, Debug)]
pub(super) struct Kv {
    client: KvClient<Channel>,
    /// The highest revision so far. A lower one means that etcd was restored.
    revision: Arc<AtomicI64>,
}

impl Kv {
    pub(super) fn new(etcd: Channel) -> Self {
        Self { client: KvClient::new(etcd), revision: Arc::default() }
    }

    pub(super) async fn read(&self, key: &str) -> Result<KeyState, Error> {
        let before = self.revision.load(Ordering::SeqCst);
        let reply = self.client.clone().range(range_of_key(key)).await?.into_inner();
        let home = self.cluster_id(before, reply.header.as_ref())?;
        Ok(KeyState { text: value(reply.kvs.first())?, home })
    }

    /// All keys with a prefix whose rest is that of a mark: the hash of a resource, and a slot.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<KeyState>, Error> {
        let range = RangeRequest { range_end: prefix_end(prefix), ..range_of_key(prefix) };
        let before = self.revision.load(Ordering::SeqCst);
        let reply = self.client.clone().range(range).await?.into_inner();
        let home = self.cluster_id(before, reply.header.as_ref())?;
        let marks = reply.kvs.iter().filter(|kv| kv.key.strip_prefix(prefix.as_bytes()).is_some_and(is_mark_key));
        marks.map(|kv| Ok(KeyState { text: value(Some(kv))?, home: home.clone() })).collect()
    }

    /// Sets `key` to `to` and applies the changes in one transaction, if the key is still in state `current`. Otherwise returns its
    /// new state as the inner error.
    pub(super) async fn compare_and_apply(
        &self,
        key: &str,
        current: &KeyState,
        to: Option<String>,
        changes: &[KvChange],
    ) -> Result<Result<KeyState, KeyState>, Error> {
        let compare = match &current.text {
            Some(text) => Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Value.into(),
                key: key.into(),
                target_union: Some(TargetUnion::Value(text.clone().into())),
            },
            None => Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Version.into(),
                key: key.into(),
                target_union: Some(TargetUnion::Version(0)),
            },
        };
        // An unchanged mark is not written again, so that concurrent writes of one holder do not conflict.
        let put = to.clone().filter(|to| current.text.as_ref() != Some(to)).map(|to| RequestOp {
            request: Some(Request::RequestPut(PutRequest { key: key.into(), value: to.into(), lease: 0 })),
        });
        let success = put.into_iter().chain(changes.iter().map(KvChange::request)).collect();
        let failure = vec![RequestOp { request: Some(Request::RequestRange(range_of_key(key))) }];
        let request = TxnRequest { compare: vec![compare], success, failure };
        let before = self.revision.load(Ordering::SeqCst);
        let reply = self.client.clone().txn(request).await?.into_inner();
        let home = self.cluster_id(before, reply.header.as_ref())?;
        if reply.succeeded {
            // etcd was restored from a backup between read and write: the compared value is not the checked one.
            if home != current.home {
                return Err(FenceRefusal::MarkLost(MarkLoss::Moved).into());
            }
            return Ok(Ok(KeyState { text: to.or_else(|| current.text.clone()), home }));
        }
        let Some(Response::ResponseRange(range)) = reply.responses.into_iter().next().and_then(|reply| reply.response)
        else {
            return Err(Error::Storage("the reply of etcd lacks the compared key".into()));
        };
        Ok(Err(KeyState { text: value(range.kvs.first())?, home }))
    }

    /// The id of the etcd cluster, in the width of a mark's server id.
    fn cluster_id(&self, before: i64, header: Option<&ResponseHeader>) -> Result<String, Error> {
        let header = header.ok_or_else(|| Error::Storage("the reply of etcd has no header".into()))?;
        // A reply to a request that started later cannot have a lower revision.
        if header.revision < before {
            return Err(FenceRefusal::MarkLost(MarkLoss::Moved).into());
        }
        self.revision.fetch_max(header.revision, Ordering::SeqCst);
        Ok(format!("{:040x}", header.cluster_id))
    }
}

fn range_of_key(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

/// Whether this has the shape of the key of a mark.
fn is_mark_key(key: &[u8]) -> bool {
    let is_hex = |part: &[u8]| part.iter().all(u8::is_ascii_hexdigit);
    key.len() == 25 && key[16] == b'/' && is_hex(&key[..16]) && is_hex(&key[17..])
}

/// The first key after all keys with this prefix.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// The value as text. Other bytes are not a mark.
fn value(kv: Option<&KeyValue>) -> Result<Option<String>, Error> {
    let text = kv.map(|kv| String::from_utf8(kv.value.clone())).transpose();
    text.map_err(|_| Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable)))
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Self::Storage(Box::new(status))
    }
}
