//! Every test and every behaviour that `seeds/003…` names (the codex runtime of hermes-agent), each beside its equivalent
//! here or the reason why it has none.
//!
//! The seed shows one test file as a whole, and of the others the number of tests and what they cover; those are listed by
//! what they cover. The list is data, so that [`every_equivalent_exists`] can look each name up in the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use self::Equivalent::{OutOfScope, Tests};

/// The counterpart of a case of the seed.
enum Equivalent {
    /// Tests here, as `file::function`.
    Tests(&'static [&'static str]),
    /// The reason why there is none.
    OutOfScope(&'static str),
}

/// A case of the seed, and its counterpart.
type Case = (&'static str, Equivalent);

/// `tests/run_agent/test_codex_app_server_integration.py`, which the seed shows as a whole.
const INTEGRATION: &[Case] = &[
    (
        "test_api_mode_is_codex_app_server",
        Tests(&["src/config/tests/codex_runtime.rs::a_written_runtime_lets_any_model_be_switched"]),
    ),
    (
        "test_run_conversation_returns_codex_shape",
        Tests(&[
            "tests/it/codex/turns.rs::a_program_gets_ids_and_the_state_of_a_run",
            "tests/it/codex/turns.rs::the_row_of_a_turn_counts_one_call",
            "tests/codex/turns.rs::a_run_names_its_thread_and_its_turn",
        ]),
    ),
    (
        "test_projected_messages_are_spliced",
        Tests(&[
            "tests/it/codex/transcript.rs::a_turn_is_stored_with_its_tools_and_thoughts_and_the_prompt_once",
            "src/agents/codex/projector/tests.rs::a_whole_turn_is_a_legal_transcript_with_the_prompt_once",
            "tests/it/tools/after_codex.rs::a_model_without_tools_is_told_in_words_what_codex_did",
        ]),
    ),
    (
        "test_nudge_counters_tick",
        Tests(&["tests/it/tools/review_elsewhere.rs::each_tool_of_codex_counts_and_the_named_agent_reviews"]),
    ),
    (
        "test_user_message_not_duplicated",
        Tests(&[
            "tests/it/codex/transcript.rs::a_turn_is_stored_with_its_tools_and_thoughts_and_the_prompt_once",
            "src/agents/codex/projector/tests.rs::the_prompt_makes_no_message_because_the_engine_has_stored_it",
            "src/agents/codex/projector/tests.rs::a_whole_turn_is_a_legal_transcript_with_the_prompt_once",
        ]),
    ),
    (
        "test_background_review_NOT_invoked_below_threshold",
        Tests(&[
            "tests/it/tools/review.rs::a_review_comes_at_the_threshold_and_then_after_as_many_turns_again",
        ]),
    ),
    (
        "test_background_review_skill_trigger_fires_above_threshold",
        Tests(&[
            "tests/it/tools/review_elsewhere.rs::each_tool_of_codex_counts_and_the_named_agent_reviews",
            "tests/it/tools/review.rs::skills_are_counted_by_tool_rounds",
        ]),
    ),
    (
        "test_background_review_signature_never_breaks",
        Tests(&["tests/it/tools/review_elsewhere.rs::each_tool_of_codex_counts_and_the_named_agent_reviews"]),
    ),
    (
        "test_chat_completions_loop_is_not_entered",
        Tests(&[
            "tests/it/scenes/codex_runtime/turns.rs::a_switch_holds_from_the_next_message_on_with_the_history_and_without_the_old_thread",
            "src/agents/runtime_switch.rs::a_request_goes_to_the_runtime_that_it_was_made_for",
        ]),
    ),
    (
        "test_codex_app_server_parent_downgrades_review_fork",
        Tests(&[
            "tests/it/tools/review_elsewhere.rs::a_model_agent_that_codex_runs_for_reviews_with_its_own_model",
            "src/agents/runtime_switch.rs::the_model_reviews_and_codex_frees_on_either_runtime",
        ]),
    ),
    (
        "test_session_exception_returns_partial_with_error",
        Tests(&[
            "tests/it/scenes/codex_runtime/turns.rs::a_failed_turn_of_codex_says_how_to_switch_back",
            "tests/it/codex/turns.rs::a_codex_that_dies_leaves_what_it_said_and_the_next_turn_resumes_the_thread",
            "src/agents/runtime_switch.rs::a_failure_of_codex_says_how_to_switch_back",
        ]),
    ),
    (
        "test_interrupted_turn_marked_partial",
        Tests(&[
            "tests/it/codex/transcript.rs::a_command_that_a_stop_ended_is_on_record",
            "tests/it/codex/stopping.rs::stop_interrupts_codex_and_keeps_the_text",
            "tests/codex/stopping.rs::stop_while_the_answer_streams_keeps_the_text",
        ]),
    ),
];

/// `tests/agent/transports/test_codex_app_server_runtime.py`: the mode, the helper that rewrites it, the client.
const RUNTIME: &[Case] = &[
    (
        "the mode is registered, and other words are refused",
        Tests(&["src/config/tests/codex_runtime.rs::another_word_is_refused"]),
    ),
    (
        "off by default",
        Tests(&["src/config/tests/codex_runtime.rs::a_model_at_openai_can_be_switched_and_is_not"]),
    ),
    (
        "opt in by the configuration",
        Tests(&["src/config/tests/codex_runtime.rs::a_written_runtime_lets_any_model_be_switched"]),
    ),
    ("values in any case", Tests(&["src/rules/agent_runtime.rs::a_word_in_any_case_names_a_runtime"])),
    (
        "other providers cannot be rerouted",
        Tests(&[
            "src/config/tests/codex_runtime.rs::a_model_at_openai_can_be_switched_and_is_not",
            "tests/it/scenes/codex_runtime.rs::an_agent_that_cannot_be_switched_is_refused_with_the_reason",
        ]),
    ),
    (
        "the version is parsed, with pre-releases and text behind it",
        Tests(&["src/agents/codex/binary.rs::versions_are_found_in_every_form"]),
    ),
    (
        "a missing program",
        Tests(&[
            "src/agents/codex/binary.rs::a_missing_program_is_refused_with_the_way_to_install_it",
            "tests/it/codex/turns.rs::a_program_that_is_not_there_is_named_with_the_way_to_install_it",
        ]),
    ),
    (
        "a version below the minimum",
        Tests(&["src/agents/codex/binary.rs::an_old_program_is_refused_with_the_way_to_a_new_one"]),
    ),
    (
        "a version newer than the known ones is accepted",
        Tests(&["src/agents/codex/binary.rs::a_version_newer_than_we_know_is_taken"]),
    ),
    (
        "the class of errors",
        Tests(&[
            "src/agents/codex/failure.rs::errors_of_the_provider_are_told_apart",
            "src/agents/codex/failure.rs::only_errors_that_prove_that_nothing_ran_are_tried_again",
        ]),
    ),
    (
        "start, handshake, calls, notifications, requests of the server",
        Tests(&["tests/it/codex/bad_peers/client.rs::a_turn_with_an_approval_is_played_to_its_end"]),
    ),
    (
        "reads that an interrupt can end",
        Tests(&[
            "tests/it/codex/bad_peers/client.rs::silence_at_initialize_ends_by_the_deadline_and_the_process_ends_in_order",
            "tests/it/codex/bad_peers/client.rs::an_interrupted_turn_ends_and_cannot_be_interrupted_again",
        ]),
    ),
    (
        "test_spawn_env_preserves_HOME",
        Tests(&["tests/it/codex/turns.rs::codex_gets_a_short_environment_and_the_folder_of_its_entry"]),
    ),
    (
        "test_spawn_env_sets_CODEX_HOME_when_provided",
        Tests(&[
            "src/agents/codex/environment.rs::the_entry_wins_over_our_environment",
            "src/agents/codex/migration/codex_home.rs::the_entry_wins_over_the_variable_and_that_over_the_home_folder",
        ]),
    ),
];

/// `tests/agent/transports/test_codex_event_projector.py`.
const PROJECTOR: &[Case] = &[
    (
        "deltas of messages, of commands and of reasoning make no messages",
        Tests(&[
            "src/agents/codex/projector/tests.rs::a_whole_turn_is_a_legal_transcript_with_the_prompt_once",
            "src/agents/codex/turn_text.rs::messages_are_joined_and_nothing_is_passed_on_twice",
        ]),
    ),
    (
        "events around turns and threads are silent",
        OutOfScope("the projector is given completed items and nothing else; its type says so"),
    ),
    (
        "userMessage: text fragments only",
        Tests(&[
            "src/agents/codex/projector/tests.rs::the_prompt_makes_no_message_because_the_engine_has_stored_it",
        ]),
    ),
    ("agentMessage", Tests(&["src/agents/codex/projector/tests.rs::an_answer_is_a_message_of_the_agent"])),
    (
        "reasoning stands beside the next message of the agent and is consumed once",
        Tests(&[
            "src/agents/codex/projector/tests.rs::reasoning_stands_beside_the_next_message_of_the_agent_and_only_there",
            "tests/it/server/sessions_seed.rs::reasoning_and_notes_stand_in_the_session_and_a_note_is_no_part_of_the_answer",
        ]),
    ),
    (
        "commandExecution: the call `exec_command` and its result, from a real item",
        Tests(&["src/agents/codex/projector/tests.rs::a_command_is_a_call_with_its_output"]),
    ),
    (
        "commandExecution: a non-zero exit is annotated",
        Tests(&["src/agents/codex/projector/tests.rs::a_failed_command_says_so_in_its_result"]),
    ),
    (
        "commandExecution: the id is the same in every replay",
        Tests(&[
            "src/agents/codex/projector/tests.rs::an_id_depends_on_the_thread_and_the_item_and_on_nothing_else",
        ]),
    ),
    (
        "fileChange: a summary without content",
        Tests(&[
            "src/agents/codex/projector/tests.rs::a_patch_names_kinds_and_paths_and_never_content",
            "src/agents/codex/patch_summary.rs::a_patch_is_counted_by_kind_and_names_every_file",
        ]),
    ),
    (
        "mcpToolCall: the server in the name",
        Tests(&[
            "src/agents/codex/projector/tests.rs::an_mcp_call_has_the_server_in_its_name_and_sorted_arguments",
        ]),
    ),
    (
        "mcpToolCall: errors in the result",
        Tests(&["src/agents/codex/projector/tests.rs::an_mcp_error_is_in_the_result"]),
    ),
    ("dynamicToolCall", Tests(&["src/agents/codex/projector/tests.rs::a_dynamic_tool_keeps_its_own_name"])),
    (
        "plan, hookPrompt and others: an opaque note without invented calls",
        Tests(&["src/agents/codex/projector/tests.rs::every_other_item_is_a_note_without_invented_calls"]),
    ),
    (
        "ids are stable, and arguments have sorted keys",
        Tests(&[
            "src/agents/codex/projector/tests.rs::an_id_depends_on_the_thread_and_the_item_and_on_nothing_else",
            "src/agents/sorted_json.rs::equal_values_become_equal_text",
        ]),
    ),
    (
        "roles alternate legally over all tools",
        Tests(&[
            "src/agents/codex/projector/tests.rs::a_whole_turn_is_a_legal_transcript_with_the_prompt_once",
            "src/agents/model/foreign_calls.rs::a_told_history_alternates",
        ]),
    ),
];

/// `tests/agent/transports/test_codex_app_server_session.py`.
const SESSION: &[Case] = &[
    (
        "starting is idempotent, one thread for a session",
        Tests(&["tests/it/codex/threads.rs::a_session_has_one_thread_and_its_id_is_stored_at_once"]),
    ),
    (
        "thread/start sends the folder, and no permissions of its own",
        Tests(&[
            "src/agents/codex/wire.rs::only_settings_of_the_entry_are_sent_and_what_keeps_people_in_charge",
        ]),
    ),
    (
        "a turn to its end: text, messages, iterations, ids",
        Tests(&[
            "tests/it/codex/turns.rs::text_between_commands_is_one_answer_and_the_command_is_a_step",
            "tests/codex/turns.rs::two_turns_in_a_room_are_one_conversation",
        ]),
    ),
    (
        "notifications are taken before the request that follows them",
        Tests(&[
            "src/agents/codex/approvals/tests.rs::a_patch_is_asked_with_its_summary_from_the_item_that_began",
            "tests/codex/patches.rs::an_approved_patch_is_applied",
        ]),
    ),
    (
        "a flood of notifications does not starve the answer to a request",
        Tests(&["tests/it/codex/turns.rs::codex_goes_on_while_a_person_thinks"]),
    ),
    (
        "an interrupt becomes turn/interrupt, also if codex ends first",
        Tests(&[
            "tests/it/codex/stopping.rs::stop_interrupts_codex_and_keeps_the_text",
            "tests/it/codex/stopping.rs::a_codex_that_ignores_an_interrupt_is_ended_and_nobody_hangs",
        ]),
    ),
    (
        "the turn's deadline interrupts and reports",
        Tests(&[
            "tests/it/codex/deadline.rs::at_the_deadline_the_text_is_delivered_and_marked_as_incomplete",
        ]),
    ),
    (
        "close: end of input, terminate, kill",
        Tests(&[
            "tests/it/codex/stopping.rs::the_end_of_the_gateway_ends_a_running_turn_and_leaves_no_process",
        ]),
    ),
    (
        "approval of a command: once → accept",
        Tests(&["src/agents/codex/approvals/tests.rs::a_command_is_asked_exactly_with_folder_and_reason"]),
    ),
    (
        "session, always → acceptForSession",
        Tests(&["src/agents/codex/approvals/tests.rs::an_approval_for_longer_is_kept_by_codex_and_by_us"]),
    ),
    (
        "deny and everything else → decline",
        Tests(&["src/agents/codex/approvals/tests.rs::every_denial_has_its_answer"]),
    ),
    (
        "flags that approve by themselves, for schedules",
        OutOfScope(
            "decided otherwise: there is no approval without a person; an unattended turn is declined visibly",
        ),
    ),
    (
        "without anybody to ask: declined",
        Tests(&["src/agents/codex/approvals/tests.rs::every_denial_has_its_answer"]),
    ),
    (
        "unknown requests get the error -32601",
        Tests(&["src/agents/codex/approvals/tests.rs::an_unknown_request_is_an_error_and_never_waits"]),
    ),
    (
        "names of requests and values of decisions as the binary has them",
        Tests(&[
            "tests/codex/approvals.rs::an_approved_command_runs_once",
            "tests/codex/approvals.rs::a_denied_command_does_not_run_and_the_model_goes_on",
            "src/agents/codex/approvals/tests.rs::old_names_are_denied_in_their_own_words",
        ]),
    ),
    (
        "item/permissions/requestApproval is declined",
        Tests(&[
            "src/agents/codex/approvals/tests.rs::more_permissions_are_declined_visibly_without_asking",
            "tests/it/codex/asking.rs::more_permissions_are_declined_with_a_line_or_asked",
            "tests/codex/approvals.rs::a_wish_for_more_permissions_is_declined_visibly_unless_the_entry_says_ask",
        ]),
    ),
    (
        "profiles of permissions by mode: auto, approval-required, unrestricted",
        OutOfScope("the seed itself took them back: codex' own configuration decides, or the agent's entry"),
    ),
    (
        "the folder falls back to that of the session, then <unknown>",
        Tests(&["src/agents/codex/approvals/tests.rs::the_folder_is_never_empty"]),
    ),
    (
        "the reason is shown",
        Tests(&[
            "src/agents/codex/approvals/tests.rs::a_command_is_asked_exactly_with_folder_and_reason",
            "tests/it/scenes/asks/shown.rs::nothing_hides_in_a_question_and_nothing_gets_out_of_it",
        ]),
    ),
    (
        "a patch is shown as `1 add, 1 update: …`",
        Tests(&[
            "src/agents/codex/approvals/tests.rs::a_patch_is_asked_with_its_summary_from_the_item_that_began",
        ]),
    ),
    (
        "a patch without a remembered item",
        Tests(&["src/agents/codex/approvals/tests.rs::a_patch_that_nobody_knows_is_declined_visibly"]),
    ),
    (
        "elicitation of our own tools server is accepted",
        Tests(&[
            "src/agents/codex/approvals/tests.rs::only_tools_of_our_own_server_are_accepted_by_themselves",
        ]),
    ),
    (
        "elicitation of other servers is declined",
        Tests(&[
            "src/agents/codex/approvals/tests.rs::a_tool_of_a_server_is_asked_with_its_arguments",
            "src/agents/codex/approvals/tests.rs::other_elicitations_are_declined_visibly",
            "tests/it/codex/asking.rs::a_tool_of_a_server_is_shown_with_its_arguments",
            "tests/codex/questions.rs::a_tool_of_an_mcp_server_is_approved_or_denied",
        ]),
    ),
];

/// `tests/hermes_cli/test_codex_runtime_switch.py`, and what the seed says of the command beside its tests.
const SWITCH: &[Case] = &[
    (
        "words of the command: ten cases, with synonyms and in any case",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::every_word_in_any_case_and_a_wrong_one_is_explained",
            "src/rules/agent_runtime.rs::a_word_in_any_case_names_a_runtime",
        ]),
    ),
    (
        "the current runtime is read, also from a malformed configuration",
        Tests(&[
            "src/config/tests/codex_runtime.rs::another_word_is_refused",
            "src/config/tests/codex_runtime.rs::a_key_without_a_value_is_not_written",
        ]),
    ),
    (
        "the runtime is written",
        Tests(&[
            "src/store/agent_runtimes.rs::a_choice_is_kept_until_it_is_forgotten",
            "tests/it/scenes/codex_runtime/turns.rs::the_choice_and_the_thread_survive_a_restart_and_status_names_the_runtime",
        ]),
    ),
    (
        "without a word: the state and the version, and nothing changes",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::without_a_word_it_shows_the_runtime_and_the_version_and_changes_nothing",
        ]),
    ),
    (
        "switching to the runtime that holds already",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::on_switches_to_codex_writes_its_configuration_and_says_what_is_different",
        ]),
    ),
    (
        "a missing codex blocks the switch",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::a_codex_that_is_missing_or_too_old_is_refused_with_the_way_to_install_it",
        ]),
    ),
    (
        "a codex that is there lets it through",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::on_switches_to_codex_writes_its_configuration_and_says_what_is_different",
        ]),
    ),
    (
        "switching off looks for no program",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::off_looks_for_no_program_and_leaves_the_configuration_of_codex",
        ]),
    ),
    (
        "a failure to persist is reported and changes nothing",
        Tests(&["tests/it/scenes/codex_runtime.rs::a_choice_that_cannot_be_stored_changes_nothing"]),
    ),
    (
        "test_enable_triggers_mcp_migration",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::on_switches_to_codex_writes_its_configuration_and_says_what_is_different",
        ]),
    ),
    (
        "test_disable_does_not_trigger_migration",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::off_looks_for_no_program_and_leaves_the_configuration_of_codex",
        ]),
    ),
    (
        "test_migration_failure_does_not_block_enable",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::a_configuration_that_cannot_be_written_warns_and_blocks_nothing",
        ]),
    ),
    (
        "test_binary_check_cached_within_apply",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::on_switches_to_codex_writes_its_configuration_and_says_what_is_different",
            "src/agents/codex/binary.rs::a_program_on_the_path_is_found_and_asked_once",
        ]),
    ),
    (
        "test_binary_check_cached_on_read_only_call",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::without_a_word_it_shows_the_runtime_and_the_version_and_changes_nothing",
        ]),
    ),
    (
        "refused while a turn runs",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::a_running_turn_of_this_session_keeps_its_runtime_and_refuses_the_switch",
        ]),
    ),
    (
        "it takes effect with a fresh agent at the next message",
        Tests(&[
            "tests/it/scenes/codex_runtime/turns.rs::a_switch_holds_from_the_next_message_on_with_the_history_and_without_the_old_thread",
        ]),
    ),
    (
        "one entry in the registry of commands: help and all surfaces, in chats and at the shell",
        Tests(&[
            "tests/it/scenes/codex_runtime.rs::it_is_for_admins_and_only_they_find_it_in_the_help",
            "tests/it/control/codex.rs::codex_is_switched_through_the_running_process_and_without_one",
            "tests/it/control/codex.rs::the_help_teaches",
        ]),
    ),
    (
        "menus and completion of Telegram and Slack",
        OutOfScope("this program serves Matrix and the terminal, which have no menus of commands"),
    ),
    (
        "the banner names the runtime",
        Tests(&[
            "tests/it/scenes/codex_runtime/turns.rs::the_choice_and_the_thread_survive_a_restart_and_status_names_the_runtime",
            "src/agents/runtime_switch.rs::the_description_is_that_of_the_runtime_and_names_it",
        ]),
    ),
];

