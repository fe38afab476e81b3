//! Notes what codex says about its threads, and ends turns that it begins by itself.

use std::sync::Arc;

use talaria_platform::spawn_task;

use super::CodexLink;
use crate::agents::codex::loaded_thread::{ActiveTurn, LoadedThread};
use crate::agents::codex::wire;
use crate::agents::jsonrpc::IncomingMessage;
use crate::agents::sorted_json::text_field;

impl CodexLink {
    /// Notes what a message says about its thread. A turn that codex begins by itself is ended: nobody could answer its
    /// requests, or stop it.
    pub(super) fn observe(self: &Arc<Self>, message: &IncomingMessage) {
        let params = &message.params;
        match message.method.as_str() {
            "account/rateLimits/updated" => return self.account.lock().update_limits(params),
            "account/updated" => return self.account_news.notify_one(),
            _ => {}
        }
        let Some(thread) = wire::thread_of(params) else { return };
        let mut threads = self.threads.lock();
        let Some(state) = threads.get_mut(thread) else {
            if let Some(opening) = self.opening.lock().get_mut(thread) {
                opening.observe(message);
            }
            return;
        };
        let mut foreign = None;
        match message.method.as_str() {
            "turn/started" => {
                let turn = text_field(&params["turn"], "id");
                foreign = (!state.begin_turn(turn)).then_some(turn);
            }
            "turn/completed" => state.end_turn(text_field(&params["turn"], "id")),
            // A thread that was just resumed is idle too, before its turn begins.
            "thread/status/changed" if params["status"]["type"] == "idle" => {
                state.active.take_if(|active| matches!(active, ActiveTurn::Running(_)));
            }
            "item/completed" if params["item"]["type"] == "contextCompaction" => state.epoch += 1,
            // An older one is about the thread before it was opened anew.
            "thread/closed" | "thread/archived" | "thread/deleted" if message.position >= state.since => {
                threads.remove(thread);
            }
            _ => return,
        }
        drop(threads);
        self.news.send_modify(|count| *count += 1);
        if let Some(turn) = foreign {
            self.end_foreign_turn(thread, turn);
        }
    }

    /// Remembers that a thread is loaded, unless codex has closed it again.
    pub(super) fn add_thread(self: &Arc<Self>, thread: &str, loaded: LoadedThread) {
        let mut loaded = loaded;
        loaded.used = self.next_use();
        let mut threads = self.threads.lock();
        let news = self.opening.lock().remove(thread).unwrap_or_default();
        if news.has_closed(loaded.since) {
            return;
        }
        let foreign = news.turn().filter(|turn| !loaded.begin_turn(turn));
        threads.insert(thread.to_owned(), loaded);
        drop(threads);
        if let Some(turn) = foreign {
            self.end_foreign_turn(thread, turn);
        }
    }

    /// Ends a turn that codex has begun by itself, in the background. By then it may have ended, and ours may run.
    fn end_foreign_turn(self: &Arc<Self>, thread: &str, turn: &str) {
        tracing::warn!("codex has begun a turn that nobody started, and it is ended");
        let (link, thread, turn) = (self.clone(), thread.to_owned(), turn.to_owned());
        drop(spawn_task("codex-foreign-turn", async move { link.end_running_turn(&thread, &turn).await }));
    }
}
