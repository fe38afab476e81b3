//! Requests of codex in one turn that wait for an answer. People may think for hours, and codex goes on meanwhile, so
//! each is answered beside everything else.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use talaria_platform::{BoxFuture, CancellationToken};

use super::approvals::ApprovalAnswer;
use crate::agents::jsonrpc::RequestId;

/// Requests of one turn that wait at once. Codex has one open for each tool that runs.
const OPEN: usize = 16;

/// The requests of a turn. Dropping this withdraws all asks.
#[derive(Default)]
pub struct OpenRequests<'a> {
    /// `None` as an answer: codex does not wait for it any more.
    answering: FuturesUnordered<BoxFuture<'a, (RequestId, Option<ApprovalAnswer>)>>,
    /// Fired for a request that codex does not wait for any more.
    withdrawals: HashMap<RequestId, CancellationToken>,
}

impl<'a> OpenRequests<'a> {
    /// Whether no further request can be taken.
    pub fn is_full(&self) -> bool {
        self.answering.len() >= OPEN
    }

    /// Begins to answer a request.
    pub fn begin(&mut self, id: RequestId, answer: impl Future<Output = ApprovalAnswer> + Send + 'a) {
        let withdrawn = CancellationToken::new();
        self.withdrawals.insert(id.clone(), withdrawn.clone());
        self.answering.push(Box::pin(async move {
            let answer = tokio::select! {
                answer = answer => Some(answer),
                () = withdrawn.cancelled() => None,
            };
            (id, answer)
        }));
    }

    /// The next answer; `None` if no request waits. May be dropped at any time without losing an answer.
    pub async fn next(&mut self) -> Option<(RequestId, ApprovalAnswer)> {
        loop {
            let (id, answer) = self.answering.next().await?;
            self.withdrawals.remove(&id);
            if let Some(answer) = answer {
                return Some((id, answer));
            }
        }
    }

    /// Withdraws all asks. Returns the requests that were not answered.
    pub fn withdraw_all(&mut self) -> Vec<RequestId> {
        self.answering.clear();
        self.withdrawals.drain().map(|(id, _)| id).collect()
    }

    /// Takes the news that codex does not wait for a request any more, with the id as it stands on the wire.
    pub fn withdraw(&mut self, id: &Value) {
        let id = match id {
            Value::String(id) => RequestId::Text(id.clone()),
            id => RequestId::Number(id.as_i64().unwrap_or(-1)),
        };
        if let Some(withdrawn) = self.withdrawals.remove(&id) {
            withdrawn.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;

    fn answer(result: Value) -> ApprovalAnswer {
        ApprovalAnswer::new(result)
    }

    #[tokio::test]
    async fn requests_are_answered_in_the_order_in_which_people_decide() {
        let mut requests = OpenRequests::default();
        let (first, decided) = oneshot::channel();
        requests.begin(RequestId::Number(0), async { answer(decided.await.unwrap()) });
        requests.begin(RequestId::Text("b".into()), async { answer(json!("two")) });
        let (id, second) = requests.next().await.unwrap();
        assert_eq!((id, second.reply), (RequestId::Text("b".into()), Ok(json!("two"))));
        first.send(json!("one")).unwrap();
        assert_eq!(requests.next().await.unwrap().0, RequestId::Number(0));
        assert!(requests.next().await.is_none());
    }

    #[tokio::test]
    async fn a_request_that_codex_took_back_gets_no_answer() {
        let mut requests = OpenRequests::default();
        requests.begin(RequestId::Number(7), std::future::pending());
        requests.withdraw(&json!("7"));
        requests.withdraw(&json!(7));
        assert!(requests.next().await.is_none());
        for id in 0..16 {
            assert!(!requests.is_full());
            requests.begin(RequestId::Number(id), std::future::pending());
        }
        assert!(requests.is_full());
        assert_eq!(requests.withdraw_all().len(), 16);
        assert!(!requests.is_full() && requests.next().await.is_none());
    }
}
