//! One server's place in etcd: a lease that is over soon after the server is, the server's entry among those who may lead,
//! and the leader key while it leads.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::keys::Keys;
use super::pb::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use super::reach::Reach;
use super::trouble::Trouble;
use crate::secret;

/// How often the lease is kept alive, and how long one try may take: several times within the shortest that etcd allows.
const BEAT: Duration = Duration::from_millis(400);

/// Which writer somebody is: when the leader key was last changed, and to what. Compared in every transaction: a key that
/// was deleted and written again has another revision, and a revision that comes again after a restore another nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The revision of that change.
    pub revision: i64,
    /// Address and nonce.
    pub value: Vec<u8>,
}

impl Generation {
    /// True only while this writer leads.
    pub fn leads(&self, keys: &Keys) -> Vec<Compare> {
        let leader = keys.leader();
        vec![Compare::changed_at(&leader, self.revision), Compare::has(&leader, &self.value)]
    }

    /// Whether this is what the leader key says.
    pub fn is(&self, leader: Option<&KeyValue>) -> bool {
        leader.is_some_and(|leader| leader.mod_revision == self.revision && leader.value == self.value)
    }
}

/// A server's place in etcd.
pub struct Hold {
    reach: Arc<Reach>,
    keys: Keys,
    lease: i64,
    nonce: String,
    value: Vec<u8>,
    beating: JoinHandle<()>,
}

impl Hold {
    /// Begins a lease, keeps it alive, and stands among those who may lead.
    pub async fn begin(reach: Arc<Reach>, keys: Keys, address: &str, ttl: i64) -> Result<Self, Trouble> {
        let granted = reach.grant(ttl).await?;
        let lease = granted.id;
        let mut nonce = String::new();
        for byte in secret::draw::<16>() {
            // Writing to a text does not fail.
            let _ = write!(nonce, "{byte:02x}");
        }
        let value = format!("{address} {nonce}").into_bytes();
        // It may be longer than was asked for.
        let lasts = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        let beating = tokio::spawn(beat(reach.clone(), keys.clone(), lease, lasts));
        let hold = Self { reach, keys, lease, nonce, value, beating };
        let entry = RequestOp::put(&hold.keys.member(&hold.nonce), hold.value.clone(), lease);
        hold.reach.txn(TxnRequest { success: vec![entry], ..Default::default() }).await?;
        Ok(hold)
    }

    /// Whether the lease is known to be over: this server was away for longer than it lasts.
    pub fn is_over(&self) -> bool {
        self.beating.is_finished()
    }

    /// Who leads now.
    pub async fn leader(&self) -> Result<Option<KeyValue>, Trouble> {
        let range = RangeRequest { key: self.keys.leader(), ..Default::default() };
        Ok(self.reach.range_tried(range).await?.kvs.pop())
    }

    /// Leads if nobody does. None if somebody was faster.
    pub async fn claim(&self) -> Result<Option<Generation>, Trouble> {
        self.claim_if(Compare::absent(&self.keys.leader())).await
    }

    /// Leads whoever did: the old leader's lease is revoked, and what it sends from now on is refused.
    pub async fn claim_by_force(&self) -> Result<Option<Generation>, Trouble> {
        let Some(old) = self.leader().await? else { return self.claim().await };
        let mine = self.claim_if(Compare::changed_at(&old.key, old.mod_revision)).await?;
        if mine.is_some() && old.lease != self.lease {
            // If it is over already, or cannot be reached now, it ends by itself.
            let _ = self.reach.revoke(old.lease).await;
        }
        Ok(mine)
    }

    async fn claim_if(&self, unchanged: Compare) -> Result<Option<Generation>, Trouble> {
        let leader = self.keys.leader();
        let claim = TxnRequest {
            compare: vec![unchanged],
            success: vec![RequestOp::put(&leader, self.value.clone(), self.lease)],
            failure: vec![RequestOp::get(&leader)],
        };
        let mut tries = self.reach.tries();
        loop {
            tries -= 1;
            match self.reach.txn(claim.clone()).await {
                Ok(told) if told.succeeded => {
                    let revision = told.header.map_or(0, |header| header.revision);
                    return Ok(Some(Generation { revision, value: self.value.clone() }));
                }
                // An earlier try may have come through without a word.
                Ok(told) => return Ok(told.got(0).and_then(|leader| self.given(leader))),
                Err(Trouble::Unknown(_) | Trouble::Behind) if tries > 0 => {}
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// The generation, if the leader key names this server.
    pub fn given(&self, leader: &KeyValue) -> Option<Generation> {
        let own = leader.value == self.value;
        own.then(|| Generation { revision: leader.mod_revision, value: self.value.clone() })
    }

    /// Gives the leader key to another server in one transaction, and tells its address. None if there is nobody to take
    /// it, or if it was not this server's any more.
    pub async fn hand_over(&self, mine: &Generation) -> Option<String> {
        let (key, range_end) = self.keys.members();
        let told = self.reach.range_tried(RangeRequest { key, range_end, ..Default::default() }).await.ok()?;
        let own = self.keys.member(&self.nonce);
        for other in told.kvs.iter().filter(|other| other.key != own && other.lease != 0) {
            let mut compare = mine.leads(&self.keys);
            compare.push(Compare::changed_at(&other.key, other.mod_revision));
            let give = RequestOp::put(&self.keys.leader(), other.value.clone(), other.lease);
            let given = self.reach.txn(TxnRequest { compare, success: vec![give], failure: Vec::new() }).await;
            if given.is_ok_and(|told| told.succeeded) {
                return Some(address(&other.value));
            }
        }
        None
    }

    /// Leaves at once: what hangs on the lease goes with it.
    pub async fn end(&self) {
        self.beating.abort();
        // Where etcd cannot be reached, the lease ends by itself.
        let _ = self.reach.revoke(self.lease).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

/// Where the server is that a leader or member key names.
pub fn address(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split_once(' ').map_or_else(|| text.to_string(), |(address, _)| address.to_owned())
}

/// Keeps a lease alive as long as it can be. Whether somebody leads is never asked here: a key can go while its lease lives.
async fn beat(reach: Arc<Reach>, keys: Keys, lease: i64, lasts: Duration) {
    let mut heard = Instant::now();
    loop {
        tokio::time::sleep(BEAT).await;
        // An etcd that hears this server and is not heard by it would keep the leader key for one that can do nothing with
        // it. So after so long a silence it asks first, in a way that keeps nothing alive.
        if heard.elapsed() > lasts {
            if reach.range(RangeRequest { key: keys.leader(), ..Default::default() }).await.is_err() {
                continue;
            }
            heard = Instant::now();
        }
        match tokio::time::timeout(BEAT, reach.keep_alive(lease)).await {
            Ok(Ok(0) | Err(Trouble::LeaseGone)) => return,
            Ok(Ok(_)) => heard = Instant::now(),
            Ok(Err(_)) => {}
            // Whoever is silent for so long may stay so for longer than the lease lasts.
            Err(_) => reach.turn(),
        }
    }
}
