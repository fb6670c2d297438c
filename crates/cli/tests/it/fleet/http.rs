//! A minimal HTTP/1.1 client for a worker: one connection, one call at a time, a deadline. A
//! worker's process must start quickly, because it is killed a hundred times. And the worker must
//! be able to leave a call half done, which no client library offers.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(crate) struct Http {
    address: SocketAddr,
    stream: Option<TcpStream>,
    read: Vec<u8>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header fields, with names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
            read: Vec::new(),
        }
    }

    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        deadline: Instant,
    ) -> io::Result<Answer> {
        self.send(method, path, body, deadline)?;
        self.receive(deadline)
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        deadline: Instant,
    ) -> io::Result<()> {
        if self.stream.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, left(deadline)?)?;
            stream.set_nodelay(true)?;
            self.stream = Some(stream);
            self.read.clear();
        }
        let message = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let sent = self.stream().and_then(|mut stream| {
            stream.set_write_timeout(Some(left(deadline)?))?;
            stream.write_all(message.as_bytes())
        });
        self.or_hang_up(sent)
    }

    pub(crate) fn receive(&mut self, deadline: Instant) -> io::Result<Answer> {
        let answer = self.read_answer(deadline);
        self.or_hang_up(answer)
    }

    /// Aborts the call in flight.
    pub(crate) fn hang_up(&mut self) {
        self.stream = None;
    }

    fn or_hang_up<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.hang_up();
        }
        result
    }

    fn stream(&self) -> io::Result<&TcpStream> {
        self.stream
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn read_answer(&mut self, deadline: Instant) -> io::Result<Answer> {
        let head_len = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more(deadline)?;
        };
        let head = String::from_utf8_lossy(&self.read[..head_len]).into_owned();
        let mut lines = head.lines();
        let status: Option<u16> = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers: BTreeMap<_, _> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length: Option<usize> = headers
            .get("content-length")
            .and_then(|length| length.parse().ok());
        let (Some(status), Some(length)) = (status, length) else {
            return Err(io::Error::other(format!("not an answer: {head}")));
        };
        let whole: usize = head_len + length;
        while self.read.len() < whole {
            self.read_more(deadline)?;
        }
        let body = self.read[head_len..whole].to_vec();
        self.read.drain(..whole);
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    fn read_more(&mut self, deadline: Instant) -> io::Result<()> {
        let mut stream = self.stream()?;
        stream.set_read_timeout(Some(left(deadline)?))?;
        let mut some = [0; 16 << 10];
        let count = stream.read(&mut some)?;
        self.read.extend_from_slice(&some[..count]);
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}
