//! The list of texts: a name for the code, a key for the files, the kind and the gaps of each.

/// Kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// A message of its own. An operator may silence it.
    Notice,
    /// A part of a message, or the answer to a command: it may be reworded but not silenced. A person who asks
    /// gets an answer, and a program at the other end of a pipe waits for it.
    Part,
}

macro_rules! texts {
    ($($name:ident $key:literal $kind:ident [$($gap:literal),*])*) => {
        /// A text of the catalogue. `i18n/en.yaml` has the wording of each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the catalogue itself says what each is")]
        pub enum TextKey {
            $($name,)*
        }

        impl TextKey {
            /// Every text, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Key in the catalogue and under `words:` in the configuration.
            pub fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// Whether it can be silenced.
            pub fn kind(self) -> TextKind {
                match self { $(Self::$name => TextKind::$kind,)* }
            }

            /// Gaps that a wording may use.
            pub fn gaps(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($gap),*],)* }
            }
        }
    };
}

impl TextKey {
    /// Gaps that every wording must have: without them people would decide about something that they are not
    /// shown, or miss the one thing they need.
    pub fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Ask | Self::AskText => &["action", "code"],
            Self::AskOptions | Self::AskOptionsText => &["action", "options", "code"],
            Self::AskOption => &["number", "label"],
            Self::AnswerNoOption | Self::AnswerAmbiguous => &["options", "code"],
            Self::AskActionIn => &["action", "folder"],
            Self::AskReason => &["action"],
            Self::AskWhich => &["list"],
            Self::AskWhichItem | Self::PairingCode => &["code"],
            _ => &[],
        }
    }
}

