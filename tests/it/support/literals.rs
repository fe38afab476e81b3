//! Finds the string literals of Rust source that could reach a person.
//!
//! A small lexer rather than a parser: it knows comments, the kinds of literals and brackets. That is enough to leave
//! out literals that nobody in a room reads: attributes, test modules, and texts for the log or a developer.

/// A string literal, with the line it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    pub line: usize,
    pub text: String,
}

/// Contents of a source file.
#[derive(Debug, Default)]
pub struct Source {
    pub literals: Vec<Literal>,
    /// Modules in files of their own that are compiled for tests only.
    pub test_modules: Vec<String>,
}

/// Macros whose texts are for the log or for the reader of a panic.
const QUIET: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "matches",
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
    Text(String),
}

/// Reads a source file.
pub fn read(source: &str) -> Source {
    let tokens = tokens(source);
    let mut found = Source::default();
    let mut at = 0;
    while let Some((token, line)) = tokens.get(at) {
        let next = |ahead: usize| tokens.get(at + ahead).map(|(token, _)| token);
        match token {
            Token::Mark('#') if matches!(next(1), Some(Token::Mark('[' | '!'))) => {
                let open = if next(1) == Some(&Token::Mark('!')) { at + 2 } else { at + 1 };
                let end = closing(&tokens, open);
                let test = is_test(&tokens[open..end]);
                at = end;
                if test {
                    let (behind, module) = item(&tokens, end);
                    found.test_modules.extend(module);
                    at = behind;
                }
            }
            Token::Word(word) if word == "tracing" && next(1) == Some(&Token::Mark(':')) => {
                // `tracing :: info ! ( … )`; nothing else of that crate has texts.
                at = if next(4) == Some(&Token::Mark('!')) { closing(&tokens, at + 5) } else { at + 1 };
            }
            Token::Word(word) if QUIET.contains(&word.as_str()) && next(1) == Some(&Token::Mark('!')) => {
                at = closing(&tokens, at + 2);
            }
            Token::Text(text) => {
                found.literals.push(Literal { line: *line, text: text.clone() });
                at += 1;
            }
            Token::Word(_) | Token::Mark(_) => at += 1,
        }
    }
    found
}

/// Whether a literal reads like words for people: two words in a row, or one that is punctuated as a sentence.
pub fn is_prose(text: &str) -> bool {
    let mut plain = String::new();
    let mut depth = 0_usize;
    for char in text.chars() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(char),
            _ => {}
        }
    }
    let bare =
        |word: &str| word.trim_matches(|c: char| c.is_ascii_punctuation() || "…—⚠️".contains(c)).to_owned();
    let is_word = |word: &str| {
        word.chars().count() >= 2 && word.chars().all(|c| c.is_alphabetic() || "'’-".contains(c))
    };
    let words = plain.split_whitespace().filter(|word| is_word(&bare(word))).count();
    let alone = plain.trim();
    let sentence = alone.ends_with(['.', '!', '?', '…', ')'])
        && alone.starts_with(|c: char| c.is_uppercase() || c == '(')
        && is_word(&bare(alone));
    words >= 2 || sentence
}

/// Whether an attribute, from its bracket on, marks an item for tests.
fn is_test(attribute: &[(Token, usize)]) -> bool {
    let words: Vec<&str> = attribute
        .iter()
        .filter_map(|(token, _)| match token {
            Token::Word(word) => Some(word.as_str()),
            Token::Mark(_) | Token::Text(_) => None,
        })
        .collect();
    matches!(words.as_slice(), ["cfg", "test"] | ["test"] | ["tokio", "test", ..])
}

/// The position after the item that begins here, and its name if it is a module in a file of its own.
fn item(tokens: &[(Token, usize)], start: usize) -> (usize, Option<String>) {
    let mut at = start;
    while let Some((token, _)) = tokens.get(at) {
        match token {
            Token::Mark('{') => return (closing(tokens, at), None),
            Token::Mark(';') => {
                let words: Vec<&Token> = tokens[start..at].iter().map(|(token, _)| token).collect();
                let module = match words.as_slice() {
                    [.., Token::Word(keyword), Token::Word(name)] if keyword == "mod" => Some(name.clone()),
                    _ => None,
                };
                return (at + 1, module);
            }
            Token::Mark('(' | '[') => at = closing(tokens, at),
            Token::Word(_) | Token::Mark(_) | Token::Text(_) => at += 1,
        }
    }
    (at, None)
}

/// The position after the bracket that closes the one at `open`.
fn closing(tokens: &[(Token, usize)], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, (token, _)) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            Token::Word(_) | Token::Mark(_) | Token::Text(_) => {}
        }
    }
    tokens.len()
}

fn tokens(source: &str) -> Vec<(Token, usize)> {
    let chars: Vec<char> = source.chars().collect();
    let starts =
        |at: usize, what: &str| chars[at..].iter().copied().take(what.chars().count()).eq(what.chars());
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let begin = at;
        let mut token = None;
        match chars[at] {
            '/' if starts(at, "//") => {
                while at < chars.len() && chars[at] != '\n' {
                    at += 1;
                }
            }
            '/' if starts(at, "/*") => at = comment(&chars, at),
            '"' => {
                let (text, end) = quoted(&chars, at);
                (token, at) = (Some(Token::Text(text)), end);
            }
            'r' if starts(at, "r\"") || starts(at, "r#\"") || starts(at, "r##\"") => {
                let (text, end) = raw(&chars, at);
                (token, at) = (Some(Token::Text(text)), end);
            }
            // A byte string is no text for people.
            'b' if starts(at, "b\"") => at = quoted(&chars, at + 1).1,
            'b' if starts(at, "br\"") || starts(at, "br#\"") => at = raw(&chars, at + 1).1,
            '\'' => at = character(&chars, at),
            c if c.is_alphanumeric() || c == '_' => {
                while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '_') {
                    at += 1;
                }
                token = Some(Token::Word(chars[begin..at].iter().collect()));
            }
            c => {
                token = (!c.is_whitespace()).then_some(Token::Mark(c));
                at += 1;
            }
        }
        tokens.extend(token.map(|token| (token, line)));
        line += chars[begin..at].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

fn comment(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// The text between quotation marks; an escape for white space becomes a space.
fn quoted(chars: &[char], start: usize) -> (String, usize) {
    let (mut text, mut at) = (String::new(), start + 1);
    while at < chars.len() && chars[at] != '"' {
        if chars[at] == '\\' {
            at += 1;
            match chars.get(at) {
                Some('n' | 't' | 'r') => text.push(' '),
                Some('\n') => {
                    while chars.get(at + 1).is_some_and(|c| c.is_whitespace()) {
                        at += 1;
                    }
                }
                Some('u') => {
                    while chars.get(at).is_some_and(|c| *c != '}') {
                        at += 1;
                    }
                }
                Some(c) => text.push(*c),
                None => {}
            }
        } else {
            text.push(chars[at]);
        }
        at += 1;
    }
    (text, at + 1)
}

fn raw(chars: &[char], start: usize) -> (String, usize) {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let begin = start + 2 + hashes;
    let ends = |at: usize| {
        chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    let end = (begin..chars.len()).find(|at| ends(*at)).unwrap_or(chars.len());
    (chars[begin..end].iter().collect(), end + 1 + hashes)
}

/// The position after a character literal, or after the mark of a lifetime.
fn character(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => {
            let escaped = start + 3;
            (escaped..chars.len()).find(|at| chars[*at] == '\'').map_or(chars.len(), |at| at + 1)
        }
        (Some(_), Some('\'')) => start + 3,
        _ => start + 1,
    }
}
