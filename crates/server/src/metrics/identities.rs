//! Metrics of limits of identities: how close the busiest identity is to each of them.

use std::sync::atomic::AtomicU64;

use leasehold_core::refusal::Limit;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{IDENTITY_BODY_BYTES, IDENTITY_CONNECTIONS, IDENTITY_WATCHES};

/// The share of each limit that one identity uses. Identities are not named here: their number is not bounded.
pub struct IdentityMetrics {
    shares: Family<ShareLabel, Gauge<f64, AtomicU64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareLabel {
    limit: &'static str,
}

impl IdentityMetrics {
    /// Registers the metrics. Every limit starts at zero.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self { shares: Family::default() };
        let of_state = Limit::ALL.iter().filter(|limit| limit.is_of_identity()).map(|limit| limit.word());
        for limit in of_state.chain([IDENTITY_BODY_BYTES, IDENTITY_CONNECTIONS, IDENTITY_WATCHES]) {
            metrics.set(limit, 0.0);
        }
        let about = "Highest share of a limit that one identity uses, by limit; zero without access rules";
        registry.register("identity_limit_share", about, metrics.shares.clone());
        metrics
    }

    /// Sets the highest share of a limit.
    pub fn set(&self, limit: &'static str, share: f64) {
        self.shares.get_or_create(&ShareLabel { limit }).set(share);
    }
}
