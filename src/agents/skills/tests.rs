use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn skill(description: &str) -> String {
    format!("---\ndescription: {description}\n---\nDo it.\n")
}

fn write(root: &Path, file: &str, text: impl AsRef<[u8]>) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn names(set: &SkillSet) -> Vec<&str> {
    set.skills.iter().map(|skill| skill.name.as_str()).collect()
}

#[test]
fn files_and_folders_are_skills_and_changes_count_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("skills");
    let library = SkillLibrary::new(root.clone());
    assert!(library.refresh().skills.is_empty(), "a missing folder has none");
    assert_eq!(library.prompt_section(), None);
    write(&root, "one.md", skill("first"));
    write(&root, "two/SKILL.md", skill("second"));
    write(&root, "two/other.md", "no skill");
    write(&root, "learned/three.md", skill("third"));
    write(&root, "notes.txt", "no skill");
    write(&root, "empty/file", "no skill");
    write(&root, ".hidden.md", "no skill");
    let set = library.refresh();
    assert_eq!(names(&set), ["one", "three", "two"]);
    assert!(set.faulty.is_empty(), "{:?}", set.faulty);
    assert_eq!(set.find("THREE").unwrap().origin, SkillOrigin::Learned);
    let section = library.prompt_section().unwrap();
    assert!(section.ends_with("Skills:\n- one: first\n- three: third\n- two: second"), "{section}");

    write(&root, "one.md", skill("other"));
    fs::remove_file(root.join("two/SKILL.md")).unwrap();
    let set = library.refresh();
    assert_eq!(names(&set), ["one", "three"]);
    assert_eq!(set.find("one").unwrap().description, "other");
    assert_eq!(library.read("one").unwrap().body, "Do it.");
    assert_eq!(library.read("two"), Err(SkillReadError::Unknown));
}

#[test]
fn a_faulty_file_spoils_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("skills");
    write(&root, "good.md", skill("good"));
    write(&root, "good2.md", "---\nname: Good\ndescription: again\n---\n");
    write(&root, "binary.md", b"\xff\xfe");
    write(&root, "bare.md", "# no head");
    write(&root, "large.md", vec![b'x'; SKILL_BYTES + 1]);
    write(&root, "yaml.md", "---\ndescription: [\n---\n");
    write(folder.path(), "outside.md", skill("secret"));
    symlink(folder.path().join("outside.md"), root.join("absolute.md")).unwrap();
    symlink("../outside.md", root.join("relative.md")).unwrap();
    symlink("good.md", root.join("inside.md")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(root.join("pipe.md")).status().unwrap().success());
    let set = SkillLibrary::new(root).refresh();
    assert_eq!(names(&set), ["good", "inside"]);
    let faults: Vec<_> = set.faulty.iter().map(|faulty| (faulty.file.as_str(), &faulty.fault)).collect();
    let line = set.faulty.iter().find(|faulty| faulty.file == "yaml.md").unwrap().fault.clone();
    assert!(matches!(line, SkillFault::BadFrontMatter(Some(2..=3))), "{line:?}");
    assert_eq!(
        faults,
        [
            ("absolute.md", &SkillFault::Outside),
            ("bare.md", &SkillFault::NoFrontMatter),
            ("binary.md", &SkillFault::NotText),
            ("good2.md", &SkillFault::TakenName("Good".to_owned())),
            ("large.md", &SkillFault::TooLarge),
            ("relative.md", &SkillFault::Outside),
            ("yaml.md", &line),
        ]
    );
}

#[test]
fn only_the_operators_skills_may_name_variables() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let with =
        |names: &str| format!("---\ndescription: d\nrequired_environment_variables: [{names}]\n---\nx\n");
    write(root, "one.md", with("B, A"));
    write(root, "two.md", with("B, C"));
    write(root, "learned/three.md", with("SECRET"));
    // Neither a link nor a name makes a learned skill the operator's.
    symlink("learned/three.md", root.join("four.md")).unwrap();
    write(root, "learned/one.md", with("SECRET"));
    let library = SkillLibrary::new(root.to_owned());
    assert_eq!(library.required_variables(), ["A", "B", "C"]);
    let set = library.refresh();
    assert!(set.find("three").unwrap().has_ignored_variables);
    assert_eq!(set.find("four").unwrap().origin, SkillOrigin::Learned);
    assert_eq!(set.find("one").unwrap().origin, SkillOrigin::Operator);
    assert_eq!(set.faulty.len(), 1, "{:?}", set.faulty);
}

