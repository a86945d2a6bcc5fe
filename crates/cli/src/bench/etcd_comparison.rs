//! Comparison with etcd's own lock under the same load: one etcd lease and one key for each lock, as its users do.

use std::time::{Duration, Instant};

use super::etcd_lock::EtcdLock;

use super::report::BenchRow;
use super::session_load::Sample;
use super::{Bench, failed};
use crate::output::CommandError;

/// Connections that share the requests in flight.
const CONNECTIONS: u64 = 4;
/// Longer than any measurement, so that no lease expires.
const TTL_SECONDS: i64 = 600;

impl Bench<'_> {
    /// Closed loop, with a new name for each lock, while the servers are idle.
    pub(super) async fn etcd_lock(&mut self, in_flight: u64) -> Result<(), CommandError> {
        let seconds = Duration::from_secs(self.args.seconds);
        let Some((servers, _)) = self.system.cluster_mut() else {
            // An error only if the user named this measurement.
            return if self.args.measurements.is_empty() {
                Ok(())
            } else {
                Err(failed("the measurement `etcd` needs --cluster"))
            };
        };
        let (endpoints, before) = (servers.etcd().endpoints(), servers.etcd().cpu_time());
        let connections =
            (0..CONNECTIONS.min(in_flight)).map(|at| EtcdLock::connect(&endpoints[at as usize % endpoints.len()]));
        let connections = connections.collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
        self.progress.set_message(format!("etcd's server lock, {in_flight} in flight"));
        let began = Instant::now();
        let tasks = (0..in_flight).map(|task| {
            let etcd = connections[task as usize % connections.len()].clone();
            tokio::spawn(async move {
                let mut sample = Sample::new();
                while began.elapsed() < seconds {
                    let at = Instant::now();
                    let name = format!("/bench-etcd/{task}/{}", sample.count);
                    if !etcd.lock(&name, TTL_SECONDS).await? {
                        return Err(format!("{name} was locked already"));
                    }
                    sample.record(at, 1);
                    sample.count += 1;
                    sample.elapsed = began.elapsed();
                }
                Ok(sample)
            })
        });
        let tasks: Vec<_> = tasks.collect();
        let mut each = Vec::new();
        for task in tasks {
            let sample = task.await.map_err(|error| failed(&error.to_string()))?;
            each.push(sample.map_err(|error| failed(&error))?);
        }
        let mut total = Sample::new();
        total.add_concurrent(&each);
        let used = match self.system.cluster_mut() {
            Some((servers, _)) => servers.etcd().cpu_time().saturating_sub(before),
            None => Duration::ZERO,
        };
        let leasehold = self.rows.iter().find(|row| row.name == format!("acquire, {in_flight} in flight"));
        let ratio = leasehold.and_then(|row| row.per_second).map(|rate| rate / total.per_second());
        let mut row = BenchRow::from_sample(format!("etcd's own lease and lock, {in_flight} in flight"), &total, None);
        row = row.with("etcd CPU", used.as_secs_f64() * 1e6 / total.count.max(1) as f64, "us");
        if let Some(ratio) = ratio {
            row = row.with("leasehold is", ratio, "times");
        }
        self.rows.push(row);
        Ok(())
    }
}
