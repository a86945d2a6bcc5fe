//! Changes of a fenced transaction.

use super::pb::request_op::Request;
use super::pb::{DeleteRangeRequest, PutRequest, RequestOp};

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvChange {
    key: Vec<u8>,
    /// `None` deletes the key.
    value: Option<Vec<u8>>,
}

impl KvChange {
    /// Sets the value of a key.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: Some(value.into()) }
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: None }
    }

    pub(super) fn touches(&self, key: &str) -> bool {
        self.key == key.as_bytes()
    }

    pub(super) fn request(&self) -> RequestOp {
        let key = self.key.clone();
        RequestOp {
            request: Some(match &self.value {
                Some(value) => Request::RequestPut(PutRequest { key, value: value.clone(), lease: 0 }),
                None => Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() }),
            }),
        }
    }
}
