//! One random history: the actions of people and of the machine on a gateway whose agent asks.

use std::fmt;
use std::time::Duration;

use rusqlite::Connection;
use talaria::agent::{Ask, OptionKind};
use tokio::time::Instant;

use crate::scenes::asks::gateway;
use crate::support::gateway::TestGateway;
use crate::support::room::Room;
use crate::support::scripted::{Answer, Asked, ask, choice, count, option, or_text};

/// The first is an admin, the last is a stranger.
pub const PEOPLE: [&str; 4] = ["@ada", "@ann", "@bob", "@eve"];

/// An action that the agent asks for again and again, so that grants matter.
const COMMON: &str = "common";

pub struct Trial {
    gateway: TestGateway,
    random: u64,
    did: Vec<Did>,
    /// Number of the current batch: events that are posted together are accepted together.
    batch: u64,
    number: usize,
    killed: bool,
}

/// An action of a person or of the machine.
#[derive(Clone, Debug)]
pub struct Did {
    pub what: What,
    pub at: Instant,
    /// Its place in the counted order: when it began, and when the gateway had accepted it.
    pub order: (u64, u64),
    pub batch: u64,
}

#[derive(Clone, Debug)]
pub enum What {
    Said {
        room: usize,
        who: &'static str,
        text: String,
    },
    #[expect(dead_code, reason = "a mark allows nothing; shown when a trial fails")]
    Marked {
        room: usize,
        who: &'static str,
        mark: &'static str,
    },
    /// The process ended.
    Ended,
}

/// The complete result of a trial.
pub struct History {
    pub did: Vec<Did>,
    /// The agent's asks, and the answers that it got.
    pub asked: Vec<Asked>,
    pub answers: Vec<Answer>,
    /// The code of each ask that was shown: room, title, code.
    pub codes: Vec<(usize, String, String)>,
    /// Every ask in the store: title, state and digest.
    pub stored: Vec<(String, String, String)>,
    /// Every outcome in the audit: digest, whether it was allowed, rule.
    pub audited: Vec<(String, bool, String)>,
    /// Whether the process was ever killed instead of stopped.
    pub killed: bool,
}

impl History {
    pub fn allowed(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(|answer| !answer.is_denied())
    }
}

impl Trial {
    /// Runs the trial of a seed.
    pub async fn run(seed: u64) -> History {
        let mut trial = Self {
            gateway: gateway().await,
            random: seed,
            did: Vec::new(),
            batch: 0,
            number: 0,
            killed: false,
        };
        trial.steps().await;
        trial.gateway.drain().await;
        let database = Connection::open(trial.gateway.database()).unwrap();
        let mut asks = database.prepare("SELECT title, state, digest FROM asks").unwrap();
        let stored = asks.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        let mut audit =
            database.prepare("SELECT digest, allowed, rule FROM audit WHERE digest IS NOT NULL").unwrap();
        let audited = audit.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        let rooms = [trial.room(0), trial.room(1)];
        History {
            codes: rooms.iter().enumerate().flat_map(|(number, room)| codes(room, number)).collect(),
            did: trial.did,
            asked: trial.gateway.agent_itself().asked(),
            answers: trial.gateway.agent_itself().answers(),
            stored: stored.map(Result::unwrap).collect(),
            audited: audited.map(Result::unwrap).collect(),
            killed: trial.killed,
        }
    }

    async fn steps(&mut self) {
        self.asks(0).await;
        for _ in 0..6 + self.below(8) {
            match self.below(20) {
                0..4 => {
                    let room = self.below(2);
                    self.asks(room).await;
                    // Often somebody answers at once.
                    if self.below(2) == 0 {
                        self.people_act(1).await;
                    }
                }
                4..13 => {
                    let together = if self.below(3) == 0 { 2 + self.below(2) } else { 1 };
                    self.people_act(together).await;
                }
                13..18 => {
                    let seconds = [0.03, 0.06, 1.0, 5.0, 100.0, 299.0, 301.0];
                    let pause = seconds[self.below(seconds.len())];
                    tokio::time::sleep(Duration::from_secs_f64(pause)).await;
                }
                18 => self.ends(false).await,
                _ => self.ends(true).await,
            }
        }
    }

