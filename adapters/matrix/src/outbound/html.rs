//! Renders Markdown as the HTML that Matrix allows.
//!
//! This file writes the HTML tag by tag from the parser's events: no other tag can occur, and every piece of text and
//! every address passes [`HtmlWriter::text`] or [`HtmlWriter::attribute`]. HTML in the model's text is shown as text.
//! Pictures on other servers become links, because a client that loads them tells their owner who reads them. A link
//! to a person is a link and no mention: only `m.mentions` mentions people, and it is always empty, so no phone rings
//! because of a model's words.
//!
//! Work and size are linear in the text: nesting is bounded, and so is the result.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag};

/// Levels of nested tags; deeper text keeps its words and loses its tags. Clients stop at about a hundred.
const DEEPEST: usize = 32;

/// Bytes of HTML at most; more could not be sent anyway. A table of many columns grows with the square of its source.
const LARGEST: usize = 100_000;

/// Bytes of the longest name of a programming language.
const LONGEST_LANGUAGE: usize = 32;

/// Schemes of addresses that may be linked; any other link is shown without its address.
const SCHEMES: [&str; 4] = ["https://", "http://", "mailto:", "matrix:"];

/// Rendered Markdown.
#[derive(Debug, Default)]
pub(super) struct RenderedHtml {
    /// The HTML of the blocks, one after the other.
    pub html: String,
    /// Whether the HTML shows anything that the plain Markdown would not.
    pub formatted: bool,
    /// Number of blocks, and how many of them are paragraphs.
    pub blocks: usize,
    pub paragraphs: usize,
    /// Start of the last block whose first line is complete: an incomplete line may still become another kind of
    /// block. The HTML before this point stays as it is; no text that follows changes it.
    pub last: Option<BlockBoundary>,
    /// Whether the HTML grew too large, so that the rest is missing.
    pub overflown: bool,
}

/// A position between two blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockBoundary {
    /// Byte offset in the Markdown, and in the HTML.
    pub markdown: usize,
    pub html: usize,
    /// Number of blocks and paragraphs before it.
    pub blocks: usize,
    pub paragraphs: usize,
}

/// Renders a whole text; `None` if it has no formatting, or too much of it.
pub(super) fn render(markdown: &str) -> Option<String> {
    finish(write(markdown))
}

/// The final HTML of a rendered text, as it is sent.
pub(super) fn finish(rendered: RenderedHtml) -> Option<String> {
    let RenderedHtml { mut html, formatted, blocks, paragraphs, overflown, .. } = rendered;
    if !formatted || overflown || html.is_empty() {
        return None;
    }
    // A single paragraph loses its `<p>`: otherwise it would stand apart from the bubble around it.
    if (blocks, paragraphs) == (1, 1)
        && let Some(line) = html.strip_prefix("<p>").and_then(|html| html.strip_suffix("</p>"))
    {
        html = line.to_owned();
    }
    Some(html)
}

/// Renders Markdown, and records where rendering can continue later.
pub(super) fn write(markdown: &str) -> RenderedHtml {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let complete = markdown.rfind('\n').map_or(0, |end| end + 1);
    let mut writer = HtmlWriter {
        markdown,
        complete,
        out: RenderedHtml {
            html: String::with_capacity(markdown.len() + markdown.len() / 4),
            ..RenderedHtml::default()
        },
        open: Vec::new(),
        links: 0,
        head: false,
    };
    writer.out.formatted = has_escapes(markdown);
    for (event, place) in Parser::new_ext(markdown, options).into_offset_iter() {
        writer.event(event, place);
        if writer.out.html.len() > LARGEST {
            writer.out.overflown = true;
            break;
        }
    }
    writer.out
}

