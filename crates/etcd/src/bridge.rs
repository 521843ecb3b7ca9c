//! From programs without a runtime to the one that the connection runs on.

use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Handle, Runtime};

/// A small runtime of our own. Whatever runs on it ends with it.
#[derive(Debug)]
pub(crate) struct Bridge {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Bridge {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("plimsoll-etcd")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(runtime), handle })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs this on the runtime and waits for it, on any thread; `None` when it panicked or the runtime ended first.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // Whoever waited may be gone.
            drop(tell.send(future.await));
        });
        told.recv().ok()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Also from within another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}
