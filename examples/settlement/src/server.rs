//! The server, in a thread of this process. The scenario pauses holders, not the server.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold::types::Cluster;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, start};
use tokio::sync::oneshot;

use crate::AnyError;
use crate::targets::RESOURCE;

/// Generous timeout for every step, also on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A server that runs until it is dropped.
pub struct ScenarioServer {
    pub address: String,
    pub cluster: Cluster,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ScenarioServer {
    pub fn start() -> Result<Self, AnyError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (sender, started) = channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let config = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
                match start(Memory::new(), config).await {
                    Ok(running) => {
                        sender.send(Ok((running.address.to_string(), running.issuer.cluster))).ok();
                        running
                            .run_until(async {
                                // Also completes when the sender is dropped.
                                stopped.await.ok();
                            })
                            .await;
                    }
                    Err(error) => {
                        sender.send(Err(error.to_string())).ok();
                    }
                }
            });
        });
        let (address, cluster) = started.recv()??;
        Ok(Self { address, cluster, stop: Some(stop), thread: Some(thread) })
    }

    /// Waits until the lease has this number of waiters.
    pub fn wait_for_waiters(&self, count: usize) -> Result<(), AnyError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::new(self.address.as_str())?;
            let deadline = Instant::now() + TIMEOUT;
            while client.waiters(RESOURCE).await?.len() < count {
                if Instant::now() > deadline {
                    return Err("a worker did not wait in time".into());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }
}

impl Drop for ScenarioServer {
    fn drop(&mut self) {
        if let (Some(stop), Some(thread)) = (self.stop.take(), self.thread.take()) {
            stop.send(()).ok();
            thread.join().ok();
        }
    }
}
