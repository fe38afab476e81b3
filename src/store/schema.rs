//! The tables, as a list of migrations. A released migration never changes; a new one is appended.

/// Marks the file as ours (`PRAGMA application_id`): "Tala".
pub const APPLICATION_ID: i32 = 0x5461_6c61;

/// Each entry raises the schema by one version; `PRAGMA user_version` counts them.
pub const MIGRATIONS: &[&str] = &[
    r"
-- Every event that was ever taken, for ever: what makes a second delivery harmless.
CREATE TABLE inbox (
    account TEXT NOT NULL, room TEXT NOT NULL, event TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (account, room, event)
) WITHOUT ROWID;

-- An adapter's own position, committed together with the events before it.
CREATE TABLE cursors (account TEXT PRIMARY KEY, cursor TEXT NOT NULL) WITHOUT ROWID;

-- What an adapter could not read yet.
CREATE TABLE parked (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (account, key)
);

-- An adapter's small state.
CREATE TABLE notes (
    account TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (account, key)
) WITHOUT ROWID;

-- The core's own small state, such as a learned rate.
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,                  -- hash of account and place
    forks INTEGER NOT NULL DEFAULT 0,   -- how often history was changed after the fact
    current INTEGER NOT NULL DEFAULT 1, -- 0 once /new has begun another one
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX sessions_current ON sessions (key) WHERE current = 1;

CREATE TABLE turns (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of a session's line
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL REFERENCES sessions (id),
    account TEXT NOT NULL, room TEXT NOT NULL, thread TEXT, event TEXT NOT NULL,
    author TEXT NOT NULL, author_name TEXT, room_name TEXT, direct INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    media TEXT NOT NULL,                   -- JSON list of what is attached
    attempt INTEGER NOT NULL,              -- counts /retry
    key TEXT NOT NULL,                     -- the Idempotency-Key
    state TEXT NOT NULL,
    stop INTEGER NOT NULL DEFAULT 0,       -- a person asked to stop it
    undone INTEGER NOT NULL DEFAULT 0,     -- taken back by /undo or /retry
    request BLOB, resumable INTEGER NOT NULL DEFAULT 0,
    text TEXT, outcome TEXT,               -- the end, JSON; set with state `finalizing`
    api_calls INTEGER NOT NULL DEFAULT 0, tools TEXT NOT NULL DEFAULT '[]',
    history_offset INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL
);
CREATE INDEX turns_open ON turns (seq)
    WHERE state IN ('queued', 'dispatched', 'streaming', 'finalizing');
CREATE INDEX turns_session ON turns (session, seq);
CREATE INDEX turns_event ON turns (account, room, event);

-- The text of an unfinished turn, appended piece by piece so that a long answer costs linear work.
CREATE TABLE checkpoints (
    turn TEXT NOT NULL, offset INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (turn, offset)
) WITHOUT ROWID;

-- The message that shows a turn while it runs. `message` is NULL from before the send until its id is known.
CREATE TABLE anchors (turn TEXT PRIMARY KEY, message TEXT) WITHOUT ROWID;

CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL REFERENCES sessions (id), turn TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL
);
CREATE INDEX messages_session ON messages (session, id);
CREATE INDEX messages_turn ON messages (turn);

-- What must arrive.
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- the order within a place
    key TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL, room TEXT NOT NULL, thread TEXT,
    turn TEXT,                             -- NULL for the answer to a command
    kind TEXT NOT NULL, part INTEGER NOT NULL,
    body TEXT NOT NULL,                    -- JSON
    not_before INTEGER NOT NULL DEFAULT 0, -- seconds since 1970
    state TEXT NOT NULL DEFAULT 'pending', -- pending, sent, dropped
    message TEXT
);
CREATE INDEX outbox_pending ON outbox (account, seq) WHERE state = 'pending';
CREATE INDEX outbox_turn ON outbox (turn);
",
    r"
-- Sessions know where they belong and what they are called; they are found again by /sessions.
ALTER TABLE sessions ADD COLUMN account TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN room TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN title TEXT;
ALTER TABLE sessions ADD COLUMN used INTEGER NOT NULL DEFAULT 0;  -- when the last prompt came, or it was resumed
ALTER TABLE sessions ADD COLUMN number INTEGER NOT NULL DEFAULT 0; -- what people call it: counts those of its key
ALTER TABLE sessions ADD COLUMN away INTEGER NOT NULL DEFAULT 0;  -- 1 while the stand-in answers, as the room was told
CREATE INDEX sessions_key ON sessions (key, used);
UPDATE sessions SET
    account = coalesce((SELECT turns.account FROM turns WHERE turns.session = sessions.id LIMIT 1), ''),
    room = coalesce((SELECT turns.room FROM turns WHERE turns.session = sessions.id LIMIT 1), ''),
    used = coalesce((SELECT max(turns.created) FROM turns WHERE turns.session = sessions.id), created),
    number = (SELECT count(*) FROM sessions AS older WHERE older.key = sessions.key
                  AND (older.created, older.id) <= (sessions.created, sessions.id));
