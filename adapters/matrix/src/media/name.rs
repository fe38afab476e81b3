//! Makes file names harmless that strangers or models chose.

/// Bytes of the longest name; most file systems stop at 255.
const LONGEST: usize = 200;

/// The last part of a name, without characters that could lead to another folder, hide its end or confuse a terminal.
/// Never empty.
pub(crate) fn base_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).find(|part| !part.trim().is_empty()).unwrap_or_default();
    let mut safe: String = last.chars().filter(|c| !is_odd(*c)).collect();
    // A leading dot hides a file and makes `..`; blanks at the ends deceive people.
    safe = safe.trim().trim_start_matches('.').trim().to_owned();
    if safe.len() > LONGEST {
        safe = shortened(&safe);
    }
    if safe.is_empty() { "file".to_owned() } else { safe }
}

/// Control characters, and those that change the direction of writing (`exe.gpj` reads as `jpg.exe`).
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The beginning of a name and its extension, if that is short.
fn shortened(name: &str) -> String {
    let extension =
        name.rfind('.').map(|dot| &name[dot..]).filter(|extension| extension.len() <= 16).unwrap_or("");
    let mut end = LONGEST - extension.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{extension}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_harmless_part() {
        for (given, safe) in [
            ("cat.png", "cat.png"),
            ("my cat (1).png", "my cat (1).png"),
            ("/etc/passwd", "passwd"),
            ("C:\\Windows\\cmd.exe", "cmd.exe"),
            ("../..", "file"),
            ("a/..", "file"),
            (".bashrc", "bashrc"),
            ("dir/", "dir"),
            ("", "file"),
            ("   ", "file"),
            ("a\0b\x1b[31m.txt", "ab[31m.txt"),
            ("photo\u{202e}gpj.exe", "photogpj.exe"),
            ("Füße 猫.txt", "Füße 猫.txt"),
        ] {
            assert_eq!(base_name(given), safe, "{given:?}");
        }
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
        let name = base_name(&format!("{}.tar.gz", "ü".repeat(300)));
        assert!(name.len() <= LONGEST && name.ends_with("ü.gz"), "{name}");
        assert!(base_name(&"x".repeat(300)).len() <= LONGEST);
    }
}
