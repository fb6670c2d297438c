//! One command per cell, sent to whoever owns it, and sent again where a server says that nothing was done.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, cmd};

use super::super::EngineError;
use super::Redis;
use super::links::{Purpose, Server};

/// A cell moves once in a while, and its new owner may not have the script: three rounds. More is a cluster that does not
/// know itself.
const ROUNDS: usize = 5;
/// Well below the time of an answer, so that a server without replicas can say so.
const WAIT_MS: u32 = 300;

/// What is asked of one cell.
pub(super) trait Ask: Sync {
    fn cell(&self) -> &str;

    fn say(&self, how: How) -> Cmd;

    fn has_native(&self) -> bool {
        false
    }

    /// Does this answer say that something was changed?
    fn is_done(&self, _answer: &Value) -> bool {
        false
    }
}

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// In words that not every server has.
    Native,
    /// As they all understand it, if they remember the script.
    Plain,
    /// With the whole script: the server has forgotten it.
    Whole,
}

/// A command without arguments beside the cell.
pub(super) struct Simple<'a>(pub(super) &'static str, pub(super) &'a str);

impl Ask for Simple<'_> {
    fn cell(&self) -> &str {
        self.1
    }

    fn say(&self, _how: How) -> Cmd {
        let mut command = Cmd::with_capacity(2, self.0.len() + self.1.len());
        command.arg(self.0).arg(self.1);
        command
    }
}

/// What is asked of one cell, and how that goes.
struct Errand<'a, A> {
    ask: &'a A,
    how: How,
    /// There, whoever is thought to own the cell.
    to: Option<Server>,
    /// The cell is about to move: it is there for who asks for it.
    asking: bool,
    answer: Option<Result<Value, EngineError>>,
}

impl Redis {
    /// The answers to what is asked, in order.
    pub(super) async fn each<A: Ask>(
        &self,
        purpose: Purpose,
        asks: &[A],
    ) -> Vec<Result<Value, EngineError>> {
        let plain = self.plain.load(Ordering::Relaxed);
        let new = asks.iter().map(|ask| Errand {
            ask,
            how: if ask.has_native() && !plain {
                How::Native
            } else {
                How::Plain
            },
            to: None,
            asking: false,
            answer: None,
        });
        let mut errands: Vec<_> = new.collect();
        for _ in 0..ROUNDS {
            let is_due = |errand: &&mut Errand<A>| errand.answer.is_none();
            let mut due = errands.iter_mut().filter(is_due).peekable();
            if due.peek().is_none() {
                break;
            }
            let owners = self.owners().await;
            let mut groups: HashMap<Server, Vec<&mut Errand<A>>> = HashMap::new();
            for errand in due {
                let owner = || self.owner(&owners, errand.ask.cell());
                match errand.to.clone().map_or_else(owner, Ok) {
                    Ok(server) => groups.entry(server).or_default().push(errand),
                    Err(why) => errand.answer = Some(Err(why)),
                }
            }
            let groups = groups.into_iter();
            join_all(groups.map(|(server, group)| self.run(server, purpose, group))).await;
        }
        let restless = || Err(EngineError("the cell was moved again and again".to_owned()));
        let answers = errands.into_iter().map(|errand| errand.answer);
        answers
            .map(|answer| answer.unwrap_or_else(restless))
            .collect()
    }

    async fn run<A: Ask>(&self, server: Server, purpose: Purpose, group: Vec<&mut Errand<'_, A>>) {
        let replicas = self.place.replicas;
        let mut commands = Pipeline::with_capacity(group.len() + 1);
        for errand in &group {
            if errand.asking {
                commands.add_command(cmd("ASKING"));
            }
            commands.add_command(errand.ask.say(errand.how));
        }
        if purpose == Purpose::Durable {
            commands.cmd("WAIT").arg(replicas).arg(WAIT_MS);
        }
        let mut answers = match self.send(&server, purpose, &commands).await {
            Ok(answers) => answers,
            Err(why) => {
                for errand in group {
                    errand.answer = Some(Err(why.clone()));
                }
                return;
            }
        };
        let too_few = purpose == Purpose::Durable
            && !matches!(answers.pop(), Some(Value::Int(n)) if n as usize >= replicas);
        let mut answers = answers.into_iter();
        for errand in group {
            let answer = answers.nth(errand.asking.into()).unwrap_or(Value::Nil);
            errand.answer = match answer.extract_error() {
                Ok(answer) if too_few && errand.ask.is_done(&answer) => {
                    let why = "changed, but not acknowledged by";
                    let why = format!("{server}: {why} {replicas} of its replicas in time");
                    Some(Err(EngineError(why)))
                }
                Ok(answer) => Some(Ok(answer)),
                Err(why) if self.goes_again(errand, &server, &why) => None,
                // Too old to tell of changes, or not allowed to: there are no notices.
                Err(why) if purpose == Purpose::Notices && is_never(&why) => Some(Ok(Value::Nil)),
                Err(why) => Some(Err(self.refused(&server, &why))),
            };
        }
    }

    /// Is there a way to do what a server did not do?
    fn goes_again<A>(&self, errand: &mut Errand<A>, server: &Server, why: &RedisError) -> bool {
        match why.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => errand.how = How::Whole,
            ErrorKind::Server(ServerErrorKind::ResponseError) if errand.how == How::Native => {
                self.plain.store(true, Ordering::Relaxed);
                errand.how = How::Plain;
            }
            ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask)) => {
                errand.to = self.redirected(why, server);
                errand.asking = kind == ServerErrorKind::Ask;
                if !errand.asking {
                    self.forget();
                }
                return errand.to.is_some();
            }
            _ => return false,
        }
        true
    }
}

/// It will say the same the next time.
fn is_never(why: &RedisError) -> bool {
    matches!(why.code(), Some("ERR" | "NOPERM"))
}
