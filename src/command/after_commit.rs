//! Carries out commands whose effect needs I/O, after the transaction that took them.
//!
//! The hub stores such a command in its transaction, where it also decides whether its author may send it. Here it
//! runs: in order within its place, only so many at a time, and within a deadline. Its answer and the end of its row
//! are one transaction, with a key that is made of the message: a person is answered once, however often the process
//! dies. A command that has no answer yet is taken up by the next process, which repeats it or says that it was
//! interrupted ([`RestartPolicy`]).

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{AccountId, BoxFuture, Place, PlaceLifetime, SendKey};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{CommandContext, CommandOutcome, CommandRun, say};
use crate::access::{AccessDecision, AccessRule, PlaceKind};
use crate::agents::runtime_switch::RuntimeControl;
use crate::agents::skills::SkillLibrary;
use crate::chat_command::ChatCommand;
use crate::delivery::Delivery;
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::notice::{Notice, notice_key};
use crate::post_commit::PostCommit;
use crate::rules::{LiveRules, Rules, SessionKey};
use crate::store::{self, CommandRow, Store, StoreError, Tx};
use crate::testing::failpoint;
use crate::turns::Turns;

/// Time limit for a command. A person waits for its answer, and so does the next command of the place. Long enough for
/// a process that has to start first.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(20);

/// Commands that run at the same moment, in all places together. Each may hold a connection or a process.
pub const COMMANDS_AT_ONCE: usize = 8;

/// Commands of one place that may be without an answer. Nobody waits for more; one more is refused.
pub const COMMANDS_WAITING: usize = 16;

/// Pause before the store is tried again after a failure.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// A command of the table that runs after the commit.
#[derive(Clone, Copy)]
pub(super) struct AfterCommit {
    /// Does the I/O. Dropped at the deadline, which must end everything that it began.
    pub run: fn(CommandTask) -> BoxFuture<'static, CommandResult>,
    /// Behaviour of the next process, if this one dies during the command.
    pub restart: RestartPolicy,
    /// The answer at the deadline, with the command and the seconds.
    pub late: TextKey,
}

/// Behaviour of a process toward a command that an earlier process may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    /// The command runs again, because it changes nothing.
    Repeat,
    /// The command does not run again, and its author is told so: it may have had its effect.
    Refuse,
}

/// Everything that a running command is given.
pub(super) struct CommandTask {
    /// The stored command, with its author and place.
    pub row: CommandRow,
    /// The engine, and with it the agents.
    pub turns: Arc<Turns>,
    /// Current rules: access, and the agents of places.
    pub live: Arc<LiveRules>,
    /// The skills of agents, if there is a folder for them.
    pub skills: Option<Arc<SkillLibrary>>,
    /// Shows and changes the runtimes of agents.
    pub runtimes: Arc<RuntimeControl>,
}

impl CommandTask {
    /// The session of the command's place.
    pub fn session_key(&self) -> SessionKey {
        let CommandRow { account, place, direct, author, .. } = &self.row;
        SessionKey::new(account, place, *direct, author, self.live.now().account(account).session)
    }

    /// Name of the agent that answers in that session.
    pub async fn agent_of_place(&self) -> store::Result<AgentName> {
        let rules = self.live.now().account(&self.row.account);
        let chosen = self.turns.chosen_agent(self.session_key()).await?;
        let of_room = || rules.agent_in(&self.row.place.room).cloned();
        Ok(chosen.or_else(of_room).unwrap_or_else(|| self.turns.agents().default_name().clone()))
    }
}

/// Function that makes the answer of a command; or one sentence that says why there is no answer.
pub(super) type CommandResult = Result<CommandAnswer, LocalizedText>;

