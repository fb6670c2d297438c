//! One command per cell, sent to whoever owns it, and sent again where a server says that nothing was done.

use futures_util::future::join_all;
use redis::{Cmd, Pipeline, ServerError, ServerErrorKind, Value, cmd};

use super::super::{CALL_TIME, trouble};
use super::{Purpose, Server, Servers};
use crate::cells::EngineError;

/// A cell moves once in a while, and its new owner may not have the script: three rounds. More is a cluster that does not
/// know itself.
const ROUNDS: usize = 5;
/// Well below the time of an answer, so that a server without replicas can say so.
const WAIT_MS: u32 = 300;

/// What is asked of each cell.
pub(crate) trait Question: Sync {
    /// In the words of `how`; `None`: there are none.
    fn say(&self, index: usize, how: How) -> Option<Cmd>;

    /// What an answer in a server's own words means in ours.
    fn translate(&self, _index: usize, answer: Value) -> Value {
        answer
    }
}

impl<F: Fn(usize) -> Cmd + Sync> Question for F {
    fn say(&self, index: usize, how: How) -> Option<Cmd> {
        (how != How::Native).then(|| self(index))
    }
}

/// How a question is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// In words that not every server has.
    Native,
    /// As they all understand it, if they remember the script.
    Plain,
    /// With the whole script: the server has forgotten it.
    Whole,
}

/// A command to be sent.
struct Due {
    index: usize,
    how: How,
    /// Only there and only now: the cell is about to move.
    ask: Option<Server>,
}

impl Due {
    fn first(index: usize) -> Self {
        Self {
            index,
            how: How::Native,
            ask: None,
        }
    }
}

impl Servers {
    /// The answers to `question` for each of `cells`, in order. With `replicas`, a change is an error unless so many have it.
    pub(crate) async fn each(
        &self,
        purpose: Purpose,
        cells: &[&str],
        question: &impl Question,
        replicas: usize,
    ) -> Vec<Result<Value, EngineError>> {
        if cells.is_empty() {
            return Vec::new();
        }
        let answers = self.rounds(purpose, cells, question, replicas);
        let answers = tokio::time::timeout(CALL_TIME, answers).await;
        answers.unwrap_or_else(|_| vec![Err(trouble::late()); cells.len()])
    }

    async fn rounds(
        &self,
        purpose: Purpose,
        cells: &[&str],
        question: &impl Question,
        replicas: usize,
    ) -> Vec<Result<Value, EngineError>> {
        let mut answers = vec![Ok(Value::Nil); cells.len()];
        let mut due: Vec<Due> = (0..cells.len()).map(Due::first).collect();
        for _ in 0..ROUNDS {
            let groups = match self.by_owner(&mut due, cells).await {
                Ok(groups) => groups,
                Err(why) => {
                    fail(&mut answers, &due, &why);
                    return answers;
                }
            };
            let sent = groups.into_iter().map(|(server, mut group)| {
                let commands = pipeline(&mut group, question, self.is_plain(&server), replicas);
                async move {
                    let values = self.send(&server, purpose, &commands).await;
                    (server, group, values)
                }
            });
            for (server, group, values) in join_all(sent).await {
                let mut values = match values {
                    Ok(values) => values,
                    Err(why) => {
                        fail(&mut answers, &group, &why);
                        continue;
                    }
                };
                let too_few = replicas > 0
                    && !matches!(values.pop(), Some(Value::Int(n)) if n as usize >= replicas);
                let mut values = values.into_iter();
                for one in group {
                    if one.ask.is_some() {
                        values.next(); // to ASKING
                    }
                    let index = one.index;
                    let native = one.how == How::Native;
                    let value = values.next();
                    let value = value.map(|value| match value {
                        Value::ServerError(_) => value,
                        value if native => question.translate(index, value),
                        value => value,
                    });
                    answers[index] = match value {
                        Some(Value::Int(_)) if too_few => Err(trouble::too_few(&server, replicas)),
                        Some(Value::ServerError(why)) => {
                            match self.again(&server, &why, one, cells[index]) {
                                Some(again) => {
                                    due.push(again);
                                    continue;
                                }
                                // Too old to tell of changes, or not allowed to: there are no notices.
                                None if purpose == Purpose::Notices && is_never(&why) => {
                                    Ok(Value::Nil)
                                }
                                None => Err(self.refused(&server, &why)),
                            }
                        }
                        Some(value) => Ok(value),
                        None => Err(trouble::odd(&Value::Nil)),
                    };
                }
            }
            if due.is_empty() {
                return answers;
            }
        }
        fail(&mut answers, &due, &trouble::restless());
        answers
    }

    /// How to send what a server did not do, if there is a way.
    fn again(&self, server: &Server, why: &ServerError, one: Due, cell: &str) -> Option<Due> {
        match why.kind()? {
            ServerErrorKind::NoScript => Some(Due {
                how: How::Whole,
                ..one
            }),
            ServerErrorKind::ResponseError if one.how == How::Native => {
                self.plain.lock().insert(server.clone());
                Some(Due {
                    how: How::Plain,
                    ..one
                })
            }
            ServerErrorKind::Moved if self.is_cluster() => {
                self.moved(cell, Server::redirected(why.details()?, server)?);
                Some(Due { ask: None, ..one })
            }
            ServerErrorKind::Ask if self.is_cluster() => Some(Due {
                ask: Some(Server::redirected(why.details()?, server)?),
                ..one
            }),
            _ => None,
        }
    }

    async fn by_owner(
        &self,
        due: &mut Vec<Due>,
        cells: &[&str],
    ) -> Result<Vec<(Server, Vec<Due>)>, EngineError> {
        let owners = self.owners(|owners| {
            let owner = |due: &Due| due.ask.clone().or_else(|| owners.of(cells[due.index]));
            due.iter().map(owner).collect::<Option<Vec<Server>>>()
        });
        let owners = owners.await?.ok_or_else(|| {
            self.forget();
            trouble::unowned()
        })?;
        let mut groups: Vec<(Server, Vec<Due>)> = Vec::new();
        for (owner, one) in owners.into_iter().zip(due.drain(..)) {
            match groups.iter_mut().find(|(server, _)| *server == owner) {
                Some((_, group)) => group.push(one),
                None => groups.push((owner, vec![one])),
            }
        }
        Ok(groups)
    }
}

fn fail(answers: &mut [Result<Value, EngineError>], due: &[Due], why: &EngineError) {
    for one in due {
        answers[one.index] = Err(why.clone());
    }
}

/// It will say the same the next time.
fn is_never(why: &ServerError) -> bool {
    matches!(why.code(), "ERR" | "NOPERM")
}

fn pipeline(group: &mut [Due], question: &impl Question, plain: bool, replicas: usize) -> Pipeline {
    let mut commands = Pipeline::with_capacity(group.len() + 1);
    for due in group {
        if due.ask.is_some() {
            commands.add_command(cmd("ASKING"));
        }
        let native = due.how == How::Native && !plain;
        let native = native
            .then(|| question.say(due.index, How::Native))
            .flatten();
        let command = native.unwrap_or_else(|| {
            if due.how == How::Native {
                due.how = How::Plain;
            }
            let plain = question.say(due.index, due.how);
            plain.expect("all servers understand something")
        });
        commands.add_command(command);
    }
    if replicas > 0 {
        commands.cmd("WAIT").arg(replicas).arg(WAIT_MS);
    }
    commands
}
