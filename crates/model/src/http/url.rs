//! Addresses, and what of them may be shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest address that is taken.
const LONGEST: usize = 8192;

/// The address of a file on a server: `http://` or `https://`.
///
/// Shown (also with `{:?}`), it has neither the name and password nor the query of what was typed: both may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    https: bool,
    /// `user:password`, as typed.
    user: Option<String>,
    /// Host and, where it is not the usual one, port; in small letters.
    authority: String,
    /// With the leading slash.
    path: String,
    query: Option<String>,
}

/// Why a text is no address of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("an address begins with http:// or https://")]
    Scheme,
    /// No host.
    #[error("the address names no host")]
    Host,
    /// A port that is no number up to 65535.
    #[error("the port of the address is no number up to 65535")]
    Port,
    /// Blanks and characters that cannot be seen.
    #[error("the address has blanks or control characters in it")]
    Blank,
    /// Too long to be meant.
    #[error("the address has more than {LONGEST} characters")]
    Long,
}

impl Url {
    /// Whether a path is meant as an address.
    #[must_use]
    pub fn is_meant(path: &Path) -> bool {
        path.to_str().is_some_and(|text| split_scheme(text).is_some())
    }

    /// The address without name, password and query, as a path: other files beside it have their names exchanged in it.
    #[must_use]
    pub fn shown_path(&self) -> PathBuf {
        PathBuf::from(self.to_string())
    }

    /// Whether something of the address is not shown that its server may need.
    #[must_use]
    pub fn hides_something(&self) -> bool {
        // What the links of model hubs end in says nothing and can be left out.
        let query = self.query.as_deref().is_some_and(|query| query != "download=true" && !query.is_empty());
        query || self.user.is_some()
    }

    /// Of a model in several files, `…-00002-of-00003.gguf`, the address of the first one; else this one.
    #[must_use]
    pub fn first_part(&self) -> Self {
        let number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        let parts = || {
            let (rest, count) = self.path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
            let (stem, part) = rest.rsplit_once('-')?;
            (number(count) && number(part)).then(|| format!("{stem}-00001-of-{count}.gguf"))
        };
        Self { path: parts().unwrap_or_else(|| self.path.clone()), ..self.clone() }
    }

    /// Whether it is read over TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// The host without its port.
    #[must_use]
    pub fn host(&self) -> &str {
        let host_end = self.authority.rfind(']').map_or(0, |at| at + 1);
        let port = self.authority[host_end..].find(':').map(|at| at + host_end);
        &self.authority[..port.unwrap_or(self.authority.len())]
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether both are on the same server, spoken to in the same way.
    pub(super) fn same_origin(&self, other: &Self) -> bool {
        self.https == other.https && self.authority == other.authority
    }

    /// What is asked for, with the query and without name and password.
    pub(super) fn request(&self) -> String {
        let query = self.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{}{query}", self.origin(), escaped(&self.path))
    }

    /// The file whose shown form is `path`, with the query and the credentials of this one; nothing where that is elsewhere.
    pub(super) fn sibling(&self, path: &Path) -> Option<Self> {
        let path = path.to_str()?.strip_prefix(&self.origin())?;
        // Where paths have other separators, one stands before the name that was exchanged.
        path.starts_with('/').then(|| Self { path: path.replace('\\', "/"), ..self.clone() })
    }

    /// Where a server that answered for this address sends the reader. Credentials do not travel.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, UrlError> {
        let location = location.split('#').next().unwrap_or_default();
        if split_scheme(location).is_some() || location.contains("://") {
            return Ok(Self { user: None, ..location.parse()? });
        }
        if location.starts_with("//") {
            let scheme = if self.https { "https:" } else { "http:" };
            return Ok(Self { user: None, ..format!("{scheme}{location}").parse()? });
        }
        check(location)?;
        let (path, query) = split_query(location);
        let path = match path {
            "" => self.path.clone(),
            absolute if absolute.starts_with('/') => absolute.to_owned(),
            relative => {
                let folder = self.path.rfind('/').map_or("/", |at| &self.path[..=at]);
                without_dots(&format!("{folder}{relative}"))
            }
        };
        Ok(Self { user: None, path, query, ..self.clone() })
    }

    fn origin(&self) -> String {
        format!("{}://{}", if self.https { "https" } else { "http" }, self.authority)
    }
}

/// Whether it is `https`, and what stands behind `://`.
fn split_scheme(text: &str) -> Option<(bool, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Some((true, rest)),
        "http" => Some((false, rest)),
        _ => None,
    }
}

fn check(text: &str) -> Result<(), UrlError> {
    if text.len() > LONGEST {
        return Err(UrlError::Long);
    }
    match text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        true => Err(UrlError::Blank),
        false => Ok(()),
    }
}

