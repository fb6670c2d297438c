//! A call's commands, each sent to whoever owns its key, and sent again where a server says that the key is elsewhere.

use std::collections::HashMap;
use std::mem::take;

use futures_util::future::{join, join_all};
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};

use crate::links::Purpose;
use crate::{Server, Servers, Trouble};

/// A key moves once in a while, and may move on while it is looked for. More is a cluster that does not know itself.
const ROUNDS: usize = 5;
/// Well below the time of an answer, so that a server without replicas can say so.
const WAIT_MS: u32 = 300;

/// A command and whom it is for.
pub struct Command<'a> {
    /// Its owner is asked.
    pub key: &'a str,
    /// All of it, the key among them.
    pub words: Cmd,
}

/// A command on its way.
struct Errand<'a> {
    key: &'a str,
    /// Nothing while it is sent.
    words: Cmd,
    /// There, whoever is thought to own the key.
    to: Option<Server>,
    /// The key is about to move: it is there for who asks for it.
    asking: bool,
    answer: Option<Result<Value, Trouble>>,
}

impl<'a> From<Command<'a>> for Errand<'a> {
    fn from(Command { key, words }: Command<'a>) -> Self {
        Self {
            key,
            words,
            to: None,
            asking: false,
            answer: None,
        }
    }
}

impl Servers {
    /// The answers to commands that change nothing, in order. All that go to one server go as one pipeline.
    pub async fn ask(&self, commands: Vec<Command<'_>>) -> Vec<Result<Value, Trouble>> {
        self.each(Purpose::Calls, commands).await
    }

    /// … to commands that change something: [`Trouble::Unacknowledged`] where too few replicas have it ([`Servers::wait`]).
    /// Waits once per server, for all of its commands.
    pub async fn change(&self, commands: Vec<Command<'_>>) -> Vec<Result<Value, Trouble>> {
        let purpose = match self.place.replicas {
            0 => Purpose::Calls,
            _ => Purpose::Durable,
        };
        self.each(purpose, commands).await
    }

    /// … to commands that change what is heard ([`Servers::listen`]), over a connection to each server for them alone.
    pub async fn subscribe(&self, commands: Vec<Command<'_>>) -> Vec<Result<Value, Trouble>> {
        self.each(Purpose::Notices, commands).await
    }

    /// Asks every master: what the key's owner says, and what the others say. `read` gets an answer to each question, complaints among
    /// them, and whether they are the owner's.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if one of them does not answer, or not what can be read.
    pub async fn masters<T>(
        &self,
        key: &str,
        questions: &Pipeline,
        read: impl Fn(Vec<Value>, bool) -> RedisResult<T>,
    ) -> Result<(T, Vec<T>), Trouble> {
        let owners = self.owners().await?;
        let owner = self.owner(&owners, key)?;
        let ask = async |server: &Server| {
            let answers = self.send(server, Purpose::Calls, questions).await?;
            let read = read(answers, *server == owner);
            read.map_err(|why| self.refused(server, why))
        };
        let others = owners.all.iter().filter(|server| **server != owner);
        let (owner, others) = join(ask(&owner), join_all(others.map(&ask))).await;
        Ok((owner?, others.into_iter().collect::<Result<_, _>>()?))
    }

    async fn each(
        &self,
        purpose: Purpose,
        commands: Vec<Command<'_>>,
    ) -> Vec<Result<Value, Trouble>> {
        let mut errands: Vec<_> = commands.into_iter().map(Errand::from).collect();
        for _ in 0..ROUNDS {
            let is_due = |errand: &&mut Errand| errand.answer.is_none();
            let mut due = errands.iter_mut().filter(is_due).peekable();
            if due.peek().is_none() {
                break;
            }
            let owners = self.owners().await;
            let mut groups: HashMap<Server, Vec<&mut Errand>> = HashMap::new();
            for errand in due {
                let owner = || self.owner(owners.as_ref().map_err(Clone::clone)?, errand.key);
                match errand.to.clone().map_or_else(owner, Ok) {
                    Ok(server) => groups.entry(server).or_default().push(errand),
                    Err(why) => errand.answer = Some(Err(why)),
                }
            }
            let groups = groups.into_iter();
            join_all(groups.map(|(server, group)| self.run(server, purpose, group))).await;
        }
        let answers = errands.into_iter().map(|errand| errand.answer);
        answers
            .map(|answer| answer.unwrap_or(Err(Trouble::Restless)))
            .collect()
    }

    async fn run(&self, server: Server, purpose: Purpose, mut group: Vec<&mut Errand<'_>>) {
        let replicas = self.place.replicas;
        let mut commands = Pipeline::with_capacity(group.len() + 1);
        for errand in &mut group {
            if errand.asking {
                commands.add_command(cmd("ASKING"));
            }
            commands.add_command(take(&mut errand.words));
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
        let (mut sent, mut answers) = (commands.cmd_iter(), answers.into_iter());
        for errand in group {
            let next = errand.asking.into();
            let words = sent.nth(next).expect("it was sent");
            let answer = answers.nth(next).unwrap_or(Value::Nil);
            errand.answer = match answer.extract_error() {
                Ok(answer) if too_few => Some(Err(Trouble::Unacknowledged {
                    server: server.clone(),
                    replicas,
                    answer,
                })),
                Ok(answer) => Some(Ok(answer)),
                Err(why) => match self.redirected(&why, &server) {
                    Some((to, asking)) => {
                        (errand.to, errand.asking) = (Some(to), asking);
                        errand.words = words.clone();
                        None
                    }
                    None => Some(Err(self.refused(&server, why))),
                },
            };
        }
    }
}
