//! Tokens and the rights of each.
//!
//! A coordinator keeps only the hashes of its tokens, and compares hashes in constant time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::ServeError;

/// The allowed lengths of a token, in characters.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=512;
/// The most characters of a token's name.
const NAME_MAX: usize = 64;
/// The most tokens of one file.
const TOKENS_MAX: usize = 1_000;

/// The rights of a token. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads keys, settings, statistics, events and metrics.
    Read,
    /// Also acquires, reports, renews and cancels permits.
    Worker,
    /// Also changes keys and settings, and reads the audit log.
    Operator,
}

impl Role {
    /// Returns the role's name in a file of tokens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Worker => "worker",
            Self::Operator => "operator",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Read, Self::Worker, Self::Operator]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// A secret that a caller sends to a coordinator.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Checks that `text` is 16 to 512 visible ASCII characters. Space around it is ignored.
    ///
    /// # Errors
    /// Returns [`ServeError::Token`] for any other text.
    pub fn new(text: &str) -> Result<Self, ServeError> {
        let text = text.trim();
        if !LENGTH.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ServeError::Token);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The tokens that a coordinator accepts.
#[derive(Clone)]
pub struct Tokens(Vec<Known>);

/// One accepted token.
#[derive(Clone)]
pub(crate) struct Known {
    /// Empty for the only token of a coordinator.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    hash: [u8; 32],
}

impl Tokens {
    /// Reads the text of a token file: either one token with all rights, or one line
    /// `ROLE NAME TOKEN` for each token. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// Returns [`ServeError::Token`] for an unusable single token, and [`ServeError::Tokens`] with
    /// the number of the wrong line otherwise.
    pub fn parse(text: &str) -> Result<Self, ServeError> {
        let lines = text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line.trim()));
        let lines: Vec<_> = lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .collect();
        if let [(_, line)] = lines[..]
            && !line.contains(char::is_whitespace)
        {
            return Ok(Token::new(line)?.into());
        }
        if lines.is_empty() {
            return Err(ServeError::Token);
        }
        let mut known: Vec<Known> = Vec::new();
        let mut roles: HashMap<Arc<str>, Role> = HashMap::new();
        for (number, line) in lines {
            let wrong = |why: &str| ServeError::Tokens(number, why.to_owned());
            let token = named(line).map_err(|why| wrong(&why))?;
            if known.iter().any(|other| other.hash == token.hash) {
                return Err(wrong("the token of an earlier line; use a new one"));
            }
            let role = *roles.entry(Arc::clone(&token.name)).or_insert(token.role);
            if role != token.role {
                return Err(wrong(
                    "the name of a token with another role; use a new name",
                ));
            }
            if known.len() >= TOKENS_MAX {
                return Err(wrong("more than 1,000 tokens; remove some"));
            }
            known.push(token);
        }
        Ok(Self(known))
    }

    /// Returns the role of the token `given`, if it is one of these.
    pub fn role(&self, given: &[u8]) -> Option<Role> {
        self.find(given).map(|(known, _)| known.role)
    }

    /// Returns the token that a call carries, and a mark that is equal for equal tokens only. All
    /// tokens are compared, so that the time does not depend on the match.
    pub(crate) fn find(&self, given: &[u8]) -> Option<(&Known, u64)> {
        let hash = hash(given);
        let mut place = 0_u32;
        for (i, known) in self.0.iter().enumerate() {
            place.conditional_assign(&(i as u32 + 1), known.hash.ct_eq(&hash));
        }
        let known = self.0.get((place as usize).checked_sub(1)?)?;
        let mark = hash.first_chunk().copied().map_or(1, u64::from_le_bytes);
        Some((known, mark.max(1)))
    }
}

impl From<Token> for Tokens {
    /// Returns the set with `token` as the only token, with all rights.
    fn from(token: Token) -> Self {
        Self(vec![Known {
            name: "".into(),
            role: Role::Operator,
            hash: hash(token.0.as_bytes()),
        }])
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

fn named(line: &str) -> Result<Known, String> {
    let mut words = line.split_whitespace();
    let (Some(role), Some(name), Some(token), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("expected ROLE NAME TOKEN".to_owned());
    };
    let role =
        Role::parse(role).ok_or_else(|| "the role must be read, worker or operator".to_owned())?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.len() > NAME_MAX || !name.bytes().all(fits) {
        return Err("a name is 1 to 64 letters, digits, dots, dashes or underscores".to_owned());
    }
    let token = Token::new(token).map_err(|why| why.to_string())?;
    Ok(Known {
        name: name.into(),
        role,
        hash: hash(token.0.as_bytes()),
    })
}

fn hash(text: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tokens: &Tokens, given: &str) -> Option<(String, Role)> {
        let (known, _) = tokens.find(given.as_bytes())?;
        Some((known.name.to_string(), known.role))
    }

    #[test]
    fn a_single_token_has_all_rights() {
        let tokens = Tokens::parse("# the only one\n\n  0123456789abcdef \n").unwrap();
        let only = Some((String::new(), Role::Operator));
        assert_eq!(found(&tokens, "0123456789abcdef"), only);
        for wrong in ["", "0123456789abcde", "0123456789abcdeff"] {
            assert_eq!(found(&tokens, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_line_names_a_role_and_a_token() {
        let text = "read  grafana aaaaaaaaaaaaaaaa\nworker ci bbbbbbbbbbbbbbbb\n\
            worker ci cccccccccccccccc\noperator ann dddddddddddddddd\n";
        let tokens = Tokens::parse(text).unwrap();
        let of = |letter: &str| found(&tokens, &letter.repeat(16));
        assert_eq!(of("a"), Some(("grafana".to_owned(), Role::Read)));
        assert_eq!(of("b"), Some(("ci".to_owned(), Role::Worker)));
        assert_eq!(
            of("c"),
            of("b"),
            "a name has two tokens while one is replaced"
        );
        assert_eq!(of("d"), Some(("ann".to_owned(), Role::Operator)));
        assert_eq!(of("e"), None);
        let mark = |letter: &str| tokens.find(letter.repeat(16).as_bytes()).unwrap().1;
        assert_ne!(mark("b"), mark("c"));
        assert!(!format!("{tokens:?}").contains("aaaa"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let good = "read a aaaaaaaaaaaaaaaa\n";
        for (line, why) in [
            ("admin b bbbbbbbbbbbbbbbb", "the role must be"),
            ("read b", "expected ROLE NAME TOKEN"),
            ("read b bbbbbbbbbbbbbbbb c", "expected ROLE NAME TOKEN"),
            ("read b short", "at least 16 characters"),
            ("read b:c bbbbbbbbbbbbbbbb", "a name is"),
            ("read b aaaaaaaaaaaaaaaa", "the token of an earlier line"),
            ("worker a bbbbbbbbbbbbbbbb", "another role"),
        ] {
            let wrong = Tokens::parse(&format!("{good}{line}\n")).unwrap_err();
            let told = wrong.to_string();
            assert!(told.starts_with("line 2: ") && told.contains(why), "{told}");
            assert!(!told.contains("bbbb"), "{told}");
        }
        assert!(matches!(
            Tokens::parse("\n# none\n"),
            Err(ServeError::Token)
        ));
    }
}
