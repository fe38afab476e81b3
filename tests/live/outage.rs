//! The homeserver goes away in the middle of an answer and comes back.

use std::sync::Arc;

use crate::it::upstream::{Answer, DONE, Gate, delta, finish};
use crate::support::homeserver::{Homeserver, Limits};
use crate::support::person::With;
use crate::support::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_survives_the_homeservers_crash() {
    let homeserver = Arc::new(Homeserver::own(Limits::Wide).await);
    let mut scene = Scene::prepared(homeserver.clone(), With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = scene.direct().await;
    let gate = Gate::new();
    scene.upstream.answers(
        Answer::stream()
            .sends(delta("Half of the answer,"))
            .waits(&gate)
            .sends(delta(" and the other half.") + finish("stop").as_str() + DONE)
            .ends(),
    );

    scene.ann.says(&room, "what do you think?").await;
    scene.reads(&room, "Half of the answer,").await;
    homeserver.dies().await;
    gate.open();
    // Until the homeserver is back, nobody accepts the rest.
    scene.gateway.process().logs("the homeserver is away").await;
    let health = scene.gateway.talaria.does(["health"]).await;
    assert_ne!(health.code, 0, "nobody can be answered");
    assert!(format!("{}{}", health.out, health.err).contains("does not reach its network"), "{}", health.err);
    let doctor = scene.gateway.talaria.does(["matrix", "doctor"]).await;
    assert_ne!(doctor.code, 0, "{}", doctor.out);
    for line in ["homeserver", "session"] {
        let said = doctor.out.lines().find(|said| said.contains(line) && said.contains("BAD"));
        assert!(said.is_some(), "{line}: {}", doctor.out);
    }
    homeserver.starts().await;
    let answer = scene.reads(&room, "Half of the answer, and the other half.").await;

    assert!(answer.encrypted && answer.readable);
    scene.settles(&room).await;
    assert_eq!(scene.said(&room).len(), 2);
    scene.ends();
}
