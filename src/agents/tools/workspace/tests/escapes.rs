//! Ways out of the workspace: none of them leads anywhere.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::*;

/// A text that is only outside.
const SECRET: &str = "SECRET-7431";

/// Longer than any of the tools may take. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A workspace full of traps, and the paths that lead into them.
fn traps() -> (Scene, Vec<String>, UnixListener) {
    let scene = Scene::new();
    let outside = scene.folder.path().join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::write(outside.join("secret.txt"), SECRET).unwrap();
    fs::write(outside.join("deep/secret.txt"), SECRET).unwrap();
    fs::create_dir(scene.folder.path().join("work-other")).unwrap();
    fs::write(scene.folder.path().join("work-other/secret.txt"), SECRET).unwrap();
    scene.put("folder/inner/file.txt", "harmless\n");
    scene.put("file.txt", "harmless\n");
    let link = |target: &str, name: &str| symlink(target, scene.path(name)).unwrap();
    let out = outside.display().to_string();
    link(&format!("{out}/secret.txt"), "absolute-file");
    link(&out, "absolute-folder");
    link("../outside/secret.txt", "relative-file");
    link("../outside", "relative-folder");
    link("..", "up");
    link(".././outside/../outside", "winding");
    link("../../../../../../../../../../../../etc/passwd", "far-up");
    link("/", "root");
    link("/proc/self/root", "proc-root");
    link("/proc/self/cwd", "proc-cwd");
    link("/proc/self/environ", "environment");
    link("/proc/self/fd", "descriptors");
    link("/dev/zero", "endless");
    link("/dev/stdin", "input");
    link("relative-file", "chain");
    link("folder/../relative-folder", "chain-folder");
    link("../outside/new.txt", "dangling-out");
    link("../outside/new", "dangling-folder");
    link("loop-b", "loop-a");
    link("loop-a", "loop-b");
    link("../../../outside/secret.txt", "folder/inner/climbs");
    link("../../relative-folder", "folder/inner/chain");
    make_pipe(&scene.path("pipe"));
    link("pipe", "pipe-link");
    let socket = UnixListener::bind(scene.path("socket")).unwrap();
    let paths = [
        "..".to_owned(),
        "../outside/secret.txt".to_owned(),
        "folder/../../outside/secret.txt".to_owned(),
        "./../outside/secret.txt".to_owned(),
        "folder/inner/../../../outside/secret.txt".to_owned(),
        "missing/../../outside/secret.txt".to_owned(),
        format!("{out}/secret.txt"),
        format!("{}/../outside/secret.txt", scene.path("").display()),
        format!("{}/work-other/secret.txt", scene.folder.path().display()),
        format!("//{out}/secret.txt"),
        "/etc/passwd".to_owned(),
        "/proc/self/environ".to_owned(),
        "/proc/self/root/etc/passwd".to_owned(),
        format!("/proc/self/root{out}/secret.txt"),
        "/dev/zero".to_owned(),
        "~/secret.txt".to_owned(),
        "~".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("file://{out}/secret.txt"),
        "absolute-file".to_owned(),
        "absolute-folder/secret.txt".to_owned(),
        "absolute-folder/deep/secret.txt".to_owned(),
        "absolute-folder/new.txt".to_owned(),
        "absolute-folder/new/new.txt".to_owned(),
        "relative-file".to_owned(),
        "relative-folder/secret.txt".to_owned(),
        "relative-folder/deep/new/new.txt".to_owned(),
        "up/outside/secret.txt".to_owned(),
        "up/work/up/outside/secret.txt".to_owned(),
        "winding/secret.txt".to_owned(),
        "far-up".to_owned(),
        "root/etc/passwd".to_owned(),
        format!("root{out}/secret.txt"),
        "proc-root/etc/passwd".to_owned(),
        "proc-cwd/new.txt".to_owned(),
        "environment".to_owned(),
        "descriptors/0".to_owned(),
        "endless".to_owned(),
        "input".to_owned(),
        "chain".to_owned(),
        "chain-folder/secret.txt".to_owned(),
        "dangling-out".to_owned(),
        "dangling-folder/new.txt".to_owned(),
        "loop-a".to_owned(),
        "loop-a/file.txt".to_owned(),
        "folder/inner/climbs".to_owned(),
        "folder/inner/chain/secret.txt".to_owned(),
        "pipe".to_owned(),
        "pipe-link".to_owned(),
        "pipe/file.txt".to_owned(),
        "socket".to_owned(),
        "file.txt/file.txt".to_owned(),
        "file\0.txt".to_owned(),
        "file.txt\0/../../outside/secret.txt".to_owned(),
        "folder\n/file.txt".to_owned(),
        "x".repeat(256),
        "x/".repeat(3000),
        String::new(),
        "  ".to_owned(),
    ];
    (scene, paths.into(), socket)
}

/// Every file and folder beside the workspace, with its content.
fn outside(scene: &Scene) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let (mut folders, mut found) = (vec![scene.folder.path().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path == scene.path("") || path == scene.folder.path().join("work") {
                continue;
            }
            if path.is_dir() {
                folders.push(path.clone());
            }
            let content = fs::read(&path).ok();
            found.push((path, content));
        }
    }
    found.sort();
    found
}

