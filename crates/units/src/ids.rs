//! Names of things, and the count of snapshots.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name that is accepted, in bytes.
const LONGEST: usize = 128;

/// Why a text cannot name a node, a device or a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// Nothing was given.
    #[error("a {what} id is empty")]
    Empty {
        /// What was to be named.
        what: &'static str,
    },
    /// It is too long to be read.
    #[error("a {what} id has {len} bytes; at most {LONGEST} are allowed")]
    TooLong {
        /// What was to be named.
        what: &'static str,
        /// How long it is.
        len: usize,
    },
    /// It holds a character that would break a command line or `node/device`.
    #[error(
        "the {what} id {text:?} holds {character:?}; white space, control and invisible characters and / , = \" ' are not allowed"
    )]
    Character {
        /// What was to be named.
        what: &'static str,
        /// The text as it came.
        text: String,
        /// The first character that is not allowed.
        character: char,
    },
}

fn check(what: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > LONGEST {
        return Err(IdError::TooLong { what, len: text.len() });
    }
    // Marks of direction and width zero would make two names look the same.
    let unseen = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let bad = |c: &char| {
        c.is_whitespace() || c.is_control() || unseen(*c) || matches!(c, '/' | ',' | '=' | '"' | '\'')
    };
    match text.chars().find(bad) {
        Some(character) => Err(IdError::Character { what, text: text.to_owned(), character }),
        None => Ok(()),
    }
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// Clones share one text.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes a name.
            ///
            /// # Errors
            ///
            /// Empty, longer than 128 bytes, or holding white space, control characters, `/`, `,`, `=` or quotes.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                check($what, text)?;
                Ok(Self(text.into()))
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_id!(
    /// The name of one machine.
    NodeId, "node"
);
name_id!(
    /// The name of something on a node that holds layers, as the engine calls it (`CUDA0`, `host`).
    DeviceId, "device"
);
name_id!(
    /// The name of the memory that a device draws from, unique on its node.
    PoolId, "pool"
);

/// A device anywhere in a cluster: `node/device`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRef {
    /// The machine.
    pub node: NodeId,
    /// The device on it.
    pub device: DeviceId,
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.node, self.device))
    }
}

/// Which snapshot something was computed from. It only moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Generation(u64);

impl Generation {
    /// The generation of a cluster file, and the first of a living cluster.
    pub const FIRST: Self = Self(1);

    /// The `n`-th generation.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after; stays at the last one when 2^64 are used up.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_stand_in_a_command_line() {
        assert_eq!(NodeId::new("tower").unwrap().to_string(), "tower");
        for bad in ["", "a b", "a/b", "a,b", "a=b", "a\n", "a\"b", "a\u{202e}b", "\u{200b}"] {
            assert!(DeviceId::new(bad).is_err(), "{bad:?}");
        }
        assert!(PoolId::new("x".repeat(128)).is_ok());
        let error = PoolId::new("x".repeat(129)).unwrap_err();
        assert_eq!(error.to_string(), "a pool id has 129 bytes; at most 128 are allowed");
    }

    #[test]
    fn a_device_is_named_with_its_node() {
        let device =
            DeviceRef { node: NodeId::new("tower").unwrap(), device: DeviceId::new("CUDA0").unwrap() };
        assert_eq!(device.to_string(), "tower/CUDA0");
    }

    #[test]
    fn generations_move_forward() {
        assert!(Generation::FIRST.next() > Generation::FIRST);
        assert_eq!(Generation::new(u64::MAX).next(), Generation::new(u64::MAX));
    }
}
