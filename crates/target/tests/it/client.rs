//! A client of a few lines: one connection, one request at a time.

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(path).await;
        self.receive().await
    }

    pub(crate) async fn send(&mut self, path: &str) {
        let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> Answer {
        let head_len = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await;
        };
        let head = String::from_utf8(self.read[..head_len].to_vec()).unwrap();
        let mut lines = head.lines();
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let body_len: usize = headers["content-length"].parse().unwrap();
        while self.read.len() < head_len + body_len {
            self.more().await;
        }
        let body = String::from_utf8(self.read[head_len..head_len + body_len].to_vec()).unwrap();
        self.read.drain(..head_len + body_len);
        Answer {
            status,
            headers,
            body,
        }
    }

    async fn more(&mut self) {
        assert!(
            self.stream.read_buf(&mut self.read).await.unwrap() > 0,
            "closed in the middle"
        );
    }
}
