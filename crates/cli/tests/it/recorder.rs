//! A server that keeps each request whole: its method, its header fields and its body.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Came {
    /// Returns the values of a field, which are joined if there are several.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let values = self.headers.iter().filter(|(known, _)| known == name);
        let values: Vec<_> = values.map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

/// The answer to a request. `None` closes the connection.
pub(crate) type Answer = Option<(&'static str, String)>;

pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Recorder {
    /// Starts a server that answers as `answer` says: a status and header lines. `answer` gets the
    /// number of requests before this one, too.
    pub(crate) fn start(answer: impl Fn(&Came, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let came = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&came));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                thread::spawn(move || serve(stream, &*answer, &log));
            }
        });
        Self { address, came }
    }

    /// Starts a server that answers each request with 200.
    pub(crate) fn fine() -> Self {
        Self::start(|_, _| Some(("200 OK", String::new())))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Returns all requests so far.
    pub(crate) fn came(&self) -> Vec<Came> {
        self.came.lock().expect("not poisoned").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Came, usize) -> Answer + Send + Sync),
    log: &Mutex<Vec<Came>>,
) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
    while let Some(came) = read(&mut reader) {
        let before = {
            let mut log = log.lock().expect("not poisoned");
            log.push(came.clone());
            log.len() - 1
        };
        let Some((status, headers)) = answer(&came, before) else {
            return;
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n{headers}\r\n");
        let is_bare = came.method == "HEAD" || status.starts_with("304");
        let body = if is_bare { "" } else { "page" };
        if stream
            .write_all(format!("{head}{body}").as_bytes())
            .is_err()
        {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Came> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Came {
        method,
        path,
        headers,
        body: String::from_utf8(body).expect("UTF-8"),
    })
}
