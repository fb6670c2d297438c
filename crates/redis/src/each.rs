//! The commands of one call. Each is sent to the owner of its key, and sent again if a server says
//! that the key is elsewhere.

use std::collections::HashMap;
use std::mem::take;

use futures_util::future::{join, join_all};
use redis::{Cmd, Pipeline, RedisResult, ToRedisArgs, Value, cmd};

use crate::links::Purpose;
use crate::{Server, Servers, Trouble};

/// The most attempts to find a key that moves. A key may move again during the search; after more
/// attempts the cluster is inconsistent.
const ROUNDS: usize = 5;
/// The timeout of `WAIT`. It is well below the time of an answer, so that a server without replicas
/// can still answer.
const WAIT_MS: u32 = 300;

/// A command and the key that selects its server.
pub struct Command<'a> {
    /// The key whose owner gets the command.
    pub key: &'a str,
    /// The whole command, with the key.
    pub words: Cmd,
}

impl<'a> Command<'a> {
    /// Creates the command `name` about a key.
    pub fn new(name: &str, key: &'a str) -> Self {
        let mut words = Cmd::with_capacity(2, name.len() + key.len());
        words.arg(name).arg(key);
        Self { key, words }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.words.arg(arg);
        self
    }
}

/// A pending command.
struct Errand<'a> {
    /// The command. Its words are empty while it is sent.
    command: Command<'a>,
    /// The server that a redirection named, if any.
    to: Option<Server>,
    /// Whether the key is being moved to that server, which then needs `ASKING` before the command.
    asking: bool,
    answer: Option<Result<Value, Trouble>>,
}

impl Servers {
    /// Runs commands that change nothing, and returns their answers in order. All commands for one
    /// server are one pipeline.
    pub async fn ask(&self, commands: Vec<Command<'_>>) -> Vec<Result<Value, Trouble>> {
        self.each(Purpose::Calls, commands).await
    }

    /// Runs commands that change data, and returns their answers in order.
    ///
    /// An answer is [`Trouble::Unacknowledged`] if too few replicas have the change
    /// ([`Servers::wait`]). There is one `WAIT` per server, for all of its commands.
    pub async fn change(&self, commands: Vec<Command<'_>>) -> Vec<Result<Value, Trouble>> {
        let purpose = match self.place.replicas {
            0 => Purpose::Calls,
            _ => Purpose::Durable,
        };
        self.each(purpose, commands).await
    }

    /// Runs commands that change subscriptions ([`Servers::listen`]), over a separate connection to
    /// each server.
    pub async fn subscribe(&self, commands: Vec<Command<'_>>) -> Vec<Result<Value, Trouble>> {
        self.each(Purpose::Notices, commands).await
    }

