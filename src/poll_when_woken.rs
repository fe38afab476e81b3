//! A future that costs next to nothing while nothing happens to it.
//!
//! A task that waits for several things looks at all of them whenever one moves. For what every delta of
//! every stream passes through that is too much: a stop that nearly never comes would be asked a hundred
//! times, each time behind a lock that all streams share. [`poll_when_woken`] asks only after the future itself
//! has called.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
/// Has `future` polled only when it was woken itself, and not with everything that its task waits for.
pub fn poll_when_woken<F: Future>(future: F) -> PollWhenWoken<F> {
    let bell = Arc::new(WakeFlag { rung: AtomicBool::new(true), task: Mutex::default() });
    PollWhenWoken { future: Box::pin(future), waker: bell.clone().into(), bell, task: None }
}

/// Made by [`poll_when_woken`].
pub struct PollWhenWoken<F> {
    future: Pin<Box<F>>,
    bell: Arc<WakeFlag>,
    /// The bell, as the future knows it.
    waker: Waker,
    /// What the bell wakes; also here, so that comparing takes no lock.
    task: Option<Waker>,
}

/// What the future calls.
struct WakeFlag {
    /// Set before the task is woken, so that a task that runs because of it finds it set.
    rung: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl<F> PollWhenWoken<F> {
    /// The future itself, to change it. It is polled next time, because it may have other plans now.
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
        // Read first: most polls end here, and a read leaves the line in every core's cache.
        if !this.bell.rung.load(Ordering::Acquire) || !this.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

impl WakeFlag {
    fn set(&self, task: Waker) {
        *self.task.lock() = Some(task);
        // A call that came just before went to the task that waited then.
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
