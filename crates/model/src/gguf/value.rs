//! The facts of a header. Long lists are walked, not kept.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::error::{Fault, Problem};
use super::source::Source;
use crate::header::{Value, shown};

/// The most items of a list of numbers that is kept: enough for one item per layer.
const KEPT_NUMBERS: u64 = 4096;

/// The most items of a list of texts that is kept.
const KEPT_TEXTS: u64 = 64;

/// The longest text that is kept, in bytes. Chat templates are shorter.
const KEPT_TEXT: u64 = 64 << 10;

/// The longest key, in bytes, as the format has it.
const LONGEST_KEY: u64 = 65_535;

/// The most that all kept facts of a file may take, in bytes.
const KEPT: u64 = 8 << 20;

/// What a fact takes beside its text and items, counted generously.
const PER_FACT: u64 = 128;

/// What an item of a list takes.
const PER_ITEM: u64 = size_of::<Value>() as u64;

/// How deep lists may lie in lists.
const DEEPEST: u32 = 4;

/// The number of a text among the types of values.
const TEXT: u32 = 8;

/// The number of a list among the types of values.
const LIST: u32 = 9;

/// Reads `count` facts; also returns the alignment where one of them says it.
pub(super) fn facts<R: Read + Seek>(
    source: &mut Source<R>,
    count: u64,
) -> Result<(BTreeMap<String, Value>, Option<u64>), Fault> {
    let mut reader = Reader { source, kept: 0 };
    let mut facts = BTreeMap::new();
    let mut begins: BTreeMap<String, u64> = BTreeMap::new();
    let mut alignment = None;
    for index in 0..count {
        let begin = reader.source.pos();
        let key = reader.key().map_err(|fault| fault.of(format_args!("fact {index}")))?;
        let owner = format!("fact {index} '{}'", shown(&key));
        if let Some(first) = begins.get(&key) {
            let problem = Problem::Twice { first: format!("at byte {first}") };
            return Err(Fault::new(begin, owner, problem));
        }
        let kind = reader.source.u32("value type").map_err(|fault| fault.of(&owner))?;
        let at = reader.source.pos();
        let value = reader.value(kind, at).map_err(|fault| fault.of(&owner))?;
        if key == "general.alignment" {
            let found = power_of_two(&value);
            let problem = || Problem::Alignment { found: value.spoken() };
            alignment = Some(found.ok_or_else(|| Fault::new(at, owner, problem()))?);
        }
        begins.insert(key.clone(), begin);
        facts.insert(key, value);
    }
    Ok((facts, alignment))
}

fn power_of_two(value: &Value) -> Option<u64> {
    value.as_u64().filter(|n| n.is_power_of_two() && (8..=1 << 31).contains(n))
}

/// The bytes of a number of this type.
const fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

#[derive(Debug)]
struct Reader<'a, R> {
    source: &'a mut Source<R>,
    /// What the facts take that were kept so far.
    kept: u64,
}

impl<R: Read + Seek> Reader<'_, R> {
    fn keep(&mut self, bytes: u64, field: &'static str) -> Result<(), Fault> {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept > KEPT {
            return Err(Fault::new(self.source.pos(), field, Problem::Facts { limit: KEPT }));
        }
        Ok(())
    }

    fn key(&mut self) -> Result<String, Fault> {
        let at = self.source.pos();
        let len = self.source.u64("length of the key")?;
        match len {
            0 => return Err(Fault::new(at, "length of the key", Problem::Empty)),
            1..=LONGEST_KEY => {}
            _ => {
                let problem = Problem::TooMany { found: len, limit: LONGEST_KEY };
                return Err(Fault::new(at, "length of the key", problem));
            }
        }
        // Kept twice: among the facts, and with the place where it stands.
        self.keep(2 * (len + PER_FACT), "key")?;
        let at = self.source.pos();
        let bytes = self.source.bytes(len, "key")?;
        String::from_utf8(bytes).map_err(|_| Fault::new(at, "key", Problem::NotUtf8))
    }

    fn value(&mut self, kind: u32, at: u64) -> Result<Value, Fault> {
        match kind {
            TEXT => self.text(),
            LIST => self.list(),
            _ => self.number(kind)?.ok_or_else(|| unknown(kind, at)),
        }
    }

    fn number(&mut self, kind: u32) -> Result<Option<Value>, Fault> {
        let source = &mut *self.source;
        let value = match kind {
            0 => Value::Unsigned(u8::from_le_bytes(source.le("value")?).into()),
            1 => Value::Signed(i8::from_le_bytes(source.le("value")?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(source.le("value")?).into()),
            3 => Value::Signed(i16::from_le_bytes(source.le("value")?).into()),
            4 => Value::Unsigned(u32::from_le_bytes(source.le("value")?).into()),
            5 => Value::Signed(i32::from_le_bytes(source.le("value")?).into()),
            6 => Value::Float(f32::from_le_bytes(source.le("value")?).into()),
            7 => Value::Bool(source.le::<1>("value")? != [0]),
            10 => Value::Unsigned(u64::from_le_bytes(source.le("value")?)),
            11 => Value::Signed(i64::from_le_bytes(source.le("value")?)),
            12 => Value::Float(f64::from_le_bytes(source.le("value")?)),
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    fn text(&mut self) -> Result<Value, Fault> {
        let len = self.source.u64("length of the text")?;
        if len > KEPT_TEXT {
            self.source.skip(len, "text")?;
            return Ok(Value::Skipped { len });
        }
        // Each invalid byte becomes three.
        self.keep(len.saturating_mul(3), "text")?;
        let bytes = self.source.bytes(len, "text")?;
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Ok(Value::Text(text))
    }

    fn list(&mut self) -> Result<Value, Fault> {
        let (kind, len) = self.list_head()?;
        let keep = match kind {
            TEXT => len <= KEPT_TEXTS,
            LIST => false,
            _ => len <= KEPT_NUMBERS,
        };
        if !keep {
            self.skip_items(kind, len, 1)?;
            return Ok(Value::Skipped { len });
        }
        self.keep(len.saturating_mul(PER_ITEM), "list")?;
        let mut items = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        for _ in 0..len {
            let at = self.source.pos();
            items.push(self.value(kind, at)?);
        }
        Ok(Value::List(items))
    }

    /// The type and the number of items, which were compared with the bytes that are left.
    fn list_head(&mut self) -> Result<(u32, u64), Fault> {
        let at = self.source.pos();
        let kind = self.source.u32("item type")?;
        let least = match kind {
            TEXT => 8,
            LIST => 12,
            _ => width(kind).ok_or_else(|| unknown(kind, at))?,
        };
        let len = self.source.u64("number of items")?;
        self.source.need(len.saturating_mul(least), "items")?;
        Ok((kind, len))
    }

    fn skip_items(&mut self, kind: u32, len: u64, depth: u32) -> Result<(), Fault> {
        match (kind, width(kind)) {
            (_, Some(width)) => return self.source.skip(len.saturating_mul(width), "items"),
            (TEXT, _) => return self.source.skip_texts(len),
            _ => {
                if depth >= DEEPEST {
                    return Err(Fault::new(self.source.pos(), "list", Problem::Nesting { limit: DEEPEST }));
                }
                for _ in 0..len {
                    let (kind, len) = self.list_head()?;
                    self.skip_items(kind, len, depth + 1)?;
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn unknown(kind: u32, at: u64) -> Fault {
    Fault::new(at, "value type", Problem::ValueType { found: kind })
}
