//! Why a server does not give what a header needs.

use std::io;
use std::time::Duration;

use super::url::UrlError;

/// Why a file cannot be read from a server. No text holds a password, a token or a query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// There is no such file.
    #[error("the server answers 404 (not found): is the address right?")]
    NotFound,
    /// The server wants to know who asks, or does not let the asker have it.
    #[error("the server answers {status}: {hint}")]
    Denied {
        /// 401 or 403.
        status: u16,
        /// What can be done.
        hint: &'static str,
    },
    /// Any other answer that is neither the file nor a way to it.
    #[error("the server answers {status}{}", when_later(*status))]
    Status {
        /// The answer.
        status: u16,
    },
    /// No such host.
    #[error("the host '{host}' is not known: is the address right, and the network there?")]
    UnknownHost {
        /// Its name.
        host: String,
    },
    /// Nobody listens, or the connection broke.
    #[error("the connection to {host} failed (is the server up, and the port right?)")]
    Connection {
        /// Who was to answer.
        host: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// TLS could not be agreed on; most often a certificate that is not trusted.
    #[error("no trusted connection to {host}: {reason} (SSL_CERT_FILE names further certificates)")]
    Tls {
        /// Who was to answer.
        host: String,
        /// What TLS says.
        reason: String,
    },
    /// It took too long.
    #[error("no answer from {host} in time: {what} took more than {} s", limit.as_secs_f64())]
    TimedOut {
        /// Who was to answer.
        host: String,
        /// What took too long.
        what: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// The server sends whole files only.
    #[error(
        "the server sends the whole file when asked for a part of it (no range requests): download it, and name the file"
    )]
    NoRanges,
    /// Another part than the one asked for, or one that cannot be.
    #[error("asked for the bytes {asked}, the server says that it sends '{told}'")]
    WrongRange {
        /// First and last byte.
        asked: String,
        /// What `Content-Range` says.
        told: String,
    },
    /// The answer ends early.
    #[error("the answer ends after {got} of {expected} bytes")]
    Truncated {
        /// What came.
        got: u64,
        /// What was promised.
        expected: u64,
    },
    /// More bytes than were promised.
    #[error("the answer has more than the {expected} bytes that were asked for")]
    TooMany {
        /// What was asked for.
        expected: u64,
    },
    /// The file is another one than a moment ago.
    #[error("the file changed while it was read ({what} was {before}, now {now}): try again")]
    Changed {
        /// What tells.
        what: &'static str,
        /// What it was.
        before: String,
        /// What it is.
        now: String,
    },
    /// A compressed answer, though none was asked for.
    #[error("the answer is encoded as '{encoding}', so its bytes are not those of the file")]
    Encoded {
        /// What `Content-Encoding` says.
        encoding: String,
    },
    /// A page to look at.
    #[error(
        "this is a web page and no file (on huggingface.co, a file's address has /resolve/ in place of /blob/)"
    )]
    Page,
    /// Sent from one place to the next without an end.
    #[error("more than {limit} redirections, the last one to {host}")]
    Redirections {
        /// How many are followed.
        limit: u32,
        /// Where the last one leads.
        host: String,
    },
    /// A redirection that does not say where to, or leads to what cannot be read.
    #[error("a redirection that cannot be followed")]
    Redirection(#[source] UrlError),
    /// A redirection without a target.
    #[error("the server answers {status} (a redirection) and does not say where to")]
    NoLocation {
        /// The answer.
        status: u16,
    },
    /// From a protected connection to an open one.
    #[error("the server redirects from https to http on {host}, where anybody could change the answer")]
    Downgrade {
        /// Where to.
        host: String,
    },
    /// A header that is too long to be meant.
    #[error("the header of the answer has more than {limit} bytes")]
    LongHeader {
        /// The limit.
        limit: usize,
    },
    /// More than a header can need.
    #[error("more than {limit} bytes would have to be read")]
    Limit {
        /// The limit.
        limit: u64,
    },
    /// A name that leads away from the server.
    #[error("the name leads away from the server of the model")]
    Elsewhere,
    /// Something else between here and the server.
    #[error("no good answer from {host}: {reason}")]
    Other {
        /// Who was asked.
        host: String,
        /// What the client says.
        reason: String,
    },
}

const fn when_later(status: u16) -> &'static str {
    match status {
        429 | 500..=599 => ", which may pass: try again later",
        _ => "",
    }
}

impl From<HttpError> for io::Error {
    fn from(error: HttpError) -> Self {
        let kind = match &error {
            HttpError::NotFound => io::ErrorKind::NotFound,
            HttpError::Denied { .. } => io::ErrorKind::PermissionDenied,
            HttpError::TimedOut { .. } => io::ErrorKind::TimedOut,
            HttpError::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            HttpError::Connection { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
