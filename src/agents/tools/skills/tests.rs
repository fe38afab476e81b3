use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::access::GrantScope;
use crate::agent::{AskChoice, DenyReason};
use crate::agents::tools::call_fixture::{ScriptedPerson, call, call_with};
use crate::i18n::TextKey;

struct Scene {
    folder: TempDir,
    library: Arc<SkillLibrary>,
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("deploy.md"), "---\ndescription: How to deploy\n---\nPush it.\n").unwrap();
    let library = SkillLibrary::new(folder.path().to_owned());
    Scene { folder, library }
}

impl Scene {
    fn tool(&self, writing: SkillWriting) -> SkillsTool {
        SkillsTool::new(self.library.clone(), writing)
    }

    fn learned(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("learned")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn draft() -> Value {
    json!({ "action": "write", "name": "tidy-up", "description": "How to \"tidy\": all", "body": "# Tidy\n---\nname: x\n---" })
}

#[tokio::test]
async fn skills_are_listed_and_read() {
    let scene = scene();
    fs::write(scene.folder.path().join("broken.md"), "no head").unwrap();
    let tool = scene.tool(SkillWriting::Ask);
    let list = call(&tool, &json!({ "action": "list" })).await.unwrap();
    assert_eq!(
        list,
        "- deploy: How to deploy\n- the file `broken.md` cannot be used: it does not begin with front matter\n"
    );
    let text = call(&tool, &json!({ "action": "view", "name": "Deploy" })).await.unwrap();
    assert_eq!(text, "Skill `deploy`: How to deploy\n\nPush it.\n");
    for (arguments, words) in [
        (json!({ "action": "view", "name": "nothing" }), "there is no skill `nothing`"),
        (json!({ "action": "view", "name": "../deploy" }), "there is no skill"),
        (json!({ "action": "view" }), "`name` is missing"),
        (json!({ "action": "dance" }), "`action` must be"),
        (json!({}), "`action` is missing"),
    ] {
        let Err(ToolFailure::Failed(said)) = call(&tool, &arguments).await else { panic!("{arguments}") };
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(tool.subject(json!({ "action": "view", "name": "a\nb" }).as_object().unwrap()), "view a b");
}

#[tokio::test]
async fn an_unchanged_skill_is_read_once_in_each_session() {
    let scene = scene();
    let (tool, person) = (scene.tool(SkillWriting::Ask), ScriptedPerson::absent());
    let view = json!({ "action": "view", "name": "deploy" });
    let read = async |arguments: &Value, session: &str| {
        call_with(&tool, arguments, session, &person).await.unwrap().contains("Push it")
    };
    assert!(read(&view, "one").await);
    assert!(!read(&view, "one").await, "a stub");
    assert!(read(&view, "two").await, "another session has not read it");
    assert!(read(&json!({ "action": "view", "name": "deploy", "again": true }), "one").await);
    fs::write(scene.folder.path().join("deploy.md"), "---\ndescription: How\n---\nPush it twice.\n").unwrap();
    assert!(read(&view, "one").await, "it has changed");
    assert!(!read(&view, "one").await);
    for number in 0..SEEN {
        assert!(read(&view, &format!("other {number}")).await);
    }
    assert_eq!(tool.seen.lock().len(), SEEN);
    assert!(read(&view, "one").await, "the oldest sessions are forgotten");
}

#[tokio::test]
async fn a_skill_is_written_when_a_person_has_seen_all_of_it() {
    let scene = scene();
    let (tool, person) =
        (scene.tool(SkillWriting::Ask), ScriptedPerson::who_says(AskChoice::Allow(GrantScope::Once)));
    let said = call_with(&tool, &draft(), "s", &person).await.unwrap();
    assert_eq!(said, "The skill `tidy-up` is written.");
    let file = fs::read_to_string(scene.folder.path().join("learned/tidy-up.md")).unwrap();
    assert_eq!(person.asked.lock()[0].detail, file);
    assert!(file.contains("# Tidy"));
    let list = call(&tool, &json!({ "action": "list" })).await.unwrap();
    assert!(list.contains("- tidy-up (learned): How to \"tidy\": all\n"), "{list}");
    let again = call_with(&tool, &draft(), "s", &person).await.unwrap();
    assert_eq!(again, "The skill `tidy-up` is replaced.");
    assert!(person.asked.lock()[1].title.to_string().starts_with("replace the skill tidy-up"));
    let of_operator = json!({ "action": "write", "name": "deploy", "description": "d", "body": "b" });
    assert!(matches!(call_with(&tool, &of_operator, "s", &person).await, Err(ToolFailure::Failed(_))));
    assert_eq!(person.asked.lock().len(), 2, "nobody is asked in vain");
    assert_eq!(scene.learned(), ["tidy-up.md"]);
}

#[tokio::test]
async fn without_an_approval_nothing_is_written() {
    let scene = scene();
    let tool = scene.tool(SkillWriting::Ask);
    let answered =
        async |choice| call_with(&tool, &draft(), "s", &ScriptedPerson::who_says(choice)).await.unwrap_err();
    let denied = async |reason| answered(AskChoice::Deny(reason)).await;
    assert!(matches!(denied(DenyReason::Person).await, ToolFailure::Failed(_)));
    assert_eq!(denied(DenyReason::Timeout).await, ToolFailure::Halt(TextKey::AskHalted.into()));
    assert_eq!(denied(DenyReason::Stopped).await, ToolFailure::Stopped);
    assert!(matches!(answered(AskChoice::Text("yes".to_owned())).await, ToolFailure::Failed(_)));
    assert!(scene.learned().is_empty());
}

#[tokio::test]
async fn a_review_is_told_that_it_may_not_replace_what_a_person_approved() {
    let scene = scene();
    let person = ScriptedPerson::who_says(AskChoice::Allow(GrantScope::Once));
    call_with(&scene.tool(SkillWriting::Ask), &draft(), "s", &person).await.unwrap();
    let before = fs::read_to_string(scene.folder.path().join("learned/tidy-up.md")).unwrap();
    assert!(before.contains("\napproved: true\n---\n"), "{before}");
    let other = json!({ "action": "write", "name": "Tidy-Up", "description": "d", "body": "Burn it." });
    let Err(ToolFailure::Failed(said)) = call(&scene.tool(SkillWriting::Review), &other).await else {
        panic!("it was replaced")
    };
    assert!(said.contains("a person approved the skill of this name"), "{said}");
    assert_eq!(fs::read_to_string(scene.folder.path().join("learned/tidy-up.md")).unwrap(), before);
}

#[tokio::test]
async fn a_review_writes_without_a_question_and_never_over_the_operator() {
    let scene = scene();
    let (tool, person) = (scene.tool(SkillWriting::Review), ScriptedPerson::absent());
    call_with(&tool, &draft(), "s", &person).await.unwrap();
    assert!(person.asked.lock().is_empty());
    assert_eq!(scene.learned(), ["tidy-up.md"]);
    for name in ["deploy", "DEPLOY", "learned", "../x", "a/b", ""] {
        let arguments = json!({ "action": "write", "name": name, "description": "d", "body": "b" });
        let failed = call(&tool, &arguments).await;
        assert!(matches!(failed, Err(ToolFailure::Failed(_))), "{name}: {failed:?}");
    }
    for (description, body) in [("", "b"), ("d", " "), ("d", &"x".repeat(40_000))] {
        let arguments = json!({ "action": "write", "name": "x", "description": description, "body": body });
        assert!(matches!(call(&tool, &arguments).await, Err(ToolFailure::Failed(_))));
    }
    assert_eq!(scene.learned(), ["tidy-up.md"]);
}
