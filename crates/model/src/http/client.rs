//! One request after another, with everything that an answer can get wrong.

use std::io::{self, Read};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Timeout};

use super::answer::{Mark, check_form, content_range, mark, number, text, wrong};
use super::error::HttpError;
use super::token::Token;
use super::url::Url;

/// The longest header of an answer, in bytes.
const LONGEST_HEADER: usize = 64 << 10;

/// What a client takes on itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a connection may take.
    pub connect: Duration,
    /// How long a server may be silent.
    pub silence: Duration,
    /// How long all of it may take, over all requests.
    pub whole: Duration,
    /// How long it waits before it asks a second time, where a server fails in a way that may pass.
    pub pause: Duration,
    /// How many redirections in a row are followed.
    pub redirections: u32,
    /// The most bytes that are read, over all requests.
    pub most_bytes: u64,
    /// Whether the proxies that the environment names are used (`ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY`; not for the hosts
    /// in `NO_PROXY`).
    pub proxy_from_env: bool,
    /// Trusted certificates in PEM in place of those that come with the program.
    pub certificates: Option<Vec<u8>>,
    /// A token for some servers.
    pub token: Token,
}

impl Default for Options {
    /// No token, no proxy.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(20),
            whole: Duration::from_secs(120),
            pause: Duration::from_millis(300),
            redirections: 8,
            most_bytes: 256 << 20,
            proxy_from_env: false,
            certificates: None,
            token: Token::none(),
        }
    }
}

impl Options {
    /// What the environment says: proxies, the token of Hugging Face ([`Token::from_env`]), and `SSL_CERT_FILE`.
    #[must_use]
    pub fn from_env() -> Self {
        let certificates = std::env::var_os("SSL_CERT_FILE").and_then(|file| std::fs::read(file).ok());
        Self { proxy_from_env: true, certificates, token: Token::from_env(), ..Self::default() }
    }
}

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests that were sent, redirections and second tries among them.
    pub requests: u64,
    /// Bytes of files that came.
    pub bytes: u64,
}

/// Reads from servers. It keeps connections open, and counts what it reads.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    options: Options,
    usage: Mutex<Usage>,
    deadline: Instant,
}

/// A part of a file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    /// How long the whole file is.
    pub(super) total: u64,
    /// What tells one state of the file from the next.
    pub(super) mark: Option<Mark>,
    /// Who answered in the end.
    pub(super) at: Url,
}

