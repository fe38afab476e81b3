//! `/self-check`, which exists only in tests: a command that must not run twice, and whose end the test chooses.

use talaria_platform::BoxFuture;

use super::after_commit::{CommandAnswer, CommandResult, CommandTask};

/// Ends as the words behind the command say.
pub(super) fn run(task: CommandTask) -> BoxFuture<'static, CommandResult> {
    Box::pin(async move {
        let behind = task.row.behind;
        match behind.as_str() {
            "hangs" => std::future::pending().await,
            "panics" => panic!("the test said so"),
            "fails" => Err("failed".into()),
            "misanswers" => {
                let answer: CommandAnswer = Box::new(|_, _| panic!("the test said so"));
                Ok(answer)
            }
            _ => {
                let answer: CommandAnswer =
                    Box::new(move |_, _| Ok(format!("checked {behind}").trim().into()));
                Ok(answer)
            }
        }
    })
}
