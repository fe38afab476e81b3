//! Every test that `seeds/002…` names (smoke tests of `/sessions` and `/run`), beside its equivalent here. The list is data, so
//! that each name can be looked up in the sources.

use std::fs;
use std::path::Path;

/// Name of the case in the seed, and its equivalents as `file::function`.
const CASES: &[(&str, &[&str])] = &[
    ("test_create_session_requires_auth", &["tests/it/forge/seed_cases.rs::create_session_requires_auth"]),
    ("test_create_session_returns_id", &["tests/it/forge/seed_cases.rs::create_session_returns_id"]),
    ("test_create_session_with_meta", &["tests/it/forge/seed_cases.rs::create_session_with_meta"]),
    (
        "test_turn_round_trip",
        &[
            "tests/it/forge/seed_cases.rs::turn_round_trip",
            "tests/it/forge/seed_cases.rs::a_line_in_the_form_of_the_seed_is_passed_on",
        ],
    ),
    ("test_session_isolation_404", &["tests/it/forge/seed_cases.rs::session_isolation_404"]),
    ("test_close_session_idempotent", &["tests/it/forge/seed_cases.rs::close_session_idempotent"]),
    ("test_turn_after_close_returns_410", &["tests/it/forge/seed_cases.rs::turn_after_close_returns_410"]),
    (
        "test_list_sessions_filters_by_app_name",
        &["tests/it/forge/seed_cases.rs::list_sessions_filters_by_app_name"],
    ),
    ("test_ttl_sweep_closes_stale", &["tests/it/forge/seed_cases.rs::ttl_sweep_closes_stale"]),
    (
        "test_ttl_sweep_hard_deletes_old_closed",
        &["tests/it/forge/seed_cases.rs::ttl_sweep_hard_deletes_old_closed"],
    ),
    ("test_pool_full_returns_503", &["tests/it/forge/seed_cases.rs::pool_full_returns_503"]),
    (
        "test_run_endpoint_unchanged",
        &[
            "tests/it/forge/seed_cases.rs::run_endpoint_unchanged",
            "src/server/forge/run.rs::an_answer_has_exactly_the_fields_that_clients_know",
        ],
    ),
    (
        "test_run_endpoint_unchanged_error_shape",
        &["tests/it/forge/seed_cases.rs::run_endpoint_unchanged_error_shape"],
    ),
    (
        "test_extract_stop_reason_from_ndjson",
        &[
            "tests/it/forge/seed_cases.rs::the_stop_reason_is_taken_from_the_response_to_the_prompt",
            "src/server/forge/turn_outcome.rs::there_is_always_a_reason_and_the_agents_own_word_counts",
        ],
    ),
    (
        "test_parse_ndjson_skips_garbage",
        &[
            "tests/it/forge/seed_cases.rs::lines_that_are_garbage_are_skipped",
            "src/server/forge/agent_lines.rs::a_line_of_another_kind_stays_as_it_is_and_garbage_is_left_out",
        ],
    ),
    (
        "test_format_prompt_with_files",
        &[
            "src/server/forge/prompt_files.rs::a_prompt_names_its_files_and_without_files_stays_as_it_is",
            "tests/it/forge/seed_cases.rs::a_prompt_without_files_is_passed_unchanged",
            "tests/it/forge/files.rs::a_file_is_there_for_the_agent_and_its_path_stands_before_the_prompt",
        ],
    ),
];

#[test]
fn every_case_has_an_equivalent_that_exists() {
    assert_eq!(CASES.len(), 16);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (case, equivalents) in CASES {
        for equivalent in *equivalents {
            let (file, function) = equivalent.split_once("::").unwrap();
            let source =
                fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(source.contains(&format!("fn {function}(")), "{case}: there is no {equivalent}");
        }
    }
}