fn split_query(text: &str) -> (&str, Option<String>) {
    match text.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (text, None),
    }
}

/// `/a/./b/../c` as `/a/c`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => {
                kept.pop();
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

/// What may not stand in a request as it is, in its escaped form. A per cent sign is taken as the beginning of one.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        let as_it_is = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte);
        if as_it_is {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        check(text)?;
        let (https, rest) = split_scheme(text).ok_or(UrlError::Scheme)?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user.to_owned()), authority),
            None => (None, authority),
        };
        let authority = usual_port_left_out(https, &authority.to_ascii_lowercase())?;
        let (path, query) = split_query(rest);
        let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        Ok(Self { https, user, authority, path, query })
    }
}

fn usual_port_left_out(https: bool, authority: &str) -> Result<String, UrlError> {
    let host_end = authority.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match authority[host_end..].split_once(':') {
        Some((rest, port)) => (&authority[..host_end + rest.len()], Some(port)),
        None => (authority, None),
    };
    let is_name = |c: char| c.is_alphanumeric() || "-._".contains(c);
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match literal {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_name),
    };
    if !good {
        return Err(UrlError::Host);
    }
    let port = match port {
        None | Some("") => None,
        Some(port) => Some(port.parse::<u16>().map_err(|_| UrlError::Port)?),
    };
    let usual = if https { 443 } else { 80 };
    Ok(match port.filter(|&port| port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Url, UrlError};

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_shown_has_neither_password_nor_query() {
        let secret = url("https://me:pass@Example.org:443/a/b.gguf?sig=secret#part");
        assert_eq!(secret.to_string(), "https://example.org/a/b.gguf");
        assert_eq!(format!("{secret:?}"), "Url(https://example.org/a/b.gguf)");
        assert_eq!(secret.request(), "https://example.org/a/b.gguf?sig=secret");
        assert!(secret.hides_something() && !url("https://h/a?download=true").hides_something());
        let third = url("https://h/m-00003-of-00007.gguf").first_part();
        assert_eq!(third.to_string(), "https://h/m-00001-of-00007.gguf");
        assert_eq!(url("https://h/m-of-1.gguf").first_part(), url("https://h/m-of-1.gguf"));
        assert_eq!((secret.host(), secret.user()), ("example.org", Some("me:pass")));
        assert_eq!(url("http://[::1]:8080/x").host(), "[::1]");
    }

    #[test]
    fn a_file_beside_another_keeps_query_and_credentials() {
        let first = url("https://me:pass@h:8443/d/m-00001-of-00002.gguf?sig=s");
        let beside = first.shown_path().with_file_name("m 2?.gguf");
        let second = first.sibling(&beside).unwrap();
        assert_eq!(second.request(), "https://h:8443/d/m%202%3F.gguf?sig=s");
        assert_eq!(second.user(), Some("me:pass"));
        assert_eq!(first.sibling(Path::new("https://h:84433/d/x")), None);
    }

    #[test]
    fn a_redirection_is_resolved_against_the_address_that_was_asked() {
        let from = url("https://me:pass@h/a/b/c.gguf?x=1");
        for (location, expected) in [
            ("https://cdn.h/z?sig=%2F#f", "https://cdn.h/z?sig=%2F"),
            ("//cdn.h:444/z", "https://cdn.h:444/z"),
            ("/z?q", "https://h/z?q"),
            ("../d.gguf", "https://h/a/d.gguf"),
            ("?y=2", "https://h/a/b/c.gguf?y=2"),
            ("HTTP://u:p@other/z", "http://other/z"),
        ] {
            let to = from.redirected(location).unwrap();
            assert_eq!((to.request().as_str(), to.user()), (expected, None), "{location}");
        }
        assert_eq!(from.redirected("ftp://h/z"), Err(UrlError::Scheme));
        assert_eq!(from.redirected("/a b"), Err(UrlError::Blank));
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, error) in [
            ("ftp://h/x", UrlError::Scheme),
            ("model.gguf", UrlError::Scheme),
            ("https://", UrlError::Host),
            ("https://u:p@/x", UrlError::Host),
            ("https://a b/x", UrlError::Blank),
            ("https://[::zz]/x", UrlError::Host),
            ("https://h:99999/x", UrlError::Port),
            ("https://h\u{7}/x", UrlError::Blank),
        ] {
            assert_eq!(text.parse::<Url>(), Err(error), "{text}");
        }
        let long = format!("https://h/{}", "x".repeat(9000));
        assert_eq!(long.parse::<Url>(), Err(UrlError::Long));
    }
}