/// Makes the answer and the command's changes, in the transaction that stores the answer. Called again if the store
/// fails.
pub(super) type CommandAnswer = Box<dyn Fn(&Tx<'_>, &Rules) -> store::Result<LocalizedText> + Send + Sync>;

/// Stores a command in the transaction that takes its message.
pub(super) fn store(
    context: &CommandContext<'_>,
    command: ChatCommand,
    behind: &str,
) -> store::Result<CommandOutcome> {
    let (account, event) = (context.account, context.event);
    let name = command.name();
    if context.tx.open_commands_in(account, &event.place)? >= COMMANDS_WAITING {
        return say(TextKey::CommandsFull.with("command", name).with("limit", COMMANDS_WAITING));
    }
    let key = notice_key("n", &[account.as_str(), event.place.room.as_str(), event.id.as_str()]);
    context.tx.add_command(&CommandRow {
        key: key.clone(),
        account: account.clone(),
        place: event.place.clone(),
        event: event.id.clone(),
        author: event.author.id.clone(),
        direct: event.room.direct,
        name: name.to_owned(),
        behind: behind.to_owned(),
        started: false,
    })?;
    Ok((vec![PostCommit::RunCommand(event.place.clone(), key)], None))
}

/// Runs stored commands. One per process, behind an `Arc`.
pub struct CommandRunner {
    store: Store,
    turns: Arc<Turns>,
    delivery: Arc<Delivery>,
    live: Arc<LiveRules>,
    skills: Option<Arc<SkillLibrary>>,
    runtimes: Arc<RuntimeControl>,
    /// Commands that wait for another of their place. A place is here for as long as its task works.
    lines: Mutex<HashMap<(AccountId, Place), VecDeque<SendKey>>>,
    /// One permit for each command that may run now.
    slots: Semaphore,
    /// Notified whenever a line ends; [`CommandRunner::idle`] waits for it.
    ended: Notify,
    /// Fired once, when the process is about to end.
    draining: CancellationToken,
    /// One task per place that has a command to run.
    tasks: TaskTracker,
}

impl CommandRunner {
    /// Creates a runner without commands.
    pub fn new(
        store: Store,
        turns: Arc<Turns>,
        delivery: Arc<Delivery>,
        live: Arc<LiveRules>,
        skills: Option<Arc<SkillLibrary>>,
        runtimes: Arc<RuntimeControl>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            turns,
            delivery,
            live,
            skills,
            runtimes,
            lines: Mutex::default(),
            slots: Semaphore::new(COMMANDS_AT_ONCE),
            ended: Notify::new(),
            draining: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// Takes up every command that an earlier process left without an answer. Called once, before platforms read.
    pub async fn recover(self: &Arc<Self>) -> store::Result<usize> {
        let open = self.store.read(|tx| tx.open_commands()).await?;
        let count = open.len();
        for row in open {
            self.enqueue(row.account, row.place, row.key);
        }
        Ok(count)
    }

    /// Runs a committed command after the earlier commands of its place.
    pub fn enqueue(self: &Arc<Self>, account: AccountId, place: Place, key: SendKey) {
        let at = (account, place);
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(&at) {
            line.push_back(key);
            return;
        }
        lines.insert(at.clone(), VecDeque::from([key]));
        drop(lines);
        let runner = self.clone();
        self.tasks.spawn(async move { runner.work(at).await });
    }

    /// Waits until every command is answered.
    pub async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.lines().is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Begins nothing more, and waits for the commands that run. Commands that wait stay stored for the next start.
    pub async fn drain(&self) {
        self.draining.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The body of a place's task: one command after the other until none waits.
    async fn work(self: Arc<Self>, at: (AccountId, Place)) {
        while let Some(key) = self.next(&at) {
            let slot = tokio::select! {
                biased;
                () = self.draining.cancelled() => continue,
                slot = self.slots.acquire() => slot,
            };
            if let Err(error) = self.carry_out(&key).await {
                tracing::error!(%error, "a command is left to the next start, because the store failed");
            }
            drop(slot);
        }
        self.ended.notify_waiters();
    }

    /// The next command of a place; `None` takes its line away.
    fn next(&self, at: &(AccountId, Place)) -> Option<SendKey> {
        let mut lines = self.lines();
        let next = if self.draining.is_cancelled() { None } else { lines.get_mut(at)?.pop_front() };
        if next.is_none() {
            lines.remove(at);
        }
        next
    }

    /// Runs one command and answers it.
    async fn carry_out(&self, key: &SendKey) -> store::Result<()> {
        let Some((row, after)) = self.persist(|| self.begin(key)).await? else { return Ok(()) };
        failpoint("command.begun");
        let result = self.run(&row, after).await;
        failpoint("command.ran");
        let result = Arc::new(result);
        match self.persist(|| self.answer(&row, &result)).await {
            // The stored data does not allow an answer.
            Err(error @ (StoreError::Panicked | StoreError::Damaged(_))) => {
                tracing::error!(%error, command = row.name, "a command has no answer");
                let broken = Arc::new(Err(TextKey::CommandBroken.with("command", row.name.as_str())));
                self.persist(|| self.answer(&row, &broken)).await?;
            }
            answered => answered?,
        }
        failpoint("command.answered");
        Ok(())
    }

    /// Checks whether a command may run, and marks one that must not run twice as started. A command that may not run is
    /// answered here, or ends without an answer if nobody is left to read it.
    async fn begin(&self, key: &SendKey) -> store::Result<Option<(CommandRow, AfterCommit)>> {
        let (key, rules, delivery) = (key.clone(), self.live.now(), self.delivery.clone());
        let begun = self.store.write(move |tx| {
            let Some(row) = tx.command(&key)? else { return Ok(None) };
            let answer =
                CommandNotice { tx, rules: &rules, max_text: delivery.max_text(&row.account), row: &row };
            if lasts(&delivery, &row) == PlaceLifetime::Gone {
                tx.end_command(&key)?;
                return Ok(None);
            }
            let known = after_commit(&row.name);
            if let Some((command, _)) = known
                && !answer.is_permitted(command)?
            {
                tx.end_command(&key)?;
                return Ok(None);
            }
            // A name that is not in the table comes from a database that another version used.
            let Some((_, after)) = known.filter(|_| !row.started) else {
                tx.end_command(&key)?;
                answer.refuse(&TextKey::CommandInterrupted.with("command", row.name.as_str()))?;
                return Ok(None);
            };
            if after.restart == RestartPolicy::Refuse {
                tx.start_command(&key)?;
            }
            Ok(Some((row, after)))
        });
        let begun = begun.await?;
        if begun.is_none() {
            self.delivery.accounts().for_each(|account| account.wake());
        }
        Ok(begun)
    }

    /// Runs a command. Every end gives an answer: a result, a panic or the deadline.
    async fn run(&self, row: &CommandRow, after: AfterCommit) -> CommandResult {
        let (name, late) = (row.name.as_str(), after.late);
        let task = CommandTask {
            row: row.clone(),
            turns: self.turns.clone(),
            live: self.live.clone(),
            skills: self.skills.clone(),
            runtimes: self.runtimes.clone(),
        };
        let run = AssertUnwindSafe(async move { (after.run)(task).await }).catch_unwind();
        match tokio::time::timeout(COMMAND_DEADLINE, run).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                tracing::error!(command = name, "a command broke");
                Err(TextKey::CommandBroken.with("command", name))
            }
            Err(_) => {
                tracing::warn!(command = name, "a command took too long");
                let seconds = usize::try_from(COMMAND_DEADLINE.as_secs()).unwrap_or(usize::MAX);
                Err(late.with("command", name).with("seconds", seconds))
            }
        }
    }

    /// Ends a command and adds its answer to the outbox, unless its author may no longer have the answer.
    async fn answer(&self, row: &CommandRow, result: &Arc<CommandResult>) -> store::Result<()> {
        let (row, result) = (row.clone(), result.clone());
        let (rules, max_text) = (self.live.now(), self.delivery.max_text(&row.account));
        let account = self.delivery.account(&row.account);
        let answered = self.store.write(move |tx| {
            if !tx.end_command(&row.key)? {
                return Ok(());
            }
            let answer = CommandNotice { tx, rules: &rules, max_text, row: &row };
            if let Some(command) = ChatCommand::named(&row.name)
                && !answer.is_permitted(command)?
            {
                return Ok(());
            }
            match &*result {
                Ok(make) => answer.tell(&make(tx, &rules)?),
                Err(why) => answer.refuse(why),
            }
        });
        answered.await?;
        if let Some(account) = account {
            account.wake();
        }
        Ok(())
    }

    /// Repeats a job until the store has taken it, or the process is about to end.
    async fn persist<T, F>(&self, job: impl Fn() -> F) -> store::Result<T>
    where
        F: Future<Output = store::Result<T>>,
    {
        loop {
            let error = match job().await {
                Err(error @ (StoreError::Sqlite(_) | StoreError::Commit(_))) => error,
                done => return done,
            };
            tracing::error!(%error, "a command waits for the store");
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return Err(error),
                () = tokio::time::sleep(STORE_PAUSE) => {}
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<(AccountId, Place), VecDeque<SendKey>>> {
        self.lines.lock()
    }
}

/// The command of this name, if it is one that runs after the commit.
fn after_commit(name: &str) -> Option<(ChatCommand, AfterCommit)> {
    let command = ChatCommand::named(name)?;
    match command.entry().1 {
        CommandRun::AfterCommit(after) => Some((command, after)),
        CommandRun::InTransaction(_) => None,
    }
}

/// Lifetime of the place of a command.
fn lasts(delivery: &Delivery, row: &CommandRow) -> PlaceLifetime {
    let account = delivery.account(&row.account);
    account.map_or(PlaceLifetime::Always, |account| account.platform().lasts(&row.place))
}

/// The answer to a stored command, on its way into the outbox.
struct CommandNotice<'a> {
    tx: &'a Tx<'a>,
    rules: &'a Rules,
    max_text: usize,
    row: &'a CommandRow,
}

impl CommandNotice<'_> {
    /// Whether the author may still send the command. It was decided when the message came; since then they may have
    /// left, or the rules may have changed. A refusal is kept in the audit, and said where it would have been said then.
    fn is_permitted(&self, command: ChatCommand) -> store::Result<bool> {
        let CommandRow { account, place, author, behind, .. } = self.row;
        let actor = self.tx.known_actor(account, &place.room, author)?;
        let (kind, action) = (PlaceKind::from(self.row.direct), command.action(behind));
        let rules = self.rules.account(account);
        let AccessDecision { allowed, rule } = rules.access_in(&place.room).authorize(actor, kind, action);
        if !allowed {
            self.tx.audit(account, author, &place.room, kind, action, false, rule.name())?;
        }
        if rule == AccessRule::AdminsOnly {
            self.refuse(&TextKey::AdminsOnly.with("command", command.name()))?;
        }
        Ok(allowed)
    }

    fn tell(&self, phrase: &LocalizedText) -> store::Result<()> {
        self.notice().tell(self.tx, &self.rules.words, phrase)
    }

    fn refuse(&self, phrase: &LocalizedText) -> store::Result<()> {
        self.notice().refuse(self.tx, &self.rules.words, phrase)
    }

    fn notice(&self) -> Notice<'_> {
        let CommandRow { key, account, place, event, .. } = self.row;
        Notice { key: key.clone(), account, place, reply_to: Some(event), max_text: self.max_text }
    }
}
