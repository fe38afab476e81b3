use proptest::prelude::*;

use super::*;

fn shown(markdown: &str) -> String {
    render(markdown).unwrap_or_else(|| "(as it is)".to_owned())
}

#[test]
fn what_needs_no_formatting_has_none() {
    for plain in [
        "",
        "hello",
        "two\nlines",
        "two\n\nparagraphs",
        "3 < 4 & 5 > 2",
        "a_b_c and 2 * 3 * 4",
        "R & D",
        "https://example.org/a_b?c=d",
        "C:\\Users\\me",
        "100% (of it) [sic]",
        "<b>raw</b>",
    ] {
        assert_eq!(render(plain), None, "{plain:?}");
    }
}

#[test]
fn markdown_becomes_the_html_that_matrix_allows() {
    for (markdown, html) in [
        (
            "**bold** *em* ~~gone~~ `a<b`",
            "<strong>bold</strong> <em>em</em> <del>gone</del> <code>a&lt;b</code>",
        ),
        ("# One\n\ntext", "<h1>One</h1><p>text</p>"),
        ("a\nb *c*", "a<br>b <em>c</em>"),
        ("a\n\n*b*", "<p>a</p><p><em>b</em></p>"),
        ("- a\n- b\n  - c", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"),
        ("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"),
        ("- [x] done\n- [ ] open", "<ul><li>☑ done</li><li>☐ open</li></ul>"),
        ("> said", "<blockquote><p>said</p></blockquote>"),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        (
            "```rust\nfn a() -> &str;\n```",
            "<pre><code class=\"language-rust\">fn a() -&gt; &amp;str;\n</code></pre>",
        ),
        ("```\nx\n```", "<pre><code>x\n</code></pre>"),
        ("```c++ title\nx\n```", "<pre><code class=\"language-c++\">x\n</code></pre>"),
        ("```x\" onload=\"y\nx\n```", "<pre><code>x\n</code></pre>"),
        (
            "| a | b |\n|---|:-:|\n| 1 | *2*<br>3 |",
            "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>\
             <tr><td>1</td><td><em>2</em><br>3</td></tr></tbody></table>",
        ),
        (r"not \*bold\*", "not *bold*"),
        ("&lt;b&gt; &copy;", "&lt;b&gt; ©"),
    ] {
        assert_eq!(shown(markdown), html, "{markdown:?}");
    }
}

#[test]
fn only_harmless_addresses_are_linked() {
    for (markdown, html) in [
        ("[a](https://x.example/?q=1&r=\"2)", "<a href=\"https://x.example/?q=1&amp;r=&quot;2\">a</a>"),
        ("<https://x.example>", "<a href=\"https://x.example\">https://x.example</a>"),
        ("<me@x.example>", "<a href=\"mailto:me@x.example\">me@x.example</a>"),
        ("[a](HTTP://x.example)", "<a href=\"HTTP://x.example\">a</a>"),
        ("[a](javascript:alert(1))", "a"),
        ("[a](JaVaScRiPt:alert(1))", "a"),
        ("[a](data:text/html,x)", "a"),
        ("[a](file:///etc/passwd)", "a"),
        ("[a](/relative) b", "a b"),
        ("[a](mxc://x.example/y)", "a"),
        ("[](https://x.example)", "<a href=\"https://x.example\">link</a>"),
        // A link; no phone rings, because `m.mentions` is empty.
        (
            "[Ann](https://matrix.to/#/@ann:x.example)",
            "<a href=\"https://matrix.to/#/@ann:x.example\">Ann</a>",
        ),
    ] {
        assert_eq!(shown(markdown), html, "{markdown:?}");
    }
}

#[test]
fn pictures_from_elsewhere_are_links() {
    for (markdown, html) in [
        ("![a *cat*](https://x.example/c.png)", "<a href=\"https://x.example/c.png\">a <em>cat</em></a>"),
        ("![](https://x.example/c.png)", "<a href=\"https://x.example/c.png\">image</a>"),
        ("![cat](data:image/png;base64,AAAA)", "cat"),
        ("[![cat](https://x.example/c.png)](https://y.example)", "<a href=\"https://y.example\">cat</a>"),
        ("![a [b](https://y.example)](https://x.example)", "<a href=\"https://x.example\">a b</a>"),
    ] {
        assert_eq!(shown(markdown), html, "{markdown:?}");
    }
}

#[test]
fn html_of_the_model_is_text() {
    for (markdown, html) in [
        ("*a* <img src=x onerror=y>", "<em>a</em> &lt;img src=x onerror=y&gt;"),
        (
            "*a*\n\n<script>\nalert(1)\n</script>\n",
            "<p><em>a</em></p><p>&lt;script&gt;<br>alert(1)<br>&lt;/script&gt;</p>",
        ),
        ("*a* <!-- b --> &#60;b&#62;", "<em>a</em> &lt;!-- b --&gt; &lt;b&gt;"),
        ("**a</strong><b>**", "<strong>a&lt;/strong&gt;&lt;b&gt;</strong>"),
    ] {
        assert_eq!(shown(markdown), html, "{markdown:?}");
    }
}

#[test]
fn nesting_and_size_are_bounded() {
    let hostile = [
        ">".repeat(20_000),
        "- ".repeat(10_000),
        "*a **b ".repeat(5_000),
        "[".repeat(20_000),
        "![](".repeat(5_000),
        format!("|{}\n|{}\n|x\n{}", "a|".repeat(3000), "-|".repeat(3000), "|\n".repeat(3000)),
        "<".repeat(20_000),
        "`".repeat(20_000),
        "&amp;".repeat(4_000),
        "~~".repeat(10_000),
        format!("{}a{}", "*".repeat(9_000), "*".repeat(9_000)),
        "1. a\n".repeat(4_000),
        format!("{}{}", "- ".repeat(4_000), "\n".repeat(8_000)),
    ];
    for text in hostile {
        let rendered = write(&text);
        assert!(rendered.html.len() <= LARGEST + text.len());
        if !rendered.overflown {
            checked(&rendered.html).unwrap();
        }
    }
}

/// Checks that the HTML consists of allowed tags, closed in order, and of escaped text.
fn checked(html: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find(['<', '>', '&']) {
        let found = &rest[at..];
        let wrong = || format!("{:.60}", found);
        if found.starts_with('&') {
            let known = ["&lt;", "&gt;", "&amp;"]
                .iter()
                .find(|known| found.starts_with(**known))
                .ok_or_else(wrong)?;
            rest = &found[known.len()..];
            continue;
        }
        let end = found.find('>').filter(|end| *end > 0).ok_or_else(wrong)?;
        let tag = &found[1..end];
        rest = &found[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(wrong());
            }
            continue;
        }
        let (name, attribute) = tag.split_once(' ').unwrap_or((tag, ""));
        let value = |start: &str| {
            let value = attribute.strip_prefix(start).and_then(|value| value.strip_suffix('"'))?;
            (!value.contains(['"', '<', '\''])).then_some(value)
        };
        let allowed = match name {
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "blockquote" | "ul" | "li" | "pre" | "em"
            | "strong" | "del" | "table" | "thead" | "tbody" | "tr" | "th" | "td" | "br" | "hr" => {
                attribute.is_empty()
            }
            "ol" => {
                attribute.is_empty() || value("start=\"").is_some_and(|number| number.parse::<u64>().is_ok())
            }
            "code" => {
                attribute.is_empty()
                    || value("class=\"language-").is_some_and(|language| !language.contains([' ', '&']))
            }
            "a" => value("href=\"").is_some_and(|address| {
                SCHEMES.iter().any(|scheme| address.to_ascii_lowercase().starts_with(scheme))
            }),
            _ => false,
        };
        if !allowed || open.len() > 2 * DEEPEST || (name == "a" && open.contains(&"a")) {
            return Err(wrong());
        }
        if name != "br" && name != "hr" {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} stay open")) }
}

#[test]
fn the_check_itself_notices_what_is_not_allowed() {
    for bad in [
        "<b>x</b>",
        "<p>x",
        "<a href=\"javascript:x\">x</a>",
        "a > b",
        "a & b",
        "<p onclick=\"x\">x</p>",
        "</p>",
        "<em><p></em></p>",
    ] {
        assert!(checked(bad).is_err(), "{bad}");
    }
}

/// Pieces with a meaning in Markdown, and some without.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ \\n\\t>#*_`~|!\\[\\]()<>&;:\"'=+-]{1,6}",
        "[a-zü<&]{1,5}",
        Just("](https://x.example/\"'<>)".to_owned()),
        Just("](javascript:x)".to_owned()),
        Just("<img src=x onerror='y'>".to_owned()),
        Just("\n```html\n".to_owned()),
        Just("\n| a | b |\n|---|---|\n".to_owned()),
        Just("\n\n[a]: https://y.example \"t\"\n\n".to_owned()),
        Just("<!-- ".to_owned()),
        Just("<script>".to_owned()),
        Just("<https://z.example/\u{202e}>".to_owned()),
        any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_is_allowed(pieces in proptest::collection::vec(piece(), 0..40)) {
        let markdown = pieces.concat();
        let rendered = write(&markdown);
        prop_assert!(rendered.html.len() <= 40 * markdown.len() + 100);
        prop_assert_eq!(checked(&rendered.html), Ok(()), "{:?} -> {}", markdown, rendered.html);
    }
}