/// `tests/hermes_cli/test_codex_runtime_plugin_migration.py`.
const MIGRATION: &[Case] = &[
    (
        "stdio: command, args, env, cwd, timeouts, enabled",
        Tests(&[
            "src/agents/codex/migration/tests/servers.rs::a_program_keeps_its_arguments_variables_folder_and_times",
        ]),
    ),
    (
        "http: url, headers",
        Tests(&[
            "src/agents/codex/migration/tests/servers.rs::an_address_keeps_its_headers_and_names_its_secrets",
        ]),
    ),
    ("sse", OutOfScope("our MCP servers speak stdio or streamable HTTP; there is no third kind")),
    ("command before url", Tests(&["src/config/tests/mcp.rs::a_wrong_server_is_named_with_its_line"])),
    (
        "keys that codex has no place for are listed as skipped",
        Tests(&[
            "src/agents/codex/migration/tests/servers.rs::a_secret_without_a_place_keeps_a_server_out_and_is_in_no_message",
            "src/agents/codex/migration/tests/servers.rs::lists_and_permissions_of_tools_keep_their_meaning",
        ]),
    ),
    (
        "the formatter: types, quotes, inline tables",
        Tests(&["src/agents/codex/migration/tests/servers.rs::control_characters_are_escaped_and_come_back"]),
    ),
    (
        "test_string_with_newline_escaped",
        Tests(&["src/agents/codex/migration/tests/servers.rs::control_characters_are_escaped_and_come_back"]),
    ),
    (
        "test_string_with_tab_escaped",
        Tests(&["src/agents/codex/migration/tests/servers.rs::control_characters_are_escaped_and_come_back"]),
    ),
    (
        "test_string_with_other_controls_escaped",
        Tests(&["src/agents/codex/migration/tests/servers.rs::control_characters_are_escaped_and_come_back"]),
    ),
    (
        "test_windows_path_escaped_correctly",
        Tests(&["src/agents/codex/migration/tests/servers.rs::control_characters_are_escaped_and_come_back"]),
    ),
    (
        "the formatter refuses values that TOML does not have",
        OutOfScope(
            "our values have types, and `toml_edit` writes them; a path that is not UTF-8 keeps its server out",
        ),
    ),
    (
        "a round trip: codex reads what was written",
        Tests(&["tests/codex/migration.rs::codex_reads_every_entry_that_we_write"]),
    ),
    (
        "the earlier block is removed, alone and with content above and below it",
        Tests(&[
            "src/agents/codex/migration/tests/block.rs::content_above_and_below_survives_and_a_second_time_changes_nothing",
        ]),
    ),
    (
        "an empty configuration",
        Tests(&["src/agents/codex/migration/tests/block.rs::an_empty_file_gets_only_our_part"]),
    ),
    (
        "dry run",
        Tests(&["src/agents/codex/migration/tests/files.rs::a_dry_run_touches_nothing_and_tells_all"]),
    ),
    ("idempotent", Tests(&["src/agents/codex/migration/tests/arbitrary.rs::the_users_bytes_survive"])),
    (
        "servers of the user above and below the block survive two migrations",
        Tests(&[
            "src/agents/codex/migration/tests/block.rs::users_servers_above_and_below_our_part_survive_two_migrations",
        ]),
    ),
    (
        "errors and invalid input are reported",
        Tests(&[
            "src/agents/codex/migration/tests/block.rs::a_faulty_marker_or_file_changes_nothing_and_is_said",
        ]),
    ),
    (
        "the summary",
        Tests(&["src/agents/codex/migration/tests/clashes.rs::the_report_tells_everything_in_sentences"]),
    ),
    (
        "plugins: installed curated ones are written, the others listed",
        Tests(&[
            "src/agents/codex/migration/plugins.rs::installed_curated_plugins_are_chosen_and_other_installed_ones_are_listed",
        ]),
    ),
    (
        "plugins: not asked for in a dry run",
        OutOfScope(
            "decided otherwise: a dry run prints the whole block, so it asks codex for its plugins too",
        ),
    ),
    (
        "plugins and servers of an earlier block are replaced",
        Tests(&["src/agents/codex/migration/tests/arbitrary.rs::the_users_bytes_survive"]),
    ),
    (
        "plugins: a failure of the query does not stop the rest",
        Tests(&[
            "src/agents/codex/migration/tests/clashes.rs::plugins_that_codex_did_not_tell_in_time_stay_as_they_were",
        ]),
    ),
    (
        "opting out of plugins, profile and tools server",
        Tests(&[
            "src/agents/codex/migration/tests/clashes.rs::everything_can_be_left_out",
            "src/agents/codex/migration/tests/clashes.rs::the_entry_of_an_agent_opts_out",
        ]),
    ),
    (
        "default_permissions is a root key with a built-in profile",
        Tests(&[
            "src/agents/codex/migration/tests/block.rs::an_empty_file_gets_only_our_part",
            "src/agents/codex/migration/tests/clashes.rs::a_profile_that_codex_would_not_know_is_not_written",
        ]),
    ),
    (
        "our tools server is written with our home",
        Tests(&[
            "src/agents/codex/migration/tests/servers.rs::our_own_tools_server_knows_its_folder_and_keeps_its_name",
        ]),
    ),
    (
        "test_atomic_write_no_temp_leak_on_success",
        Tests(&[
            "src/agents/codex/migration/tests/files.rs::a_new_file_and_its_folder_are_private_and_nothing_else_is_left",
        ]),
    ),
    (
        "test_atomic_write_cleanup_on_rename_failure",
        Tests(&[
            "src/agents/codex/migration/tests/files.rs::no_temporary_file_is_left_when_the_rename_fails",
        ]),
    ),
    (
        "two migrations at once may lose entries (known there)",
        Tests(&[
            "src/agents/codex/migration/tests/files.rs::a_change_that_comes_between_is_kept",
            "src/agents/codex/migration/tests/files.rs::a_file_that_never_rests_is_given_up",
        ]),
    ),
];

