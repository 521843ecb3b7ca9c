//! What an error of a request says about the request: a pure function of a code and a text.

use etcd_client::Error;

/// What is known of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never reached etcd: it may be sent again, whatever it was.
    NotSent,
    /// It may have been done, or may be done yet.
    Ambiguous,
    /// etcd understood it and did nothing.
    Refused,
    /// As `Refused`: the lease that it names is over.
    LeaseOver,
    /// As `Refused`: the history that it asks for is no longer kept.
    Compacted,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) fate: Fate,
    pub(crate) reason: String,
    /// Whether another member may do better, or a new connection.
    pub(crate) rotate: bool,
}

impl Failure {
    pub(crate) fn ambiguous(reason: impl Into<String>) -> Self {
        Self { fate: Fate::Ambiguous, reason: reason.into(), rotate: true }
    }

    /// Of an error of the client.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::GRpcStatus(status) => of_status(i32::from(status.code()), status.message()),
            Error::TransportError(error) => of_transport(&chain(error)),
            Error::IoError(error) => of_transport(&error.to_string()),
            Error::LeaseKeepAliveError(reason) if reason.contains("lease not found") => {
                Self { fate: Fate::LeaseOver, reason: reason.clone(), rotate: false }
            }
            Error::WatchError(reason) | Error::LeaseKeepAliveError(reason) => {
                Self { fate: Fate::Ambiguous, reason: reason.clone(), rotate: true }
            }
            Error::InvalidUri(_) | Error::InvalidArgs(_) | Error::InvalidMetadataValue(_) => Self {
                fate: Fate::Refused,
                reason: "its address or its options cannot be used".to_owned(),
                rotate: false,
            },
            other => Self { fate: Fate::Ambiguous, reason: other.to_string(), rotate: true },
        }
    }
}

/// An error with its causes: the outermost says only `transport error`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn of_transport(reason: &str) -> Failure {
    let fate = if never_connected(reason) { Fate::NotSent } else { Fate::Ambiguous };
    Failure { fate, reason: reason.to_owned(), rotate: true }
}

fn never_connected(reason: &str) -> bool {
    ["connect error", "dns error", "Connection refused", "deadline has elapsed while connecting"]
        .iter()
        .any(|part| reason.contains(part))
}

// Codes of gRPC, as numbers: the client does not re-export them.
const UNKNOWN: i32 = 2;
const NOT_FOUND: i32 = 5;
const RESOURCE_EXHAUSTED: i32 = 8;
const ABORTED: i32 = 10;
const OUT_OF_RANGE: i32 = 11;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;
const CANCELLED: i32 = 1;
const DEADLINE_EXCEEDED: i32 = 4;
const INTERNAL: i32 = 13;

fn of_status(code: i32, message: &str) -> Failure {
    let (fate, rotate) = match code {
        UNAVAILABLE if never_connected(message) => (Fate::NotSent, true),
        // Said before anything is proposed.
        UNAVAILABLE if message.contains("no leader") => (Fate::NotSent, true),
        UNAUTHENTICATED if message.contains("invalid auth token") => (Fate::NotSent, true),
        UNAVAILABLE | CANCELLED | DEADLINE_EXCEEDED | UNKNOWN | INTERNAL | ABORTED => (Fate::Ambiguous, true),
        NOT_FOUND if message.contains("lease not found") => (Fate::LeaseOver, false),
        OUT_OF_RANGE if message.contains("compacted") => (Fate::Compacted, false),
        RESOURCE_EXHAUSTED if message.contains("too many requests") => (Fate::NotSent, false),
        _ => (Fate::Refused, false),
    };
    Failure { fate, reason: message.to_owned(), rotate }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(code: i32, message: &str) -> Fate {
        of_status(code, message).fate
    }

    #[test]
    fn only_what_certainly_was_not_sent_counts_as_not_sent() {
        assert_eq!(fate(UNAVAILABLE, "tcp connect error"), Fate::NotSent);
        assert_eq!(fate(UNAVAILABLE, "etcdserver: no leader"), Fate::NotSent);
        assert_eq!(fate(UNAUTHENTICATED, "etcdserver: invalid auth token"), Fate::NotSent);
        for (code, message) in [
            (UNAVAILABLE, "etcdserver: leader changed"),
            (UNAVAILABLE, "etcdserver: request timed out"),
            (CANCELLED, "Timeout expired"),
            (UNKNOWN, "h2 protocol error: error reading a body from connection"),
            (DEADLINE_EXCEEDED, "context deadline exceeded"),
            (INTERNAL, "stream closed"),
        ] {
            assert_eq!(fate(code, message), Fate::Ambiguous, "{message}");
        }
    }

    #[test]
    fn what_etcd_refuses_is_not_tried_elsewhere() {
        for (code, message, expected) in [
            (7, "etcdserver: permission denied", Fate::Refused),
            (3, "etcdserver: authentication failed, invalid user ID or password", Fate::Refused),
            (8, "etcdserver: mvcc: database space exceeded", Fate::Refused),
            (NOT_FOUND, "etcdserver: requested lease not found", Fate::LeaseOver),
            (OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", Fate::Compacted),
        ] {
            assert_eq!(
                of_status(code, message),
                Failure { fate: expected, reason: message.to_owned(), rotate: false }
            );
        }
    }
}
