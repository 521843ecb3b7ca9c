//! An amount of memory.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{ParseError, ParseErrorKind, prefix, scale, split_number};

/// An amount of memory, in bytes.
///
/// `Display` is the form in which people read a budget: decimal gigabytes with one digit (`55.0 GB`). For tables with
/// small numbers there is [`Bytes::scaled`], for text that must come back unchanged [`Bytes::exact`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The most that can be said.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` times 2^10 bytes.
    pub const fn kib(n: u32) -> Self {
        Self((n as u64) << 10)
    }

    /// `n` times 2^20 bytes; counted in 64 bits, so that 10000 MiB stay 10000 MiB.
    pub const fn mib(n: u32) -> Self {
        Self((n as u64) << 20)
    }

    /// `n` times 2^30 bytes.
    pub const fn gib(n: u32) -> Self {
        Self((n as u64) << 30)
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether there is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or `None` when it is above 2^64 - 1.
    pub const fn checked_add(self, rhs: Self) -> Option<Self> {
        match self.0.checked_add(rhs.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// What is left of `self` after `rhs`, or `None` when `rhs` is larger.
    pub const fn checked_sub(self, rhs: Self) -> Option<Self> {
        match self.0.checked_sub(rhs.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// `self` taken `n` times, or `None` when that is above 2^64 - 1.
    pub const fn checked_mul(self, n: u64) -> Option<Self> {
        match self.0.checked_mul(n) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The sum, or [`Bytes::MAX`] when it is larger: for needs, where more than everything is still too much.
    pub const fn saturating_add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }

    /// What is left, or zero: for budgets, where less than nothing is nothing.
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }

    /// `self` taken `n` times, or [`Bytes::MAX`].
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// The sum of all, or `None` when it is above 2^64 - 1.
    pub fn checked_sum(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().try_fold(Self::ZERO, Self::checked_add)
    }

    /// The sum of all, or [`Bytes::MAX`].
    pub fn saturating_sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::ZERO, Self::saturating_add)
    }

    /// Rounded up to a multiple of `step` (zero and one change nothing), saturating.
    pub const fn padded_to(self, step: u64) -> Self {
        if step < 2 {
            return self;
        }
        match self.0.checked_next_multiple_of(step) {
            Some(n) => Self(n),
            None => Self::MAX,
        }
    }

    /// As a floating-point number, for ratios and speeds; above 2^53 the last digits are lost.
    #[expect(clippy::cast_precision_loss, reason = "for ratios and times, never for capacity")]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Shows the largest unit that is exact (`24 GiB`, `5 GB`, `1023 B`): the text parses back to the same amount.
    pub const fn exact(self) -> Exact {
        Exact(self)
    }

    /// Shows three or four digits with a decimal prefix that suits the size (`14 B`, `3.2 MB`, `42.5 GB`).
    pub const fn scaled(self) -> Scaled {
        Scaled(self)
    }
}

/// Decimal gigabytes with one digit, rounded half up: `55.0 GB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&with_one_digit(self.0, 1_000_000_000, "GB"))
    }
}

/// `n / unit` with one digit, rounded half up.
fn with_one_digit(n: u64, unit: u64, name: &str) -> String {
    let tenths = (u128::from(n) * 10 + u128::from(unit / 2)) / u128::from(unit);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// See [`Bytes::exact`].
#[derive(Clone, Copy, Debug)]
pub struct Exact(Bytes);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 10] = [
            (1 << 50, "PiB"),
            (1_000_000_000_000_000, "PB"),
            (1 << 40, "TiB"),
            (1_000_000_000_000, "TB"),
            (1 << 30, "GiB"),
            (1_000_000_000, "GB"),
            (1 << 20, "MiB"),
            (1_000_000, "MB"),
            (1 << 10, "KiB"),
            (1_000, "KB"),
        ];
        let n = self.0.get();
        let unit = UNITS.iter().find(|(size, _)| n != 0 && n.is_multiple_of(*size));
        match unit {
            Some((size, name)) => f.pad(&format!("{} {name}", n / size)),
            None => f.pad(&format!("{n} B")),
        }
    }
}

