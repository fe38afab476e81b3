//! Changes of files.

use std::path::{Path, PathBuf};

use crate::responses::{adds_file, says, told};
use crate::scene::Scene;

/// The file with this name, in whatever folder of the workspace it is.
pub fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() { found(&path, name) } else { Some(path).filter(|path| path.ends_with(name)) }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_patch_is_applied() {
    let scene = Scene::start().await;
    scene.model.answers(adds_file("notes.txt", "a line of the patch")).answers(says(["Written."]));
    let question = scene.says("write it down");
    let asked = scene.is_asked(1).await;
    assert!(asked.text.contains("1 add") && asked.text.contains("notes.txt"), "{}", asked.text);
    assert_eq!(found(&scene.home.workspace(), "notes.txt"), None);
    scene.approves(&asked);
    assert_eq!(scene.ends(&question).await, "Written.");
    let file = found(&scene.home.workspace(), "notes.txt").expect("the file");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "a line of the patch\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_patch_changes_nothing() {
    let scene = Scene::start().await;
    scene.model.answers(adds_file("notes.txt", "a line of the patch")).answers(says(["Then not."]));
    let question = scene.says("write it down");
    let asked = scene.is_asked(1).await;
    scene.denies(&asked);
    assert_eq!(scene.ends(&question).await, "Then not.");
    assert_eq!(found(&scene.home.workspace(), "notes.txt"), None);
    let last = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(last.contains("rejected"), "{last}");
}
