//! The marker that etcd was rolled back. It stops every server until an operator accepts the restore.

use super::client::EtcdClient;
use super::keys::JournalKeys;
use super::pb::{Compare, RequestOp, TxnRequest};

/// Leaves a marker that says what was lost, unless there is one, or `unless_changed` does not hold: then the restore may have been
/// accepted since this server read the journal. If etcd does not respond, the other servers have only their own high-water marks.
pub async fn leave_marker(client: &EtcdClient, keys: &JournalKeys, what: &str, unless_changed: Compare) {
    let key = keys.rolled_back();
    let marker = TxnRequest {
        compare: vec![Compare::absent(&key), unless_changed],
        success: vec![RequestOp::put(&key, what.as_bytes().to_vec(), 0)],
        failure: Vec::new(),
    };
    let mut attempts = client.max_attempts();
    loop {
        attempts -= 1;
        match client.txn(marker.clone()).await {
            Ok(_) => return,
            Err(error) if attempts == 0 => {
                return tracing::warn!(%error, "cannot leave a marker in etcd that it was rolled back; stop every server");
            }
            Err(_) => {}
        }
    }
}
