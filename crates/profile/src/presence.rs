//! Found, or why not.

/// The answer of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Presence<T> {
    /// It is there.
    Found(T),
    /// It is not, or cannot be known.
    Absent(Absence),
}

impl<T> Presence<T> {
    /// What was found.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Absent(_) => None,
        }
    }

    /// What was found, by reference; the reason otherwise.
    pub fn as_result(&self) -> Result<&T, &Absence> {
        match self {
            Self::Found(value) => Ok(value),
            Self::Absent(why) => Err(why),
        }
    }
}

impl<T> From<Result<T, Absence>> for Presence<T> {
    fn from(result: Result<T, Absence>) -> Self {
        match result {
            Ok(value) => Self::Found(value),
            Err(why) => Self::Absent(why),
        }
    }
}

/// Why something was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Absence {
    /// The probe is behind a feature that is off.
    #[error("built without the feature '{feature}'")]
    NotCompiled {
        /// The feature.
        feature: &'static str,
    },
    /// A fast look leaves this out.
    #[error("not looked for in a fast probe")]
    NotAsked,
    /// This kind of machine has no such thing.
    #[error("not available on this kind of machine")]
    NotHere,
    /// The driver's library is not installed, or is not a library.
    #[error("no driver library '{library}'")]
    NoLibrary {
        /// Its name.
        library: &'static str,
    },
    /// The library lacks a call.
    #[error("the driver library has no '{symbol}'; it is too old or not the driver's")]
    MissingSymbol {
        /// The call.
        symbol: &'static str,
    },
    /// The driver answered a call with a failure.
    #[error("{call} failed with code {code}")]
    Driver {
        /// The call.
        call: &'static str,
        /// What it answered; its meaning is the driver's.
        code: i32,
    },
    /// The driver works and has no device.
    #[error("the driver sees no device")]
    NoDevice,
    /// The driver knows the device and does not show it to this process.
    #[error("CUDA does not show it to this process")]
    Hidden,
    /// The device is divided, and no part of it has been made.
    #[error("it is divided (MIG), and no slice has been made")]
    NoSlice,
    /// It did not answer in time.
    #[error("timed out: no answer within {milliseconds} ms")]
    TimedOut {
        /// How long it was given.
        milliseconds: u64,
    },
    /// It ended the process that asked.
    #[error("the driver ended the process that asked ({how})")]
    Crashed {
        /// How that process ended.
        how: String,
    },
    /// What another process told, in its words.
    #[error("{text}")]
    Told {
        /// The words.
        text: String,
    },
    /// A device is not the one that was seen before.
    #[error("'{expected}' is no longer at its place; '{found}' is")]
    Moved {
        /// What was there.
        expected: String,
        /// What is there now.
        found: String,
    },
    /// A file is not there.
    #[error("no file {path}")]
    NoFile {
        /// Which.
        path: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// Which.
        path: String,
        /// What the system says.
        why: String,
    },
    /// Something that cannot be true.
    #[error("{what} says '{text}', which cannot be")]
    Garbled {
        /// Who says it: a file or a call.
        what: String,
        /// What it says, cut to 80 characters.
        text: String,
    },
}

impl Absence {
    /// Something that cannot be true.
    pub(crate) fn garbled(what: impl Into<String>, text: impl std::fmt::Display) -> Self {
        Self::Garbled { what: what.into(), text: text.to_string().trim().chars().take(80).collect() }
    }
}