texts! {
    // Receiving a message.
    Missed "missed" Notice ["count"]
    LineFull "line_full" Notice ["limit"]
    LineFullMany "line_full_many" Notice ["limit", "count"]
    QueuedOne "queued_one" Notice []
    QueuedMany "queued_many" Notice ["ahead"]
    LimitMinute "limit_minute" Notice ["limit", "seconds"]
    LimitHour "limit_hour" Notice ["limit", "minutes"]
    LoopGuard "loop_guard" Notice ["minutes"]
    AdminsOnly "admins_only" Notice ["command"]
    UntrustedDevice "untrusted_device" Notice ["device"]
    UntrustedSender "untrusted_sender" Notice []
    NotVerified "not_verified" Notice []
    RoomNotEncrypted "room_not_encrypted" Notice []
    Unreadable "unreadable" Notice []
    EditUnheard "edit_unheard" Notice []
    Removed "removed" Part []
    EditTooLate "edit_too_late" Notice []
    DeletedRemembered "deleted_remembered" Notice []

    // Commands.
    Help "help" Part []
    HelpHelp "help_help" Part []
    HelpNew "help_new" Part []
    HelpAgent "help_agent" Part []
    HelpModel "help_model" Part []
    HelpStop "help_stop" Part []
    HelpRetry "help_retry" Part []
    HelpUndo "help_undo" Part []
    HelpStatus "help_status" Part []
    HelpSessions "help_sessions" Part []
    HelpResume "help_resume" Part []
    HelpTitle "help_title" Part []
    HelpWhoami "help_whoami" Part []
    HelpUsage "help_usage" Part []
    HelpMemory "help_memory" Part []
    HelpSkills "help_skills" Part []
    HelpApprove "help_approve" Part []
    HelpDeny "help_deny" Part []
    HelpAnswer "help_answer" Part []
    HelpApprovals "help_approvals" Part []
    UnknownCommandNear "unknown_command_near" Part ["word", "near"]
    UnknownCommand "unknown_command" Part ["word"]
    NoWordsAfter "no_words_after" Part []
    NothingRunning "nothing_running" Part []
    NewSession "new_session" Part []
    StillRunning "still_running" Part []
    CannotRewind "cannot_rewind" Part []
    CannotRewindNow "cannot_rewind_now" Part []
    NothingToUndo "nothing_to_undo" Part []
    Undone "undone" Part []
    NothingToRetry "nothing_to_retry" Part []
    RetryGone "retry_gone" Part []
    StatusIdle "status_idle" Part []
    StatusRunning "status_running" Part ["turn"]
    StatusRunningOne "status_running_one" Part ["turn"]
    StatusRunningMany "status_running_many" Part ["turn", "count"]
    Status "status" Part ["running", "agent", "session", "messages"]
    StatusStandIn "status_stand_in" Part ["agent", "away"]
    StatusAnswers "status_answers" Part ["agent"]
    StatusAway "status_away" Part ["agent", "why"]
    StatusAwayStandIn "status_away_stand_in" Part ["agent", "other"]
    StatusRefused "status_refused" Part ["agent", "why"]
    StatusFailing "status_failing" Part ["agent", "times", "why"]
    StatusMcp "status_mcp" Part ["tools", "running", "servers"]
    StatusMcpFailed "status_mcp_failed" Part ["server"]
    CommandsFull "commands_full" Part ["command", "limit"]
    CommandTooSlow "command_too_slow" Part ["command", "seconds"]
    CommandBroken "command_broken" Part ["command"]
    CommandInterrupted "command_interrupted" Part ["command"]

    // Agents.
    Agents "agents" Part ["list"]
    AgentsOther "agents_other" Part ["name", "agent"]
    AgentsCurrent "agents_current" Part ["name", "agent"]
    AgentChosen "agent_chosen" Part ["name"]
    AgentAlready "agent_already" Part ["name"]
    AgentNone "agent_none" Part ["name"]
    AgentRefused "agent_refused" Part ["name"]
    AgentGone "agent_gone" Part ["name"]
    Models "models" Part ["name", "list"]
    ModelsOther "models_other" Part ["model"]
    ModelsCurrent "models_current" Part ["model"]
    ModelsNoChoice "models_no_choice" Part ["name"]
    ModelChosen "model_chosen" Part ["model"]
    ModelUnknown "model_unknown" Part ["model", "list"]
    ModelUnknownNear "model_unknown_near" Part ["model", "near", "list"]

    // Skills.
    Skills "skills" Part ["list"]
    SkillsItem "skills_item" Part ["name", "description"]
    SkillsLearned "skills_learned" Part ["name", "description"]
    SkillsFaulty "skills_faulty" Part ["file", "why"]
    SkillsMore "skills_more" Part ["count"]
    SkillsNone "skills_none" Part []
    Skill "skill" Part ["name", "description", "text"]
    SkillWithoutVariables "skill_without_variables" Part ["skill"]
    SkillUnknown "skill_unknown" Part ["name"]
    SkillFaulty "skill_faulty" Part ["name", "why"]
    SkillTooLarge "skill_too_large" Part ["kib"]
    SkillNotText "skill_not_text" Part []
    SkillNoFrontMatter "skill_no_front_matter" Part []
    SkillBadFrontMatter "skill_bad_front_matter" Part []
    SkillBadFrontMatterLine "skill_bad_front_matter_line" Part ["line"]
    SkillBadName "skill_bad_name" Part []
    SkillNoDescription "skill_no_description" Part []
    SkillNoBody "skill_no_body" Part []
    SkillBadVariables "skill_bad_variables" Part []
    SkillTakenName "skill_taken_name" Part ["name"]
    SkillOutside "skill_outside" Part []
    SkillUnreadable "skill_unreadable" Part []

    // Sessions and people.
    Sessions "sessions" Part ["list"]
    SessionsOther "sessions_other" Part ["number", "title", "used", "messages"]
    SessionsCurrent "sessions_current" Part ["number", "title", "used", "messages"]
    SessionsMore "sessions_more" Part ["count"]
    Untitled "untitled" Part []
    SessionReset "session_reset" Notice ["number"]
    Resumed "resumed" Part ["title", "used", "messages"]
    ResumeWhich "resume_which" Part []
    ResumeNone "resume_none" Part ["which"]
    ResumeCurrent "resume_current" Part ["title"]
    Titled "titled" Part ["title"]
    Title "title" Part ["title"]
    TitleNone "title_none" Part []
    TitleShown "title_shown" Part ["title"]
    Whoami "whoami" Part ["id", "role", "place", "number", "session", "may"]
    RoleOwner "role_owner" Part []
    RoleAdmin "role_admin" Part []
    RoleListed "role_listed" Part []
    RolePaired "role_paired" Part []
    RoleEverybody "role_everybody" Part []
    PlaceDirect "place_direct" Part []
    PlaceRoom "place_room" Part []
    MayAll "may_all" Part []
    MayNot "may_not" Part ["commands"]
    Usage "usage" Part ["session", "day", "month"]
    UsageLine "usage_line" Part ["turns", "input", "output"]
    UsageBudgetPerson "usage_budget_person" Part ["used", "limit", "left"]
    UsageBudgetAgent "usage_budget_agent" Part ["name", "used", "limit", "left"]

    // Budgets.
    BudgetPersonLow "budget_person_low" Notice ["left", "limit"]
    BudgetPersonReached "budget_person_reached" Notice ["limit"]
    BudgetPersonUsedUp "budget_person_used_up" Part ["limit", "time"]
    BudgetAgentLow "budget_agent_low" Notice ["name", "left", "limit"]
    BudgetAgentReached "budget_agent_reached" Notice ["name", "limit"]
    BudgetAgentUsedUp "budget_agent_used_up" Part ["name", "limit", "time"]

    // Notes.
    Notes "notes" Part ["owner", "list"]
    NotesNone "notes_none" Part ["owner"]
    NotesOfPerson "notes_of_person" Part []
    NotesOfRoom "notes_of_room" Part []
    NotesItem "notes_item" Part ["number", "text"]
    NoteAdded "note_added" Part ["number", "text"]
    NoteForgotten "note_forgotten" Part ["text"]
    NoteUnknown "note_unknown" Part ["which"]
    NoteTooLong "note_too_long" Part ["limit"]
    NotesFull "notes_full" Part ["limit"]
    MemoryWords "memory_words" Part []

    // Asks of the agent.
    Ask "ask" Part ["title", "action", "code"]
    AskOptions "ask_options" Part ["title", "action", "options", "code"]
    AskOptionsText "ask_options_text" Part ["title", "action", "options", "code"]
    AskText "ask_text" Part ["title", "action", "code"]
    AskOption "ask_option" Part ["number", "label"]
    AskActionIn "ask_action_in" Part ["action", "folder"]
    AskReason "ask_reason" Part ["action", "reason"]
    AskUnshowable "ask_unshowable" Notice ["title"]
    AskTooMany "ask_too_many" Notice []
    AskApprovedOnce "ask_approved_once" Part ["title"]
    AskApprovedSession "ask_approved_session" Part ["title"]
    AskApprovedAlways "ask_approved_always" Part ["title", "days"]
    AskChosen "ask_chosen" Part ["option", "title"]
    AskAnswered "ask_answered" Part ["title"]
    AskDenied "ask_denied" Part ["title"]
    AskTimeout "ask_timeout" Notice ["minutes", "title"]
    AskStopped "ask_stopped" Notice ["title"]
    AskRestarted "ask_restarted" Notice ["title"]
    AskGone "ask_gone" Notice ["title"]
    AskHalted "ask_halted" Part []
    ApprovalUnheard "approval_unheard" Notice ["title"]
    AnswerUnheard "answer_unheard" Notice ["title"]
    AskNone "ask_none" Part []
    AskUnknown "ask_unknown" Part ["code"]
    AskOver "ask_over" Part []
    AskWhich "ask_which" Part ["command", "list"]
    AskWhichItem "ask_which_item" Part ["code", "title"]
    AskNameIt "ask_name_it" Part ["command"]
    ApproveWords "approve_words" Part []
    DenyWords "deny_words" Part []
    AnswerWords "answer_words" Part []
    AnswerUnknown "answer_unknown" Part ["code"]
    AnswerApproval "answer_approval" Part ["code"]
    AnswerNeeded "answer_needed" Part ["code"]
    AnswerNoOption "answer_no_option" Part ["options", "code"]
    AnswerAmbiguous "answer_ambiguous" Part ["options", "code"]
    AskAnswerTooLong "ask_answer_too_long" Part ["limit"]
    Approvals "approvals" Part ["list"]
    ApprovalsNone "approvals_none" Part []
    ApprovalsAlways "approvals_always" Part ["id", "title", "agent", "by", "until"]
    ApprovalsSession "approvals_session" Part ["id", "title", "agent", "by", "until"]
    ApprovalsMore "approvals_more" Part ["count"]
    ApprovalsWords "approvals_words" Part []
    ApprovalRevoked "approval_revoked" Part ["title"]
    ApprovalUnknown "approval_unknown" Part ["id"]
    ApprovalAmbiguous "approval_ambiguous" Part ["id"]
    ApprovalOfAnother "approval_of_another" Part ["title"]
    AnswerAdminsOnly "answer_admins_only" Part ["option"]

    // Pairing.
    PairingCode "pairing_code" Part ["code", "minutes"]
    Paired "paired" Notice []

    // Progress and end of a turn.
    AgentAway "agent_away" Notice ["agent"]
    AgentBack "agent_back" Notice []
    AgentBackUnaware "agent_back_unaware" Notice []
    Retrying "retrying" Notice ["why", "time"]
    LookingForAnswer "looking_for_answer" Notice []
    GatewayStopped "gateway_stopped" Notice []
    NotRun "not_run" Part []
    TurnBroken "turn_broken" Part ["turn"]
    AnswerTooLong "answer_too_long" Part []
    EmptyAnswer "empty_answer" Part []
    EmptyAnswerModel "empty_answer_model" Part []
    Stopped "stopped" Part []
    LengthLimit "length_limit" Part []
    CutShort "cut_short" Part ["why"]
    Interrupted "interrupted" Part []
    UnknownNothing "unknown_nothing" Part ["why"]
    UnknownSome "unknown_some" Part ["why"]
    Unshown "unshown" Notice ["turn"]
    NamelessTool "nameless_tool" Part []
    WindowFull "window_full" Part []
    ReviewedMemory "reviewed_memory" Notice []
    ReviewedSkills "reviewed_skills" Notice []
    ReviewedBoth "reviewed_both" Notice []
    FileUnsent "file_unsent" Part ["name", "why"]
    FilesUnsent "files_unsent" Part ["count", "why"]
    FileTooLarge "file_too_large" Part []
    FileTooMany "file_too_many" Part []
    FileBroken "file_broken" Part []
    FileElsewhere "file_elsewhere" Part []
    FileUnshowable "file_unshowable" Part []

    // Agents.
    AgentRemote "agent_remote" Part []
    AgentModel "agent_model" Part ["model"]
    AgentCodex "agent_codex" Part []
    AgentCodexModel "agent_codex_model" Part ["model"]
    AgentGuide "agent_guide" Part []
    GuideArrived "guide_arrived" Part []
    GuideOllama "guide_ollama" Part ["address", "model"]
    GuideSettings "guide_settings" Part []

    // Why an agent did not answer. `who` is one of the first two.
    WhoProxy "who_proxy" Part []
    WhoModel "who_model" Part []
    ConnectionError "connection_error" Part ["who", "why"]
    StatusError "status_error" Part ["who", "status", "why"]
    WhyNothingListens "why_nothing_listens" Part []
    WhyReset "why_reset" Part []
    WhyUnreachable "why_unreachable" Part []
    WhyInTheClear "why_in_the_clear" Part []
    WhyTooSlow "why_too_slow" Part []
    WhyUnknownHost "why_unknown_host" Part []
    WhyCertificate "why_certificate" Part []
    WhyInsecure "why_insecure" Part []
    WhyLost "why_lost" Part []
    WhySessionKey "why_session_key" Part []
    WhyProxyKey "why_proxy_key" Part []
    WhyModelKey "why_model_key" Part []
    WhyNotUnderstood "why_not_understood" Part []
    WhyNoSuchService "why_no_such_service" Part []
    WhyTooLong "why_too_long" Part []
    WhyBusy "why_busy" Part []
    WhyUnavailable "why_unavailable" Part []
    WhyTired "why_tired" Part []
    WhyNobodyBehind "why_nobody_behind" Part []
    WhyCircle "why_circle" Part []
    WhyRedirects "why_redirects" Part []
    WhyFailed "why_failed" Part []
    WhyRefused "why_refused" Part []
    WhyNoStream "why_no_stream" Part []
    CannotResume "cannot_resume" Part []

    // Why an answer broke off: parts of a sentence.
    BrokeTooLong "broke_too_long" Part []
    BrokeBusy "broke_busy" Part []
    BrokeUsedUp "broke_used_up" Part []
    BrokeReported "broke_reported" Part []
    BrokeThere "broke_there" Part ["who", "status", "why"]
    BrokeOnTheWay "broke_on_the_way" Part ["who", "why"]
    BrokeAgain "broke_again" Part ["why"]
    BrokeRestarted "broke_restarted" Part []
    BrokeStopped "broke_stopped" Part []
    BrokeFiltered "broke_filtered" Part []
    BrokeServerSilent "broke_server_silent" Part []
    BrokeModelSilent "broke_model_silent" Part []
    BrokeSilent "broke_silent" Part []
    BrokeOff "broke_off" Part []
    BrokeMissing "broke_missing" Part []
    BrokeTooMuch "broke_too_much" Part ["mib"]
    BrokeUnrecorded "broke_unrecorded" Part []
    BrokeTooManyCalls "broke_too_many_calls" Part []
    BrokeTaskLimit "broke_task_limit" Part []
    BrokeCodexMissing "broke_codex_missing" Part []
    BrokeCodexTooOld "broke_codex_too_old" Part []
    BrokeCodexNoStart "broke_codex_no_start" Part []
    BrokeCodexSilent "broke_codex_silent" Part []
    BrokeCodexDied "broke_codex_died" Part []
    BrokeCodexNoAnswer "broke_codex_no_answer" Part []
    BrokeCodexOverloaded "broke_codex_overloaded" Part []
    BrokeCodexOpenElsewhere "broke_codex_open_elsewhere" Part []
    BrokeCodexRefused "broke_codex_refused" Part []
    BrokeCodexTooLarge "broke_codex_too_large" Part []
    BrokeCodexLogin "broke_codex_login" Part []
    BrokeCodexVariable "broke_codex_variable" Part []
    BrokeCodexNoModel "broke_codex_no_model" Part []
    BrokeCodexConnection "broke_codex_connection" Part []
    BrokeCodexPolicy "broke_codex_policy" Part []
    BrokeCodexSandbox "broke_codex_sandbox" Part []
    BrokeCodexUnrestricted "broke_codex_unrestricted" Part []
    BrokeCodexEarlier "broke_codex_earlier" Part []
    BrokeCodexFolder "broke_codex_folder" Part []
    BrokeCodexTime "broke_codex_time" Part []
    BrokeCodexBudget "broke_codex_budget" Part []
    BrokeCodexInterrupted "broke_codex_interrupted" Part []
    BrokeCodexCompacted "broke_codex_compacted" Part []
    StatusCodex "status_codex" Part ["approval", "sandbox"]
    CodexForgot "codex_forgot" Part []
    CodexForgotAll "codex_forgot_all" Part []
    CodexNoHistory "codex_no_history" Part []
    CodexCompacts "codex_compacts" Part []
    CodexRetries "codex_retries" Part []
    BrokeNoRoom "broke_no_room" Part []
    BrokeLongLine "broke_long_line" Part []

    // The console.
    ConsoleGreeting "console_greeting" Notice []
    ConsoleLeaving "console_leaving" Notice []
    ConsoleQuit "console_quit" Part []
    ConsoleReplaced "console_replaced" Notice []
    ConsoleTooLong "console_too_long" Part ["mib"]
    NoRetryEmptyAnswerModel "no_retry_empty_answer_model" Part []
    NoRetryInterrupted "no_retry_interrupted" Part []
    NoRetryUnknownNothing "no_retry_unknown_nothing" Part ["why"]
    NoRetryUnknownSome "no_retry_unknown_some" Part ["why"]
    NoRetryCannotResume "no_retry_cannot_resume" Part []
    NoRetryBrokeBusy "no_retry_broke_busy" Part []
    NoRetryBrokeReported "no_retry_broke_reported" Part []
    NoRetryBrokeAgain "no_retry_broke_again" Part ["why"]
    NoRetryBrokeRestarted "no_retry_broke_restarted" Part []
    NoRetryBrokeStopped "no_retry_broke_stopped" Part []

    // Requests of codex.
    CodexAskCommand "codex_ask_command" Part []
    CodexAskCommandMore "codex_ask_command_more" Part []
    CodexAskInput "codex_ask_input" Part []
    CodexAskNetwork "codex_ask_network" Part []
    CodexAskFiles "codex_ask_files" Part []
    CodexAskFilesRoot "codex_ask_files_root" Part []
    CodexAskPermissions "codex_ask_permissions" Part []
    CodexAskTool "codex_ask_tool" Part ["server", "tool"]
    CodexAskServer "codex_ask_server" Part ["server"]
    CodexAskQuestion "codex_ask_question" Part []
    CodexDeclinedUnasked "codex_declined_unasked" Part ["title"]
    CodexDeclinedUnclear "codex_declined_unclear" Part []
    CodexDeclinedPermissions "codex_declined_permissions" Part []
    CodexDeclinedForm "codex_declined_form" Part ["server"]
    CodexDeclinedLink "codex_declined_link" Part ["server"]
    CodexDeclinedSecretForm "codex_declined_secret_form" Part ["server"]
    CodexDeclinedSecret "codex_declined_secret" Part ["title"]
    CodexDeclinedQuestions "codex_declined_questions" Part []
    CodexDeclinedOld "codex_declined_old" Part ["method"]
    CodexDeclinedUnknown "codex_declined_unknown" Part ["method"]
}
