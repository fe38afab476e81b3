//! codex or the gateway is killed at any moment of a turn with an approval: nothing is left running, no turn hangs, and no
//! command runs twice or without a person's word.

use std::time::Duration;

use rustix::process::Signal;

use crate::it::upstream::{Answer, Request};
use crate::patches::found;
use crate::responses::{runs, says, told};
use crate::scene::{Scene, SceneSetup};

/// Trials, and trials of the full run.
const TRIALS: [u64; 2] = [20, 200];

/// Trials at the same time: each is mostly waiting, but starts a codex of 150 MB.
const AT_ONCE: usize = 4;

/// Latest moment of a kill, after which the turn is usually over.
const LATEST: Duration = Duration::from_millis(1200);

/// The command. It runs in the folder of the session, and long enough to be hit.
const COMMAND: &str = "echo mark >> marks; sleep 0.4";

#[derive(Clone, Copy, Debug)]
enum Victim {
    Codex,
    Gateway,
}

/// The person's answer to every ask.
#[derive(Clone, Copy, Debug)]
enum Says {
    Yes,
    No,
    /// Says nothing, and stops the turn after the kill.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    victim: Victim,
    says: Says,
    after: Duration,
}

impl Trial {
    /// One of all kinds of trials, always the same for the same number.
    fn number(number: u64) -> Self {
        let says = [Says::Yes, Says::Yes, Says::No, Says::Nothing];
        // Spreads neighbouring numbers over the whole time.
        let share = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        Self {
            victim: if number.is_multiple_of(2) { Victim::Codex } else { Victim::Gateway },
            says: says[(number / 2 % 4) as usize],
            after: LATEST * (share >> 16) / 65_536,
        }
    }

    async fn run(self) {
        let mut scene = Scene::with(SceneSetup { used_home: true, ..SceneSetup::default() }).await;
        scene.model.answers_by(answer);
        let question = scene.says("work");
        let moment = tokio::time::sleep(self.after);
        let mut seen = 0;
        tokio::select! {
            () = moment => {}
            () = self.talks(&scene, &question, &mut seen) => {}
        }
        match self.victim {
            Victim::Codex => scene.codex_dies_if_it_runs(),
            Victim::Gateway => {
                scene.gateway_ends_by(Signal::KILL).await;
                scene.nothing_is_left().await;
                scene.gateway_starts().await;
            }
        }
        if matches!(self.says, Says::Nothing) {
            scene.says("/stop");
        }
        self.talks(&scene, &question, &mut seen).await;
        // A prompt that reached a dying codex is not repeated by itself, because it may have run.
        let mut end = String::new();
        for _ in 0..2 {
            if !end.contains("All is well.") {
                end = scene.turn("and now?").await;
            }
        }
        assert!(end.contains("All is well."), "{self:?}: {end}\n{scene}");

        let marks =
            found(&scene.home.workspace(), "marks").map(|marks| std::fs::read_to_string(marks).unwrap());
        let most = usize::from(matches!(self.says, Says::Yes));
        assert!(marks.unwrap_or_default().lines().count() <= most, "{self:?}\n{scene}");
        scene.assert_only_responses();
        scene.gateway_ends_by(Signal::TERM).await;
        scene.nothing_is_left().await;
    }

    /// Answers every ask until the question is answered.
    async fn talks(self, scene: &Scene, question: &talaria_platform::EventId, seen: &mut usize) {
        while let Some(asked) = scene.is_asked_or_ends(question, *seen).await {
            *seen += 1;
            match self.says {
                Says::Yes => scene.approves(&asked),
                Says::No => scene.denies(&asked),
                Says::Nothing => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_leaves_nothing_half_done() {
    let full = std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full");
    let mut left = 0..TRIALS[usize::from(full)];
    let mut trials = tokio::task::JoinSet::new();
    loop {
        while trials.len() < AT_ONCE
            && let Some(number) = left.next()
        {
            trials.spawn(Trial::number(number).run());
        }
        match trials.join_next().await {
            Some(ended) => ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())),
            None => return,
        }
    }
}

/// The model: it wants to run the command once, and says how it went.
fn answer(request: &Request) -> Answer {
    match told(request).last().map(String::as_str) {
        Some("user: work") => runs(COMMAND),
        Some(line) if line.starts_with("function_call_output: ") => says(["It ", "is ", "done."]),
        _ => says(["All is well."]),
    }
}