    /// A person asks a question in a room, and the agent asks for a few actions.
    async fn asks(&mut self, room: usize) {
        let asks: Vec<Ask> = (0..1 + self.below(3))
            .map(|_| {
                self.number += 1;
                let kind = self.below(4);
                let name = if kind == 0 { COMMON.to_owned() } else { format!("{}", self.number) };
                let (title, detail) = (format!("{room} {name}"), format!("do {name} in {room}"));
                match kind {
                    // A question. The checker knows these options by their ids.
                    1 => or_text(choice(
                        &title,
                        &detail,
                        [
                            option("yes", "Do it", OptionKind::AllowOnce),
                            option("part", "Half", OptionKind::Answer),
                        ],
                    )),
                    _ => ask(&title, &detail),
                }
            })
            .collect();
        let words = format!("prompt {} in {room}.", self.number);
        let script = self.gateway.agent().when(&words);
        match self.below(2) {
            0 => script.asks_all(asks),
            _ => asks.into_iter().fold(script, |script, ask| script.asks_all([ask])),
        };
        self.says(room, "@ann", words);
        self.is_read().await;
        if self.below(4) > 0 {
            // Mostly, people have time to read the ask.
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    }

    /// People do so many things at the same moment.
    async fn people_act(&mut self, together: usize) {
        for _ in 0..together {
            let who = PEOPLE[self.below(PEOPLE.len())];
            // Mostly about one of the latest asks of a room, sometimes about any.
            let last = self.below(2);
            let asked: Vec<_> =
                [1 - last, last].into_iter().flat_map(|room| codes(&self.room(room), room)).collect();
            let back = if self.below(4) == 0 { asked.len() } else { 2 };
            let about = asked.len().checked_sub(1 + self.below(back.max(1))).and_then(|at| asked.get(at));
            let (home, code) =
                about.map_or((self.below(2), "ZZZZ"), |(room, _, code)| (*room, code.as_str()));
            let room = if self.below(5) == 0 { 1 - home } else { home };
            let code = [code, code, code, "", "QQQQ"][self.below(5)];
            let reach = ["", "", "once", "session", "always"][self.below(5)];
            // Mostly the command that fits the ask.
            let asked = self.room(home).asked();
            let question = asked.iter().any(|asked| asked.code == code && asked.text.contains("`/answer "));
            let words = ["1", "2", "do it", "part", "because of the weather"][self.below(5)];
            let answer = match question == (self.below(6) > 0) {
                true => format!("/answer {code} {words}"),
                false => format!("/approve {code} {reach}").trim_end().to_owned(),
            };
            match self.below(12) {
                // An answer, and a stop in the same moment.
                10 => {
                    self.says(home, "@ann", answer);
                    self.says(home, "@bob", "/stop".to_owned());
                }
                0..6 => self.says(room, who, answer),
                6 => self.says(room, who, format!("/deny {code}").trim_end().to_owned()),
                7 => self.says(room, who, "/stop".to_owned()),
                _ => {
                    let mark = ["❌", "✅", "👍"][self.below(3)];
                    if let Some(asked) = self.room(home).asked().last() {
                        self.room(room).marks(who, &asked.message, mark);
                        self.does(What::Marked { room, who, mark });
                    }
                }
            }
        }
        self.is_read().await;
    }

    async fn ends(&mut self, killed: bool) {
        let at = self.does(What::Ended);
        if killed {
            self.killed = true;
            let moment = self.gateway.kill().await;
            self.did[at].order = (moment, moment);
        } else {
            self.gateway.drain().await;
            self.did[at].order.1 = count();
        }
        self.gateway.restart().await;
        self.batch += 1;
    }

    fn says(&mut self, room: usize, who: &'static str, text: String) {
        self.room(room).posts(who, &text, Vec::new());
        self.does(What::Said { room, who, text });
    }

    fn does(&mut self, what: What) -> usize {
        let order = (count(), u64::MAX);
        self.did.push(Did { what, at: Instant::now(), order, batch: self.batch });
        self.did.len() - 1
    }

    /// Waits until the gateway has accepted everything that was posted so far.
    async fn is_read(&mut self) {
        self.gateway.chat().is_read().await;
        for did in self.did.iter_mut().filter(|did| did.order.1 == u64::MAX) {
            did.order.1 = count();
        }
        self.batch += 1;
    }

    fn room(&self, number: usize) -> Room {
        self.gateway.direct_room(&format!("!{number}"))
    }

    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// The asks that a room shows: room number, title and code.
fn codes(room: &Room, number: usize) -> Vec<(usize, String, String)> {
    let title = |text: &str| text.split('`').nth(1).unwrap().to_owned();
    room.asked().into_iter().map(|asked| (number, title(&asked.text), asked.code)).collect()
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let began = self.did.first().map_or_else(Instant::now, |did| did.at);
        for did in &self.did {
            writeln!(f, "{:?} {:?} batch {} {:?}", did.at - began, did.order, did.batch, did.what)?;
        }
        for answer in &self.answers {
            let Answer { asked: Asked { ask, at: asked, order: first }, choice, at, order } = answer;
            let (asked, told) = (*asked - began, *at - began);
            writeln!(f, "({first}, {order}) {:?} asked {asked:?} told {told:?} {choice:?}", ask.title)?;
        }
        writeln!(f, "{:?}\n{:?}\n{:?}", self.codes, self.stored, self.audited)
    }
}
