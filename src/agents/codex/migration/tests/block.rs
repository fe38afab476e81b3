//! Our part of the file: where it stands, and that it can be replaced and removed.

use super::super::managed_block::{BEGIN, END};
use super::*;

#[test]
fn an_empty_file_gets_only_our_part() {
    insta::assert_snapshot!(planned("", &wanting_all()), @r##"
    # >>> talaria >>> Talaria writes this part again. Your own settings are safe above it, and tables below it.
    # entries: default_permissions, mcp_servers.talaria, mcp_servers.time, plugins."calendar@openai-curated"
    default_permissions = ":workspace"

    [mcp_servers.talaria]
    command = "/usr/bin/talaria"
    args = ["mcp", "--without-server=time"]
    env = { TALARIA_HOME = "/var/lib/talaria", TALARIA_CONFIG = "/etc/talaria.yaml" }

    [mcp_servers.time]
    command = "npx"
    args = ["-y", "some-server"]
    startup_timeout_sec = 30
    tool_timeout_sec = 60
    default_tools_approval_mode = "prompt"

    [plugins."calendar@openai-curated"]
    enabled = true
    # <<< talaria <<<
    "##);
}

#[test]
fn our_part_stands_directly_before_the_first_table_and_the_comment_above_it() {
    let mut wanted = WantedEntries { profile: Some(":read-only".to_owned()), ..WantedEntries::default() };
    wanted.servers.insert("t".to_owned(), stdio("t", &[]));
    let old =
        "# top\nmodel = \"x\" # mine\n\n# about\n# servers\n[mcp_servers.own] # here\ncommand = \"own\"\n";
    insta::assert_snapshot!(planned(old, &wanted), @r##"
    # top
    model = "x" # mine

    # >>> talaria >>> Talaria writes this part again. Your own settings are safe above it, and tables below it.
    # entries: default_permissions, mcp_servers.t
    default_permissions = ":read-only"

    [mcp_servers.t]
    command = "t"
    startup_timeout_sec = 30
    tool_timeout_sec = 60
    default_tools_approval_mode = "prompt"
    # <<< talaria <<<
    # about
    # servers
    [mcp_servers.own] # here
    command = "own"
    "##);
}

#[test]
fn content_above_and_below_survives_and_a_second_time_changes_nothing() {
    for old in [
        "",
        "\n",
        "model = \"x\"",
        "model = \"x\"\n",
        "model = \"x\"\r\n\r\n[a]\r\nb = 1\r\n",
        "model = \"x\"\n\n\n",
        "# only a comment",
        "[features]\nx = true",
        "\u{feff}",
        "\u{feff}[a]\nb = 1\n",
        "\u{feff}model = 'x'\n# c\n[a]\n",
        "  \t[a]  \nb=1",
        "text = \"\"\"\n[no_table]\n# >>> talaria >>>\n\"\"\"\n[a]\nb = [\n# <<< talaria <<<\n1]\n",
        "a = 1\n[[b]]\nc = 2\n[[b]]\nc = 3\n[d.e]\nf = {g = 1}\n",
    ] {
        let wanted = wanting_all();
        let once = planned(old, &wanted);
        assert!(once.contains("[mcp_servers.time]"), "{once}");
        let twice = MigrationPlan::make(once.as_bytes(), &wanted);
        assert_eq!(String::from_utf8(twice.bytes).unwrap(), once, "{old:?}");
        assert_eq!(twice.report.outcome, MigrationOutcome::Unchanged);
        assert_eq!(removed(&once), old, "{once:?}");
        // Lines of one file end alike.
        if old.contains("\r\n") {
            assert_eq!(once.matches('\n').count(), once.matches("\r\n").count(), "{once:?}");
        }
    }
}

#[test]
fn users_servers_above_and_below_our_part_survive_two_migrations() {
    let wanted = wanting_all();
    let text = planned("model = \"x\"\n", &wanted);
    let text = text.replacen(BEGIN, "mcp_servers.above = { command = \"a\" }\n# >>> talaria >>>", 1);
    let text = format!("{text}\n# mine\n[mcp_servers.below]\ncommand = \"b\"\n[otel]\nx = 1\n");
    let mut wanted_later = wanted.clone();
    wanted_later.servers = BTreeMap::from([("web".to_owned(), http("https://h/mcp"))]);
    let mut now = text.clone();
    for wanted in [&wanted, &wanted_later, &wanted] {
        now = planned(&now, wanted);
        assert_eq!(removed(&now), removed(&text));
        assert!(now.contains("mcp_servers.above") && now.contains("# mine\n[mcp_servers.below]"), "{now}");
    }
    assert!(!now.contains("mcp_servers.web"), "an entry that is not wanted any more goes: {now}");
}

#[test]
fn keys_directly_behind_our_last_table_become_root_keys_and_are_reported() {
    let text = planned("", &wanting([("time", stdio("npx", &[]))]));
    let text = format!("{text}# mine\nmodel = \"x\"\nfeatures.a = true\n[otel]\nx = 1\n");
    let plan = MigrationPlan::make(text.as_bytes(), &wanting([("time", stdio("npx", &[]))]));
    assert_eq!(plan.report.moved, ["model", "features.a"]);
    let new = String::from_utf8(plan.bytes).unwrap();
    assert!(new.starts_with("# mine\nmodel = \"x\"\nfeatures.a = true\n# >>> talaria"), "{new}");
    let again = MigrationPlan::make(new.as_bytes(), &wanting([("time", stdio("npx", &[]))]));
    assert_eq!((again.report.outcome, again.report.moved.len()), (MigrationOutcome::Unchanged, 0));

    // Behind root keys of ours they are root keys already.
    let root = WantedEntries { profile: Some(":read-only".to_owned()), ..WantedEntries::default() };
    let text = format!("{}model = \"x\"\n", planned("", &root));
    assert_eq!(MigrationPlan::make(text.as_bytes(), &root).report.moved, [""; 0]);
}

#[test]
fn keys_that_codex_put_between_the_markers_are_the_users() {
    // As codex 0.169 leaves the file after `codex mcp add foo`, a new model and a new trusted project.
    let old = r##"model = "x"
# >>> talaria >>>
# entries: default_permissions, mcp_servers.gone, mcp_servers.time
default_permissions = ":workspace"
model_reasoning_effort = "high"

[mcp_servers.time]
command = "npx"

[mcp_servers.time.env]
A = "b"

[mcp_servers.gone]
command = "gone"

# said
[mcp_servers.foo]
command = "echo"
args = ["hi"]

[projects."/tmp/x"]
trust_level = "trusted"
# <<< talaria <<<
[features]
plugins = false
"##;
    let plan = MigrationPlan::make(old.as_bytes(), &wanting([("time", stdio("npx", &[]))]));
    assert_eq!(plan.report.moved, ["model_reasoning_effort", "mcp_servers.foo", "projects./tmp/x"]);
    insta::assert_snapshot!(String::from_utf8(plan.bytes).unwrap(), @r##"
    model = "x"
    model_reasoning_effort = "high"
    # >>> talaria >>> Talaria writes this part again. Your own settings are safe above it, and tables below it.
    # entries: mcp_servers.time
    [mcp_servers.time]
    command = "npx"
    startup_timeout_sec = 30
    tool_timeout_sec = 60
    default_tools_approval_mode = "prompt"
    # <<< talaria <<<

    # said
    [mcp_servers.foo]
    command = "echo"
    args = ["hi"]

    [projects."/tmp/x"]
    trust_level = "trusted"
    [features]
    plugins = false
    "##);
}

#[test]
fn a_part_without_its_list_is_the_users() {
    let old = "# >>> talaria >>>\n[mcp_servers.time]\ncommand = \"npx\"\n# <<< talaria <<<\n";
    let plan = MigrationPlan::make(old.as_bytes(), &wanting([("time", stdio("other", &[]))]));
    assert_eq!(plan.report.clashes, ["mcp_servers.time"]);
    assert_eq!(String::from_utf8(plan.bytes).unwrap(), "[mcp_servers.time]\ncommand = \"npx\"\n");
}

#[test]
fn a_faulty_marker_or_file_changes_nothing_and_is_said() {
    let ours = planned("a = 1\n", &wanting_all());
    let damaged = ours.replacen("enabled = true", "enabled = = true", 1);
    let unpaired = MigrationError::Block(BlockFault::Unpaired);
    let repeated = MigrationError::Block(BlockFault::Repeated);
    for (old, error) in [
        (ours.replacen(END, "# end", 1), &unpaired),
        (ours.replacen(BEGIN, "# begin", 1), &unpaired),
        (format!("{END}\n{BEGIN}\n"), &unpaired),
        (format!("{ours}{BEGIN}\n"), &repeated),
        (format!("{ours}{END}\n"), &repeated),
        (format!("{BEGIN}\n{BEGIN}\n{END}\n{END}\n"), &repeated),
        (damaged, &MigrationError::Block(BlockFault::Damaged)),
        ("a = 1\nb = = 2\n".to_owned(), &MigrationError::NotToml(2)),
        ("[a]\n[a]\n".to_owned(), &MigrationError::NotToml(2)),
        (format!("x = \n{BEGIN}\n"), &MigrationError::NotToml(1)),
    ] {
        let plan = MigrationPlan::make(old.as_bytes(), &wanting_all());
        assert_eq!(plan.report.errors, std::slice::from_ref(error), "{old}");
        assert_eq!(plan.report.outcome, MigrationOutcome::Failed);
        assert_eq!(plan.bytes, old.as_bytes());
        assert!(sentences(&plan.report).contains("was left as it is"), "{}", sentences(&plan.report));
    }
    let plan = MigrationPlan::make(b"a = '\xff'", &wanting_all());
    assert_eq!((plan.report.errors, plan.bytes), (vec![MigrationError::NotText], b"a = '\xff'".to_vec()));
}

#[test]
fn a_table_that_the_user_wrote_a_second_time_gives_way_and_codex_starts_again() {
    let ours = planned("", &wanting_all());
    let old = format!("{ours}[mcp_servers.time]\ncommand = \"mine\"\n");
    assert!(old.parse::<DocumentMut>().is_err(), "codex cannot read it");
    let plan = MigrationPlan::make(old.as_bytes(), &wanting_all());
    assert_eq!(plan.report.clashes, ["mcp_servers.time"]);
    let new = String::from_utf8(plan.bytes).unwrap();
    assert!(new.parse::<DocumentMut>().is_ok() && new.ends_with("command = \"mine\"\n"), "{new}");
}

#[test]
fn a_key_behind_our_part_is_a_root_key() {
    // By its place it would belong to our last table.
    let old = format!("{}model = \"x\"\n", planned("", &wanting_all()));
    let new = planned(&old, &wanting_all());
    assert!(new.starts_with("model = \"x\"\n# >>> talaria >>>"), "{new}");
    assert_eq!(new.parse::<DocumentMut>().unwrap()["model"].as_str(), Some("x"));
}
