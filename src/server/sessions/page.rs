//! Which part of a list is wanted.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use schemars::JsonSchema;

use crate::server::Problem;

/// `?limit=…&offset=…`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(default)]
pub struct Page {
    /// How many, at most.
    pub limit: Option<usize>,
    /// How many are left out before them.
    pub offset: usize,
}

impl Page {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut page = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let number = || {
                // No list is as long as the largest of these numbers, so a larger one means the same.
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.then(|| value.parse::<u32>().unwrap_or(u32::MAX) as usize);
                number.ok_or_else(|| Problem::wrong(name, "It must be a number that is not negative"))
            };
            match name {
                "limit" => page.limit = Some(number()?),
                "offset" => page.offset = number()?,
                // Clients add what they like, such as the time against caches.
                _ => {}
            }
        }
        Ok(page)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Page {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::read(parts.uri.query().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_everything_else_is_refused() {
        let page = |limit, offset| Ok(Page { limit, offset });
        assert_eq!(Page::read(""), page(None, 0));
        assert_eq!(Page::read("limit=10&offset=20&_=now"), page(Some(10), 20));
        assert_eq!(Page::read("limit=99999999999999999999"), page(Some(u32::MAX as usize), 0));
        for wrong in ["limit=", "limit=-1", "limit=ten", "offset=1.5", "offset=%31", "offset=+1"] {
            assert!(Page::read(wrong).is_err(), "{wrong}");
        }
    }
}
