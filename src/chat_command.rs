//! The commands of a chat, by name. [`command`](crate::command) has the table that says how each of them runs.

/// Makes the enum, the list and the names of the same lines.
macro_rules! chat_commands {
    ($($(#[cfg($when:meta)])? $(#[doc = $doc:literal])+ $command:ident $name:literal,)*) => {
        /// Something that a person asks of the gateway itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ChatCommand {
            $($(#[cfg($when)])? $(#[doc = $doc])+ $command,)*
        }

        impl ChatCommand {
            const ALL: &[Self] = &[$($(#[cfg($when)])? Self::$command,)*];

            /// The command as people write it, without the slash. It also stands on record and in configurations.
            pub fn name(self) -> &'static str {
                match self { $($(#[cfg($when)])? Self::$command => $name,)* }
            }
        }
    };
}

chat_commands! {
    /// Lists the commands.
    Help "help",
    /// Begins a new session.
    New "new",
    /// Lists the agents, or begins a new session with one.
    Agent "agent",
    /// Lists the models of the agent, or chooses one for this session.
    Model "model",
    /// Ends the running turn and those that wait.
    Stop "stop",
    /// Asks the last question again.
    Retry "retry",
    /// Takes the last question and its answer back.
    Undo "undo",
    /// Says what runs, what waits, and whether the agent answers.
    Status "status",
    /// Lists the sessions of this place.
    Sessions "sessions",
    /// Goes back to an earlier session.
    Resume "resume",
    /// Names this session.
    Title "title",
    /// Says who the person is here.
    Whoami "whoami",
    /// Says how much was used.
    Usage "usage",
    /// Shows or changes the notes that the agent keeps.
    Memory "memory",
    /// Lists the skills, or shows one.
    Skills "skills",
    /// Allows an action that an agent asks for.
    Approve "approve",
    /// Refuses an action that an agent asks for.
    Deny "deny",
    /// Answers a question of an agent: an option, or own words.
    Answer "answer",
    /// Lists the grants that hold here, or revokes one.
    Approvals "approvals",
    /// Shows whether codex runs the turns of the agent, or switches that on or off.
    CodexRuntime "codex-runtime",
    #[cfg(feature = "testing")]
    /// Ends as a test wants it to.
    SelfCheck "self-check",
}

impl ChatCommand {
    /// Every command, in the order of `/help`.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied()
    }

    /// The command with this name, written without the slash and in lower case.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|command| command.name() == name)
    }

    /// Whether only admins may send the command, whatever the lists say: it changes the gateway for everybody.
    pub fn is_for_admins(self) -> bool {
        self == Self::CodexRuntime
    }

    /// Whether a word can be the name of a command: letters, and a `-` between two of them. A path or a date cannot.
    pub fn can_be_named(word: &str) -> bool {
        word.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphabetic()))
    }
}
