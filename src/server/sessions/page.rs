//! Query strings of lists: limit, offset and cursor.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use schemars::JsonSchema;

use crate::server::ApiError;

/// `?limit=…&offset=…`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(default)]
#[schemars(rename = "Page")]
pub struct PageQuery {
    /// Most entries to return.
    pub limit: Option<usize>,
    /// Entries to skip.
    pub offset: usize,
}

impl PageQuery {
    fn read(query: &str) -> Result<Self, ApiError> {
        let mut page = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let number = || {
                // No list has more than `u32::MAX` entries, so a larger number means the same.
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.then(|| value.parse::<u32>().unwrap_or(u32::MAX) as usize);
                number.ok_or_else(|| ApiError::wrong(name, "It must be a number that is not negative"))
            };
            match name {
                "limit" => page.limit = Some(number()?),
                "offset" => page.offset = number()?,
                // Clients add parameters of their own, such as a timestamp against caches.
                _ => {}
            }
        }
        Ok(page)
    }
}

/// `?limit=…&offset=…&after=…` of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(default)]
pub struct ListQuery {
    /// Most sessions to return.
    pub limit: Option<usize>,
    /// Sessions to skip, at most 10000.
    pub offset: usize,
    /// Cursor: the id of the last session of the page before.
    pub after: Option<String>,
}

/// Largest offset of a list of sessions. The store steps over skipped sessions one by one, so the number must
/// be bounded.
pub const MOST_OFFSET: usize = 10_000;

impl ListQuery {
    fn read(query: &str) -> Result<Self, ApiError> {
        let PageQuery { limit, offset } = PageQuery::read(query)?;
        if offset > MOST_OFFSET {
            let message = format!(
                "It may be at most {MOST_OFFSET}; `after` with the id of the last session goes on without an end"
            );
            return Err(ApiError::wrong("offset", message));
        }
        let after = query.split('&').find_map(|pair| pair.strip_prefix("after=")).filter(|id| !id.is_empty());
        Ok(Self { limit, offset, after: after.map(percent_decoded) })
    }
}

/// Decodes percent-encoding. A value that is not UTF-8 stays as it is, and matches nothing.
fn percent_decoded(value: &str) -> String {
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let [first, behind @ ..] = rest {
        let escaped = match behind {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        let (byte, length) = match escaped {
            Some((high, low)) => (high << 4 | low, 3),
            None if *first == b'+' => (b' ', 1),
            None => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

impl<S: Send + Sync> FromRequestParts<S> for ListQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::read(parts.uri.query().unwrap_or_default())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PageQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::read(parts.uri.query().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_everything_else_is_refused() {
        let page = |limit, offset| Ok(PageQuery { limit, offset });
        assert_eq!(PageQuery::read(""), page(None, 0));
        assert_eq!(PageQuery::read("limit=10&offset=20&_=now"), page(Some(10), 20));
        assert_eq!(PageQuery::read("limit=99999999999999999999"), page(Some(u32::MAX as usize), 0));
        for wrong in ["limit=", "limit=-1", "limit=ten", "offset=1.5", "offset=%31", "offset=+1"] {
            assert!(PageQuery::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_goes_on_behind_a_session_and_leaves_out_only_so_many() {
        let after = |query: &str| ListQuery::read(query).unwrap().after;
        assert_eq!(after("limit=3&after=api_1_ab"), Some("api_1_ab".to_owned()));
        assert_eq!(after("after=a%20b%2Fc+d&limit=3"), Some("a b/c d".to_owned()));
        assert_eq!(after("after=%e4%zz%"), Some("%e4%zz%".to_owned()), "what is no text stays as it is");
        assert_eq!((after("after="), after("")), (None, None));
        assert!(ListQuery::read("offset=10000").is_ok());
        assert!(ListQuery::read("offset=10001").is_err());
    }
}
