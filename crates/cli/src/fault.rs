//! The connection to a coordinator, and the words for a call that failed.

use http::StatusCode;
use politely_api::client::{CallError, Client, ClientError};
use tokio::runtime::{Builder, Runtime};

use crate::args::Coordinators;
use crate::exit::{Wrong, runtime};
use crate::token::{self, Token};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The coordinator does not answer.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// The coordinator requires a token, or another one.
    #[error(
        "the coordinator refuses: the token of POLITELY_TOKEN or --token-file is missing or wrong"
    )]
    Token,
    /// The coordinator understood the call and refuses it.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// The requested object does not exist.
    #[error("not known")]
    Unknown,
    /// The answer is not one of this API.
    #[error("this is no coordinator, or of another version: {0}")]
    Unreadable(String),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unavailable(why) => Self::Unreachable(why),
            CallError::Busy { detail, .. } => Self::Refused(detail),
            CallError::Unreadable(why) => Self::Unreadable(why),
            CallError::Rejected { status, detail } => match detail {
                _ if status == StatusCode::UNAUTHORIZED => Self::Token,
                Some(_) if status == StatusCode::NOT_FOUND => Self::Unknown,
                Some(detail) => Self::Refused(detail),
                None => Self::Unreadable(format!("it answers {status}")),
            },
        }
    }
}

/// Returns the error of a command whose call of the coordinators at `urls` failed.
pub(crate) fn failed(urls: &str, why: CallError) -> Wrong {
    let fault = Fault::from(why);
    let hint = match fault {
        Fault::Unreachable(_) => "; start `politely serve`, or name another with --coordinator URL",
        _ => "",
    };
    Wrong(format!("{urls}: {fault}{hint}"))
}

/// Returns a client of the coordinators of a command, and the runtime of its calls.
pub(crate) fn reach(to: &Coordinators) -> Result<(Client, Runtime), Wrong> {
    let token = token::read(to.token_file.as_deref())?;
    let client = connect(&to.coordinator, token.as_ref())?;
    Ok((client, runtime(&mut Builder::new_current_thread())?))
}

/// Returns a client of the coordinators at `urls`, separated by commas.
pub(crate) fn connect(urls: &str, token: Option<&Token>) -> Result<Client, Wrong> {
    let text = token.map(|token| token.text.as_str());
    Client::new(urls, text, None).map_err(|why| match (why, token) {
        (ClientError::Token, Some(token)) => Wrong(format!("{}: no usable token", token.place)),
        (why, _) => Wrong(format!("--coordinator: {why}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_called_is_refused_in_one_line() {
        let secret = "http://:secret@127.0.0.1";
        for (url, token, word) in [
            ("127.0.0.1:7077", None, "must begin with http://"),
            ("localhost:7077", None, "use http or https"),
            ("http://a:1, b", None, "--coordinator: b: "),
            ("http://a:1,", None, "a URL is missing beside a comma"),
            (secret, None, "takes a token, no user and password"),
            ("http://127.0.0.1", Some("a\nb"), "a file: no usable token"),
        ] {
            let token = token.map(|text| Token {
                text: text.to_owned(),
                place: "a file".to_owned(),
            });
            let why = connect(url, token.as_ref()).expect_err(url).to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
