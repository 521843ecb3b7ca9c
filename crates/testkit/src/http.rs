//! A server on the loopback device that answers as a test wants it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path and query.
    pub target: String,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// The value of a header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// First and last byte that are asked for.
    pub fn range(&self) -> Option<(usize, usize)> {
        let (from, to) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()?))
    }
}

/// What to do with a request.
#[derive(Debug)]
pub enum Answer {
    /// Send this, and close.
    Send(Vec<u8>),
    /// Send this, and nothing more until the other side goes away.
    Hang(Vec<u8>),
}

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub port: u16,
    asked: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
}

impl Server {
    /// A server on a port of its own, with a thread for each connection.
    pub fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::speaking(answer, |stream| Some(Box::new(stream)))
    }

    /// The same with something in between, such as TLS.
    pub fn speaking(
        answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Stream>> + Send + Sync + 'static,
    ) -> Self {
        let listener =
            TcpListener::bind("127.0.0.1:0").expect("a loopback device and threads that do not panic");
        let port = listener.local_addr().expect("a loopback device and threads that do not panic").port();
        let (asked, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, ends) = (Arc::clone(&asked), Arc::clone(&over));
        let (answer, wrap) = (Arc::new(answer), Arc::new(wrap));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, wrap, seen) = (Arc::clone(&answer), Arc::clone(&wrap), Arc::clone(&seen));
                thread::spawn(move || {
                    let Some(stream) = stream.ok().and_then(|stream| wrap(stream)) else { return };
                    talk(stream, |request| {
                        seen.lock()
                            .expect("a loopback device and threads that do not panic")
                            .push(request.clone());
                        answer(request)
                    });
                });
            }
        });
        Self { port, asked, over }
    }

    /// The address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().expect("a loopback device and threads that do not panic").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// What a connection is, with or without something in between.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn talk(stream: Box<dyn Stream>, answer: impl Fn(&Request) -> Answer) {
    let mut stream = BufReader::new(stream);
    let Some(request) = heard(&mut stream) else { return };
    let (bytes, hang) = match answer(&request) {
        Answer::Send(bytes) => (bytes, false),
        Answer::Hang(bytes) => (bytes, true),
    };
    // The other side may have gone: that is what some tests are about.
    let _sent = stream.get_mut().write_all(&bytes).and_then(|()| stream.get_mut().flush());
    if hang {
        let _gone = stream.read(&mut [0]);
    }
}

fn heard(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Some(Request { target, headers }),
        }
    }
}

/// An answer of a status, header lines and a body. The length is told unless a line tells one.
pub fn answer(status: &str, lines: &[&str], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    for line in lines {
        text += &format!("{line}\r\n");
    }
    if !lines.iter().any(|line| line.to_ascii_lowercase().starts_with("content-length")) {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    let mut bytes = (text + "\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

/// What a good server sends of a file.
pub fn part_of(file: &[u8], request: &Request) -> Vec<u8> {
    let Some((from, to)) = request.range() else {
        return answer("200 OK", &["ETag: \"1\"", "Accept-Ranges: bytes"], file);
    };
    if from >= file.len() {
        return answer(
            "416 Range Not Satisfiable",
            &[&format!("Content-Range: bytes */{}", file.len())],
            b"",
        );
    }
    let to = to.min(file.len() - 1);
    let range = format!("Content-Range: bytes {from}-{to}/{}", file.len());
    answer("206 Partial Content", &["ETag: \"1\"", &range], &file[from..=to])
}

/// What a good server says of a file that it does not have.
pub fn not_found() -> Vec<u8> {
    answer("404 Not Found", &["Content-Type: text/html"], b"<html>no</html>")
}
