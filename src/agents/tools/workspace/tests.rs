//! The four file tools on real folders.

mod escapes;
mod files;
mod searching;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::agents::tools::AgentTool;
use crate::agents::tools::call_fixture::call;
use crate::agents::tools::edit_file::EditFileTool;
use crate::agents::tools::read_file::ReadFileTool;
use crate::agents::tools::search_files::SearchFilesTool;
use crate::agents::tools::write_file::WriteFileTool;

/// A workspace with a neighbour that it must not reach.
struct Scene {
    folder: TempDir,
    workspace: Arc<Workspace>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        fs::create_dir(&root).unwrap();
        Self { workspace: Arc::new(Workspace::open(&root).unwrap()), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    async fn read(&self, arguments: Value) -> Result<String, ToolFailure> {
        call(&ReadFileTool::new(self.workspace.clone()), &arguments).await
    }

    async fn write(&self, path: &str, content: &str) -> Result<String, ToolFailure> {
        let arguments = json!({ "path": path, "content": content });
        call(&WriteFileTool::new(self.workspace.clone()), &arguments).await
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, ToolFailure> {
        let arguments = json!({ "path": path, "old_text": old, "new_text": new });
        call(&EditFileTool::new(self.workspace.clone()), &arguments).await
    }

    async fn search(&self, arguments: Value) -> Result<String, ToolFailure> {
        call(&SearchFilesTool::new(self.workspace.clone()), &arguments).await
    }
}

/// The words of a failure that the model is told.
fn failure(result: Result<String, ToolFailure>) -> String {
    match result {
        Err(ToolFailure::Failed(words)) => words,
        other => panic!("{other:?}"),
    }
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn paths_are_made_relative_and_others_are_refused() {
    let scene = Scene::new();
    let inside = |name: &str| scene.path(name).display().to_string();
    for (written, path) in [
        ("a.txt".to_owned(), "a.txt"),
        ("./a/./b".to_owned(), "a/b"),
        ("a//b/".to_owned(), "a/b"),
        ("~notes".to_owned(), "~notes"),
        (".".to_owned(), "."),
        (inside("a/b.txt"), "a/b.txt"),
        (inside(""), "."),
    ] {
        assert_eq!(scene.workspace.resolve(&written).unwrap().as_path(), Path::new(path), "{written}");
    }
    assert!(scene.workspace.resolve_file(".").is_err());
}

#[test]
fn every_tool_has_a_subject_and_a_schema() {
    let scene = Scene::new();
    let tools: [Box<dyn AgentTool>; 4] = [
        Box::new(ReadFileTool::new(scene.workspace.clone())),
        Box::new(WriteFileTool::new(scene.workspace.clone())),
        Box::new(EditFileTool::new(scene.workspace.clone())),
        Box::new(SearchFilesTool::new(scene.workspace.clone())),
    ];
    let arguments = json!({ "path": "a\nb", "pattern": "c\n\u{202e}d" });
    let subjects = tools.each_ref().map(|tool| tool.subject(arguments.as_object().unwrap()));
    assert_eq!(subjects, ["a b", "a b", "a b", "c d"]);
    for tool in &tools {
        assert_eq!(tool.subject(json!({ "path": 3 }).as_object().unwrap()), "");
        assert_eq!(tool.spec().parameters["type"], "object");
    }
}
