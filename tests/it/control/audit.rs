//! `talaria audit`: its output and its export.

use serde_json::Value;
use talaria::store::room_hash;

use super::{Scene, texts};

async fn scene() -> Scene {
    let scene = Scene::new("access: {people: ['@ann:test']}").await;
    scene.network.says_as("@eve:test", "!eve", true, "a secret that no audit knows");
    scene.network.says_as("@ann:test", "!home", true, "hello");
    scene.network.says_as("@ann:test", "!other", false, "/help");
    scene.network.says_as("@ev,\"il:test", "!home", false, "hello");
    scene.network.says_as("@ann:test", "!last", true, "hello");
    scene
}

/// The audit as `who action decision rule`, one line for each decision.
fn lines(json: &str) -> Vec<String> {
    let line = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        format!("{} {} {} {}", word("actor"), word("action"), row["allowed"], word("rule"))
    };
    json.lines().map(line).collect()
}

#[tokio::test]
async fn every_decision_is_shown_and_can_be_looked_for() {
    let scene = scene().await;
    let _process = scene.starts().await;
    scene.shows(|messages| texts(messages, "!last") == ["ok"]).await;

    let all = scene.prints(["audit", "--json"]).await;
    let expected = [
        "@eve:test message false not listed",
        "@ann:test message true listed",
        "@ann:test command help true listed",
        "@ev,\"il:test message false not listed",
        "@ann:test message true listed",
    ];
    assert_eq!(lines(&all), expected);
    assert!(!all.contains("secret") && !all.contains("!home"), "{all}");

    for (args, rows) in [
        (&["--denied"][..], &[0, 3][..]),
        (&["--actor", "@ann:test"], &[1, 2, 4]),
        (&["--room", "!home"], &[1, 3]),
        (&["--room", &room_hash(&"test".into(), &"!home".into())], &[1, 3]),
        (&["--room", "!nowhere"], &[]),
        (&["--account", "test", "--since", "1h"], &[0, 1, 2, 3, 4]),
        (&["--account", "other"], &[]),
        (&["--limit", "2"], &[3, 4]),
        (&["--actor", "@ann:test", "--limit", "2"], &[2, 4]),
    ] {
        let found = scene.prints(["audit", "--json"].iter().chain(args).copied()).await;
        let found = lines(found.trim());
        let rows: Vec<&str> = rows.iter().map(|row| expected[*row]).collect();
        assert_eq!(found, rows, "{args:?}");
    }

    let table = scene.prints(["audit", "--denied"]).await;
    let table: Vec<&str> = table.lines().collect();
    assert!(table[0].starts_with("TIME (UTC)") && table.len() == 3, "{table:?}");
    assert!(table[1].contains("@eve:test") && table[1].ends_with("denied    not listed"), "{table:?}");
    assert_eq!(scene.prints(["audit", "--room", "!nowhere"]).await, "Nothing fits.\n");
}

#[tokio::test]
async fn it_is_exported_as_comma_separated_values() {
    let scene = scene().await;
    for hostile in ["=HYPERLINK(\"x\")", "\u{1b}[2J\t-1+1\r\n", "@SUM(1)|cmd"] {
        scene.network.says_as(hostile, "!last", true, "hello");
    }
    scene.network.says_as("@ann:test", "!last", true, "/help");
    let _process = scene.starts().await;
    scene.shows(|messages| texts(messages, "!last").len() == 2).await;

    let text = scene.prints(["audit", "--csv"]).await;

    let lines: Vec<&str> = text.lines().collect();
    let names = r#""time","account","actor","room","place","action","decision","rule","digest""#;
    assert_eq!((lines[0], lines.len()), (names, 10));
    let hash = room_hash(&"test".into(), &"!eve".into());
    let eve = format!(r#"Z","test","@eve:test","{hash}","direct","message","denied","not listed","""#);
    assert!(lines[1].ends_with(&eve), "{text}");
    for (line, actor) in
        [(4, r#"'@ev,""il:test"#), (6, r#"'=HYPERLINK(""x"")"#), (7, "[2J -1+1"), (8, "'@SUM(1)|cmd")]
    {
        assert!(lines[line].contains(&format!(r#","{actor}","#)), "{actor} should be in {}", lines[line]);
    }
}

#[tokio::test]
async fn a_wrong_length_of_time_is_explained() {
    let scene = scene().await;
    scene.is_refused(2, ["audit", "--since", "yesterday"]).await.said("such as 30m, 24h, 7d or 2w");
}

#[tokio::test]
async fn what_happened_to_a_session_of_a_program_is_shown_also_after_its_end() {
    let scene = scene().await;
    let _process = scene.starts().await;
    let rows = "INSERT INTO forge_events (session, app, event, turn, at) VALUES
        ('ci/fs_1', 'ci', 'create', NULL, 0), ('ci/fs_1', 'ci', 'turn', 'run_1', 60),
        ('ci/fs_2', 'ci', 'create', NULL, 60), ('ci/fs_1', 'ci', 'hard_delete', NULL, 120)";
    scene.talaria.stored().execute_batch(rows).unwrap();
    let lines = scene.prints(["audit", "--session", "ci/fs_1", "--json"]).await;
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((names, &events[1]["turn"]), (vec!["create", "turn", "hard_delete"], &Value::from("run_1")));
    let csv = scene.prints(["audit", "--session", "ci/fs_1", "--csv"]).await;
    assert!(csv.contains(r#""1970-01-01T00:01:00Z","turn","run_1""#), "{csv}");
    assert_eq!(scene.prints(["audit", "--session", "ci/fs_1"]).await.lines().count(), 4);
    assert_eq!(scene.prints(["audit", "--session", "fs_1"]).await, "Nothing fits.\n");
    scene.is_refused(2, ["audit", "--session", "ci/fs_1", "--denied"]).await.said("cannot be used with");
}
