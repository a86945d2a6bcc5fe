//! The grantor, in a thread of this process: the story stops holders, not it.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_core::token::Cluster;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{Settings, start};
use tokio::sync::oneshot;

use crate::Fault;
use crate::books::RESOURCE;

/// Nothing here takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A grantor that serves until it is dropped.
pub struct Grantor {
    pub address: String,
    pub cluster: Cluster,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Grantor {
    pub fn start() -> Result<Self, Fault> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (tell, told) = channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Settings::default() };
                match start(Memory::new(), settings).await {
                    Ok(running) => {
                        tell.send(Ok((running.address.to_string(), running.issuer.cluster))).ok();
                        running
                            .until(async {
                                // Also when whoever could ask is gone.
                                stopped.await.ok();
                            })
                            .await;
                    }
                    Err(failed) => {
                        tell.send(Err(failed.to_string())).ok();
                    }
                }
            });
        });
        let (address, cluster) = told.recv()??;
        Ok(Self { address, cluster, stop: Some(stop), thread: Some(thread) })
    }

    /// Comes back when so many wait for the lease.
    pub fn until_so_many_wait(&self, count: usize) -> Result<(), Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::try_from(self.address.as_str())?;
            let until = Instant::now() + PATIENCE;
            while client.waiters(RESOURCE).await?.len() < count {
                if Instant::now() > until {
                    return Err("a worker does not come to wait".into());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }
}

impl Drop for Grantor {
    fn drop(&mut self) {
        if let (Some(stop), Some(thread)) = (self.stop.take(), self.thread.take()) {
            stop.send(()).ok();
            thread.join().ok();
        }
    }
}