    /// Asks every master. Returns the answer of the key's owner and those of the others.
    ///
    /// `read` gets a server, its answers to all questions, errors among them, and whether it is the
    /// owner.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if a master does not answer, or if `read` fails.
    pub async fn masters<T>(
        &self,
        key: &str,
        questions: &Pipeline,
        read: impl Fn(&Server, Vec<Value>, bool) -> RedisResult<T>,
    ) -> Result<(T, Vec<T>), Trouble> {
        let owners = self.owners().await?;
        let owner = self.owner(&owners, key)?;
        let ask = async |server: &Server| {
            let answers = self.send(server, Purpose::Calls, questions).await?;
            let read = read(server, answers, *server == owner);
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
        let new = commands.into_iter().map(|command| Errand {
            command,
            to: None,
            asking: false,
            answer: None,
        });
        let mut errands: Vec<_> = new.collect();
        for _ in 0..ROUNDS {
            let is_due = |errand: &&mut Errand| errand.answer.is_none();
            let mut due = errands.iter_mut().filter(is_due).peekable();
            if due.peek().is_none() {
                break;
            }
            let owners = self.owners().await;
            let mut groups: HashMap<Server, Vec<&mut Errand>> = HashMap::new();
            for errand in due {
                let key = errand.command.key;
                let owner = || self.owner(owners.as_ref().map_err(Clone::clone)?, key);
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
            commands.add_command(take(&mut errand.command.words));
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
            let words = sent
                .nth(next)
                .expect("the pipeline has a command for every asking");
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
                        errand.command.words = words.clone();
                        None
                    }
                    None => Some(Err(self.refused(&server, why))),
                },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
    use tokio::net::tcp::OwnedReadHalf;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// The commands that a server got, in order.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// Starts a server that answers each command with the result of `says`.
    fn serve<F: Fn(&str) -> String + Copy + Send + Sync + 'static>(
        listener: TcpListener,
        says: F,
    ) -> Asked {
        let asked = Asked::default();
        let accepted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, says, Arc::clone(&accepted)));
            }
        });
        asked
    }

    async fn converse(stream: TcpStream, says: impl Fn(&str) -> String, asked: Asked) {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        while let Some(command) = command(&mut lines).await {
            let answer = says(&command);
            asked.lock().push(command);
            if write.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
    }

    /// Reads a command such as `*2`, `$3`, `GET`, `$1`, `a`.
    async fn command(lines: &mut Lines<BufReader<OwnedReadHalf>>) -> Option<String> {
        let count = lines.next_line().await.ok()??;
        let mut words = Vec::new();
        for _ in 0..count.strip_prefix('*')?.parse().ok()? {
            lines.next_line().await.ok()??;
            words.push(lines.next_line().await.ok()??);
        }
        Some(words.join(" "))
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn sets(keys: &[&'static str]) -> Vec<Command<'static>> {
        let set = |key: &&'static str| Command {
            key,
            words: cmd("SET").arg(key).arg(1).to_owned(),
        };
        keys.iter().map(set).collect()
    }

    #[tokio::test]
    async fn what_is_elsewhere_is_asked_there_alone() {
        let ((one, its_port), (other, port)) = (listener().await, listener().await);
        let one = serve(one, move |command| match command {
            "CLUSTER SLOTS" => {
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{its_port}\r\n")
            }
            "SET moved 1" => format!("-MOVED 1 127.0.0.1:{port}\r\n"),
            "SET moving 1" => format!("-ASK 2 127.0.0.1:{port}\r\n"),
            "SET odd 1" => "-WRONGTYPE it is a list\r\n".to_owned(),
            _ => ":1\r\n".to_owned(),
        });
        let other = serve(other, |_| ":2\r\n".to_owned());
        let url = format!("redis+cluster://127.0.0.1:{its_port}?wait=1");
        let servers = Servers::connect(&url).unwrap();
        let answers = servers
            .change(sets(&["here", "moved", "odd", "moving"]))
            .await;
        let answers = answers.iter().map(|it| it.as_ref().map_err(Trouble::code));
        assert_eq!(
            answers.collect::<Vec<_>>(),
            [
                Ok(&Value::Int(1)),
                Ok(&Value::Int(2)),
                Err(Some("WRONGTYPE")),
                Ok(&Value::Int(2))
            ]
        );
        let all = ["SET here 1", "SET moved 1", "SET odd 1", "SET moving 1"];
        let asked = one.lock().clone();
        assert_eq!(asked[..1], ["CLUSTER SLOTS"]);
        assert_eq!(asked[1..5], all);
        // The owners of the slots are asked for again, because one slot has moved.
        assert_eq!(asked[5..], ["WAIT 1 300", "CLUSTER SLOTS"]);
        let there = ["SET moved 1", "ASKING", "SET moving 1", "WAIT 1 300"];
        assert_eq!(*other.lock(), there);
    }

    #[tokio::test]
    async fn what_too_few_acknowledge_is_told_with_its_answer() {
        let (listener, port) = listener().await;
        let asked = serve(listener, |command| match command {
            "SET odd 1" => "-ERR no\r\n".to_owned(),
            "SET one 1" => "+OK\r\n".to_owned(),
            _ => ":0\r\n".to_owned(),
        });
        let servers = Servers::connect(&format!("redis://127.0.0.1:{port}")).unwrap();
        let servers = servers.wait(2);
        let answers = servers.change(sets(&["one", "odd"])).await;
        assert!(matches!(
            &answers[..],
            [
                Err(Trouble::Unacknowledged { replicas: 2, answer: Value::Okay, .. }),
                Err(why),
            ] if why.code() == Some("ERR")
        ));
        assert_eq!(*asked.lock(), ["SET one 1", "SET odd 1", "WAIT 2 300"]);
        assert!(servers.ask(sets(&["one"])).await[0].is_ok());
    }

    #[tokio::test]
    async fn who_is_sent_in_a_circle_gives_up() {
        let (listener, port) = listener().await;
        let asked = serve(listener, move |command| match command {
            "CLUSTER SLOTS" => {
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            }
            _ => format!("-MOVED 1 127.0.0.1:{port}\r\n"),
        });
        let url = format!("redis+cluster://127.0.0.1:{port}");
        let servers = Servers::connect(&url).unwrap();
        let answers = servers.ask(sets(&["one"])).await;
        assert!(matches!(answers[..], [Err(Trouble::Restless)]));
        let sets = asked.lock().iter().filter(|it| *it == "SET one 1").count();
        assert_eq!(sets, ROUNDS);
    }
}