CREATE UNIQUE INDEX sessions_number ON sessions (key, number);

ALTER TABLE turns ADD COLUMN stand_in INTEGER NOT NULL DEFAULT 0; -- the request is for the stand-in
ALTER TABLE turns ADD COLUMN ended INTEGER;                       -- when its end was stored
-- Whose words they are, if it was not `author` who wrote them but sent the /retry. Everything else is the author's.
ALTER TABLE turns ADD COLUMN speaker TEXT;
ALTER TABLE turns ADD COLUMN speaker_name TEXT;
CREATE INDEX turns_room ON turns (account, room, seq);
CREATE INDEX turns_author ON turns (account, author, created);

-- Every decision about somebody: who, where, what, how it was decided and why. Never what was said.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, account TEXT NOT NULL, actor TEXT NOT NULL,
    room TEXT NOT NULL,                    -- a hash
    place TEXT NOT NULL,                   -- direct, room
    action TEXT NOT NULL, allowed INTEGER NOT NULL, rule TEXT NOT NULL,
    digest TEXT                            -- of what an agent asked for; NULL for everything else
);
CREATE INDEX audit_actor ON audit (account, actor, at);

-- Who has left which room, until they are back.
CREATE TABLE departed (
    account TEXT NOT NULL, room TEXT NOT NULL, person TEXT NOT NULL, PRIMARY KEY (account, room, person)
) WITHOUT ROWID;

-- Strangers who asked to be let in, and those who were.
CREATE TABLE pairings (
    account TEXT NOT NULL, person TEXT NOT NULL, name TEXT, room TEXT NOT NULL,
    code TEXT,                             -- salted hash; NULL once they are let in
    salt TEXT NOT NULL,
    at INTEGER NOT NULL,                   -- when they asked, or once they are let in, when that was
    PRIMARY KEY (account, person)
) WITHOUT ROWID;

-- Questions of agents that a person must answer. None of them outlives its process: what is open or approved
-- at a start is denied.
CREATE TABLE asks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, code TEXT NOT NULL, turn TEXT NOT NULL, session TEXT NOT NULL,
    account TEXT NOT NULL, room TEXT NOT NULL, thread TEXT,
    title TEXT NOT NULL,                   -- as it is shown
    digest TEXT NOT NULL,                  -- of everything that was asked
    state TEXT NOT NULL DEFAULT 'open',    -- open, approved (by a person), taken (by the agent), denied
    scope TEXT, by TEXT, rule TEXT,        -- how it was decided
    asked INTEGER NOT NULL, expires INTEGER NOT NULL, ended INTEGER
);
CREATE INDEX asks_place ON asks (account, room, state);
CREATE UNIQUE INDEX asks_code ON asks (account, code) WHERE state = 'open';
CREATE INDEX asks_turn ON asks (turn);

