//! Where a cluster is kept: `etcd://h1:2379,h2:2379/home`.

use std::fmt;
use std::str::FromStr;

/// Where etcd listens unless an address says otherwise.
const PORT: u16 = 2379;

/// The most members that are named.
const MOST: usize = 16;

/// Where a cluster is kept.
///
/// `etcd://h1:2379,h2:2379/home`: addresses of members, at least one, and the name of the cluster, under which all its
/// keys stand. `etcds://` is the same, encrypted. A user and a password may stand before the addresses; they are shown
/// nowhere.
///
/// ```
/// use plimsoll_etcd::ClusterUrl;
///
/// let url: ClusterUrl = "etcd://anna:secret@10.0.0.7,10.0.0.8:2380/home".parse()?;
/// assert_eq!(url.endpoints(), ["10.0.0.7:2379", "10.0.0.8:2380"]);
/// assert_eq!(url.to_string(), "etcd://10.0.0.7:2379,10.0.0.8:2380/home");
/// # Ok::<(), plimsoll_etcd::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    endpoints: Vec<String>,
    name: String,
    tls: bool,
    user: Option<Credentials>,
}

/// Who asks. Shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Credentials {
    /// A user and a password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Why a text names no cluster. What it may hold of a password is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Another beginning.
    #[error("a cluster's address begins with etcd:// or etcds://, as etcd://10.0.0.7:2379/home")]
    Scheme,
    /// No address.
    #[error("a cluster's address names no member of etcd")]
    NoMember,
    /// Too many addresses.
    #[error("a cluster's address names {found} members of etcd; at most {MOST} are allowed")]
    TooManyMembers {
        /// How many.
        found: usize,
    },
    /// An address that cannot be one.
    #[error("'{member}' is not the address of a member: {reason}")]
    Member {
        /// The text.
        member: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No name, or one that cannot be one.
    #[error("a cluster's address ends with its name, as /home: letters, digits and - _ . and no more")]
    Name,
    /// A user without a name, or what stands before `@` cannot be read.
    #[error(
        "what stands before '@' is not USER:PASSWORD, with % as %25, '@' as %40, ':' as %3A and '/' as %2F"
    )]
    Credentials,
}

impl ClusterUrl {
    /// Addresses of members, with ports.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether connections are encrypted.
    pub fn tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.user.as_ref()
    }

    /// The addresses as errors name them.
    pub(crate) fn place(&self) -> String {
        self.endpoints.join(",")
    }
}

/// Without user and password.
impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.endpoints.join(","), self.name)
    }
}

impl fmt::Debug for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterUrl({self})")
    }
}

impl FromStr for ClusterUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (tls, rest) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(UrlError::Scheme),
        };
        // A password may hold anything but '/': the last '@' before the name ends it.
        let (front, name) = rest.split_once('/').ok_or(UrlError::Name)?;
        let (user, members) = match front.rsplit_once('@') {
            Some((user, members)) => (Some(credentials(user)?), members),
            None => (None, front),
        };
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name.starts_with('.') {
            return Err(UrlError::Name);
        }
        let members: Vec<&str> = members.split(',').filter(|member| !member.is_empty()).collect();
        match members.len() {
            0 => return Err(UrlError::NoMember),
            found if found > MOST => return Err(UrlError::TooManyMembers { found }),
            _ => {}
        }
        let endpoints = members.into_iter().map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, name: name.to_owned(), tls, user })
    }
}

fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn endpoint(member: &str) -> Result<String, UrlError> {
    let wrong = |reason| UrlError::Member { member: member.to_owned(), reason };
    let (host, port) = match member.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(|| wrong("its bracket is never closed"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("what stands in its brackets is no IPv6 address"));
            }
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':').ok_or_else(|| wrong("something follows its bracket"))?),
            };
            (format!("[{host}]"), port)
        }
        None => {
            let (host, port) =
                member.split_once(':').map_or((member, None), |(host, port)| (host, Some(port)));
            if host.is_empty() || !host.chars().all(plain) {
                return Err(wrong("its host has letters, digits and - _ . and no more"));
            }
            (host.to_owned(), port)
        }
    };
    let port = match port {
        None => PORT,
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err(wrong("its port is no number from 1 to 65535")),
        },
    };
    Ok(format!("{host}:{port}"))
}

fn credentials(text: &str) -> Result<Credentials, UrlError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() {
        return Err(UrlError::Credentials);
    }
    Ok(Credentials { user: decoded(user)?, password: decoded(password)? })
}

/// The text behind `%40` and the like.
fn decoded(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(UrlError::Credentials);
        };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| UrlError::Credentials)?);
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ClusterUrl {
        text.parse().unwrap()
    }

    fn wrong(text: &str) -> String {
        text.parse::<ClusterUrl>().unwrap_err().to_string()
    }

    #[test]
    fn members_get_the_usual_port_and_the_name_is_what_follows() {
        let home = url("etcd://tower,10.0.0.8:2380,[fe80::1]:99,[::1]/home");
        assert_eq!(home.endpoints(), ["tower:2379", "10.0.0.8:2380", "[fe80::1]:99", "[::1]:2379"]);
        assert_eq!((home.name(), home.tls()), ("home", false));
        assert!(url("etcds://tower/home").tls());
    }

    #[test]
    fn a_password_is_understood_and_shown_nowhere() {
        let home = url("etcds://anna:p%40s%2Fs:x@tower/home");
        let credentials = home.credentials().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("anna", "p@s/s:x"));
        for shown in [home.to_string(), format!("{home:?}"), format!("{credentials:?}")] {
            assert!(!shown.contains("anna") && !shown.contains("p@s"), "{shown}");
        }
        for text in
            ["etcd://anna:hunter%2@tower/home", "etcd://anna:hunter2@tower:x/home", "etcd://:hunter2@t/home"]
        {
            assert!(!wrong(text).contains("hunter"), "{}", wrong(text));
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        assert!(wrong("http://tower/home").contains("etcd://"));
        assert!(wrong("etcd://tower").contains("ends with its name"));
        assert!(wrong("etcd://tower/").contains("ends with its name"));
        assert!(wrong("etcd://tower/a/b").contains("ends with its name"));
        assert!(wrong("etcd:///home").contains("names no member"));
        assert!(wrong("etcd://tower:0/home").contains("'tower:0'"));
        assert!(wrong("etcd://to wer/home").contains("'to wer'"));
        assert!(wrong("etcd://[::1/home").contains("never closed"));
        assert!(wrong("etcd://[nope]/home").contains("IPv6"));
    }
}
