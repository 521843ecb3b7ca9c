//! Work in the background that ends with its owner.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::SystemProfileWatcher;

/// A task that ends when this is dropped: at its next point of rest, and whatever it owns is dropped with it.
#[derive(Debug)]
#[must_use = "dropping it ends the task at once"]
pub struct OwnedTask {
    handle: JoinHandle<()>,
}

impl OwnedTask {
    /// Runs this on the runtime that we are on.
    ///
    /// # Panics
    ///
    /// We are on no runtime of tokio.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is what owns it")]
        Self { handle: tokio::spawn(future) }
    }

    /// Whether it has ended by itself.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Ends it, and waits until it has ended.
    pub async fn stop(mut self) {
        self.handle.abort();
        // It was cancelled, had ended, or panicked: it is over in any case.
        match (&mut self.handle).await {
            Ok(()) | Err(_) => {}
        }
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Does work that may block where that is allowed, off the threads of the runtime that we are on. `None` when it panicked,
/// or the runtime ended first. When this is dropped before it ends, the work goes on to its end.
///
/// # Panics
///
/// We are on no runtime of tokio.
pub async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// A thread with a runtime of its own that looks again and again. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the thread at once"]
pub struct WatchThread {
    stop: Arc<Notify>,
    thread: Option<thread::JoinHandle<()>>,
}

impl WatchThread {
    pub(crate) fn start(watcher: &SystemProfileWatcher) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let stop = Arc::new(Notify::new());
        let (watcher, stopped) = (watcher.clone(), Arc::clone(&stop));
        let run = move || {
            runtime.block_on(async {
                let task = watcher.start_background();
                stopped.notified().await;
                task.stop().await;
            });
            // A look that hangs is left behind.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("plimsoll-watch".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in there was told on stderr.
            drop(thread.join());
        }
    }
}