/// Closing of an open element.
enum ElementEnd {
    Tag(&'static str),
    /// An element that was nested too deeply and has no tag.
    Nothing,
    /// A link, and the text to insert if it has none.
    Link(&'static str),
    /// A link that got no tag.
    NoLink,
}

struct HtmlWriter<'a> {
    markdown: &'a str,
    /// Offset after the last line end of the Markdown.
    complete: usize,
    out: RenderedHtml,
    /// The open elements, outermost first.
    open: Vec<ElementEnd>,
    /// Open links and pictures. Only the outermost has a tag.
    links: usize,
    /// Whether we are in the first row of a table.
    head: bool,
}

impl HtmlWriter<'_> {
    fn event(&mut self, event: Event<'_>, place: Range<usize>) {
        if self.open.is_empty() {
            self.block(&event, place.start);
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(_) => self.end(),
            Event::Text(text) => self.text(&text),
            Event::Html(html) => {
                for line in html.split_inclusive('\n') {
                    self.text(line.trim_end_matches('\n'));
                    if line.ends_with('\n') {
                        self.raw("<br>");
                    }
                }
            }
            // Models write this one tag where Markdown has none, in the cells of tables.
            Event::InlineHtml(html) if is_line_break(&html) => self.formatting("<br>"),
            Event::InlineHtml(html) => self.text(&html),
            Event::Code(code) => {
                self.formatting("<code>");
                self.text(&code);
                self.raw("</code>");
            }
            Event::SoftBreak => self.raw("<br>"),
            Event::HardBreak => self.formatting("<br>"),
            Event::Rule => self.formatting("<hr>"),
            Event::TaskListMarker(done) => self.formatting(if done { "☑ " } else { "☐ " }),
            // Not enabled.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text)
            }
        }
    }

    /// Notes where a block begins.
    fn block(&mut self, event: &Event<'_>, start: usize) {
        let paragraph = match event {
            Event::Start(tag) => *tag == Tag::Paragraph,
            Event::Rule => false,
            _ => return,
        };
        let RenderedHtml { blocks, paragraphs, ref html, .. } = self.out;
        // The line may begin with blanks, which have a meaning.
        let line = self.markdown.get(..start).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
        if line < self.complete {
            self.out.last = Some(BlockBoundary { markdown: line, html: html.len(), blocks, paragraphs });
        }
        self.out.blocks += 1;
        self.out.paragraphs += usize::from(paragraph);
    }

    fn start(&mut self, tag: Tag<'_>) {
        if !matches!(tag, Tag::Paragraph | Tag::HtmlBlock) {
            self.out.formatted = true;
        }
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.tag("<p>", "</p>"),
            Tag::Heading { level, .. } => {
                let (open, close) = match level {
                    HeadingLevel::H1 => ("<h1>", "</h1>"),
                    HeadingLevel::H2 => ("<h2>", "</h2>"),
                    HeadingLevel::H3 => ("<h3>", "</h3>"),
                    HeadingLevel::H4 => ("<h4>", "</h4>"),
                    HeadingLevel::H5 => ("<h5>", "</h5>"),
                    HeadingLevel::H6 => ("<h6>", "</h6>"),
                };
                self.tag(open, close);
            }
            Tag::BlockQuote(_) => self.tag("<blockquote>", "</blockquote>"),
            Tag::CodeBlock(kind) => self.code_block(&kind),
            Tag::List(None) => self.tag("<ul>", "</ul>"),
            Tag::List(Some(1)) => self.tag("<ol>", "</ol>"),
            Tag::List(Some(first)) => self.tag(&format!("<ol start=\"{first}\">"), "</ol>"),
            Tag::Item => self.tag("<li>", "</li>"),
            Tag::Table(_) => self.tag("<table>", "</tbody></table>"),
            Tag::TableHead => {
                self.head = true;
                self.tag("<thead><tr>", "</tr></thead><tbody>");
            }
            Tag::TableRow => {
                self.head = false;
                self.tag("<tr>", "</tr>");
            }
            Tag::TableCell if self.head => self.tag("<th>", "</th>"),
            Tag::TableCell => self.tag("<td>", "</td>"),
            Tag::Emphasis => self.tag("<em>", "</em>"),
            Tag::Strong => self.tag("<strong>", "</strong>"),
            Tag::Strikethrough => self.tag("<del>", "</del>"),
            Tag::Link { link_type: LinkType::Email, dest_url, .. } => {
                self.link(&format!("mailto:{dest_url}"), "link");
            }
            Tag::Link { dest_url, .. } => self.link(&dest_url, "link"),
            Tag::Image { dest_url, .. } => self.link(&dest_url, "image"),
            // Not enabled.
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => self.tag("", ""),
        }
    }

    fn end(&mut self) {
        match self.open.pop() {
            Some(ElementEnd::Link(word)) => {
                self.links -= 1;
                // Without text, a picture would be invisible and a link could not be followed.
                if self.out.html.ends_with("\">") {
                    self.raw(word);
                }
                self.raw("</a>");
            }
            Some(ElementEnd::NoLink) => self.links -= 1,
            Some(ElementEnd::Tag(close)) => {
                // Removes the line break at the end of a block of HTML.
                if close == "</p>" && self.out.html.ends_with("<br>") {
                    self.out.html.truncate(self.out.html.len() - "<br>".len());
                }
                self.raw(close);
            }
            Some(ElementEnd::Nothing) | None => {}
        }
    }

    fn code_block(&mut self, kind: &CodeBlockKind<'_>) {
        let language = match kind {
            CodeBlockKind::Fenced(info) => info.split([' ', ',', '{', '\t']).next().unwrap_or_default(),
            CodeBlockKind::Indented => "",
        };
        let known = |c: char| c.is_ascii_alphanumeric() || "+#-_.".contains(c);
        match !language.is_empty() && language.len() <= LONGEST_LANGUAGE && language.chars().all(known) {
            true => self.tag(&format!("<pre><code class=\"language-{language}\">"), "</code></pre>"),
            false => self.tag("<pre><code>", "</code></pre>"),
        }
    }

    fn link(&mut self, address: &str, word: &'static str) {
        let allowed = SCHEMES.iter().any(|scheme| {
            address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        self.links += 1;
        if allowed && self.links == 1 && self.open.len() < DEEPEST {
            self.raw("<a href=\"");
            self.attribute(address);
            self.raw("\">");
            self.open.push(ElementEnd::Link(word));
        } else {
            self.open.push(ElementEnd::NoLink);
        }
    }

    fn tag(&mut self, open: &str, close: &'static str) {
        if self.open.len() < DEEPEST {
            self.raw(open);
            self.open.push(ElementEnd::Tag(close));
        } else {
            self.open.push(ElementEnd::Nothing);
        }
    }

    /// Writes a tag that is formatting by itself.
    fn formatting(&mut self, tag: &str) {
        self.out.formatted = true;
        self.raw(tag);
    }

    fn raw(&mut self, tag: &str) {
        self.out.html.push_str(tag);
    }

    fn text(&mut self, text: &str) {
        escape(&mut self.out.html, text, |byte| match byte {
            b'<' => Some("&lt;"),
            b'>' => Some("&gt;"),
            b'&' => Some("&amp;"),
            _ => None,
        });
    }

    fn attribute(&mut self, text: &str) {
        escape(&mut self.out.html, text, |byte| match byte {
            b'<' => Some("&lt;"),
            b'>' => Some("&gt;"),
            b'&' => Some("&amp;"),
            b'"' => Some("&quot;"),
            b'\'' => Some("&#39;"),
            _ => None,
        });
    }
}

fn escape(html: &mut String, text: &str, special: impl Fn(u8) -> Option<&'static str>) {
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if let Some(escaped) = special(byte) {
            html.push_str(&text[copied..at]);
            html.push_str(escaped);
            copied = at + 1;
        }
    }
    html.push_str(&text[copied..]);
}

fn is_line_break(html: &str) -> bool {
    let name = html.trim_start_matches('<').trim_end_matches('>').trim_end_matches('/').trim();
    name.eq_ignore_ascii_case("br")
}

/// Whether the text differs from its source although it has no formatting: `\*`, `&amp;`.
fn has_escapes(markdown: &str) -> bool {
    markdown.as_bytes().windows(2).any(|pair| match pair[0] {
        b'\\' => pair[1].is_ascii_punctuation(),
        b'&' => pair[1].is_ascii_alphanumeric() || pair[1] == b'#',
        _ => false,
    })
}

// With its path, because the benchmark includes this file in another module.
#[cfg(test)]
#[path = "html/tests.rs"]
mod tests;
