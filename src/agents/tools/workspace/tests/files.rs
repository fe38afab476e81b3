//! Reading, writing and editing of ordinary and odd files.

use std::os::unix::fs::PermissionsExt as _;

use futures_util::future::join_all;
use talaria_platform::CancellationToken;

use super::*;
use crate::agents::tools::call_fixture::{ScriptedPerson, turn_in};
use crate::agents::tools::{RESULT_BYTES, ToolCall};

#[tokio::test]
async fn a_file_is_read_in_pages() {
    let scene = Scene::new();
    let lines: String = (1..=5000).map(|number| format!("line {number}\n")).collect();
    scene.put("file.txt", lines.trim_end());
    let page = scene.read(json!({ "path": "file.txt" })).await.unwrap();
    assert!(page.starts_with("`file.txt`: lines 1 to 2000 of 5000\n\nline 1\nline 2\n"), "{}", &page[..100]);
    assert!(page.ends_with("line 2000\n[3000 more lines; read on with offset 2001]\n"));
    let page = scene.read(json!({ "path": "file.txt", "offset": 4999, "limit": 10 })).await.unwrap();
    assert_eq!(page, "`file.txt`: lines 4999 to 5000 of 5000\n\nline 4999\nline 5000\n");
    let page = scene.read(json!({ "path": "file.txt", "offset": "3", "limit": 1 })).await.unwrap();
    assert_eq!(
        page,
        "`file.txt`: lines 3 to 3 of 5000\n\nline 3\n[4997 more lines; read on with offset 4]\n"
    );
    let beyond = failure(scene.read(json!({ "path": "file.txt", "offset": 6000 })).await);
    assert_eq!(beyond, "`file.txt` has only 5000 lines");
    scene.put("empty.txt", "");
    assert_eq!(scene.read(json!({ "path": "empty.txt" })).await.unwrap(), "`empty.txt` is empty.");
    assert_eq!(failure(scene.read(json!({ "path": "no.txt" })).await), "`no.txt` does not exist");
    assert_eq!(failure(scene.read(json!({ "path": "." })).await), "`.` is a folder, not a file");
}

