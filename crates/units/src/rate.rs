//! A rate of bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Bytes;
use crate::quantity::{ParseError, ParseErrorKind, prefix, scale, split_number};

/// How many bytes move in a second: memory bandwidth, link bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesPerSec(u64);

impl BytesPerSec {
    /// Nothing moves: never a divisor, see [`BytesPerSec::seconds_for`].
    pub const ZERO: Self = Self(0);

    /// `n` bytes in a second.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether nothing moves.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As a floating-point number; above 2^53 the last digits are lost.
    pub const fn as_f64(self) -> f64 {
        Bytes::new(self.0).as_f64()
    }

    /// How long `bytes` take, in seconds; `None` at a rate of zero.
    pub fn seconds_for(self, bytes: Bytes) -> Option<f64> {
        (self.0 != 0).then(|| bytes.as_f64() / self.as_f64())
    }

    /// How long `bytes` take; `None` at a rate of zero or beyond what a `Duration` holds.
    pub fn time_for(self, bytes: Bytes) -> Option<Duration> {
        self.seconds_for(bytes).and_then(|s| Duration::try_from_secs_f64(s).ok())
    }
}

/// A decimal prefix and up to four digits, zeros at the end dropped: `1.008 TB/s`, `80 GB/s`.
impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000_000, "TB/s"), (1_000_000_000, "GB/s"), (1_000_000, "MB/s"), (1_000, "KB/s")];
        let unit = UNITS.iter().find(|(size, _)| self.0 >= *size);
        let Some((size, name)) = unit else { return f.pad(&format!("{} B/s", self.0)) };
        let thousandths = (u128::from(self.0) * 1000 + u128::from(size / 2)) / u128::from(*size);
        let digits = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        f.pad(&format!("{} {name}", digits.trim_end_matches('0').trim_end_matches('.')))
    }
}

impl FromStr for BytesPerSec {
    type Err = ParseError;

    /// The forms of [`Bytes`] with `/s` behind (`1008GB/s`, `1.25 GiB/s`), and bits (`10Gbit/s`, eight to a byte).
    /// Digits alone are bytes in a second.
    ///
    /// # Errors
    ///
    /// Negative, not a number, an unknown unit, a unit without `/s`, or more than 2^64 - 1.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (number, unit) = split_number(text)?;
            if unit.is_empty() {
                return scale(number, 1, 1);
            }
            let unit = unit.strip_suffix("/s").ok_or(ParseErrorKind::Unit)?;
            let lower = unit.trim_end().to_ascii_lowercase();
            let (unit, divisor) = match lower.strip_suffix("bit") {
                Some(bits) => (bits, 8),
                None => (lower.as_str(), 1),
            };
            if divisor == 8 && unit.ends_with('b') {
                return Err(ParseErrorKind::Unit);
            }
            let multiplier = prefix(unit).ok_or(ParseErrorKind::Unit)?;
            scale(number, multiplier, divisor)
        };
        parse().map(Self).map_err(|kind| ParseError {
            text: text.to_owned(),
            what: "a rate (such as 1008GB/s or 10Gbit/s)",
            kind,
        })
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use super::BytesPerSec;

    impl serde::Serialize for BytesPerSec {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(self.0)
        }
    }

    impl<'de> serde::Deserialize<'de> for BytesPerSec {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl serde::de::Visitor<'_> for Visitor {
                type Value = BytesPerSec;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("bytes in a second, or text such as \"1008GB/s\"")
                }

                fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<BytesPerSec, E> {
                    Ok(BytesPerSec::new(n))
                }

                fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<BytesPerSec, E> {
                    u64::try_from(n)
                        .map(BytesPerSec::new)
                        .map_err(|_| E::custom(format_args!("a rate cannot be negative: {n}")))
                }

                fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<BytesPerSec, E> {
                    text.parse().map_err(E::custom)
                }
            }
            deserializer.deserialize_any(Visitor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_or_bits_in_a_second() {
        for (text, rate) in [
            ("1008GB/s", 1_008_000_000_000),
            ("1.25 GB/s", 1_250_000_000),
            ("1GiB/s", 1 << 30),
            ("10Gbit/s", 1_250_000_000),
            ("1 Gbit/s", 125_000_000),
            ("7bit/s", 0),
            ("42", 42),
        ] {
            assert_eq!(text.parse(), Ok(BytesPerSec::new(rate)), "{text}");
        }
        for text in ["", "-1GB/s", "1GB", "10Gbps", "1 Gbbit/s", "fast", "99999999PB/s"] {
            assert!(text.parse::<BytesPerSec>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_read_well() {
        assert_eq!(BytesPerSec::new(1_008_000_000_000).to_string(), "1.008 TB/s");
        assert_eq!(BytesPerSec::new(125_000_000).to_string(), "125 MB/s");
        assert_eq!(BytesPerSec::new(80_000_000_000).to_string(), "80 GB/s");
        assert_eq!(BytesPerSec::new(12).to_string(), "12 B/s");
    }

    #[test]
    fn a_rate_of_zero_takes_no_time_that_can_be_told() {
        assert_eq!(BytesPerSec::ZERO.seconds_for(Bytes::gib(1)), None);
        assert_eq!(BytesPerSec::new(2).seconds_for(Bytes::new(3)), Some(1.5));
        assert_eq!(BytesPerSec::new(1).time_for(Bytes::new(2)), Some(Duration::from_secs(2)));
        assert_eq!(BytesPerSec::new(1).time_for(Bytes::MAX), None);
    }
}