/// `tests/agent/transports/test_hermes_tools_mcp_server.py`.
const TOOLS_SERVER: &[Case] = &[
    (
        "skills and nothing of shell, files or the agent's loop",
        Tests(&[
            "tests/it/control/mcp.rs::it_offers_skills_and_tools_that_need_no_question_and_nothing_else",
        ]),
    ),
    (
        "errors of its main function",
        Tests(&[
            "tests/it/control/mcp.rs::without_a_gateway_it_offers_nothing_and_does_not_fail",
            "tests/it/control/mcp.rs::input_that_is_no_protocol_ends_it_with_a_reason",
        ]),
    ),
    (
        "memory is not available there",
        Tests(&["src/agents/codex/dynamic_tools.rs::each_thread_has_the_notes_of_its_own_person"]),
    ),
    ("web, browser, vision, pictures, speech", OutOfScope("this program has none of these tools")),
    (
        "test_kanban_worker_tools_exposed, test_kanban_orchestrator_tools_exposed",
        OutOfScope("this program has no kanban board"),
    ),
];

/// Behaviours that the seed's messages name without a test, and the paths that its author tried with a real codex.
const BEHAVIOURS: &[Case] = &[
    (
        "handshake, text input, multi-turn memory with the real codex",
        Tests(&["tests/codex/turns.rs::two_turns_in_a_room_are_one_conversation"]),
    ),
    (
        "approve once runs the command, deny does not",
        Tests(&[
            "tests/codex/approvals.rs::an_approved_command_runs_once",
            "tests/codex/approvals.rs::a_denied_command_does_not_run_and_the_model_goes_on",
        ]),
    ),
    (
        "apply_patch by fileChange with approval",
        Tests(&[
            "tests/codex/patches.rs::an_approved_patch_is_applied",
            "tests/codex/patches.rs::a_denied_patch_changes_nothing",
        ]),
    ),
    (
        "with the workspace profile a command asks nobody",
        Tests(&["tests/codex/sandbox.rs::a_command_within_the_sandbox_is_a_step_and_asks_nobody"]),
    ),
    (
        "a migrated MCP server is loaded by codex",
        Tests(&["tests/codex/migration.rs::codex_reads_every_entry_that_we_write"]),
    ),
    (
        "an interrupt that comes after the end is harmless",
        Tests(&[
            "tests/it/codex/bad_peers/client.rs::an_interrupted_turn_ends_and_cannot_be_interrupted_again",
        ]),
    ),
    (
        "back on auto the conversation goes on",
        Tests(&[
            "tests/it/tools/after_codex.rs::a_model_with_other_tools_is_told_in_words_what_codex_did",
            "src/agents/codex/mirror.rs::text_stays_text_and_calls_become_text",
        ]),
    ),
    (
        "AGENTS.md in the working folder",
        OutOfScope("codex reads it by itself; nothing of ours is in the way"),
    ),
    (
        "/goal, which feeds a goal back into the conversation turn by turn",
        OutOfScope("this program has no command for goals; a person asks again, or a program does over HTTP"),
    ),
    (
        "goals of codex itself, for which it begins turns that nobody started",
        Tests(&[
            "tests/codex/facts.rs::with_goals_switched_off_no_turn_follows_by_itself",
            "tests/it/codex/foreign_turns.rs::codex_is_started_without_goals",
            "tests/it/codex/foreign_turns.rs::a_turn_that_codex_begins_after_ours_is_ended_and_the_next_question_is_answered",
            "tests/it/codex/foreign_turns.rs::a_turn_that_codex_begins_in_a_resumed_thread_is_ended_before_ours",
        ]),
    ),
    (
        "cron on this runtime",
        OutOfScope(
            "this program has no schedule of its own; a program that asks over HTTP on a schedule has the rules of every \
             caller, and a turn that nobody reads is declined what it asks for",
        ),
    ),
    (
        "an external memory provider is told each turn",
        OutOfScope("this program has no external memory provider; its own notes are tools of the thread"),
    ),
    (
        "several profiles or tenants, each with a CODEX_HOME of its own",
        Tests(&[
            "src/agents/codex/environment.rs::the_entry_wins_over_our_environment",
            "src/agents/codex/migration/codex_home.rs::the_entry_wins_over_the_variable_and_that_over_the_home_folder",
            "src/agents/codex/migration/tests/shared.rs::agents_that_share_the_file_get_the_servers_of_all_of_them",
        ]),
    ),
    (
        "HERMES_KANBAN_TASK in the environment",
        OutOfScope("this program has no kanban board, so nothing sets or reads it"),
    ),
    ("the todo list, session search and subagents", OutOfScope("this program has none of these tools")),
    (
        "models for auxiliary tasks on a subscription",
        OutOfScope(
            "the only one is the review: `review.agent` names who pays, and the documentation says so",
        ),
    ),
    (
        "a page of documentation, slash-command and environment references",
        OutOfScope("documentation has no test; .github/docs/codex.md and the example configuration have it"),
    ),
];

