//! Requests of an agent in one turn that wait for an answer. People may think for hours, and the agent goes on meanwhile,
//! so each is answered beside everything else.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use talaria_platform::{BoxFuture, CancellationToken};

use crate::agents::jsonrpc::RequestId;

/// Requests of one turn that wait at once. An agent has one open for each tool that runs.
const OPEN: usize = 16;

/// The requests of a turn, each with an answer of the type `A`. Dropping this withdraws all asks.
pub struct OpenRequests<'a, A> {
    /// `None` as an answer: the agent does not wait for it any more.
    answering: FuturesUnordered<BoxFuture<'a, (RequestId, Option<A>)>>,
    /// Fired for a request that the agent does not wait for any more.
    withdrawals: HashMap<RequestId, CancellationToken>,
}

impl<A> Default for OpenRequests<'_, A> {
    fn default() -> Self {
        Self { answering: FuturesUnordered::new(), withdrawals: HashMap::new() }
    }
}

impl<'a, A: Send + 'a> OpenRequests<'a, A> {
    /// Whether no further request can be taken.
    pub fn is_full(&self) -> bool {
        self.answering.len() >= OPEN
    }

    /// Begins to answer a request.
    pub fn begin(&mut self, id: RequestId, answer: impl Future<Output = A> + Send + 'a) {
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
    pub async fn next(&mut self) -> Option<(RequestId, A)> {
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

    /// Takes the news that the agent does not wait for a request any more, with the id as it stands on the wire.
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

    #[tokio::test]
    async fn requests_are_answered_in_the_order_in_which_people_decide() {
        let mut requests = OpenRequests::default();
        let (first, decided) = oneshot::channel();
        requests.begin(RequestId::Number(0), async { decided.await.unwrap() });
        requests.begin(RequestId::Text("b".into()), async { json!("two") });
        let (id, second) = requests.next().await.unwrap();
        assert_eq!((id, second), (RequestId::Text("b".into()), json!("two")));
        first.send(json!("one")).unwrap();
        assert_eq!(requests.next().await.unwrap().0, RequestId::Number(0));
        assert!(requests.next().await.is_none());
    }

    #[tokio::test]
    async fn a_request_that_the_agent_took_back_gets_no_answer() {
        let mut requests = OpenRequests::<Value>::default();
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
