use proptest::prelude::*;

use super::*;

/// Eight bytes with the signature of a PNG, as base64.
const PNG: &str = "iVBORw0KGgo=";

fn filtered<'a>(chunks: impl IntoIterator<Item = &'a str>) -> (String, Vec<EnclosedFile>) {
    let (mut text, mut files) = (String::new(), Vec::new());
    let mut take = |piece: TextOrFile<'_>| match piece {
        TextOrFile::Text(more) => text.push_str(more),
        TextOrFile::File(file) => files.push(file),
        TextOrFile::More => {}
    };
    let mut filter = FileFilter::default();
    for chunk in chunks {
        filter.push(chunk, &mut take);
    }
    filter.finish(&mut take);
    (text, files)
}

fn names(files: &[EnclosedFile]) -> Vec<(&str, Result<&'static str, FileTrouble>)> {
    let mime = |file: &EnclosedFile| file.content.as_ref().map(|(mime, _)| *mime).map_err(|trouble| *trouble);
    files.iter().map(|file| (file.name.as_str(), mime(file))).collect()
}

#[test]
fn a_file_is_taken_out_and_its_name_stays() {
    let (text, files) = filtered([&*format!("Here: ![the chart](data:image/png;base64,{PNG}) Good?")]);
    assert_eq!(text, "Here: 📎 the chart.png Good?");
    assert_eq!(names(&files), [("the chart.png", Ok("image/png"))]);
    assert_eq!(files[0].content.as_ref().unwrap().1, b"\x89PNG\r\n\x1a\n");
}

#[test]
fn files_are_what_they_hold_and_not_what_they_say() {
    for (given, name, mime) in [
        (format!("[a.pdf](data:application/pdf;base64,{PNG})"), "a.pdf.png", "image/png"),
        (format!("[](DATA:;base64,{PNG})"), "file-1.png", "image/png"),
        (format!("![x](<data:image/png;base64,{PNG}> \"a title\")"), "x.png", "image/png"),
        (format!("MEDIA:data:image/png;base64,{PNG}"), "file-1.png", "image/png"),
        ("[../../.ssh/id](data:text/html;base64,PGI+)".to_owned(), "ssh_id.txt", "text/plain"),
        ("[list.csv](data:text/csv;base64,YSxi)".to_owned(), "list.csv", "text/plain"),
    ] {
        let (text, files) = filtered([given.as_str()]);
        assert_eq!(names(&files), [(name, Ok(mime))], "{given}");
        assert_eq!(text, format!("📎 {name}"), "{given}");
    }
}

#[test]
fn what_is_no_file_stays_as_it_is() {
    for text in [
        "[a](https://example.org/a.png) ![b](http://b) [c] [d](e) ![](",
        "![x](data:image/svg+xml,%3Csvg%3E)",
        "MEDIA: the plural of medium. MEDIAN. M MEDIA",
        "See NOMEDIA:/tmp/x, ok!",
        "```\n![x](data:image/png;base64,iVBORw0KGgo=)\nMEDIA:/tmp/x\n```\n",
        "Write `![x](data:image/png;base64,iVBORw0KGgo=)` or ``data:;base64,eA==``.",
        "It begins with data:image/png;base64, and then the data comes: data",
        "metadata: x, Data: y",
        "![",
        "!",
    ] {
        assert_eq!(filtered([text]), (text.to_owned(), Vec::new()), "{text}");
    }
}

#[test]
fn a_path_is_named_and_never_opened() {
    let (text, files) =
        filtered(["Done.\nMEDIA:/etc/secret/my_chart.png\nMEDIA:~/x\nMEDIA:../../etc/passwd"]);
    assert_eq!(text, "Done.\n📎 my_chart.png\n📎 x\n📎 passwd");
    assert!(files.iter().all(|file| file.content == Err(FileTrouble::Elsewhere)), "{files:?}");
    assert_eq!(files.len(), 3);
}

#[test]
fn broken_and_endless_files_leave_only_their_name() {
    for (given, trouble) in [
        ("![x](data:image/png;base64,iVBORw0K", FileTrouble::Broken),
        ("![x](data:image/png;base64,<script>)", FileTrouble::Broken),
        ("![x](data:image/png;base64,)", FileTrouble::Broken),
        ("![x](data:image/png;base64,iVBO\n", FileTrouble::Broken),
    ] {
        let (text, files) = filtered([given]);
        assert_eq!(names(&files), [("x", Err(trouble))], "{given}");
        assert_eq!(text.trim(), "📎 x");
    }
    let endless = "A".repeat(1 << 20);
    let chunks = std::iter::once("![x](data:;base64,").chain(std::iter::repeat_n(&*endless, 20));
    let (text, files) = filtered(chunks.chain([") end"]));
    assert_eq!((text.as_str(), names(&files)), ("📎 x end", vec![("x", Err(FileTrouble::TooLarge))]));
    let many = format!("[x](data:;base64,{PNG}) ").repeat(12);
    let (_, files) = filtered([&*many]);
    assert_eq!(files.iter().filter(|file| file.content.is_ok()).count(), FILES);
    assert_eq!(files.len(), FILES);
}

