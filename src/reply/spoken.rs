//! The part of a model's text that counts as said.

use super::{FileFilter, ReasoningFilter, TextOrFile, TextOrReasoning};

/// The text without reasoning, and with the names of files instead of their content.
pub fn spoken_text(text: &str) -> String {
    let (mut reasoning, mut files, mut spoken) =
        (ReasoningFilter::default(), FileFilter::default(), String::new());
    let mut keep = |piece: TextOrFile<'_>| match piece {
        TextOrFile::Text(text) => spoken.push_str(text),
        TextOrFile::File(_) | TextOrFile::More => {}
    };
    let mut take = |part: TextOrReasoning<'_>| match part {
        TextOrReasoning::Text(text) => files.push(text, &mut keep),
        TextOrReasoning::Thought(_) => {}
    };
    reasoning.push(text, &mut take);
    reasoning.finish(&mut take);
    files.finish(&mut keep);
    spoken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_reasoning_nor_files_are_said() {
        assert_eq!(spoken_text("<think>hm</think>Yes. <b>"), "Yes. <b>");
        assert_eq!(spoken_text("![a](data:image/png;base64,iVBORw0KGgo=) good"), "📎 a.png good");
    }
}
