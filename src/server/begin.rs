//! Begins a turn that a program asks for: once, whatever is repeated, and only when it is on disk.

mod taking;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use talaria_platform::{AccountId, EventId, Place};

use self::taking::{Taken, Taking};
use super::body::CountedBody;
use super::content::{Content, Spoken};
use super::follow::Follow;
use super::heads::Heads;
use super::{Caller, Problem, Server};
use crate::agent::{ModelParams, Origin};
use crate::session::{HTTP, SessionId, TurnId, hash, hex, random_hex};
use crate::store::{State, TurnRow, unix_now};
use crate::turns::{Brought, InputPermit, Patience, WhenAway};

/// The session that is meant.
pub enum Which {
    /// One of its own.
    Fresh,
    /// The one of this name; begun now, with what was said before, if there is none.
    Named(String),
    /// The one of this name, which must be there.
    Existing(String),
    /// Where this response of the caller left off, or as it was then if it has gone on since.
    After(String),
}

/// What is kept of a turn that answers `/v1/responses`.
pub struct Kept {
    /// The response it goes on from.
    pub previous: Option<String>,
    /// What of the question is repeated in the answer, as JSON.
    pub request: String,
}

/// What a program asks for.
pub struct Asking {
    /// Where.
    pub session: Which,
    /// What.
    pub spoken: Spoken,
    /// What else the request says.
    pub heads: Heads,
    /// Sampling and output format, if a model will answer.
    pub params: ModelParams,
    /// How the client reads the answer.
    pub answer: AnswerMode,
    /// Tells this request from every other: see [`fingerprint`].
    pub fingerprint: Fingerprint,
}

/// What is left of a request's bytes once they are read.
pub struct Fingerprint {
    /// Tells it from every other request.
    digest: String,
    /// Counts what is made of it until the turn is stored.
    permit: InputPermit,
}

/// How the client of a request reads its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMode {
    /// In one piece: until it is there the client sees nothing, not even that the agent is away.
    Whole,
    /// As a stream, which also says that the agent is away.
    Streamed,
    /// Later, under its id: the turn runs to its end whoever reads.
    Background,
}

/// A turn that has begun, now or when the same was asked before.
pub struct Begun {
    /// What happens in it.
    pub follow: Follow,
    /// What the caller calls its session.
    pub session: String,
}

impl Begun {
    /// When it was asked: the same whoever reads it, and when.
    pub async fn asked_at(&self, server: &Server) -> i64 {
        let run = self.follow.run.clone();
        let asked = server.store.read(move |tx| tx.asked_at(&run)).await;
        asked.ok().flatten().unwrap_or_else(unix_now)
    }
}

/// Tells one request from another: the endpoint and all of its bytes.
pub fn fingerprint(endpoint: &str, body: CountedBody) -> Fingerprint {
    let digest = hash([endpoint, &hex(&Sha256::digest(&*body))]);
    Fingerprint { digest, permit: body.into_permit() }
}

/// Begins it. On a task of its own: whoever asks may leave at any moment, and what is committed must run.
pub async fn begin(server: &Arc<Server>, caller: &Caller, asking: Asking) -> Result<Begun, Problem> {
    begin_kept(server, caller, asking, None).await
}

/// The same, and keeps it as a response.
pub async fn begin_kept(
    server: &Arc<Server>,
    caller: &Caller,
    asking: Asking,
    keep: Option<Kept>,
) -> Result<Begun, Problem> {
    let (server, caller) = (server.clone(), caller.clone());
    let begun = tokio::spawn(async move { begin_here(&server, &caller, asking, keep).await }).await;
    begun.unwrap_or_else(|error| Err(Problem::mistake(error)))
}