fn all_cases() -> impl Iterator<Item = &'static Case> {
    [INTEGRATION, RUNTIME, PROJECTOR, SESSION, SWITCH, MIGRATION, TOOLS_SERVER, BEHAVIOURS]
        .into_iter()
        .flatten()
}

#[test]
fn every_equivalent_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = BTreeMap::new();
    let mut missing = Vec::new();
    for (case, equivalent) in all_cases() {
        let tests = match equivalent {
            Tests(tests) => *tests,
            OutOfScope(why) => {
                assert!(why.len() > 20, "{case}: a reason is a sentence");
                continue;
            }
        };
        assert!(!tests.is_empty(), "{case}");
        for test in tests {
            let (file, function) = test.split_once("::").unwrap_or_else(|| panic!("{test} names no file"));
            let source = sources
                .entry(file)
                .or_insert_with(|| fs::read_to_string(root.join(file)).unwrap_or_default());
            if !is_test(source, function) {
                missing.push(format!("{case}: {test}"));
            }
        }
    }
    assert!(missing.is_empty(), "these tests do not exist:\n{}", missing.join("\n"));
}

/// Whether a source has a test of this name: a function directly below the attribute of a test or in a `proptest!`.
fn is_test(source: &str, function: &str) -> bool {
    let head = format!("fn {function}(");
    source.match_indices(&head).any(|(at, _)| {
        let above: Vec<_> = source[..at].rsplit('\n').skip(1).take(4).collect();
        above
            .iter()
            .any(|line| line.trim().starts_with("#[test]") || line.trim().starts_with("#[tokio::test"))
    })
}

#[test]
fn a_name_that_only_looks_like_a_test_is_found_out() {
    let source = "#[test]\nfn is_one() {}\n\n\n\n\nfn is_none() {}\n/// is_written(\n";
    assert!(is_test(source, "is_one") && !is_test(source, "is_none") && !is_test(source, "is_written"));
}

#[test]
fn no_case_stands_in_the_list_twice() {
    let mut names: Vec<_> = all_cases().map(|(case, _)| *case).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
