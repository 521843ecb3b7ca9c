//! Why a command line cannot be priced.

use plimsoll_units::DeviceRef;

/// Why a command line cannot be priced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlagsError {
    /// A flag without its value.
    #[error("the flag {flag} has no value")]
    NoValue {
        /// The flag.
        flag: String,
    },
    /// A value that the engine would not take.
    #[error("the flag {flag} has the value '{value}'; {expected}")]
    Value {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A flag that keeps caches apart from their layers, or splits within layers.
    #[error("the flag {flag} is not understood here: layers, and tensors of layers, can be checked")]
    Unsupported {
        /// The flag.
        flag: String,
    },
    /// A pattern that cannot be read as the engine reads it.
    #[error("the pattern '{pattern}' is not understood: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What of it is not.
        why: String,
    },
    /// More overrides than the engine takes.
    #[error("with {flag} there are more overrides of tensors than the {most} that the engine takes")]
    TooManyOverrides {
        /// The flag.
        flag: String,
        /// How many it takes.
        most: usize,
    },
    /// A buffer that is not there.
    #[error("-ot names the buffer '{name}'; the engine has {known}")]
    UnknownBuffer {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A device that is not there.
    #[error("{flag} names '{name}'; the engine sees {seen}")]
    UnknownDevice {
        /// The flag.
        flag: &'static str,
        /// The name.
        name: String,
        /// The names that exist.
        seen: String,
    },
    /// A server that the cluster does not know.
    #[error("--rpc names {address}, and no node of the cluster listens there")]
    UnknownServer {
        /// The address.
        address: String,
    },
    /// More shares than devices.
    #[error("-ts has {shares} shares and there are {devices} devices")]
    TooManyShares {
        /// How many shares.
        shares: usize,
        /// How many devices.
        devices: usize,
    },
    /// A device that is named twice.
    #[error("--device names {device} twice")]
    RepeatedDevice {
        /// The device.
        device: DeviceRef,
    },
    /// A main GPU that is not there.
    #[error("-mg names device {main_gpu}, counted from 0, and there are {devices}")]
    NoMainGpu {
        /// The number.
        main_gpu: usize,
        /// How many devices there are.
        devices: usize,
    },
    /// Nobody runs the engine.
    #[error("the cluster has no main node to run the engine on")]
    NoMainNode,
}
