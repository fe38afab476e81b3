//! Sorts the files of an answer into those that are sent and lines about those that are not. Pure.

use talaria_platform::OutgoingFile;

use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::reply::{EnclosedFile, FileTrouble};

/// Returns the files to send, and lines below the answer about the others. `more` is the number of files beyond the
/// limit; `takes` says whether the platform takes files at all.
pub(super) fn sort(
    files: Vec<EnclosedFile>,
    more: usize,
    takes: bool,
    words: &TextCatalog,
) -> (Vec<OutgoingFile>, String) {
    let (mut sent, mut notes) = (Vec::new(), String::new());
    let mut note = |phrase: &LocalizedText| {
        notes.push_str(if notes.is_empty() { "\n\n" } else { "\n" });
        notes.push_str(&words.say(phrase));
    };
    for EnclosedFile { name, content } in files {
        let why = match content {
            Ok((mime, content)) if takes => {
                sent.push(OutgoingFile { name, mime: mime.to_owned(), content });
                continue;
            }
            Ok(_) => TextKey::FileUnshowable,
            Err(FileTrouble::TooLarge) => TextKey::FileTooLarge,
            Err(FileTrouble::Broken) => TextKey::FileBroken,
            Err(FileTrouble::Elsewhere) => TextKey::FileElsewhere,
        };
        note(&TextKey::FileUnsent.with("name", name).with("why", why));
    }
    if more > 0 {
        note(&TextKey::FilesUnsent.with("count", more).with("why", TextKey::FileTooMany));
    }
    (sent, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_sent_or_spoken_of() {
        let file = |name: &str, content| EnclosedFile { name: name.to_owned(), content };
        let files = || {
            vec![
                file("a.png", Ok(("image/png", vec![1]))),
                file("b", Err(FileTrouble::Elsewhere)),
                file("c", Err(FileTrouble::TooLarge)),
            ]
        };
        let (sent, notes) = sort(files(), 3, true, &TextCatalog::default());
        assert_eq!(sent.len(), 1);
        insta::assert_snapshot!(notes.trim(), @r"
        (b was not sent: it lies on the agent's machine.)
        (c was not sent: it is too large.)
        (and 3 more were not sent: one answer may bring only a few files.)
        ");
        let (sent, notes) = sort(files(), 0, false, &TextCatalog::default());
        assert!(sent.is_empty());
        assert!(notes.contains("(a.png was not sent: this chat takes no files.)"), "{notes}");
    }
}
