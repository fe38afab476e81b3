//! Searching a workspace.

use std::os::unix::fs::symlink;

use super::*;
use crate::agents::tools::RESULT_BYTES;

#[tokio::test]
async fn matches_are_shown_with_their_lines() {
    let scene = Scene::new();
    scene.put("b.rs", "fn one() {}\nfn two() {}\n// end\n");
    scene.put("a/c.txt", "one\r\ntwo\r\n");
    scene.put(".hidden/d.txt", "two\n");
    scene.put(".git/config", "two\n");
    let found = scene.search(json!({ "pattern": "two" })).await.unwrap();
    assert_eq!(
        found,
        "`.hidden/d.txt`\n1: two\n\n`a/c.txt`\n2: two\n\n`b.rs`\n2: fn two() {}\n\n\
         3 matching lines in 3 files; 3 files were searched."
    );
    let found = scene.search(json!({ "pattern": "two", "glob": "*.rs", "context": 1 })).await.unwrap();
    assert!(found.starts_with("`b.rs`\n1- fn one() {}\n2: fn two() {}\n3- // end\n\n1 matching"), "{found}");
    let found = scene.search(json!({ "pattern": "(?i)TWO", "path": "a" })).await.unwrap();
    assert!(found.starts_with("`a/c.txt`\n2: two\n"), "{found}");
    let found = scene.search(json!({ "pattern": "one", "path": "b.rs" })).await.unwrap();
    assert!(found.starts_with("`b.rs`\n1: fn one"), "{found}");
    assert_eq!(scene.search(json!({ "pattern": "nowhere" })).await.unwrap(), "No match in 3 files.");
    for wrong in [
        json!({ "pattern": "(" }),
        json!({ "pattern": "" }),
        json!({ "pattern": "x{1000}{1000}{1000}" }),
        json!({ "pattern": "x", "glob": "[" }),
        json!({ "pattern": "x", "path": "missing" }),
        json!({ "pattern": "x", "context": -1 }),
    ] {
        assert!(!failure(scene.search(wrong.clone()).await).is_empty(), "{wrong}");
    }
}

#[tokio::test]
async fn gitignore_is_honoured_in_every_folder() {
    let scene = Scene::new();
    scene.put(".gitignore", "target/\n*.log\n!keep.log\n/only-here.txt\n");
    scene.put("a/.gitignore", "!again.log\nsecret.txt\n");
    for file in [
        "target/x.txt",
        "x.log",
        "keep.log",
        "a/again.log",
        "a/x.log",
        "a/secret.txt",
        "b/secret.txt",
        "only-here.txt",
        "a/only-here.txt",
    ] {
        scene.put(file, "needle\n");
    }
    let found = scene.search(json!({ "pattern": "needle" })).await.unwrap();
    let files: Vec<_> = found.lines().filter(|line| line.starts_with('`')).collect();
    assert_eq!(files, ["`a/again.log`", "`a/only-here.txt`", "`b/secret.txt`", "`keep.log`"]);
    let found = scene.search(json!({ "pattern": "needle", "path": "a" })).await.unwrap();
    let files: Vec<_> = found.lines().filter(|line| line.starts_with('`')).collect();
    assert_eq!(files, ["`a/again.log`", "`a/only-here.txt`"], "rules above the path count too");
    let found = scene.search(json!({ "pattern": "needle", "path": "target" })).await.unwrap();
    assert!(found.contains("1 matching lines"), "a named folder is searched: {found}");
}

#[tokio::test]
async fn odd_files_neither_hang_nor_hide_others() {
    let scene = Scene::new();
    make_pipe(&scene.path(".gitignore"));
    make_pipe(&scene.path("pipe"));
    symlink("..", scene.path("up")).unwrap();
    symlink(".", scene.path("self")).unwrap();
    scene.put("binary", b"needle\0needle\n");
    scene.put("long", "needle ".repeat(1_000_000));
    scene.put("bad-utf8", b"needle \xff\xfe\n");
    scene.put("z.txt", "needle\n");
    let deep = "d/".repeat(70);
    scene.put(&format!("{deep}x.txt"), "needle\n");
    let found = scene.search(json!({ "pattern": "needle" })).await.unwrap();
    assert!(found.contains("`z.txt`\n1: needle\n") && found.contains("`bad-utf8`"), "{found}");
    assert!(found.contains("1 files could not be searched") && found.contains("too deep"), "{found}");
}

#[tokio::test]
async fn a_search_ends_at_its_limits() {
    let scene = Scene::new();
    for number in 0..30 {
        scene.put(&format!("{number:02}.txt"), "match\n".repeat(10));
        scene.put(&format!("long/{number:02}.txt"), format!("{}\n", "match ".repeat(100)).repeat(10));
    }
    let found = scene.search(json!({ "pattern": "match", "glob": "/*.txt" })).await.unwrap();
    assert!(
        found.contains("200 matching lines in 20 files") && found.contains("(too many matches)"),
        "{found}"
    );
    let found = scene.search(json!({ "pattern": "match", "path": "long" })).await.unwrap();
    assert!(found.contains("(too long a result)") && found.len() <= RESULT_BYTES, "{found}");
    assert!(found.lines().all(|line| line.chars().count() < 310));
}
