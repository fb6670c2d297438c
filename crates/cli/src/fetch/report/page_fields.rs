//! The fields of a result line that only some pages have.

use serde::ser::{Error as _, SerializeMap as _};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::fetch::lanes::pending::Page;

/// The fields of a result line about the request of its page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowOfPage<'a> {
    /// The number of a request that is not a GET of its URL without a body, or of a sitemap.
    pub(crate) request: Option<u128>,
    /// The `meta` of the input line, as it came.
    pub(crate) meta: Option<&'a str>,
}

impl<'a> RowOfPage<'a> {
    pub(crate) fn of(page: &'a Page) -> Self {
        let request = page.request.as_deref();
        Self {
            request: page.id(),
            meta: request.and_then(|request| request.meta.as_deref()),
        }
    }
}

impl Serialize for RowOfPage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        if let Some(request) = self.request {
            fields.serialize_entry("request", &format!("{request:032x}"))?;
        }
        if let Some(meta) = self.meta {
            let json: &RawValue = serde_json::from_str(meta).map_err(S::Error::custom)?;
            fields.serialize_entry("meta", json)?;
        }
        fields.end()
    }
}
