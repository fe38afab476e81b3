//! Begins a turn that a program asks for: once, whatever is repeated, and only when it is on disk.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use sha2::{Digest as _, Sha256};
use talaria_platform::{AccountId, EventId, Place};

use super::content::{Content, Spoken, join_system};
use super::follow::Follow;
use super::heads::Heads;
use super::{Caller, Limits, Problem, Server, responses};
use crate::agent::Origin;
use crate::session::{HTTP, SessionId, TurnId, hash, hex, random_hex};
use crate::store::{KeptResponse, Known, NewSession, Onward, State, TurnRow, unix_now};
use crate::turns::{Brought, Patience};

/// Turns that may wait behind the one that runs in a session.
const WAITING: usize = 8;

/// The turn of what was said before there was any here.
static BEFORE: LazyLock<TurnId> = LazyLock::new(|| TurnId(String::new()));

/// When to come back to a session that has too much to do.
const AGAIN: Duration = Duration::from_secs(2);

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
    /// Whether it goes on to its end whoever reads.
    pub unattended: bool,
    /// Tells this request from every other: see [`fingerprint`].
    pub digest: String,
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

/// What became of the transaction.
enum Taken {
    /// It waits in this session.
    Anew(SessionId),
    /// This very thing was asked before.
    Before(TurnId),
    Refused(Problem),
}

/// Tells one request from another: the endpoint and all of its bytes.
pub fn fingerprint(endpoint: &str, body: &[u8]) -> String {
    hash([endpoint, &hex(&Sha256::digest(body))])
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
    let Asking { session, spoken: Spoken { system, history, now }, heads, unattended, digest } = asking;
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
    let patience = match (unattended, &heads.key) {
        (true, _) => Patience::Endless,
        (false, Some(_)) => Patience::AWhile,
        (false, None) => Patience::None,
    };
    let history = server.turns.newest(history);
    let Content { text, parts } = now;
    let memory = heads.memory.map(|scope| caller.memory(&scope));
    // Whom an app relays for is its own word, and would go on under our key.
    let origin = if caller.is_owner() { heads.origin } else { Origin::default() };
    let brought = Brought { parts, system, memory, hops: heads.hops, origin, patience };
    let row = turn_row(caller, caller.session(&name), text, brought);
    // Before it is committed: the same may be asked again at this very moment, and must find it.
    let room = server.limits.take(caller);
    let has_room = room.is_ok();
    server.turns.announce(&row, room);
    let (mut new, key, app) = (row.clone(), heads.key, caller.app().to_owned());
    let relayed = heads.hops > 0;
    let taken = server.store.write(move |tx| {
        if let Some(key) = &key {
            // One of our own turns came back to us: it would wait here for itself, behind itself.
            if relayed && tx.is_under_way(key)? {
                return Ok(Taken::Refused(Problem::circle()));
            }
            match tx.asked_before(&app, key, &digest)? {
                Known::New => {}
                Known::Same(run) => return Ok(Taken::Before(run)),
                Known::Other => return Ok(Taken::Refused(other_body())),
            }
        }
        if !has_room {
            return Ok(Taken::Refused(Limits::too_many_turns()));
        }
        if let Some(response) = &after {
            match tx.go_on_from(&app, response, &new.session)? {
                Onward::Here(session) => new.session = session,
                Onward::Forked => {}
                Onward::Unfinished => return Ok(Taken::Refused(unfinished())),
                Onward::Gone => return Ok(Taken::Refused(no_previous())),
            }
        }
        match (tx.has_session(&new.session)?, must_exist) {
            (false, true) => return Ok(Taken::Refused(Problem::no_session())),
            (false, false) => {
                tx.create_session(&NewSession { passing, ..NewSession::new(&new.session, &app) })?;
                history
                    .iter()
                    .try_for_each(|said| tx.record(&new.session, &BEFORE, said.role, &said.content))?;
            }
            // The name that was made up is somebody's by the rarest chance, and what they said is not for everybody.
            (true, _) if passing => return Ok(Taken::Refused(Limits::too_many_turns())),
            (true, _) => {}
        }
        if tx.open_turns(&new.session)?.len() > WAITING {
            let message = format!("{WAITING} turns wait in this session; ask again when one has ended");
            return Ok(Taken::Refused(Problem::busy(message, AGAIN)));
        }
        // What the session always says, then what this request says.
        if let (Some(prompt), Some(brought)) = (tx.system_prompt(&new.session)?, new.brought.as_mut()) {
            brought.system = join_system([Some(prompt), brought.system.take()]);
        }
        tx.add_turn(&new)?;
        tx.prune_sessions_sometimes()?;
        tx.use_session(&new.session)?;
        if let Some(key) = &key {
            tx.remember_key(&app, key, &digest, &new.id)?;
        }
        if let Some(Kept { previous, request }) = keep {
            tx.keep_response(&app, &KeptResponse::new(responses::id_of(&new.id), &new, previous, request))?;
        }
        Ok(Taken::Anew(new.session))
    });
    let taken = taken.await;
    if !matches!(taken, Ok(Taken::Anew(_))) {
        server.turns.retract(&row.id);
    }
    let (run, session) = match taken? {
        Taken::Anew(session) => {
            server.turns.place(&row.id, &session);
            server.turns.enqueue(&session, row.id.clone());
            (row.id, session)
        }
        Taken::Before(run) => {
            let wanted = run.clone();
            let before =
                server.store.read(move |tx| tx.turn_head(&wanted)).await?.ok_or_else(Problem::no_run)?;
            (run, before.session)
        }
        Taken::Refused(problem) => return Err(problem),
    };
    let follow = Follow::open(server, caller, &run, heads.last_event.as_deref())?;
    Ok(Begun { follow, session: caller.name_of(&session) })
}

fn other_body() -> Problem {
    let message = "This Idempotency-Key was used for another request; use a new one for each request";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message)
}

fn no_previous() -> Problem {
    let problem = Problem::wrong("previous_response_id", "There is no such response to go on from");
    Problem { status: StatusCode::NOT_FOUND, code: "previous_response_not_found", ..problem }
}

fn unfinished() -> Problem {
    let message =
        "That response is not complete yet, and another one goes on from it; ask again when it has ended";
    let problem = Problem::wrong("previous_response_id", message);
    Problem { status: StatusCode::CONFLICT, code: "response_in_progress", ..problem }
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