-- What need not be asked again.
CREATE TABLE grants (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL, title TEXT NOT NULL,
    session TEXT,                          -- for this session only; NULL for the whole place
    account TEXT NOT NULL, room TEXT NOT NULL,
    place TEXT NOT NULL,                   -- direct, room: what the room was then
    by TEXT NOT NULL, granted INTEGER NOT NULL, expires INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX grants_place ON grants (account, room, digest);
",
    r"
-- The message whose words are asked, if it is not `event` itself, which then is a /retry.
ALTER TABLE turns ADD COLUMN question TEXT;
CREATE INDEX turns_question ON turns (account, room, question) WHERE question IS NOT NULL;
-- `turns.undone` is 2 once nothing of a turn is to stay in the room: its question was deleted, or was edited and
-- the next attempt of the same event takes its messages over.

-- `outbox.state` may also be `doubtful`: no longer wanted, but it may have been posted.
-- The content of a file that must arrive; `body` only describes it.
ALTER TABLE outbox ADD COLUMN file BLOB;
CREATE INDEX outbox_message ON outbox (account, room, message) WHERE message IS NOT NULL;
",
    r"
-- What the question answers, as JSON: who wrote it and what it says. The agent is told, and told the same again.
ALTER TABLE turns ADD COLUMN quote TEXT;
",
    r"
-- Who answers it, if the room has an agent of its own: proxy, local.
ALTER TABLE turns ADD COLUMN agent TEXT;
",
    r"
-- The agent server. Its sessions and turns have the account `@http` and for a room the name of the app, which is
-- empty for the owner. A session of an app has the id `<app>/<what the app calls it>`.
ALTER TABLE sessions ADD COLUMN model TEXT;
ALTER TABLE sessions ADD COLUMN system_prompt TEXT;
ALTER TABLE sessions ADD COLUMN parent TEXT;                       -- the session it was forked from
ALTER TABLE sessions ADD COLUMN ended INTEGER;
ALTER TABLE sessions ADD COLUMN end_reason TEXT;
ALTER TABLE sessions ADD COLUMN passing INTEGER NOT NULL DEFAULT 0; -- 1: nobody named it, it goes when long unused
CREATE INDEX sessions_place ON sessions (account, room, used);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_passing ON sessions (used) WHERE passing = 1;

-- What came with a turn that a program asked for, as JSON.
ALTER TABLE turns ADD COLUMN brought TEXT;

ALTER TABLE messages ADD COLUMN at INTEGER;
ALTER TABLE messages ADD COLUMN tools TEXT;                        -- calls or what was called, as JSON

-- Programs with a token of their own.
CREATE TABLE tokens (
    app TEXT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,               -- the part of the token that is no secret, to find it by
    digest BLOB NOT NULL,                  -- SHA-256 of the whole token
    created INTEGER NOT NULL, used INTEGER,
    revoked INTEGER                        -- when; the row stays, because what the app had stays
) WITHOUT ROWID;

-- What was asked with an Idempotency-Key, for seven days.
CREATE TABLE idempotency (
    app TEXT NOT NULL, key TEXT NOT NULL,
    digest TEXT NOT NULL,                  -- of what was asked
    turn TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (app, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_at ON idempotency (at);
CREATE INDEX idempotency_turn ON idempotency (turn);

-- What /v1/responses answered and keeps.
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    app TEXT NOT NULL, turn TEXT NOT NULL, session TEXT NOT NULL,
    previous TEXT,                         -- the response it goes on from
    request TEXT NOT NULL,                 -- what of the question is repeated in the answer, as JSON
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX responses_session ON responses (session);
",
    r"
-- Whether `text` is another one than what was told while it grew, and not only longer: then nobody who has read some of
-- that can be told the rest.
ALTER TABLE turns ADD COLUMN retold INTEGER NOT NULL DEFAULT 0;
",
    r"
-- Where in its turn a question was asked: how much had been told, and how many questions of it restarts had denied.
ALTER TABLE asks ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
ALTER TABLE asks ADD COLUMN denied_before INTEGER NOT NULL DEFAULT 0;
",
    r"
-- How many questions and answers came before this question in its turn; and the same of its answer. `ended_told` and
-- `ended_nth` are NULL until they are known: no reader was told the answer.
ALTER TABLE asks DROP COLUMN denied_before;
ALTER TABLE asks ADD COLUMN nth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE asks ADD COLUMN ended_told INTEGER;
ALTER TABLE asks ADD COLUMN ended_nth INTEGER;
",
    r"
-- When a session that nobody named goes: one that a single request was answered in. NULL: retention decides.
ALTER TABLE sessions ADD COLUMN expires INTEGER;
CREATE INDEX sessions_expires ON sessions (expires) WHERE expires IS NOT NULL;
-- Lists by last use. Each session is in exactly one of them: the owner's and those of rooms, or those of apps.
CREATE INDEX sessions_owned ON sessions (used) WHERE account <> '@http' OR room = '';
CREATE INDEX sessions_apps ON sessions (used) WHERE account = '@http' AND room <> '';
-- The history that a client brings with its request is needed until that is answered, and was kept for ever. What
-- responses go on from stays.
DELETE FROM messages WHERE turn = '' AND session IN (
    SELECT id FROM sessions WHERE passing = 1 AND parent IS NULL
        AND NOT EXISTS (SELECT 1 FROM responses WHERE responses.session = sessions.id)
        AND (SELECT count(*) FROM turns WHERE turns.session = sessions.id) <= 1
        AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id
            AND state IN ('queued', 'dispatched', 'streaming')));
",
    r"
-- Whether an app may send system messages and instructions.
ALTER TABLE tokens ADD COLUMN instructions INTEGER NOT NULL DEFAULT 1;
",
    r"
-- Commands that run after the transaction that took them, until they are answered.
CREATE TABLE commands (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- the order within a place
    key TEXT NOT NULL UNIQUE,              -- of the answer in the outbox
    account TEXT NOT NULL, room TEXT NOT NULL, thread TEXT, event TEXT NOT NULL,
    author TEXT NOT NULL, direct INTEGER NOT NULL,
    name TEXT NOT NULL, behind TEXT NOT NULL, -- the command, and the words behind it
    started INTEGER NOT NULL DEFAULT 0,    -- 1: it may have had an effect, and must not run again
    at INTEGER NOT NULL
);
CREATE INDEX commands_place ON commands (account, room);
",
    r"
-- The agent that a person or a program chose for a session. NULL: the agent of its place, or the default one.
ALTER TABLE sessions ADD COLUMN agent TEXT;
",
    r"
-- Asks that offer options or take a text. `rule` of a denied ask is its reason; `state` is `approved` and then `taken`
-- for every answer that is no denial.
ALTER TABLE asks ADD COLUMN options TEXT;                          -- JSON list of id, label and kind; NULL for none
ALTER TABLE asks ADD COLUMN takes_text INTEGER NOT NULL DEFAULT 0; -- 1: a person may answer in their own words
ALTER TABLE asks ADD COLUMN chosen TEXT;                           -- id of the chosen option
ALTER TABLE asks ADD COLUMN answer TEXT;                           -- the words of a person who answered
",
    r"
-- The agent that the request of a turn was made for. `turns.stand_in` is not used any more: it was 1 for `local`.
ALTER TABLE turns ADD COLUMN request_for TEXT;
UPDATE turns SET request_for = CASE WHEN stand_in = 1 THEN 'local' ELSE coalesce(agent, 'proxy') END
    WHERE request IS NOT NULL;
-- Agents that were asked in a session.
CREATE TABLE session_agents (
    session TEXT NOT NULL, agent TEXT NOT NULL,
    forks INTEGER NOT NULL,                -- `sessions.forks` when it was asked last
    missed INTEGER NOT NULL DEFAULT 0,     -- 1: another agent answered since, and this one was not told
    upstream TEXT,                         -- its last report about the session, as JSON
    PRIMARY KEY (session, agent)
) WITHOUT ROWID;
INSERT INTO session_agents (session, agent, forks, missed)
    SELECT turns.session, coalesce(turns.agent, 'proxy'), sessions.forks, max(sessions.away = 2)
    FROM turns JOIN sessions ON sessions.id = turns.session
    WHERE turns.api_calls > 0 AND turns.stand_in = 0 AND sessions.passing = 0 GROUP BY 1, 2;
-- `sessions.away` is 1 while the fallback answers, as the room was told. It was 2 where the agent was not told of that.
UPDATE sessions SET away = 1 WHERE away = 2;
-- Agents that are to be told that a session is over.
CREATE TABLE agent_ends (
    agent TEXT NOT NULL,
    name TEXT NOT NULL,                    -- the session's id for the agent
    session TEXT NOT NULL, upstream TEXT NOT NULL,
    PRIMARY KEY (agent, name)
);
",
    r"
-- The agent whose asks a grant holds for. NULL in grants of before agents had names: those hold for the default agent.
ALTER TABLE grants ADD COLUMN agent TEXT;
",
    r"
-- 1: the agent is being told, and the report is no longer given back to it. A process that dies meanwhile leaves it so.
ALTER TABLE agent_ends ADD COLUMN telling INTEGER NOT NULL DEFAULT 0;
",
    r"
-- Messages of the transcript of a turn that runs, each stored as it completes. They move to `messages` with its end.
CREATE TABLE turn_records (
    turn TEXT NOT NULL, number INTEGER NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL, tools TEXT,
    text_end INTEGER NOT NULL,             -- length of the text of the turn by then
    PRIMARY KEY (turn, number)
) WITHOUT ROWID;
-- Notes that agents of ours keep about a person, a room, or a session key of an app.
CREATE TABLE agent_notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,                   -- the owner, see `NoteScope`
    text TEXT NOT NULL, at INTEGER NOT NULL
);
CREATE INDEX agent_notes_scope ON agent_notes (scope, id);
-- Turns and rounds of tool calls of a session since its last reviews.
ALTER TABLE sessions ADD COLUMN review_turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN review_rounds INTEGER NOT NULL DEFAULT 0;
-- The model that a person chose for a session. NULL: the usual one of its agent.
ALTER TABLE sessions ADD COLUMN chosen_model TEXT;
-- Tokens of the last 24 hours, for budgets. Apart from the turns, which go with their session.
CREATE TABLE token_use (
    at INTEGER NOT NULL,
    account TEXT NOT NULL, author TEXT NOT NULL, -- as in `turns`
    session_key TEXT,                      -- hash of the session key that an app sent
    agent TEXT NOT NULL,                   -- the agent that was asked
    tokens INTEGER NOT NULL
);
CREATE INDEX token_use_at ON token_use (at);
CREATE INDEX token_use_payer ON token_use (account, author, session_key, at, tokens);
CREATE INDEX token_use_agent ON token_use (agent, at, tokens);
",
    r"
-- The agent's reasoning before a message. Beside `user`, `assistant` and `tool`, `role` can be `note`: an event of the
-- agent's work that no agent is sent again.
ALTER TABLE messages ADD COLUMN reasoning TEXT;
ALTER TABLE turn_records ADD COLUMN reasoning TEXT;
",
    r"
-- Names and values about the run for programs, as a JSON object. NULL for none.
ALTER TABLE turns ADD COLUMN facts TEXT;
",
    r"
-- Runtimes of agents that were chosen at run time, in place of those of the configuration.
CREATE TABLE agent_runtimes (
    agent TEXT PRIMARY KEY,
    runtime TEXT NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
-- The runtime that a stored request was made for. Another one must not run it.
ALTER TABLE turns ADD COLUMN request_runtime TEXT NOT NULL DEFAULT 'auto';
-- The runtime on which the agent was asked last in the session.
ALTER TABLE session_agents ADD COLUMN runtime TEXT NOT NULL DEFAULT 'auto';
",
    r"
-- Addresses from which a token may be used, as a JSON list of ranges; NULL for all.
ALTER TABLE tokens ADD COLUMN networks TEXT;
-- Policy for permissions that agents ask for, as JSON. NULL denies in turns of forge sessions, and asks elsewhere.
ALTER TABLE tokens ADD COLUMN permissions TEXT;
-- 1: the app may replace the operator's system text in `POST /run`.
ALTER TABLE tokens ADD COLUMN may_replace INTEGER NOT NULL DEFAULT 0;
-- What sessions of the forge surface have beside their row in `sessions`.
CREATE TABLE forge_sessions (
    session TEXT PRIMARY KEY,
    app TEXT NOT NULL, agent TEXT NOT NULL, model TEXT,
    meta TEXT,                             -- the app's own words about it, a JSON object
    one_shot INTEGER NOT NULL DEFAULT 0,   -- 1: made for one `POST /run`; not listed
    created INTEGER NOT NULL,
    turns INTEGER NOT NULL DEFAULT 0,      -- accepted turns
    last_turn INTEGER,                     -- when the last one was accepted
    closed INTEGER
) WITHOUT ROWID;
CREATE INDEX forge_sessions_app ON forge_sessions (app, created);
CREATE INDEX forge_sessions_open ON forge_sessions (created) WHERE closed IS NULL;
-- The audit of forge sessions. Stays for 30 days after its session.
CREATE TABLE forge_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL, app TEXT NOT NULL,
    event TEXT NOT NULL,                   -- create, turn, close, sweep_close, hard_delete
    turn TEXT,                             -- id of the accepted turn
    at INTEGER NOT NULL
);
CREATE INDEX forge_events_session ON forge_events (session, seq);
CREATE INDEX forge_events_at ON forge_events (at);
-- Uploaded files. Their content is in a file of the state folder with the name `digest`.
CREATE TABLE forge_files (
    digest TEXT PRIMARY KEY,               -- SHA-256 of the file's token
    app TEXT NOT NULL,
    name TEXT NOT NULL,                    -- as the app calls it, cleaned
    size INTEGER NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX forge_files_app ON forge_files (app);
CREATE INDEX forge_files_expires ON forge_files (expires);
",
    r"
-- `sessions.forks` when the request was stored: under which id of the session the agent was asked.
ALTER TABLE turns ADD COLUMN asked_forks INTEGER NOT NULL DEFAULT 0;
",
    r"
-- 1: the row is about a single `POST /run`. An app's newest ones are kept, of sessions all for 30 days.
ALTER TABLE forge_events ADD COLUMN one_shot INTEGER NOT NULL DEFAULT 0;
CREATE INDEX forge_events_runs ON forge_events (app, seq) WHERE one_shot = 1;
",
];
