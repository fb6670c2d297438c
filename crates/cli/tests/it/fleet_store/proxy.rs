//! A proxy between processes and a server. It can change the server, stall, delay answers, and lose
//! answers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use politely::core::Rng;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    to: Mutex<SocketAddr>,
    open: Mutex<Vec<TcpStream>>,
    chance: Mutex<Rng>,
    /// The percentage of answers that are lost.
    loses: AtomicU64,
    lost: AtomicU64,
    /// The delay of answers, in milliseconds.
    late_ms: AtomicU64,
    /// Whether the proxy forwards nothing while it keeps its connections open.
    stalled: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free loopback port");
        let address = listener.local_addr().expect("it is bound");
        let inner = Arc::new(Inner {
            to: Mutex::new(to),
            open: Mutex::default(),
            chance: Mutex::new(Rng::new(8)),
            loses: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            late_ms: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serving.ended.load(Ordering::Acquire) {
                    return;
                }
                // If the server is down, this closes the connection.
                let _ = serving.join(&stream);
            }
        });
        Self { address, inner }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Forwards new connections to another server, and closes the existing ones.
    pub(crate) fn lead_to(&self, to: SocketAddr) {
        *self.inner.to.lock().expect("no thread panicked") = to;
        self.inner.cut();
    }

    pub(crate) fn lose(&self, of_a_hundred: u64) {
        self.inner.loses.store(of_a_hundred, Ordering::Release);
    }

    pub(crate) fn delay(&self, answers_ms: u64) {
        self.inner.late_ms.store(answers_ms, Ordering::Release);
    }

    /// Stops forwarding for good.
    pub(crate) fn stall(&self) {
        self.inner.stalled.store(true, Ordering::Release);
    }

    pub(crate) fn lost(&self) -> u64 {
        self.inner.lost.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.ended.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        self.inner.cut();
    }
}

impl Inner {
    fn cut(&self) {
        for stream in self.open.lock().expect("no thread panicked").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn join(self: &Arc<Self>, client: &TcpStream) -> std::io::Result<()> {
        let to = *self.to.lock().expect("no thread panicked");
        let server = TcpStream::connect(to)?;
        for stream in [client, &server] {
            stream.set_nodelay(true)?;
        }
        let mut open = self.open.lock().expect("no thread panicked");
        open.extend([client.try_clone()?, server.try_clone()?]);
        drop(open);
        let ways = [
            (client.try_clone()?, server.try_clone()?, false),
            (server, client.try_clone()?, true),
        ];
        for (from, to, answers) in ways {
            let inner = Arc::clone(self);
            thread::spawn(move || inner.pass(from, to, answers));
        }
        Ok(())
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, answers: bool) {
        let mut buffer = [0; 1 << 14];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if answers && self.is_lost() {
                self.lost.fetch_add(1, Ordering::AcqRel);
                break;
            }
            if answers {
                let late = self.late_ms.load(Ordering::Acquire);
                thread::sleep(Duration::from_millis(late));
            }
            self.wait_while_stalled();
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        self.wait_while_stalled();
        for stream in [from, to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn wait_while_stalled(&self) {
        while self.stalled.load(Ordering::Acquire) && !self.ended.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_lost(&self) -> bool {
        let loses = self.loses.load(Ordering::Acquire);
        let mut chance = self.chance.lock().expect("no thread panicked");
        loses > 0 && chance.next_u64() % 100 < loses
    }
}
