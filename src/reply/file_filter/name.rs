//! What a file from an answer is called.

use crate::util::FileKind;
use crate::util::one_line;

/// Characters of a file's name.
const NAME: usize = 60;

/// A name that is safe in a file system, in a line of Markdown and for people, with an end that says what the file is.
pub(super) fn file_name(given: &str, kind: Option<FileKind>, number: usize) -> String {
    let safe = |c: char| if c.is_alphanumeric() || " .-_".contains(c) { c } else { '_' };
    let name: String = one_line(given, NAME).chars().map(safe).collect();
    let name = name.trim_matches(['.', ' ', '_']);
    let name = if name.is_empty() { format!("file-{number}") } else { name.to_owned() };
    let Some(kind) = kind else { return name };
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let fits = match (kind, ending.as_deref()) {
        // Many kinds of text and of archives have names of their own.
        (FileKind::Text | FileKind::Other("application/zip" | "application/octet-stream"), Some(ending)) => {
            (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }
        (FileKind::Picture("image/jpeg"), Some("jpeg")) => true,
        (kind, ending) => ending == Some(kind.extension()),
    };
    if fits { name } else { format!("{name}.{}", kind.extension()) }
}