async fn begin_here(
    server: &Arc<Server>,
    caller: &Caller,
    asking: Asking,
    keep: Option<Kept>,
) -> Result<Begun, Problem> {
    if server.draining.is_cancelled() {
        return Err(Problem::draining());
    }
    if asking.spoken.system.is_some() {
        caller.may_instruct()?;
    }
    let Asking { session, spoken: Spoken { system, history, now }, heads, params, answer, fingerprint } =
        asking;
    let Fingerprint { digest, permit } = fingerprint;
    let (name, must_exist) = match &session {
        // Behind a response, this is what it is called if it must be another one.
        Which::Fresh | Which::After(_) => (fresh_name(), false),
        Which::Named(name) => (name.clone(), false),
        Which::Existing(name) => (name.clone(), true),
    };
    let passing = matches!(session, Which::Fresh);
    let after = match session {
        Which::After(response) => Some(response),
        Which::Fresh | Which::Named(_) | Which::Existing(_) => None,
    };
    let patience = match (answer, &heads.key) {
        (AnswerMode::Background, _) => Patience::Endless,
        (AnswerMode::Whole | AnswerMode::Streamed, Some(_)) => Patience::AWhile,
        (AnswerMode::Whole | AnswerMode::Streamed, None) => Patience::None,
    };
    // A client that is told nothing while it waits, and cannot ask for the same turn again, had better ask later.
    let when_away = match (answer, &heads.key) {
        (AnswerMode::Whole, None) => WhenAway::Fail,
        (AnswerMode::Whole, Some(_)) | (AnswerMode::Streamed | AnswerMode::Background, _) => WhenAway::Wait,
    };
    let history = server.turns.newest(history);
    let Content { text, parts } = now;
    let memory = heads.memory.map(|scope| caller.memory(&scope));
    // Whom an app relays for is its own word, and would go on under our key.
    let origin = if caller.is_owner() { heads.origin } else { Origin::default() };
    let brought = Brought { parts, system, params, memory, hops: heads.hops, origin, patience, when_away };
    let row = turn_row(caller, caller.session(&name), text, brought);
    // Before it is committed: the same may be asked again at this very moment, and must find it.
    let room = server.limits.take(caller);
    let has_room = room.is_ok();
    server.turns.announce(&row, room);
    let id = row.id.clone();
    let taking = Taking {
        turn: row,
        app: caller.app().to_owned(),
        key: heads.key,
        digest,
        relayed: heads.hops > 0,
        has_room,
        after,
        must_exist,
        passing,
        history,
        keep,
    };
    let taken = server.store.write(move |tx| taking.take(tx)).await;
    drop(permit);
    if !matches!(taken, Ok(Taken::Anew(_))) {
        server.turns.retract(&id);
    }
    let (run, session) = match taken? {
        Taken::Anew(session) => {
            server.turns.place(&id, &session);
            server.turns.enqueue(&session, id.clone());
            (id, session)
        }
        Taken::Before(run) => {
            let wanted = run.clone();
            let before =
                server.store.read(move |tx| tx.turn_head(&wanted)).await?.ok_or_else(Problem::no_run)?;
            (run, before.session)
        }
        Taken::Refused(problem) => return Err(problem),
    };
    let session = caller.name_of(&session);
    let follow = Follow::open(server, caller, &run, heads.last_event.as_deref());
    Ok(Begun { follow: follow.map_err(|late| Problem::from(late).about(&session, &run))?, session })
}

/// The name of a session that nobody named.
pub fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("api_{now}_{}", random_hex(4))
}

fn turn_row(caller: &Caller, session: SessionId, prompt: String, brought: Brought) -> TurnRow {
    let id = TurnId::random_run();
    TurnRow {
        session,
        account: AccountId::new(HTTP),
        place: Place { room: caller.room(), thread: None },
        event: EventId::new(id.0.clone()),
        question: EventId::new(id.0.clone()),
        author: caller.actor(),
        author_name: None,
        speaker: None,
        room_name: None,
        direct: true,
        prompt,
        quote: None,
        media: Vec::new(),
        agent: None,
        attempt: 0,
        key: id.0.clone(),
        state: State::Queued,
        stop: false,
        prepared: None,
        brought: Some(Box::new(brought)),
        id,
    }
}
