//! Origins of web pages, as browsers write them. Pure.

use reqwest::Url;

/// An origin in its normal form: scheme, host, and the port unless it is the scheme's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl WebOrigin {
    /// Parses an origin as a person or a browser wrote it. The error is a phrase that follows the setting's name, and a
    /// hint.
    pub fn parse(text: &str) -> Result<Self, (&'static str, &'static str)> {
        const FORM: (&str, &str) = (
            "must be origins, without a path",
            "write each such as `https://chat.example.org` or `http://localhost:3000`",
        );
        let text = text.trim();
        if text.contains('*') {
            let hint = "write each origin out, such as `https://chat.example.org`";
            return Err(("has `*`, which would let in every web page that somebody here looks at", hint));
        }
        if text.eq_ignore_ascii_case("null") {
            let hint = "have the page served from an address, and write that";
            return Err(("has `null`, which every page without an origin of its own sends", hint));
        }
        let url = Url::parse(text).map_err(|_| FORM)?;
        let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(FORM)?;
        if !bare || url.fragment().is_some() || !matches!(url.path(), "" | "/") || url.scheme() == "file" {
            return Err(FORM);
        }
        // Applications have schemes of their own (`app://`, `tauri://`), whose hosts the URL parser does not normalize.
        let host = host.to_ascii_lowercase();
        Ok(Self(match url.port() {
            Some(port) => format!("{}://{host}:{port}", url.scheme()),
            None => format!("{}://{host}", url.scheme()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_as_browsers_write_them() {
        for (text, origin) in [
            ("https://chat.example.org", "https://chat.example.org"),
            (" HTTPS://Chat.Example.org:443/ ", "https://chat.example.org"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://localhost:80/", "http://localhost"),
            ("http://[::1]:5173", "http://[::1]:5173"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
            ("app://Obsidian.md", "app://obsidian.md"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(WebOrigin::parse(text), Ok(WebOrigin(origin.to_owned())), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "*",
            "https://*.example.org",
            "null",
            "chat.example.org",
            "localhost:3000",
            "https://chat.example.org/app",
            "https://chat.example.org?x",
            "https://chat.example.org#x",
            "https://ann:secret@chat.example.org",
            "file:///home",
            "https://",
            "data:text/html,x",
        ] {
            assert!(WebOrigin::parse(text).is_err(), "{text}");
        }
    }
}
