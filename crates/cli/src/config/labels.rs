//! The values for the names of keys in a policy.

use std::collections::BTreeMap;
use std::str::FromStr;

use politely::policy::{is_label_value, may_bring};
use serde::Deserialize;

/// Labels by name, as in `token_name=ci,team=a`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Labels(pub(crate) BTreeMap<String, String>);

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut labels = BTreeMap::new();
        for pair in text.split(',') {
            let shown = pair.escape_debug();
            let Some((name, value)) = pair.trim().split_once('=') else {
                return Err(format!("`{shown}`: write a label as NAME=VALUE"));
            };
            if !may_bring(name) || !is_label_value(value) {
                return Err(format!(
                    "`{shown}`: a name has 1 to 32 lowercase letters, digits and `_`, but is not \
                     `host`, `site` or `client`; a value has 1 to 128 characters"
                ));
            }
            if labels.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(format!("`{shown}`: the label is given twice; keep one"));
            }
        }
        Ok(Self(labels))
    }
}

impl TryFrom<String> for Labels {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
