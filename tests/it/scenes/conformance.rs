//! The room in memory passes the conformance suite; otherwise the other scenes would prove nothing.

use talaria_platform::conformance::{ConformanceWorld, run_all};
use talaria_platform::{BoxFuture, Place, Platform, PlatformCapabilities, ShowMode};

use crate::support::room::{Chat, Room};

struct Memory {
    room: Room,
}

impl Memory {
    fn new(show: ShowMode) -> Self {
        let about = PlatformCapabilities {
            show,
            delete: true,
            react: show != ShowMode::Once,
            threads: false,
            media: true,
            max_text: 4000,
            rate: None,
        };
        Self {
            room: Room { chat: Chat::new(about, None), name: "!home".to_owned(), direct: true, thread: None },
        }
    }
}

impl ConformanceWorld for Memory {
    fn platform(&self) -> std::sync::Arc<dyn Platform> {
        std::sync::Arc::new(self.room.chat.clone())
    }

    fn place(&self) -> Place {
        self.room.place()
    }

    fn person_says<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.room.posts("@ann", text, Vec::new());
        })
    }

    fn shown(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { self.room.ours() })
    }
}

#[tokio::test(start_paused = true)]
async fn the_room_in_memory_keeps_the_contract() {
    run_all(async || Memory::new(ShowMode::Edit { pause: std::time::Duration::ZERO })).await;
    run_all(async || Memory::new(ShowMode::Once)).await;
}