#[test]
fn a_flood_of_tiny_files_is_only_counted() {
    for tiny in ["[](data:;base64,)", "MEDIA:/x\n", "data:;base64,eA== "] {
        let (mut files, mut more) = (0, 0);
        let count = |piece: TextOrFile<'_>| match piece {
            TextOrFile::Text(_) => {}
            TextOrFile::File(_) => files += 1,
            TextOrFile::More => more += 1,
        };
        FileFilter::default().push(&tiny.repeat(100_000), count);
        assert_eq!((files, more), (FILES, 100_000 - FILES), "{tiny}");
    }
    // Each of these might begin a file; the work must not be quadratic.
    let hopeless = "data:".repeat(1_000_000);
    assert_eq!(filtered([&*hopeless]), (hopeless.clone(), Vec::new()));
}

#[test]
fn a_file_needs_no_link() {
    for (given, text) in [
        ("See data:image/png;base64,{} there", "See 📎 file-1.png there"),
        ("<img src=\"data:image/png;base64,{}\" alt='x'>", "<img src=\"📎 file-1.png\" alt='x'>"),
        ("<img src='DATA:image/png;base64,{}'>", "<img src='📎 file-1.png'>"),
        ("<data:image/png;base64,{}>", "<📎 file-1.png>"),
        ("[1]: data:image/png;base64,{}\nmore", "[1]: 📎 file-1.png\nmore"),
        ("(data:image/png;base64,{}).", "(📎 file-1.png)."),
        ("[data:image/png;base64,{}](https://example.org)", "[📎 file-1.png](https://example.org)"),
    ] {
        let given = given.replace("{}", PNG);
        let (shown, files) = filtered([given.as_str()]);
        assert_eq!(shown, text, "{given}");
        assert_eq!(names(&files), [("file-1.png", Ok("image/png"))], "{given}");
        assert_eq!(filtered(given.split_inclusive("")), (shown, files), "{given}");
    }
}

#[test]
fn text_behind_a_link_that_is_none_is_not_swallowed() {
    for (given, text) in [
        ("[x](data:;base64,eA== and so on) more", "📎 x and so on) more"),
        ("[x](data:;base64,eA== \"title\" [y](http://y) more", "📎 x \"title\" [y](http://y) more"),
        ("[x](data:;base64,eA== \"never closed", "📎 x \"never closed"),
    ] {
        let (shown, files) = filtered([given]);
        assert_eq!(shown, text, "{given}");
        assert_eq!(names(&files), [("x", Err(FileTrouble::Broken))], "{given}");
    }
    let two = format!("[x](data:;base64,eA== [y](data:;base64,{PNG})");
    let (shown, files) = filtered([two.as_str()]);
    assert_eq!(shown, "📎 x 📎 y.png");
    assert_eq!(names(&files), [("x", Err(FileTrouble::Broken)), ("y.png", Ok("image/png"))]);
}

proptest! {
    /// However a text is cut, the result is the same and contains no base64.
    #[test]
    fn the_cuts_do_not_matter(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "![a](data:image/png;base64,iVBORw0KGgo=)", "[b](data:;base64,iVBORw0KGgo=", ")", "!", "[", "]",
                "(", "MEDIA:", "/tmp/x", " ", "\n", "text", "```\n", "ä", "data:", ";base64,", "`", "\"", "<",
                "data:image/png;base64,iVBORw0KGgo=", "> ",
            ]),
            0..12,
        ),
        cuts in prop::collection::vec(1_usize..9, 1..40),
    ) {
        let whole = parts.concat();
        let mut chunks = Vec::new();
        let (mut rest, mut cuts) = (whole.as_str(), cuts.iter().cycle());
        while !rest.is_empty() {
            let end = rest.ceil_char_boundary(*cuts.next().unwrap());
            let (chunk, more) = rest.split_at(end);
            chunks.push(chunk);
            rest = more;
        }
        let (text, files) = filtered([&*whole]);
        // In code, base64 stays.
        prop_assert!(whole.contains('`') || !text.contains("iVBO"), "{}", text);
        prop_assert_eq!(filtered(chunks), (text, files));
    }
}
