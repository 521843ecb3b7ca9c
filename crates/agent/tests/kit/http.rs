//! A client that sends exactly what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Whoever does not answer for so long never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks one agent, each time on a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self { address, headers: vec![("host".to_owned(), address.to_string())] }
    }

    /// The same with another header of this name.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.retain(|(known, _)| known != name);
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    pub(crate) fn with_token(&self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn head(&self, method: &str, path: &str, length: Option<usize>) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        head + "connection: close\r\n\r\n"
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&[u8]>) -> Reply {
        let mut stream = self.connect();
        stream.write_all(self.head(method, path, body.map(<[u8]>::len)).as_bytes()).unwrap();
        // Who refuses early may close before all is sent.
        drop(stream.write_all(body.unwrap_or_default()));
        Reply::read(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None)
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.with("content-type", "application/json").ask("POST", path, Some(body.as_bytes()))
    }

    pub(crate) fn put(&self, path: &str, body: &str) -> Reply {
        self.with("content-type", "application/json").ask("PUT", path, Some(body.as_bytes()))
    }

    /// Listens to events.
    pub(crate) fn events(&self, path: &str) -> Events {
        let mut stream = self.connect();
        stream.write_all(self.head("GET", path, None).as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let (status, headers) = head(&mut reader);
        assert_eq!(status, 200, "{headers:?}");
        Events { reader, text: Vec::new() }
    }
}

impl Reply {
    pub(crate) fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let (status, headers) = head(&mut reader);
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let mut body = Vec::new();
        if chunked {
            while let Some(chunk) = chunk(&mut reader) {
                body.extend(chunk);
            }
        } else {
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length = length.map_or(0, |(_, value)| value.parse().unwrap());
            body.resize(length, 0);
            reader.read_exact(&mut body).unwrap();
        }
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The JSON of an answer of this status.
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// What an answer of this status says is wrong.
    pub(crate) fn error(&self, status: u16) -> String {
        let json = self.json(status);
        assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
        json["error"].as_str().unwrap().to_owned()
    }
}

fn head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}")).parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    (status, headers)
}

/// A piece of a body that comes in pieces; `None` after the last one.
fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let length = usize::from_str_radix(line.trim(), 16).ok()?;
    let mut chunk = vec![0; length];
    reader.read_exact(&mut chunk).ok()?;
    reader.read_line(&mut String::new()).ok()?;
    (length > 0).then_some(chunk)
}

/// A stream of events.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    text: Vec<u8>,
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl Events {
    /// The next one; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                if let Some(event) = Event::parse(std::str::from_utf8(&block).unwrap()) {
                    return Some(event);
                }
                continue;
            }
            self.text.extend(chunk(&mut self.reader)?);
        }
    }

    /// The next one of this kind.
    pub(crate) fn find(&mut self, kind: &str) -> Event {
        self.find_that(|event| event.kind == kind)
    }

    pub(crate) fn find_that(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().expect("the stream goes on until what is waited for comes");
            if wanted(&event) {
                return event;
            }
        }
    }
}

impl Event {
    /// `None` for what is no event but a sign of life.
    fn parse(block: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim_start().to_owned())
        };
        let data = serde_json::from_str(&field("data")?).unwrap();
        Some(Self { kind: field("event")?, id: field("id"), data })
    }
}
