//! Starts tasks with a name.

use std::future::Future;

use tokio::task::JoinHandle;

/// Starts a task, and names it in the log if it panics. The caller owns the task: it awaits or aborts the handle, or the
/// task ends by itself within a time that its own code bounds.
pub fn spawn_task<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "every other task is started here")]
    tokio::spawn(async move {
        let _name = PanicReport(name);
        future.await
    })
}

/// Logs the name of its task if a panic drops it.
struct PanicReport(&'static str);

impl Drop for PanicReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.0, "a task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_returns_what_its_future_returns() {
        assert_eq!(spawn_task("test", async { 7 }).await.ok(), Some(7));
    }
}
