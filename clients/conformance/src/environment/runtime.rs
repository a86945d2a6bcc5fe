//! The runtime of the services that the runner itself offers.

use std::sync::OnceLock;

use tokio::runtime::Runtime;

/// One runtime for the whole process.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("services").enable_all().build().expect("a runtime")
    })
}
