//! Keeps a task running: restarts it after a failure or a panic, with growing pauses, while that can help.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use talaria_platform::{Backoff, CancellationToken};
use tokio::time::Instant;

/// First and longest pause before a restart. The pause doubles each time.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(60));

/// After a run of this length the next pause is the first again.
const WELL: Duration = Duration::from_secs(300);

/// Result of one run of a task.
pub enum TaskRun {
    /// There is nothing more to do.
    Finished,
    /// A restart will not help.
    Hopeless,
    /// A restart may help.
    Again,
}

/// How a supervised task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// The task had nothing more to do, or was asked to stop.
    Well,
    /// The task cannot continue.
    Lost,
}

/// Runs `task` until it is finished, hopeless or asked to stop.
pub async fn supervise<F>(name: &str, stop: &CancellationToken, mut task: impl FnMut() -> F) -> TaskEnd
where
    F: Future<Output = TaskRun>,
{
    let mut backoff = PAUSES;
    loop {
        let began = Instant::now();
        match AssertUnwindSafe(task()).catch_unwind().await {
            Ok(TaskRun::Finished) => return TaskEnd::Well,
            Ok(TaskRun::Hopeless) => return TaskEnd::Lost,
            Ok(TaskRun::Again) => {}
            Err(panic) => tracing::error!(task = name, panic = panic_words(&*panic), "a task panicked"),
        }
        if stop.is_cancelled() {
            return TaskEnd::Well;
        }
        if began.elapsed() >= WELL {
            backoff.reset();
        }
        let pause = backoff.advance();
        tracing::warn!(task = name, ?pause, "a task failed and starts again after a pause");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return TaskEnd::Well,
        }
    }
}

fn panic_words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_or_panics_runs_again_until_it_finishes() {
        let runs = Cell::new(0);
        let ended = supervise("test", &CancellationToken::new(), || async {
            runs.set(runs.get() + 1);
            match runs.get() {
                1 => TaskRun::Again,
                2 => panic!("once"),
                _ => TaskRun::Finished,
            }
        })
        .await;
        assert_eq!((ended, runs.get()), (TaskEnd::Well, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hopeless_task_is_not_tried_again() {
        let ended = supervise("test", &CancellationToken::new(), || async { TaskRun::Hopeless }).await;
        assert_eq!(ended, TaskEnd::Lost);
    }
}
