//! What whoever asks an agent has to know.

use std::fmt;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The shortest token, in characters: what is shorter can be tried out.
const SHORTEST: usize = 16;

/// The longest, in bytes of its file.
const LONGEST: u64 = 4096;

/// A word that only those know who may ask. It is never shown.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others may read the file.
    #[error(
        "the token file {} has mode {mode:04o}: others than its owner may read or write it; chmod 600 ends that",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The path names no file.
    #[error("the token file {} is no regular file", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The text is no token.
    #[error("a token has from {SHORTEST} to {LONGEST} characters, all of them letters, digits or -._~+/=; this has {found} bytes{}", if *.odd { ", some of another kind" } else { "" })]
    Text {
        /// How long it is.
        found: usize,
        /// Whether it has other characters.
        odd: bool,
    },
}

impl Token {
    /// A token of these characters.
    ///
    /// # Errors
    ///
    /// Too short, too long, or with characters that cannot stand in a header.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let odd = text.bytes().any(|b| !(b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b)));
        let found = text.len();
        let long = u64::try_from(found).unwrap_or(u64::MAX) > LONGEST;
        if odd || long || found < SHORTEST {
            return Err(TokenError::Text { found, odd });
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// The token in this file, white space at its ends left out. Nobody but the owner may be allowed to read it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is open to others, or holds no token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let at = || path.to_owned();
        let read = |source| TokenError::Read { path: at(), source };
        let file = std::fs::File::open(path).map_err(read)?;
        // Of the file that was opened, not of whatever has its name by now.
        let found = file.metadata().map_err(read)?;
        if !found.is_file() {
            return Err(TokenError::NoFile { path: at() });
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let mode = found.mode() & 0o7777;
            // What systemd hands to a service is root's, and an entry beside the mode lets one user read it: that shows as
            // a right of root's group.
            let handed = mode == 0o440 && found.uid() == 0 && found.gid() == 0;
            if mode & 0o077 != 0 && !handed {
                return Err(TokenError::Open { path: at(), mode });
            }
        }
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(read)?;
        Self::new(text.trim())
    }

    /// Whether this is the token. The time it takes does not tell how much of it is right.
    pub(crate) fn is(&self, told: &[u8]) -> bool {
        let mut differs = u8::from(told.len() != self.0.len());
        for (place, secret) in self.0.iter().enumerate() {
            differs |= secret ^ black_box(told.get(place).copied().unwrap_or(0));
        }
        black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdeF",
            "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_is_long_enough_and_can_stand_in_a_header() {
        assert!(Token::new("0123456789abcde").unwrap_err().to_string().contains("this has 15 bytes"));
        for bad in ["0123456789 abcdef", "0123456789\nabcdef", "0123456789äabcdef"] {
            assert!(Token::new(bad).unwrap_err().to_string().contains("another kind"), "{bad:?}");
        }
        assert!(Token::new(&"a".repeat(4097)).is_err());
    }

    #[test]
    fn a_token_is_never_shown() {
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef").unwrap()), "Token(..)");
    }
}
