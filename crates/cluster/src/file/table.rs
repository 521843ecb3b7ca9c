//! One table of a cluster file: its keys, checked, and where each stands.

use std::str::FromStr;
use std::time::Duration;

use plimsoll_units::{Bytes, BytesPerSec, IdError, ParseError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Fault, Problem};

/// A value and where it stands.
pub(super) struct At<T> {
    pub(super) at: usize,
    pub(super) value: T,
}

/// One table, with only known keys in it.
pub(super) struct Table<'t, 'i> {
    /// How messages call it: `node 'tower'`.
    pub(super) name: String,
    /// Where it begins.
    pub(super) at: usize,
    entries: &'t DeTable<'i>,
}

type Read<T> = Result<T, Fault>;

impl<'t, 'i> Table<'t, 'i> {
    /// Takes a table in which every key is one of `known`.
    pub(super) fn new(
        name: String,
        at: usize,
        entries: &'t DeTable<'i>,
        known: &'static [&'static str],
    ) -> Read<Self> {
        let foreign = entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        match foreign.min_by_key(|key| key.span().start) {
            None => Ok(Self { name, at, entries }),
            Some(key) => {
                let (at, key) = (key.span().start, key.get_ref().escape_debug().to_string());
                Err(Fault::new(at, Problem::UnknownKey { key, table: name, known }))
            }
        }
    }

    fn find(&self, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.entries.get(key)
    }

    /// Where a key's value stands, or else the table.
    pub(super) fn place(&self, key: &str) -> usize {
        self.find(key).map_or(self.at, |value| value.span().start)
    }

    /// The first of these keys that the table has.
    pub(super) fn first_of(&self, keys: &[&'static str]) -> Option<At<&'static str>> {
        let present = keys.iter().filter_map(|key| self.find(key).map(|v| (v.span().start, *key)));
        present.min().map(|(at, value)| At { at, value })
    }

    pub(super) fn missing(&self, key: &'static str) -> Fault {
        Fault::new(self.at, Problem::Missing { key, table: self.name.clone() })
    }

    fn kind(&self, key: &'static str, value: &Spanned<DeValue<'_>>, expected: &'static str) -> Fault {
        let found = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let table = self.name.clone();
        Fault::new(value.span().start, Problem::Kind { key, table, found, expected })
    }

    pub(super) fn text(&self, key: &'static str) -> Read<Option<At<&'t str>>> {
        let Some(value) = self.find(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(text) => Ok(Some(At { at: value.span().start, value: text.as_ref() })),
            _ => Err(self.kind(key, value, "a text in quotes")),
        }
    }

    pub(super) fn flag(&self, key: &'static str) -> Read<bool> {
        let Some(value) = self.find(key) else { return Ok(false) };
        match value.get_ref() {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.kind(key, value, "true or false")),
        }
    }

    /// A name.
    pub(super) fn id<T: FromStr<Err = IdError>>(&self, key: &'static str) -> Read<Option<At<T>>> {
        let Some(At { at, value }) = self.text(key)? else { return Ok(None) };
        match value.parse() {
            Ok(value) => Ok(Some(At { at, value })),
            Err(why) => Err(Fault::new(at, Problem::Id { key, table: self.name.clone(), why })),
        }
    }

    /// A whole number of bytes, or a text that `T` reads.
    fn quantity<T: FromStr<Err = ParseError>>(
        &self,
        key: &'static str,
        expected: &'static str,
        from_count: impl Fn(u64) -> T,
    ) -> Read<Option<T>> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let at = value.span().start;
        let table = || self.name.clone();
        match value.get_ref() {
            DeValue::String(text) => text
                .parse()
                .map(Some)
                .map_err(|why| Fault::new(at, Problem::Amount { key, table: table(), why })),
            DeValue::Integer(number) => {
                let shown = number.to_string();
                if number.as_str().starts_with('-') {
                    return Err(Fault::new(at, Problem::Negative { key, table: table(), value: shown }));
                }
                u64::from_str_radix(number.as_str(), number.radix())
                    .map(|n| Some(from_count(n)))
                    .map_err(|_| Fault::new(at, Problem::TooLarge { key, table: table(), value: shown }))
            }
            _ => Err(self.kind(key, value, expected)),
        }
    }

    pub(super) fn bytes(&self, key: &'static str) -> Read<Option<Bytes>> {
        self.quantity(key, "a count of bytes or a text such as \"24GiB\"", Bytes::new)
    }

    /// What is free of `total`: all of it when nothing is said, `None` when the file says `"unknown"`.
    pub(super) fn free(&self, key: &'static str, total: Bytes) -> Read<Option<Bytes>> {
        if let Some(DeValue::String(text)) = self.find(key).map(Spanned::get_ref)
            && text == super::UNKNOWN
        {
            return Ok(None);
        }
        let free = self.bytes(key)?.unwrap_or(total);
        if free > total {
            let table = self.name.clone();
            return Err(Fault::new(self.place(key), Problem::FreeAboveTotal { key, table, free, total }));
        }
        Ok(Some(free))
    }

    pub(super) fn rate(&self, key: &'static str) -> Read<Option<BytesPerSec>> {
        let expected = "bytes in a second or a text such as \"1008GB/s\"";
        let rate = self.quantity(key, expected, BytesPerSec::new)?;
        if rate.is_some_and(BytesPerSec::is_zero) {
            return Err(Fault::new(self.place(key), Problem::StandsStill { key, table: self.name.clone() }));
        }
        Ok(rate)
    }

    pub(super) fn time(&self, key: &'static str) -> Read<Option<Duration>> {
        let Some(At { at, value }) = self.text(key)? else { return Ok(None) };
        match parse_time(value) {
            Some(time) => Ok(Some(time)),
            None => {
                let (table, value) = (self.name.clone(), value.escape_debug().to_string());
                Err(Fault::new(at, Problem::Time { key, table, value }))
            }
        }
    }

    pub(super) fn table(
        &self,
        key: &'static str,
        known: &'static [&'static str],
    ) -> Read<Option<Table<'t, 'i>>> {
        let Some(value) = self.find(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(entries) => {
                Table::new(format!("[{key}]"), value.span().start, entries, known).map(Some)
            }
            _ => Err(self.kind(key, value, "a table")),
        }
    }

    /// The tables of a list, each named by `name` from its place and its content.
    pub(super) fn tables(
        &self,
        key: &'static str,
        known: &'static [&'static str],
        name: impl Fn(usize, Option<&str>) -> String,
    ) -> Read<Vec<Table<'t, 'i>>> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.kind(key, value, "a list of tables"));
        };
        let table = |(index, item): (usize, &'t Spanned<DeValue<'i>>)| {
            let DeValue::Table(entries) = item.get_ref() else {
                return Err(self.kind(key, item, "a list of tables"));
            };
            let id = match entries.get("id").map(Spanned::get_ref) {
                Some(DeValue::String(text)) => Some(text.as_ref()),
                _ => None,
            };
            Table::new(name(index, id), item.span().start, entries, known)
        };
        items.iter().enumerate().map(table).collect()
    }

    /// A list of texts.
    pub(super) fn texts(&self, key: &'static str) -> Read<Option<At<Vec<At<&'t str>>>>> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.kind(key, value, "a list of two node ids"));
        };
        let text = |item: &'t Spanned<DeValue<'i>>| match item.get_ref() {
            DeValue::String(text) => Ok(At { at: item.span().start, value: text.as_ref() }),
            _ => Err(self.kind(key, item, "a list of two node ids")),
        };
        let value_at = value.span().start;
        let texts: Vec<_> = items.iter().map(text).collect::<Result<_, _>>()?;
        Ok(Some(At { at: value_at, value: texts }))
    }
}

/// Digits with at most one point and one of ns, us, µs, ms, s; more digits than nanoseconds are cut off.
fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let nanos_of_unit: u64 = match unit.trim_start() {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(nanos_of_unit)?;
    let mut place = nanos_of_unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(place.checked_mul(u64::from(digit - b'0'))?)?;
    }
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, nanos) in [
            ("200us", 200_000),
            ("200 µs", 200_000),
            ("1.5ms", 1_500_000),
            (".5s", 500_000_000),
            ("0ns", 0),
            ("1.0000000009s", 1_000_000_000),
            ("18446744073s", 18_446_744_073_000_000_000),
        ] {
            assert_eq!(parse_time(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "200", "us", ".us", "1.2.3s", "-1s", "1min", "18446744074s", "99999999999999999999s"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
