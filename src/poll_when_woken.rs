//! Polls a future only after its own waker fired, not on every wake-up of the enclosing `select!`.
//!
//! A task that waits for several futures polls all of them whenever one moves. On the path of every delta of
//! every stream that is too expensive: a stop that almost never comes would be polled a hundred times, each
//! time behind a lock that all streams share.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
/// Wraps `future` so that it is polled only when it was woken itself, not with every wake-up of its task.
pub fn poll_when_woken<F: Future>(future: F) -> PollWhenWoken<F> {
    let bell = Arc::new(WakeFlag { rung: AtomicBool::new(true), task: Mutex::default() });
    PollWhenWoken { future: Box::pin(future), waker: bell.clone().into(), bell, task: None }
}

/// Made by [`poll_when_woken`].
pub struct PollWhenWoken<F> {
    future: Pin<Box<F>>,
    bell: Arc<WakeFlag>,
    /// `bell` as the waker that the future gets.
    waker: Waker,
    /// The task that `bell` wakes; kept here too, so that comparing it takes no lock.
    task: Option<Waker>,
}

/// Flag and task that the future's waker sets and wakes.
struct WakeFlag {
    /// Set before the task is woken, so that the woken task finds it set.
    rung: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl<F> PollWhenWoken<F> {
    /// The future, to change it. It is polled next time, because it may be ready at another time now.
    pub fn change(&mut self) -> Pin<&mut F> {
        self.bell.rung.store(true, Ordering::Relaxed);
        self.future.as_mut()
    }
}

impl<F: Future> Future for PollWhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            this.task = Some(cx.waker().clone());
            this.bell.set(cx.waker().clone());
        }
        // Read before swapped: most polls end here, and a read keeps the cache line shared between cores.
        if !this.bell.rung.load(Ordering::Acquire) || !this.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

impl WakeFlag {
    fn set(&self, task: Waker) {
        *self.task.lock() = Some(task);
        // A wake-up just before this went to the previous task.
        self.rung.store(true, Ordering::Release);
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    async fn look_at(waiting: &mut (impl Future<Output = ()> + Unpin)) {
        tokio::select! {
            biased;
            () = waiting => panic!("it is not time yet"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test]
    async fn what_others_do_does_not_have_it_polled() {
        let (polls, done) = (AtomicUsize::new(0), Notify::new());
        let mut waiting = poll_when_woken(async {
            let mut notified = Box::pin(done.notified());
            std::future::poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                notified.as_mut().poll(cx)
            })
            .await;
        });
        for _ in 0..10 {
            tokio::select! {
                biased;
                () = &mut waiting => panic!("nobody called"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        done.notify_one();
        waiting.await;
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn it_follows_to_another_task() {
        let done = Arc::new(Notify::new());
        let told = done.clone();
        let mut waiting = poll_when_woken(async move { told.notified().await });
        look_at(&mut waiting).await;
        let elsewhere = tokio::spawn(waiting);
        tokio::task::yield_now().await;
        done.notify_one();
        elsewhere.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_moved_fires_at_its_new_time() {
        let start = tokio::time::Instant::now();
        let mut timer = poll_when_woken(tokio::time::sleep(Duration::from_secs(10)));
        look_at(&mut timer).await;
        timer.change().reset(start + Duration::from_secs(3));
        (&mut timer).await;
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        timer.change().reset(start + Duration::from_secs(5));
        timer.await;
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }
}
