//! What etcd does by itself under the same load: a lease and a key for each lock, as its users take it.

use std::time::{Duration, Instant};

use leasehold_server::journal::etcd::Bare;

use super::line::Stretch;
use super::report::Row;
use super::{Bench, failed};
use crate::told::Failure;

/// Connections that share what is in flight.
const CONNECTIONS: u64 = 4;
/// Longer than any bench: nothing is to end meanwhile.
const TTL_SECONDS: i64 = 600;

impl Bench<'_> {
    /// Closed loop, a name for each lock, beside servers that have nothing to do.
    pub(super) async fn peer(&mut self, in_flight: u64) -> Result<(), Failure> {
        let seconds = Duration::from_secs(self.args.seconds);
        let Some((servers, _)) = self.under.several() else {
            // Whoever names it wants it; whoever wants everything gets what there is.
            return if self.args.only.is_empty() {
                Ok(())
            } else {
                Err(failed("etcd is measured beside servers over it; say --cluster"))
            };
        };
        let (endpoints, before) = (servers.etcd().endpoints(), servers.etcd().processor());
        let connections =
            (0..CONNECTIONS.min(in_flight)).map(|at| Bare::connect(&endpoints[at as usize % endpoints.len()]));
        let connections = connections.collect::<Result<Vec<_>, _>>().map_err(|why| failed(&why))?;
        self.shown.set_message(format!("etcd's own lock, {in_flight} in flight"));
        let began = Instant::now();
        let hands = (0..in_flight).map(|hand| {
            let etcd = connections[hand as usize % connections.len()].clone();
            tokio::spawn(async move {
                let mut stretch = Stretch::new();
                while began.elapsed() < seconds {
                    let at = Instant::now();
                    let name = format!("/bench-etcd/{hand}/{}", stretch.count);
                    if !etcd.lock(&name, TTL_SECONDS).await? {
                        return Err(format!("{name} was locked already"));
                    }
                    stretch.waited(at, 1);
                    stretch.count += 1;
                    stretch.took = began.elapsed();
                }
                Ok(stretch)
            })
        });
        let hands: Vec<_> = hands.collect();
        let mut each = Vec::new();
        for hand in hands {
            let ended = hand.await.map_err(|error| failed(&error.to_string()))?;
            each.push(ended.map_err(|why| failed(&why))?);
        }
        let mut whole = Stretch::new();
        whole.beside(&each);
        let used = match self.under.several() {
            Some((servers, _)) => servers.etcd().processor().saturating_sub(before),
            None => Duration::ZERO,
        };
        let ours = self.rows.iter().find(|row| row.what == format!("acquire, {in_flight} in flight"));
        let times = ours.and_then(|row| row.per_second).map(|rate| rate / whole.per_second());
        let mut row = Row::of(format!("etcd's own lease and lock, {in_flight} in flight"), &whole, None);
        row = row.with("etcd CPU", used.as_secs_f64() * 1e6 / whole.count.max(1) as f64, "us");
        if let Some(times) = times {
            row = row.with("ours is", times, "times");
        }
        self.rows.push(row);
        Ok(())
    }
}
