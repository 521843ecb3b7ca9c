//! Numbers with a unit, read exactly: no floating point on the way.

/// Why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}: {kind}")]
pub struct ParseError {
    /// The text as it came.
    pub text: String,
    /// What was expected, with its article.
    pub what: &'static str,
    /// What is wrong with it.
    pub kind: ParseErrorKind,
}

/// What is wrong with a text that should be an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Nothing, or only white space.
    #[error("it is empty")]
    Empty,
    /// It starts with a minus sign.
    #[error("it is negative")]
    Negative,
    /// Not digits with at most one point.
    #[error("expected digits, with at most one point, before the unit")]
    Number,
    /// The unit is not known.
    #[error("unknown unit; use K, M, G, T, P (powers of 1000) or Ki, Mi, Gi, Ti, Pi (powers of 1024)")]
    Unit,
    /// More than a 64-bit count can hold.
    #[error("it is larger than 18446744073709551615 (2^64 - 1)")]
    Overflow,
}

/// The digits in front and the unit behind.
pub(crate) fn split_number(text: &str) -> Result<(&str, &str), ParseErrorKind> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ParseErrorKind::Empty);
    }
    if text.starts_with('-') {
        return Err(ParseErrorKind::Negative);
    }
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let digits = number.chars().filter(char::is_ascii_digit).count();
    let points = number.chars().filter(|&c| c == '.').count();
    if digits == 0 || points > 1 {
        return Err(ParseErrorKind::Number);
    }
    Ok((number, unit.trim_start()))
}

/// `number × multiplier ÷ divisor`, rounded down, without floating point.
pub(crate) fn scale(number: &str, multiplier: u64, divisor: u64) -> Result<u64, ParseErrorKind> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut units: u128 = 0;
    for digit in whole.bytes() {
        units = units.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
        if units > u128::from(u64::MAX) {
            return Err(ParseErrorKind::Overflow);
        }
    }
    // 18 digits resolve less than one unit of the largest prefix (10^15 and 2^50); a floor needs no more.
    let mut numerator: u128 = 0;
    let mut power: u128 = 1;
    for digit in fraction.bytes().take(18) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        power *= 10;
    }
    let multiplier = u128::from(multiplier);
    let divisor = u128::from(divisor);
    let whole_part = units.checked_mul(multiplier).ok_or(ParseErrorKind::Overflow)?;
    let fraction_part = numerator * multiplier / power;
    let total = whole_part.checked_add(fraction_part).ok_or(ParseErrorKind::Overflow)?;
    u64::try_from(total / divisor).map_err(|_| ParseErrorKind::Overflow)
}

/// 1000^k or 1024^k for a prefix such as `G`, `gi`, or nothing; a trailing `b` or `B` is allowed.
pub(crate) fn prefix(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    let bare = lower.strip_suffix('b').unwrap_or(&lower);
    let (letter, binary) = match bare.strip_suffix('i') {
        Some(letter) => (letter, true),
        None => (bare, false),
    };
    let power = match letter {
        "" if !binary => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let base: u64 = if binary { 1024 } else { 1000 };
    Some(base.pow(power))
}
