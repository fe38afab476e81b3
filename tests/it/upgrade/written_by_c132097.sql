-- The database of a gateway that was killed, written by commit c132097 (schema 12). Never change it: it stands for the
-- databases that people have.
--
-- In it: a turn that waits, one that was streaming with an open ask, a final that was not sent, a turn that waits for the
-- agent of its room, and beside them the same of an app and of the owner over HTTP.
--
-- Made by the ignored test in `written.rs`, run with the code of that commit:
--   TALARIA_STORED_COPY=/tmp/copy cargo nextest run … --test it --run-ignored all -E 'test(/a_database_is_left_behind/)'
--   sqlite3 /tmp/copy/talaria.db .dump
-- The next four lines are not part of a dump; the values are those of the file.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1415670881;
PRAGMA user_version = 12;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE inbox (
    account TEXT NOT NULL, room TEXT NOT NULL, event TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (account, room, event)
) WITHOUT ROWID;
INSERT INTO inbox VALUES('test','!all','$3',1794996403);
INSERT INTO inbox VALUES('test','!home','$0',1794996403);
INSERT INTO inbox VALUES('test','!home','$1',1794996403);
INSERT INTO inbox VALUES('test','!home','$2',1794996403);
INSERT INTO inbox VALUES('test','!lab','$4',1794996403);
CREATE TABLE cursors (account TEXT PRIMARY KEY, cursor TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO cursors VALUES('test','5');
CREATE TABLE parked (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (account, key)
);
CREATE TABLE notes (
    account TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (account, key)
) WITHOUT ROWID;
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO settings VALUES('queued.1541878c147360c1b23120dc25ba2aac9e0279854f4aeedd9125a3feae7a32d3','1794996403 1 n.1eb1b1ab1da7f2b15763c9e5890c786c');
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,                  -- hash of account and place
    forks INTEGER NOT NULL DEFAULT 0,   -- how often history was changed after the fact
    current INTEGER NOT NULL DEFAULT 1, -- 0 once /new has begun another one
    created INTEGER NOT NULL
, account TEXT NOT NULL DEFAULT '', room TEXT NOT NULL DEFAULT '', title TEXT, used INTEGER NOT NULL DEFAULT 0, number INTEGER NOT NULL DEFAULT 0, away INTEGER NOT NULL DEFAULT 0, model TEXT, system_prompt TEXT, parent TEXT, ended INTEGER, end_reason TEXT, passing INTEGER NOT NULL DEFAULT 0, expires INTEGER) WITHOUT ROWID;
INSERT INTO sessions VALUES('20261118_100643_08f008ad','e2d1ca1e41d3ef5ff72f095cd35a1816ac4e87bff5c84fec499486baf39b0da7',0,1,1794996403,'test','!home',NULL,1794996403,1,0,NULL,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO sessions VALUES('20261118_100643_21612403','9c77ad47bc99fbb2fc35d0bd5f8360c9b85d46187573ffa913e021001ebe56b0',0,1,1794996403,'test','!lab',NULL,1794996403,1,0,NULL,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO sessions VALUES('20261118_100643_2b43d130','646ee65031095ddce721652909f851a0f495f1fe31cf6c24116548199293be05',0,1,1794996403,'test','!all',NULL,1794996403,1,0,NULL,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO sessions VALUES('desk','92b9d7f3c9207e6e5e95c2a36ca78eb7ce5d9d35bd0d8773a3a948df491ec8ae',0,1,1794996403,'@http','',NULL,1794996403,1,0,NULL,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO sessions VALUES('phone/notes','ee0787ddede2e970f8fb9bcbd91d0b7bb140edcb0d9d973c4be9fc78908690b7',0,1,1794996403,'@http','phone',NULL,1794996403,1,0,NULL,NULL,NULL,NULL,NULL,0,NULL);
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
, stand_in INTEGER NOT NULL DEFAULT 0, ended INTEGER, speaker TEXT, speaker_name TEXT, question TEXT, quote TEXT, agent TEXT, brought TEXT, retold INTEGER NOT NULL DEFAULT 0);
INSERT INTO turns VALUES(1,'9617b11343486357','20261118_100643_08f008ad','test','!home',NULL,'$0','@ann:test','ann','!home',1,'when is tea?','[]',0,'9617b1134348635747067b7019a2a3857fcfc0345cb232815242f388d66c77f2','done',0,0,NULL,1,'Tea is at four.','"done"',1,'[]',0,0,0,1794996403,0,1794996403,NULL,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO turns VALUES(2,'5d7dd750c6096029','20261118_100643_08f008ad','test','!home',NULL,'$1','@ann:test','ann','!home',1,'clean up','[]',0,'5d7dd750c6096029ff0933421fbd3d1ff031d36a601d3e7ef4a68a3b1908e636','streaming',0,0,X'73637269707465642c207265717565737420323a20636c65616e207570',1,NULL,NULL,0,'[]',0,0,0,1794996403,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO turns VALUES(3,'0eeacdb93915f887','20261118_100643_08f008ad','test','!home',NULL,'$2','@ann:test','ann','!home',1,'and then?','[]',0,'0eeacdb93915f8875e9938260260051437c2bc7769e0b785f66c581a2e50ae33','queued',0,0,NULL,0,NULL,NULL,0,'[]',0,0,0,1794996403,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO turns VALUES(4,'5699617bc4b3ed72','20261118_100643_2b43d130','test','!all',NULL,'$3','@bob:test','bob','!all',1,'who is in?','[]',0,'5699617bc4b3ed7228052eb7ab3c972510842c589fb98ace34f4d3546f52e7d7','finalizing',0,0,X'73637269707465642c207265717565737420333a2077686f20697320696e3f',1,'Everybody is in.','"done"',1,'[]',0,0,0,1794996403,0,1794996403,NULL,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO turns VALUES(5,'9f1bfbc709dc76f8','20261118_100643_21612403','test','!lab',NULL,'$4','@ann:test','ann','!lab',1,'which model are you?','[]',0,'9f1bfbc709dc76f8ad47e2addefc3a1687a49dad0d97283aade9f093b1109a6d','queued',0,0,NULL,0,NULL,NULL,0,'[]',0,0,0,1794996403,0,NULL,NULL,NULL,NULL,NULL,'local',NULL,0);
INSERT INTO turns VALUES(6,'run_0626fdd4e5d629c46e5ebf79d8a9317a','phone/notes','@http','phone',NULL,'run_0626fdd4e5d629c46e5ebf79d8a9317a','app phone',NULL,NULL,1,'buy milk','[]',0,'run_0626fdd4e5d629c46e5ebf79d8a9317a','done',0,0,NULL,1,'Noted.','"done"',1,'[]',0,0,0,1794996403,0,1794996403,NULL,NULL,NULL,NULL,NULL,'{"parts":[],"system":null,"params":{},"memory":null,"hops":0,"origin":{"user_id":null,"user_name":null,"chat_id":null,"chat_name":null,"chat_type":null,"thread_id":null},"patience":"endless","when_away":"wait"}',0);
INSERT INTO turns VALUES(7,'run_0ab27a18e1e09a089385719363ab1437','phone/notes','@http','phone',NULL,'run_0ab27a18e1e09a089385719363ab1437','app phone',NULL,NULL,1,'tidy up','[]',0,'run_0ab27a18e1e09a089385719363ab1437','streaming',0,0,X'73637269707465642c207265717565737420353a2074696479207570',1,NULL,NULL,0,'[]',0,0,0,1794996403,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"parts":[],"system":null,"params":{},"memory":null,"hops":0,"origin":{"user_id":null,"user_name":null,"chat_id":null,"chat_name":null,"chat_type":null,"thread_id":null},"patience":"endless","when_away":"wait"}',0);
INSERT INTO turns VALUES(8,'run_5f9a5c5c699dc2d5e551fdb4dfec0ece','phone/notes','@http','phone',NULL,'run_5f9a5c5c699dc2d5e551fdb4dfec0ece','app phone',NULL,NULL,1,'what is left?','[]',0,'run_5f9a5c5c699dc2d5e551fdb4dfec0ece','queued',0,0,NULL,0,NULL,NULL,0,'[]',0,0,0,1794996403,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"parts":[],"system":null,"params":{},"memory":null,"hops":0,"origin":{"user_id":null,"user_name":null,"chat_id":null,"chat_name":null,"chat_type":null,"thread_id":null},"patience":"endless","when_away":"wait"}',0);
INSERT INTO turns VALUES(9,'run_66b38475a27bd94aefeee7dc487fc7f2','desk','@http','',NULL,'run_66b38475a27bd94aefeee7dc487fc7f2','owner',NULL,NULL,1,'hello','[]',0,'run_66b38475a27bd94aefeee7dc487fc7f2','done',0,0,NULL,1,'Hello, owner.','"done"',1,'[]',0,0,0,1794996403,0,1794996403,NULL,NULL,NULL,NULL,NULL,'{"parts":[],"system":null,"params":{},"memory":null,"hops":0,"origin":{"user_id":null,"user_name":null,"chat_id":null,"chat_name":null,"chat_type":null,"thread_id":null},"patience":"a_while","when_away":"wait"}',0);
INSERT INTO turns VALUES(10,'run_168a016696126bc0efdf8ba47fff5b29','desk','@http','',NULL,'run_168a016696126bc0efdf8ba47fff5b29','owner',NULL,NULL,1,'a secret','[]',0,'run_168a016696126bc0efdf8ba47fff5b29','dispatched',0,0,X'73637269707465642c207265717565737420373a206120736563726574',1,NULL,NULL,0,'[]',0,0,0,1794996403,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"parts":[],"system":null,"params":{},"memory":null,"hops":0,"origin":{"user_id":null,"user_name":null,"chat_id":null,"chat_name":null,"chat_type":null,"thread_id":null},"patience":"none","when_away":"wait"}',0);
CREATE TABLE checkpoints (
    turn TEXT NOT NULL, offset INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (turn, offset)
) WITHOUT ROWID;
INSERT INTO checkpoints VALUES('5d7dd750c6096029',0,'Looking around. ');
INSERT INTO checkpoints VALUES('run_0ab27a18e1e09a089385719363ab1437',0,'Tidying. ');
CREATE TABLE anchors (turn TEXT PRIMARY KEY, message TEXT) WITHOUT ROWID;
INSERT INTO anchors VALUES('5d7dd750c6096029','m1');
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL REFERENCES sessions (id), turn TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL
, at INTEGER, tools TEXT);
INSERT INTO messages VALUES(1,'20261118_100643_08f008ad','9617b11343486357','user','when is tea?',1794996403,NULL);
INSERT INTO messages VALUES(2,'20261118_100643_08f008ad','9617b11343486357','assistant','Tea is at four.',1794996403,NULL);
INSERT INTO messages VALUES(3,'20261118_100643_2b43d130','5699617bc4b3ed72','user','who is in?',1794996403,NULL);
INSERT INTO messages VALUES(4,'20261118_100643_2b43d130','5699617bc4b3ed72','assistant','Everybody is in.',1794996403,NULL);
INSERT INTO messages VALUES(5,'phone/notes','run_0626fdd4e5d629c46e5ebf79d8a9317a','user','buy milk',1794996403,NULL);
INSERT INTO messages VALUES(6,'phone/notes','run_0626fdd4e5d629c46e5ebf79d8a9317a','assistant','Noted.',1794996403,NULL);
INSERT INTO messages VALUES(7,'desk','run_66b38475a27bd94aefeee7dc487fc7f2','user','hello',1794996403,NULL);
INSERT INTO messages VALUES(8,'desk','run_66b38475a27bd94aefeee7dc487fc7f2','assistant','Hello, owner.',1794996403,NULL);
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
, file BLOB);
INSERT INTO outbox VALUES(1,'t.9617b11343486357.0','test','!home',NULL,'9617b11343486357','final',0,'',0,'sent','m0',NULL);
INSERT INTO outbox VALUES(2,'a.6c495ed9219ca386209a763245acd82c','test','!home',NULL,NULL,'notice',0,'',0,'sent','m2',NULL);
INSERT INTO outbox VALUES(3,'n.1eb1b1ab1da7f2b15763c9e5890c786c','test','!home',NULL,NULL,'notice',0,'{"markdown":"Noted; one is before it. /stop ends all of them.","reply_to":"$2","kind":"Notice","done":true,"files":[],"silent":false,"failed":false,"remark":null}',0,'pending',NULL,NULL);
INSERT INTO outbox VALUES(4,'t.5699617bc4b3ed72.0','test','!all',NULL,'5699617bc4b3ed72','final',0,'{"markdown":"Everybody is in.","reply_to":"$3","kind":"Answer","done":true,"files":[],"silent":false,"failed":false,"remark":null}',0,'pending',NULL,NULL);
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, account TEXT NOT NULL, actor TEXT NOT NULL,
    room TEXT NOT NULL,                    -- a hash
    place TEXT NOT NULL,                   -- direct, room
    action TEXT NOT NULL, allowed INTEGER NOT NULL, rule TEXT NOT NULL,
    digest TEXT                            -- of what an agent asked for; NULL for everything else
);
INSERT INTO audit VALUES(1,1794996403,'test','@ann:test','9ee271d89162b024','direct','message',1,'everybody',NULL);
INSERT INTO audit VALUES(2,1794996403,'test','@ann:test','9ee271d89162b024','direct','message',1,'everybody',NULL);
INSERT INTO audit VALUES(3,1794996403,'test','@ann:test','9ee271d89162b024','direct','message',1,'everybody',NULL);
INSERT INTO audit VALUES(4,1794996403,'test','@bob:test','baf85927614528c1','direct','message',1,'everybody',NULL);
INSERT INTO audit VALUES(5,1794996403,'test','@ann:test','0960dfb07c6d1aad','direct','message',1,'everybody',NULL);
INSERT INTO audit VALUES(6,1794996403,'@http','(operator)','713bc2ea7626d446','operator','add token of phone',1,'operator',NULL);
CREATE TABLE departed (
    account TEXT NOT NULL, room TEXT NOT NULL, person TEXT NOT NULL, PRIMARY KEY (account, room, person)
) WITHOUT ROWID;
CREATE TABLE pairings (
    account TEXT NOT NULL, person TEXT NOT NULL, name TEXT, room TEXT NOT NULL,
    code TEXT,                             -- salted hash; NULL once they are let in
    salt TEXT NOT NULL,
    at INTEGER NOT NULL,                   -- when they asked, or once they are let in, when that was
    PRIMARY KEY (account, person)
) WITHOUT ROWID;
CREATE TABLE asks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, code TEXT NOT NULL, turn TEXT NOT NULL, session TEXT NOT NULL,
    account TEXT NOT NULL, room TEXT NOT NULL, thread TEXT,
    title TEXT NOT NULL,                   -- as it is shown
    digest TEXT NOT NULL,                  -- of everything that was asked
    state TEXT NOT NULL DEFAULT 'open',    -- open, approved (by a person), taken (by the agent), denied
    scope TEXT, by TEXT, rule TEXT,        -- how it was decided
    asked INTEGER NOT NULL, expires INTEGER NOT NULL, ended INTEGER
, told INTEGER NOT NULL DEFAULT 0, nth INTEGER NOT NULL DEFAULT 0, ended_told INTEGER, ended_nth INTEGER);
INSERT INTO asks VALUES(1,'6c495ed9219ca386209a763245acd82c','QDQW','5d7dd750c6096029','20261118_100643_08f008ad','test','!home',NULL,'`delete the build`','91a060c17aad85d637df1619beaa13189016b8e7fa0a6f434f1a33bc849a44fc','open',NULL,NULL,NULL,1794996403,1794996703,NULL,16,0,NULL,NULL);
INSERT INTO asks VALUES(2,'7888139f3a7d51f265c82e3908c6f21f','TNNW','run_0ab27a18e1e09a089385719363ab1437','phone/notes','@http','phone',NULL,'delete a note','2b68a0a02a183c9eaf3f4142be2d31212593e0cfaaa18449e37e0a611d3c5e82','open',NULL,NULL,NULL,1794996403,1794996703,NULL,9,0,NULL,NULL);
CREATE TABLE grants (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL, title TEXT NOT NULL,
    session TEXT,                          -- for this session only; NULL for the whole place
    account TEXT NOT NULL, room TEXT NOT NULL,
    place TEXT NOT NULL,                   -- direct, room: what the room was then
    by TEXT NOT NULL, granted INTEGER NOT NULL, expires INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tokens (
    app TEXT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,               -- the part of the token that is no secret, to find it by
    digest BLOB NOT NULL,                  -- SHA-256 of the whole token
    created INTEGER NOT NULL, used INTEGER,
    revoked INTEGER                        -- when; the row stays, because what the app had stays
, instructions INTEGER NOT NULL DEFAULT 1) WITHOUT ROWID;
INSERT INTO tokens VALUES('phone','619e5d8d',X'3989a3952647f96646b1ed0e78e2d507a4ca15aef4b976954ff20b30a529f369',1794996403,1794996403,NULL,1);
CREATE TABLE idempotency (
    app TEXT NOT NULL, key TEXT NOT NULL,
    digest TEXT NOT NULL,                  -- of what was asked
    turn TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (app, key)
) WITHOUT ROWID;
INSERT INTO idempotency VALUES('','k','840b7fdfdd9ec20841be0a8fce5328b226b64a6a5205c4a9938a39571dd4cdb3','run_66b38475a27bd94aefeee7dc487fc7f2',1794996403);
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    app TEXT NOT NULL, turn TEXT NOT NULL, session TEXT NOT NULL,
    previous TEXT,                         -- the response it goes on from
    request TEXT NOT NULL,                 -- what of the question is repeated in the answer, as JSON
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE commands (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- the order within a place
    key TEXT NOT NULL UNIQUE,              -- of the answer in the outbox
    account TEXT NOT NULL, room TEXT NOT NULL, thread TEXT, event TEXT NOT NULL,
    author TEXT NOT NULL, direct INTEGER NOT NULL,
    name TEXT NOT NULL, behind TEXT NOT NULL, -- the command, and the words behind it
    started INTEGER NOT NULL DEFAULT 0,    -- 1: it may have had an effect, and must not run again
    at INTEGER NOT NULL
);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('audit',6);
INSERT INTO sqlite_sequence VALUES('turns',10);
INSERT INTO sqlite_sequence VALUES('messages',8);
INSERT INTO sqlite_sequence VALUES('outbox',4);
INSERT INTO sqlite_sequence VALUES('asks',2);
CREATE UNIQUE INDEX sessions_current ON sessions (key) WHERE current = 1;
CREATE INDEX turns_open ON turns (seq)
    WHERE state IN ('queued', 'dispatched', 'streaming', 'finalizing');
CREATE INDEX turns_session ON turns (session, seq);
CREATE INDEX turns_event ON turns (account, room, event);
CREATE INDEX messages_session ON messages (session, id);
CREATE INDEX messages_turn ON messages (turn);
CREATE INDEX outbox_pending ON outbox (account, seq) WHERE state = 'pending';
CREATE INDEX outbox_turn ON outbox (turn);
CREATE INDEX sessions_key ON sessions (key, used);
CREATE UNIQUE INDEX sessions_number ON sessions (key, number);
CREATE INDEX turns_room ON turns (account, room, seq);
CREATE INDEX turns_author ON turns (account, author, created);
CREATE INDEX audit_actor ON audit (account, actor, at);
CREATE INDEX asks_place ON asks (account, room, state);
CREATE UNIQUE INDEX asks_code ON asks (account, code) WHERE state = 'open';
CREATE INDEX asks_turn ON asks (turn);
CREATE INDEX grants_place ON grants (account, room, digest);
CREATE INDEX turns_question ON turns (account, room, question) WHERE question IS NOT NULL;
CREATE INDEX outbox_message ON outbox (account, room, message) WHERE message IS NOT NULL;
CREATE INDEX sessions_place ON sessions (account, room, used);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_passing ON sessions (used) WHERE passing = 1;
CREATE INDEX idempotency_at ON idempotency (at);
CREATE INDEX idempotency_turn ON idempotency (turn);
CREATE INDEX responses_session ON responses (session);
CREATE INDEX sessions_expires ON sessions (expires) WHERE expires IS NOT NULL;
CREATE INDEX sessions_owned ON sessions (used) WHERE account <> '@http' OR room = '';
CREATE INDEX sessions_apps ON sessions (used) WHERE account = '@http' AND room <> '';
CREATE INDEX commands_place ON commands (account, room);
COMMIT;