impl Client {
    /// A client whose time begins to run now.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let roots = options.certificates.as_deref().map_or(RootCerts::WebPki, |pem| {
            parse_pem(pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .into()
        });
        let mut config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(LONGEST_HEADER)
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(options.connect))
            .timeout_resolve(Some(options.connect))
            .timeout_per_read(Some(options.silence))
            .timeout_recv_response(Some(options.silence));
        if !options.proxy_from_env {
            config = config.proxy(None);
        }
        #[expect(clippy::disallowed_methods, reason = "a limit on how long other machines may take")]
        let deadline = Instant::now() + options.whole;
        Self { agent: config.build().new_agent(), options, usage: Mutex::default(), deadline }
    }

    /// What was read so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        *self.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A whole file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// What a server can get wrong; [`HttpError::Limit`] where the file is longer.
    pub fn text(&self, url: &Url, limit: u64) -> Result<Vec<u8>, HttpError> {
        let (at, mut answer) = self.answer(url, url, None)?;
        check_form(answer.headers(), answer.status().as_u16())?;
        let told = number(answer.headers(), "content-length");
        if told.is_some_and(|told| told > limit) {
            return Err(HttpError::Limit { limit });
        }
        let bytes = self.body(&mut answer, &at, limit, told)?;
        if bytes.len() as u64 > limit {
            return Err(HttpError::Limit { limit });
        }
        Ok(bytes)
    }

    /// `count` bytes of a file from `begin` on, or what there is of them. `first` is the address that was typed, `url` the
    /// one that is asked.
    pub(super) fn part(&self, first: &Url, url: &Url, begin: u64, count: u64) -> Result<Part, HttpError> {
        let last = begin.saturating_add(count.max(1) - 1);
        let (at, mut answer) = self.answer(first, url, Some((begin, last)))?;
        let headers = answer.headers();
        let mark = mark(headers);
        if answer.status().as_u16() == 416 {
            // Nothing stands behind the end: the answer for a file without bytes.
            let total =
                text(headers, "content-range").and_then(|told| told.strip_prefix("bytes */")?.parse().ok());
            return match total {
                Some(0) if begin == 0 => Ok(Part { bytes: Vec::new(), total: 0, mark, at }),
                _ => Err(wrong(begin, last, text(headers, "content-range"))),
            };
        }
        check_form(headers, answer.status().as_u16())?;
        if answer.status().as_u16() != 206 {
            return Err(HttpError::NoRanges);
        }
        let told = text(headers, "content-range");
        let (end, total) = content_range(told, begin, last).ok_or_else(|| wrong(begin, last, told))?;
        let expected = end - begin + 1;
        if number(headers, "content-length").is_some_and(|length| length != expected) {
            return Err(wrong(begin, last, told));
        }
        let bytes = self.body(&mut answer, &at, expected, Some(expected))?;
        match bytes.len() as u64 {
            got if got > expected => Err(HttpError::TooMany { expected }),
            got if got < expected => Err(HttpError::Truncated { got, expected }),
            _ => Ok(Part { bytes, total, mark, at }),
        }
    }

    /// The bytes of an answer, and one more where there are more than `most`.
    fn body(
        &self,
        answer: &mut Response<Body>,
        at: &Url,
        most: u64,
        expected: Option<u64>,
    ) -> Result<Vec<u8>, HttpError> {
        let left = self.options.most_bytes.saturating_sub(self.usage().bytes);
        if expected.unwrap_or(0) > left {
            return Err(HttpError::Limit { limit: self.options.most_bytes });
        }
        let mut bytes = Vec::new();
        let read =
            answer.body_mut().as_reader().take(most.min(left).saturating_add(1)).read_to_end(&mut bytes);
        let got = bytes.len() as u64;
        self.count(0, got);
        if got > left {
            return Err(HttpError::Limit { limit: self.options.most_bytes });
        }
        match (read, expected) {
            (Ok(_), _) => Ok(bytes),
            (Err(error), Some(expected))
                if error.kind() == io::ErrorKind::UnexpectedEof && got < expected =>
            {
                Err(HttpError::Truncated { got, expected })
            }
            (Err(error), _) => Err(self.failed(error.into(), at)),
        }
    }

    /// Follows redirections to an answer that is none. The server is asked a second time where it fails in a way that may
    /// pass.
    fn answer(
        &self,
        first: &Url,
        url: &Url,
        range: Option<(u64, u64)>,
    ) -> Result<(Url, Response<Body>), HttpError> {
        let mut url = url.clone();
        let mut tried = false;
        let mut redirections = 0;
        loop {
            let answer = self.send(first, &url, range);
            let may_pass = match &answer {
                Ok(answer) => matches!(answer.status().as_u16(), 500 | 502 | 503 | 504),
                Err(HttpError::Connection { source, .. }) => {
                    source.kind() != io::ErrorKind::ConnectionRefused
                }
                Err(_) => false,
            };
            if may_pass && !tried {
                tried = true;
                std::thread::sleep(self.options.pause);
                continue;
            }
            let answer = answer?;
            let status = answer.status().as_u16();
            match status {
                200 | 206 | 416 => return Ok((url, answer)),
                301 | 302 | 303 | 307 | 308 => {
                    let location =
                        text(answer.headers(), "location").ok_or(HttpError::NoLocation { status })?;
                    let next = url.redirected(location).map_err(HttpError::Redirection)?;
                    let host = next.host().to_owned();
                    if url.is_https() && !next.is_https() {
                        return Err(HttpError::Downgrade { host });
                    }
                    redirections += 1;
                    if redirections > self.options.redirections {
                        return Err(HttpError::Redirections { limit: self.options.redirections, host });
                    }
                    url = next;
                }
                404 | 410 => return Err(HttpError::NotFound),
                401 | 403 => {
                    return Err(HttpError::Denied { status, hint: self.options.token.hint(status, &url) });
                }
                status => return Err(HttpError::Status { status }),
            }
        }
    }

    fn send(&self, first: &Url, url: &Url, range: Option<(u64, u64)>) -> Result<Response<Body>, HttpError> {
        #[expect(clippy::disallowed_methods, reason = "a limit on how long other machines may take")]
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let host = url.host().to_owned();
            return Err(HttpError::TimedOut { host, what: "all of it", limit: self.options.whole });
        }
        let mut request = self.agent.get(url.request()).header("Accept-Encoding", "identity");
        if let Some((begin, last)) = range {
            request = request.header("Range", format!("bytes={begin}-{last}"));
        }
        if let Some(who) = self.options.token.authorization(first, url) {
            request = request.header("Authorization", who);
        }
        self.count(1, 0);
        let request = request.config().timeout_global(Some(left)).build();
        request.call().map_err(|error| self.failed(error, url))
    }

    fn count(&self, requests: u64, bytes: u64) {
        let mut usage = self.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        usage.requests += requests;
        usage.bytes += bytes;
    }

    /// What the client's error means. Its own texts may hold addresses, so that only those are passed on that cannot.
    fn failed(&self, error: ureq::Error, url: &Url) -> HttpError {
        let host = url.host().to_owned();
        let other = |reason: &str| HttpError::Other { host: host.clone(), reason: reason.to_owned() };
        match error {
            ureq::Error::HostNotFound => HttpError::UnknownHost { host },
            ureq::Error::Timeout(what) => {
                let (what, limit) = match what {
                    Timeout::Resolve => ("looking up its name", self.options.connect),
                    Timeout::Connect => ("the connection", self.options.connect),
                    Timeout::PerRead | Timeout::RecvResponse => ("its silence", self.options.silence),
                    _ => ("all of it", self.options.whole),
                };
                HttpError::TimedOut { host, what, limit }
            }
            ureq::Error::Io(source) if is_lookup(&source) => HttpError::UnknownHost { host },
            ureq::Error::Io(source) if is_tls(&source) => HttpError::Tls { host, reason: source.to_string() },
            ureq::Error::Io(source) => HttpError::Connection { host, source },
            ureq::Error::Rustls(error) => HttpError::Tls { host, reason: error.to_string() },
            ureq::Error::Tls(reason) => HttpError::Tls { host, reason: reason.to_owned() },
            ureq::Error::LargeResponseHeader(_, limit) => HttpError::LongHeader { limit },
            ureq::Error::Protocol(_) | ureq::Error::Http(_) => other("it does not speak HTTP as it should"),
            ureq::Error::ConnectProxyFailed(_) => other("the proxy does not lead there"),
            ureq::Error::InvalidProxyUrl => other("the environment names a proxy by an address that is none"),
            ureq::Error::BadUri(_) => other("the address cannot be asked for"),
            _ => other("the connection failed"),
        }
    }
}

/// Whether a name could not be looked up: the standard library has no kind of its own for that, only a text or, on Windows,
/// a number.
fn is_lookup(error: &io::Error) -> bool {
    error.raw_os_error() == Some(11_001)
        || error.to_string().starts_with("failed to lookup address information")
}

/// Whether TLS ended a connection.
fn is_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Client, HttpError, Options};

    #[test]
    fn a_name_that_nobody_knows_is_told_from_a_connection_that_fails() {
        let (client, url) = (Client::new(Options::default()), "http://h/x".parse().unwrap());
        let said = |text: &'static str| client.failed(ureq::Error::Io(io::Error::other(text)), &url);
        let unknown = said("failed to lookup address information: Name or service not known");
        assert_eq!(
            unknown.to_string(),
            "the host 'h' is not known: is the address right, and the network there?"
        );
        assert!(matches!(said("reset"), HttpError::Connection { .. }));
        assert!(matches!(client.failed(ureq::Error::HostNotFound, &url), HttpError::UnknownHost { .. }));
        let secret =
            client.failed(ureq::Error::BadUri("http://me:hush@h/?sig=secret".to_owned()), &url).to_string();
        assert_eq!(secret, "no good answer from h: the address cannot be asked for");
    }
}