#[tokio::test]
async fn ten_megabytes_stay_within_the_limits() {
    let scene = Scene::new();
    let line = "x".repeat(99);
    scene.put("lines.txt", format!("{line}\n").repeat(100_000));
    scene.put("one-line.txt", "y".repeat(10_000_000));
    let page = scene.read(json!({ "path": "lines.txt" })).await.unwrap();
    assert!(page.len() <= RESULT_BYTES, "{}", page.len());
    assert!(page.contains("lines 1 to 481 of 100000\n"), "{}", &page[..60]);
    assert!(page.ends_with("[99519 more lines; read on with offset 482]\n"), "{}", &page[page.len() - 60..]);
    let cut = scene.read(json!({ "path": "one-line.txt" })).await.unwrap();
    assert!(cut.len() <= RESULT_BYTES && cut.ends_with("[line 1 is longer than a page and was cut here]\n"));
    scene.put("big.txt", format!("{line}\n").repeat(100_000) + "end\n");
    scene.edit("big.txt", "end", "END").await.unwrap();
    assert!(scene.content("big.txt").ends_with("END\n"));
    let found = scene.search(json!({ "pattern": "^x+$" })).await.unwrap();
    assert!(found.len() <= RESULT_BYTES && found.contains("too many matches"), "{found}");
    let huge = "z".repeat(5 * 1024 * 1024);
    assert!(failure(scene.write("huge.txt", &huge).await).contains("at most"));
    scene.put("huge.txt", vec![b'z'; 17 * 1024 * 1024]);
    assert!(failure(scene.edit("huge.txt", "z", "y").await).contains("too large"));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_and_named() {
    let scene = Scene::new();
    scene.put("latin.txt", b"gr\xfc\xdfe\r\nworld\r\n");
    let page = scene.read(json!({ "path": "latin.txt" })).await.unwrap();
    assert!(page.contains("CRLF") && page.contains("not UTF-8"), "{page}");
    assert!(page.ends_with("\n\ngr\u{fffd}\u{fffd}e\nworld\n"), "{page}");
    scene.edit("latin.txt", "world", "all\nof you").await.unwrap();
    assert_eq!(fs::read(scene.path("latin.txt")).unwrap(), b"gr\xfc\xdfe\r\nall\r\nof you\r\n");
    scene.put("picture.png", b"\x89PNG\r\n\x1a\n....");
    scene.put("blob", b"a\0b");
    let said = scene.read(json!({ "path": "picture.png" })).await.unwrap();
    assert_eq!(said, "`picture.png` is a binary file (image/png, 12 bytes), which is not shown.");
    assert!(scene.read(json!({ "path": "blob" })).await.unwrap().contains("binary file"));
    // A character across the border of two chunks is no reason to call a file binary.
    scene.put("long.txt", format!("{}ü", "x".repeat(64 * 1024 - 1)));
    assert!(!scene.read(json!({ "path": "long.txt" })).await.unwrap().contains("binary"));
}

#[tokio::test]
async fn a_file_is_written_whole_and_keeps_its_mode() {
    let scene = Scene::new();
    let said = scene.write("a/b/c.txt", "one\ntwo\n").await.unwrap();
    assert_eq!(said, "Created `a/b/c.txt`: 2 lines, 8 bytes.");
    fs::set_permissions(scene.path("a/b/c.txt"), fs::Permissions::from_mode(0o750)).unwrap();
    let said = scene.write("a/b/c.txt", "three").await.unwrap();
    assert_eq!(said, "Replaced `a/b/c.txt`: 1 lines, 5 bytes.");
    scene.edit("a/b/c.txt", "three", "four").await.unwrap();
    assert_eq!(scene.content("a/b/c.txt"), "four");
    assert_eq!(fs::metadata(scene.path("a/b/c.txt")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_dir(scene.path("a/b")).unwrap().count(), 1, "no temporary file is left");
    fs::set_permissions(scene.path("a/b/c.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(failure(scene.write("a/b/c.txt", "five").await).contains("read-only"));
    assert!(failure(scene.write("a/b", "six").await).contains("is a folder"));
    assert_eq!(scene.content("a/b/c.txt"), "four");
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_at_the_same_time_all_stay() {
    let scene = Scene::new();
    let lines: String = (0..40).map(|number| format!("<{number}>\n")).collect();
    scene.put("file.txt", &lines);
    let edits = (0..40).map(|number| {
        let (old, new) = (format!("<{number}>"), format!("[{number}]"));
        let scene = &scene;
        async move { scene.edit("file.txt", &old, &new).await }
    });
    let tasks = join_all(edits).await;
    assert!(tasks.iter().all(Result::is_ok), "{tasks:?}");
    assert_eq!(scene.content("file.txt"), lines.replace('<', "[").replace('>', "]"));
}

#[tokio::test]
async fn a_stopped_call_changes_nothing() {
    let scene = Scene::new();
    let (turn, stop, person) = (turn_in("s"), CancellationToken::new(), ScriptedPerson::absent());
    stop.cancel();
    let arguments =
        json!({ "path": "new.txt", "content": "x", "pattern": "x", "old_text": "a", "new_text": "b" });
    let tools: [Box<dyn AgentTool>; 4] = [
        Box::new(ReadFileTool::new(scene.workspace.clone())),
        Box::new(WriteFileTool::new(scene.workspace.clone())),
        Box::new(EditFileTool::new(scene.workspace.clone())),
        Box::new(SearchFilesTool::new(scene.workspace.clone())),
    ];
    for tool in tools {
        let arguments = arguments.as_object().unwrap();
        let call = ToolCall { arguments, turn: &turn, out: &person, progress: &|_| {}, stop: &stop };
        assert_eq!(tool.call(call).await, Err(ToolFailure::Stopped));
    }
    assert!(!scene.path("new.txt").exists());
}