/// See [`Bytes::scaled`].
#[derive(Clone, Copy, Debug)]
pub struct Scaled(Bytes);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.get();
        // A unit begins where the smaller one would round up to 1000.0.
        let text = match n {
            0..1_000 => format!("{n} B"),
            1_000..999_950 => with_one_digit(n, 1_000, "KB"),
            999_950..999_950_000 => with_one_digit(n, 1_000_000, "MB"),
            999_950_000..999_950_000_000 => with_one_digit(n, 1_000_000_000, "GB"),
            _ => with_one_digit(n, 1_000_000_000_000, "TB"),
        };
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    /// `24GB`, `24 GB`, `24G` and `24g` are 24·10^9 bytes, `24GiB` and `24Gi` are 24·2^30; K, M, T, P likewise; digits
    /// alone are bytes. A fraction is rounded down to a whole byte.
    ///
    /// # Errors
    ///
    /// Negative, not a number, an unknown unit, or more than 2^64 - 1.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (number, unit) = split_number(text)?;
            let multiplier = prefix(unit).ok_or(ParseErrorKind::Unit)?;
            scale(number, multiplier, 1)
        };
        parse().map(Self).map_err(|kind| ParseError {
            text: text.to_owned(),
            what: "an amount of memory",
            kind,
        })
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use super::Bytes;

    impl serde::Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(self.0)
        }
    }

    impl<'de> serde::Deserialize<'de> for Bytes {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl serde::de::Visitor<'_> for Visitor {
                type Value = Bytes;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a count of bytes, or text such as \"24GiB\"")
                }

                fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Bytes, E> {
                    Ok(Bytes::new(n))
                }

                fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Bytes, E> {
                    u64::try_from(n)
                        .map(Bytes::new)
                        .map_err(|_| E::custom(format_args!("an amount of memory cannot be negative: {n}")))
                }

                fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
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

    fn parse(text: &str) -> Result<u64, ParseErrorKind> {
        text.parse::<Bytes>().map(Bytes::get).map_err(|e| e.kind)
    }

    #[test]
    fn the_parse_table_holds() {
        for (text, bytes) in [
            ("24GB", 24_000_000_000),
            ("24 GB", 24_000_000_000),
            ("24G", 24_000_000_000),
            ("24g", 24_000_000_000),
            ("24GiB", 24 << 30),
            ("24Gi", 24 << 30),
            ("24gib", 24 << 30),
            (" 7 ", 7),
            ("0", 0),
            ("512B", 512),
            ("1K", 1_000),
            ("1KiB", 1_024),
            ("1M", 1_000_000),
            ("1Mi", 1 << 20),
            ("2T", 2_000_000_000_000),
            ("2TiB", 2 << 40),
            ("3PB", 3_000_000_000_000_000),
            ("3Pi", 3 << 50),
            ("22.8GiB", 24_481_313_587),
            ("1.5B", 1),
            (".5K", 500),
            ("1.999999999999999999K", 1_999),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        use ParseErrorKind::{Empty, Negative, Number, Overflow, Unit};
        for (text, kind) in [
            ("", Empty),
            ("  ", Empty),
            ("-1GB", Negative),
            ("-0", Negative),
            ("NaN", Number),
            ("inf", Number),
            ("GB", Number),
            ("1.2.3GB", Number),
            (".", Number),
            ("+1", Number),
            ("1e9", Unit),
            ("1XB", Unit),
            ("1iB", Unit),
            ("1GBs", Unit),
            ("1Gbit", Unit),
            ("18446744073709551616", Overflow),
            ("99999999P", Overflow),
            ("340282366920938463463374607431768211456", Overflow),
        ] {
            assert_eq!(parse(text), Err(kind), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_text_and_the_reason() {
        let error = "12 parsecs".parse::<Bytes>().unwrap_err();
        assert!(error.to_string().starts_with("'12 parsecs' is not an amount of memory: unknown unit"));
    }

    #[test]
    fn mebibytes_are_counted_in_64_bits() {
        // Counted in 32 bits these advertised 1808, 3616 and 1328 MiB.
        for (mib, wrapped) in [(10_000_u32, 1_808_u64), (20_000, 3_616), (30_000, 1_328)] {
            let bytes = Bytes::mib(mib).get();
            assert_eq!(bytes, u64::from(mib) * 1024 * 1024);
            assert_eq!((bytes % (1 << 32)) >> 20, wrapped);
            assert_eq!(format!("{mib}MiB").parse(), Ok(Bytes::mib(mib)));
        }
    }

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(Bytes::new(1).checked_sub(Bytes::new(2)), None);
        assert_eq!(Bytes::MAX.checked_add(Bytes::new(1)), None);
        assert_eq!(Bytes::gib(1).checked_mul(u64::MAX), None);
        assert_eq!(Bytes::checked_sum([Bytes::MAX, Bytes::new(1)]), None);
        assert_eq!(Bytes::saturating_sum([Bytes::MAX, Bytes::new(1)]), Bytes::MAX);
        assert_eq!(Bytes::MAX.padded_to(32), Bytes::MAX);
        assert_eq!(Bytes::new(33).padded_to(32), Bytes::new(64));
        assert_eq!(Bytes::new(33).padded_to(0), Bytes::new(33));
    }

    #[test]
    fn people_read_one_digit() {
        assert_eq!(Bytes::new(55_000_000_000).to_string(), "55.0 GB");
        assert_eq!(Bytes::new(49_999_999).to_string(), "0.0 GB");
        assert_eq!(Bytes::new(50_000_000).to_string(), "0.1 GB");
        assert_eq!(Bytes::new(14).scaled().to_string(), "14 B");
        assert_eq!(Bytes::new(999_949).scaled().to_string(), "999.9 KB");
        assert_eq!(Bytes::new(999_950).scaled().to_string(), "1.0 MB");
        assert_eq!(Bytes::MAX.scaled().to_string(), "18446744.1 TB");
        assert_eq!(format!("{:>8}|", Bytes::gib(1)), "  1.1 GB|");
    }

    proptest::proptest! {
        #[test]
        fn exact_text_comes_back(n: u64) {
            let bytes = Bytes::new(n);
            proptest::prop_assert_eq!(bytes.exact().to_string().parse(), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<crate::BytesPerSec>();
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn numbers_and_text_are_read_and_numbers_written() {
        assert_eq!(serde_json::from_str::<Bytes>("5").unwrap(), Bytes::new(5));
        assert_eq!(serde_json::from_str::<Bytes>("\"5K\"").unwrap(), Bytes::new(5_000));
        assert_eq!(serde_json::to_string(&Bytes::gib(1)).unwrap(), "1073741824");
        for bad in ["-5", "5.5", "null", "\"x\"", "18446744073709551616"] {
            assert!(serde_json::from_str::<Bytes>(bad).is_err(), "{bad}");
        }
    }
}
