//! The settings of each request: its method, its header fields and its body.

use std::path::PathBuf;

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method};

use super::Knobs;

/// The fields that the program sets itself.
const OWN: [HeaderName; 12] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HOST,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// Words in the name of a field whose value is secret, such as `X-Api-Key`.
const SECRET: [&str; 14] = [
    "apikey",
    "auth",
    "authentication",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "csrf",
    "key",
    "password",
    "secret",
    "session",
    "signature",
    "token",
];

/// The parts of every request beside its URL, unless a line of the input has its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestSettings {
    /// A field whose value is sensitive stays at the page's own origin.
    pub(crate) headers: HeaderMap,
    /// Files with further fields, one a line. All of them are sensitive.
    pub(crate) header_files: Vec<PathBuf>,
    pub(crate) bearer_file: Option<PathBuf>,
    pub(crate) basic_file: Option<PathBuf>,
    pub(crate) method: Option<Method>,
    pub(crate) data: Option<String>,
    pub(crate) data_file: Option<PathBuf>,
    pub(crate) gives_idempotency_keys: bool,
}

impl RequestSettings {
    /// Returns the method of a request whose line names none.
    pub(crate) fn method(&self) -> Method {
        let has_body = self.data.is_some() || self.data_file.is_some();
        let by_body = if has_body { Method::POST } else { Method::GET };
        self.method.clone().unwrap_or(by_body)
    }

    pub(super) fn checked(knobs: &mut Knobs) -> Result<Self, String> {
        let (mut headers, mut header_files) = (HeaderMap::new(), Vec::new());
        for (number, text) in (1..).zip(std::mem::take(&mut knobs.header)) {
            if let Some(file) = text.strip_prefix('@') {
                header_files.push(PathBuf::from(file));
                continue;
            }
            // The text may be secret, so the error names its number.
            let (name, value) = field(&text).map_err(|why| format!("--header {number}: {why}"))?;
            headers.append(name, value);
        }
        let method = knobs.method.take().map(|method| method_of(&method));
        Ok(Self {
            headers,
            header_files,
            bearer_file: knobs.bearer_file.take(),
            basic_file: knobs.basic_file.take(),
            method: method
                .transpose()
                .map_err(|why| format!("--method {why}"))?,
            data: knobs.data.take(),
            data_file: knobs.data_file.take(),
            gives_idempotency_keys: knobs.idempotency_key,
        })
    }
}

/// Returns the name of the first field among texts whose value is secret.
pub(crate) fn first_secret(fields: &[String]) -> Option<HeaderName> {
    let mut fields = fields.iter().filter_map(|text| field(text).ok());
    fields.find_map(|(name, value)| value.is_sensitive().then_some(name))
}

/// Returns the method that a text names, in any case.
pub(crate) fn method_of(text: &str) -> Result<Method, String> {
    match Method::from_bytes(text.to_ascii_uppercase().as_bytes()) {
        Ok(Method::CONNECT) => Err("CONNECT: it opens a tunnel and fetches no page".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!(
            "`{}`: not a method; write GET, POST or the like",
            text.chars().take(40).collect::<String>().escape_debug()
        )),
    }
}

/// Returns the header field of a text like `Name: value`.
pub(crate) fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("not a header field; write it as NAME: VALUE")?;
    header(name, value)
}

/// Returns a header field that a user may set. A secret value is sensitive. No error has the value.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let shown = name.chars().take(40).collect::<String>();
    let shown = shown.trim().escape_debug();
    let name: HeaderName =
        (name.trim().parse()).map_err(|_| format!("`{shown}`: not the name of a header field"))?;
    if name == USER_AGENT {
        return Err(format!(
            "{shown}: use --user-agent, which also selects the rules of robots.txt"
        ));
    }
    if OWN.contains(&name) {
        return Err(format!(
            "{shown}: the program sets this field itself; leave it out"
        ));
    }
    let value = HeaderValue::from_bytes(value.trim().as_bytes());
    let mut value = value.map_err(|_| format!("{shown}: its value has a control character"))?;
    value.set_sensitive(name.as_str().split('-').any(|word| SECRET.contains(&word)));
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_the_program_and_a_damaged_one_are_refused_without_their_value() {
        for (text, why) in [
            ("Host: s3cret", "Host: the program sets"),
            ("content-length: s3cret", "content-length: the program sets"),
            (
                "TRANSFER-Encoding: s3cret",
                "TRANSFER-Encoding: the program sets",
            ),
            ("User-Agent: s3cret", "use --user-agent"),
            ("s3cret", "write it as NAME: VALUE"),
            ("X: a\0s3cret", "X: its value has a control character"),
            ("a b: s3cret", "`a b`: not the name"),
            (": s3cret", "``: not the name"),
        ] {
            let said = field(text).unwrap_err();
            assert!(said.contains(why) && !said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn a_value_is_secret_if_the_name_says_so() {
        for (text, is_secret) in [
            ("Authorization: a", true),
            ("X-API-Key: a", true),
            ("x-auth-token:a", true),
            ("Cookie: a=b", true),
            ("Accept: text/html", false),
            ("X-Monkey: a", false),
        ] {
            assert_eq!(field(text).unwrap().1.is_sensitive(), is_secret, "{text}");
        }
    }

    #[test]
    fn a_method_is_known_in_any_case_and_a_tunnel_is_none() {
        assert_eq!(method_of("post"), Ok(Method::POST));
        assert_eq!(method_of("PURGE").unwrap().as_str(), "PURGE");
        for wrong in ["connect", "a b", ""] {
            assert!(method_of(wrong).is_err(), "{wrong}");
        }
    }
}
