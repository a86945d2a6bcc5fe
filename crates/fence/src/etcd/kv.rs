//! The few words of etcd that a fence needs: read a key, and change keys if one of them is as it was seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tonic::transport::Channel;

use super::Change;
use crate::{Error, Lost, Refusal};
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::kv_client::KvClient;
use pb::request_op::Request;
use pb::response_op::Response;
use pb::{Compare, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest};

/// etcd's messages.
#[allow(clippy::all, reason = "generated from the description")]
pub(super) mod pb {
    tonic::include_proto!("etcdserverpb");
}

/// A key as it was seen, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its value, if there is one.
    pub(super) text: Option<String>,
    /// Which cluster answered.
    pub(super) home: String,
}

/// A way to etcd.
#[derive(Clone, Debug)]
pub(super) struct Kv {
    client: KvClient<Channel>,
    /// The highest revision seen: a lower one after it means that etcd was restored.
    revision: Arc<AtomicI64>,
}

impl Kv {
    pub(super) fn new(etcd: Channel) -> Self {
        Self { client: KvClient::new(etcd), revision: Arc::default() }
    }

    pub(super) async fn read(&self, key: &str) -> Result<Seen, Error> {
        let before = self.revision.load(Ordering::SeqCst);
        let told = self.client.clone().range(one(key)).await?.into_inner();
        let home = self.home(before, told.header.as_ref())?;
        Ok(Seen { text: value(told.kvs.first())?, home })
    }

    /// All keys below a prefix.
    pub(super) async fn below(&self, prefix: &str) -> Result<Vec<Seen>, Error> {
        let range = RangeRequest { range_end: after(prefix), ..one(prefix) };
        let before = self.revision.load(Ordering::SeqCst);
        let told = self.client.clone().range(range).await?.into_inner();
        let home = self.home(before, told.header.as_ref())?;
        told.kvs.iter().map(|kv| Ok(Seen { text: value(Some(kv))?, home: home.clone() })).collect()
    }

    /// Changes everything in one step if the key is still as it was seen, and else tells how it is.
    pub(super) async fn change(
        &self,
        key: &str,
        seen: &Seen,
        to: Option<String>,
        changes: &[Change],
    ) -> Result<Result<Seen, Seen>, Error> {
        let compare = match &seen.text {
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
        // A mark that stays is not written again: writers of one hold do not get into each other's way.
        let put = to.clone().filter(|to| seen.text.as_ref() != Some(to)).map(|to| RequestOp {
            request: Some(Request::RequestPut(PutRequest { key: key.into(), value: to.into(), lease: 0 })),
        });
        let success = put.into_iter().chain(changes.iter().map(Change::request)).collect();
        let failure = vec![RequestOp { request: Some(Request::RequestRange(one(key))) }];
        let asked = TxnRequest { compare: vec![compare], success, failure };
        let before = self.revision.load(Ordering::SeqCst);
        let told = self.client.clone().txn(asked).await?.into_inner();
        let home = self.home(before, told.header.as_ref())?;
        if told.succeeded {
            // Between looking and changing etcd was put back from a copy: what was compared is not what was checked.
            if home != seen.home {
                return Err(Refusal::Lost(Lost::Moved).into());
            }
            return Ok(Ok(Seen { text: to.or_else(|| seen.text.clone()), home }));
        }
        let Some(Response::ResponseRange(range)) = told.responses.into_iter().next().and_then(|told| told.response)
        else {
            return Err(Error::Storage("etcd did not tell the key that it compared".into()));
        };
        Ok(Err(Seen { text: value(range.kvs.first())?, home }))
    }

    /// Who answered, in the width of a mark's text.
    fn home(&self, before: i64, header: Option<&ResponseHeader>) -> Result<String, Error> {
        let header = header.ok_or_else(|| Error::Storage("etcd did not say who answers".into()))?;
        // Whoever answers after a question knows all that was answered before it.
        if header.revision < before {
            return Err(Refusal::Lost(Lost::Moved).into());
        }
        self.revision.fetch_max(header.revision, Ordering::SeqCst);
        Ok(format!("{:040x}", header.cluster_id))
    }
}

fn one(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

/// The first key behind all that begin with this.
fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// A mark is text; other bytes are no mark.
fn value(kv: Option<&pb::KeyValue>) -> Result<Option<String>, Error> {
    let text = kv.map(|kv| String::from_utf8(kv.value.clone())).transpose();
    text.map_err(|_| Error::Refused(Refusal::Lost(Lost::Unreadable)))
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Self::Storage(Box::new(status))
    }
}