/// Every call, with a limit: none may wait for a pipe or read a device for ever.
async fn all_calls(scene: &Scene, path: &str) -> [(&'static str, Result<String, ToolFailure>); 4] {
    let calls = async {
        [
            ("read", scene.read(json!({ "path": path })).await),
            ("write", scene.write(path, "written").await),
            ("edit", scene.edit(path, SECRET, "edited").await),
            ("search", scene.search(json!({ "path": path, "pattern": "." })).await),
        ]
    };
    tokio::time::timeout(PATIENCE, calls).await.unwrap_or_else(|_| panic!("{path} does not end"))
}

#[tokio::test]
async fn no_path_leads_out() {
    let (scene, paths, _socket) = traps();
    assert!(paths.len() >= 30);
    let before = outside(&scene);
    for path in &paths {
        for (tool, result) in all_calls(&scene, path).await {
            // A search without a path searches the workspace.
            let is_whole_search = tool == "search" && path.is_empty();
            match result {
                Err(ToolFailure::Failed(words)) => {
                    assert!(!words.contains(SECRET), "{tool} {path:?}: {words}");
                    assert!(!words.contains('\n') && words.len() < 400, "{tool} {path:?}: {words}");
                }
                Ok(said) if is_whole_search => assert!(!said.contains(SECRET), "{said}"),
                other => panic!("{tool} {path:?}: {other:?}"),
            }
            assert_eq!(outside(&scene), before, "{tool} {path:?} changed something outside");
        }
    }
    let names: Vec<_> =
        fs::read_dir(scene.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("talaria")), "{names:?}");
    let found = scene.search(json!({ "pattern": "SECRET|root:|harmless" })).await.unwrap();
    assert!(found.contains("2 matching lines in 2 files; 2 files were searched."), "{found}");
}

#[tokio::test]
async fn links_inside_of_the_workspace_work() {
    let scene = Scene::new();
    scene.put("real/file.txt", "one\n");
    symlink("real", scene.path("folder")).unwrap();
    symlink("../real/file.txt", scene.path("real/other.txt")).unwrap();
    symlink("folder/other.txt", scene.path("link.txt")).unwrap();
    for path in ["folder/file.txt", "link.txt", "real/other.txt"] {
        assert!(scene.read(json!({ "path": path })).await.unwrap().ends_with("one\n"), "{path}");
    }
    scene.edit("link.txt", "one", "two").await.unwrap();
    assert_eq!(scene.content("real/file.txt"), "two\n");
    scene.write("folder/other.txt", "three\n").await.unwrap();
    assert_eq!(scene.content("real/file.txt"), "three\n");
    scene.write("folder/new/file.txt", "four\n").await.unwrap();
    assert_eq!(scene.content("real/new/file.txt"), "four\n");
    assert!(scene.path("link.txt").is_symlink() && scene.path("folder").is_symlink(), "links stay");
    let found = scene.search(json!({ "pattern": "three", "path": "folder" })).await.unwrap();
    assert!(found.contains("1 matching lines"), "{found}");
}

/// Between two calls a folder becomes a link out.
#[tokio::test]
async fn a_folder_that_becomes_a_link_leads_nowhere() {
    let scene = Scene::new();
    let outside = scene.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file.txt"), SECRET).unwrap();
    scene.put("folder/file.txt", "harmless\n");
    scene.read(json!({ "path": "folder/file.txt" })).await.unwrap();
    fs::rename(scene.path("folder"), scene.path("before")).unwrap();
    symlink(&outside, scene.path("folder")).unwrap();
    for (tool, result) in all_calls(&scene, "folder/file.txt").await {
        assert!(failure(result).contains("leads out of the workspace"), "{tool}");
    }
    assert!(failure(scene.write("folder/new.txt", "x").await).contains("leads out"));
    assert_eq!(fs::read_to_string(outside.join("file.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

/// While calls run, a folder and a link out change places all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_race_for_a_folder_is_always_lost() {
    let scene = Scene::new();
    let outside = scene.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file.txt"), SECRET).unwrap();
    scene.put("folder/file.txt", "harmless\n");
    symlink(&outside, scene.path("link")).unwrap();
    let (root, done) = (scene.path(""), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let racing = done.clone();
    let racer = std::thread::spawn(move || {
        let mut swaps = 0_u32;
        while !racing.load(std::sync::atomic::Ordering::Relaxed) {
            let (one, other) = (root.join("folder"), root.join("link"));
            let swap = rustix::fs::RenameFlags::EXCHANGE;
            let cwd = rustix::fs::CWD;
            if rustix::fs::renameat_with(cwd, &one, cwd, &other, swap).is_err() {
                // Not every file system can swap at once.
                let aside = root.join("aside");
                fs::rename(&one, &aside).unwrap();
                fs::rename(&other, &one).unwrap();
                fs::rename(&aside, &other).unwrap();
            }
            swaps += 1;
        }
        swaps
    });
    for _ in 0..300 {
        for (tool, result) in all_calls(&scene, "folder/file.txt").await {
            if let Ok(said) = result {
                assert!(!said.contains(SECRET), "{tool}: {said}");
            }
        }
        let found = scene.search(json!({ "pattern": "." })).await.unwrap();
        assert!(!found.contains(SECRET), "{found}");
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(racer.join().unwrap() > 0);
    assert_eq!(fs::read_to_string(outside.join("file.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was left outside");
}

/// A file outside that has a second name inside is not written through.
#[tokio::test]
async fn writing_leaves_a_hard_link_alone() {
    let scene = Scene::new();
    let outside = scene.folder.path().join("outside.txt");
    fs::write(&outside, "theirs").unwrap();
    fs::hard_link(&outside, scene.path("ours.txt")).unwrap();
    scene.edit("ours.txt", "theirs", "ours").await.unwrap();
    scene.write("ours.txt", "ours again").await.unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "theirs");
}