#[test]
fn a_link_in_the_learned_folder_never_leads_to_the_operators_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "operator.txt", "mine");
    fs::create_dir(root.join("learned")).unwrap();
    symlink("../operator.txt", root.join("learned/sly.md")).unwrap();
    let library = SkillLibrary::new(root.to_owned());
    let draft = SkillDraft::new(DraftConsent::Nobody, "sly", "d", "b").unwrap();
    assert!(library.write(&draft, &|| false).is_err());
    assert_eq!(fs::read_to_string(root.join("operator.txt")).unwrap(), "mine");
    fs::remove_file(root.join("learned/sly.md")).unwrap();
    fs::remove_dir(root.join("learned")).unwrap();
    symlink(".", root.join("learned")).unwrap();
    assert!(library.write(&draft, &|| false).is_err(), "a link in place of the folder");
    assert!(!root.join("sly.md").exists());
    fs::remove_file(root.join("learned")).unwrap();
    assert!(matches!(library.write(&draft, &|| true), Err(SkillWriteError::Cancelled)));
    assert_eq!(library.write(&draft, &|| false).unwrap(), WrittenFile::Created);
}

#[test]
fn a_review_never_replaces_what_a_person_approved() {
    let folder = tempfile::tempdir().unwrap();
    let library = SkillLibrary::new(folder.path().to_owned());
    let draft = |consent, body| SkillDraft::new(consent, "brew", "How to brew", body).unwrap();
    let write = |draft: &SkillDraft| library.write(draft, &|| false);
    let (person, nobody) = (DraftConsent::Person, DraftConsent::Nobody);
    assert_eq!(write(&draft(nobody, "one")).unwrap(), WrittenFile::Created);
    assert_eq!(write(&draft(nobody, "two")).unwrap(), WrittenFile::Replaced);
    assert!(!library.read("brew").unwrap().skill.is_approved);
    assert_eq!(write(&draft(person, "three")).unwrap(), WrittenFile::Replaced);
    assert!(library.read("brew").unwrap().skill.is_approved);
    assert!(matches!(write(&draft(nobody, "four")), Err(SkillWriteError::PersonApprovedIt)));
    assert_eq!(library.read("brew").unwrap().body, "three");
    assert_eq!(write(&draft(person, "five")).unwrap(), WrittenFile::Replaced);
}

#[test]
fn there_are_limits() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for number in 0..LEARNED_SKILLS {
        write(root, &format!("learned/l{number}.md"), skill("x"));
    }
    let library = SkillLibrary::new(root.to_owned());
    let one_more = SkillDraft::new(DraftConsent::Nobody, "more", "d", "b").unwrap();
    assert!(matches!(library.write(&one_more, &|| false), Err(SkillWriteError::TooMany)));
    let known = SkillDraft::new(DraftConsent::Nobody, "l0", "d", "b").unwrap();
    assert!(matches!(library.check_write(&one_more), Err(SkillWriteError::TooMany)));
    assert_eq!(library.check_write(&known).unwrap(), WrittenFile::Replaced);
    assert_eq!(library.write(&known, &|| false).unwrap(), WrittenFile::Replaced);
    for number in 0..=SKILLS {
        write(root, &format!("s{number:03}.md"), skill(&"y".repeat(300)));
    }
    let set = library.refresh();
    assert_eq!((set.skills.len(), set.left_out), (SKILLS, LEARNED_SKILLS + 1));
    let section = set.prompt_section().unwrap();
    assert!(section.len() < PROMPT_BYTES + 100 && section.contains("more; action `list`"));
}
