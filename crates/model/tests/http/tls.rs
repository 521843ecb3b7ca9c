//! The same over TLS.
