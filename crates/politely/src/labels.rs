//! Labels of a request: values for the places in the names of a policy's keys.

use std::collections::BTreeMap;

/// The labels of a request, by name: `token_name` fills the place in `github/{token_name}`.
///
/// Put them into the extensions of a request that a layer or middleware sends. They come before the
/// labels of the limiter. A label that no rule names changes nothing. `client` is the name of the
/// worker, which selects its group in a rule with shares.
///
/// ```
/// use politely::Labels;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Labels::from_iter([("team", "a")]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// The label with the name of a worker.
    pub const CLIENT: &str = "client";

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the labels in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Self {
        let labels = labels.into_iter();
        Self(
            labels
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}
