//! What one server answered, for the checks of all servers together.

use leasehold::Address;
use leasehold::json::ClusterBody;

use super::metrics_page::MetricsPage;

/// The answers of one server; none where it gave none.
pub struct ServerAnswers {
    pub address: Address,
    pub cluster: Option<ClusterBody>,
    pub metrics: Option<MetricsPage>,
}
