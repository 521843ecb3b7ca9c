//! The registers of another processor, recorded.

use std::str::FromStr;
use std::sync::Arc;

/// What a processor answered to `cpuid`, and which state its operating system keeps: a recording to look at in place of the
/// processor at hand.
///
/// As text, a line for each leaf (`leaf subleaf eax ebx ecx edx`) and one for extended control register 0 (`xcr0 value`), all
/// in hexadecimal without prefix. Empty lines and what follows a `#` are left out.
///
/// ```
/// use plimsoll_profile::RegisterDump;
///
/// let dump: RegisterDump = "0 0 1 756e6547 6c65746e 49656e69 # GenuineIntel\nxcr0 7".parse()?;
/// # let _ = dump;
/// # Ok::<(), plimsoll_profile::BadDump>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterDump {
    /// Leaf, subleaf, and the four registers.
    leaves: Arc<[[u32; 6]]>,
    /// Extended control register 0.
    xcr0: u64,
}

/// A recording that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of a register dump is '{text}', neither six hexadecimal numbers nor xcr0 and one")]
pub struct BadDump {
    /// Which line, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
}

impl FromStr for RegisterDump {
    type Err = BadDump;

    fn from_str(text: &str) -> Result<Self, BadDump> {
        let (mut leaves, mut xcr0) = (Vec::new(), 0);
        for (number, whole) in (1..).zip(text.lines()) {
            let line = whole.split_once('#').map_or(whole, |(line, _)| line).trim();
            let bad = || BadDump { line: number, text: whole.trim().to_owned() };
            if line.is_empty() {
                continue;
            }
            if let Some(value) = line.strip_prefix("xcr0 ") {
                xcr0 = u64::from_str_radix(value.trim(), 16).map_err(|_| bad())?;
                continue;
            }
            let words: Result<Vec<u32>, _> =
                line.split_whitespace().map(|word| u32::from_str_radix(word, 16)).collect();
            leaves.push(words.ok().and_then(|words| words.try_into().ok()).ok_or_else(bad)?);
        }
        Ok(Self { leaves: leaves.into(), xcr0 })
    }
}

#[cfg(all(feature = "cpu", any(target_arch = "x86", target_arch = "x86_64")))]
impl RegisterDump {
    /// What the processor answered; zeros to what it was not asked.
    pub(crate) fn answer(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let found = self.leaves.iter().find(|[l, s, ..]| (*l, *s) == (leaf, subleaf));
        found.map_or([0; 4], |[_, _, eax, ebx, ecx, edx]| [*eax, *ebx, *ecx, *edx])
    }

    /// Extended control register 0.
    pub(crate) const fn xcr0(&self) -> u64 {
        self.xcr0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_cannot_be_read_names_its_line() {
        for (text, line) in [("1 2 3", 1), ("xcr0 7\n\n0 0 0 0 0 z", 3), ("xcr0 -1", 1), ("0 0 0 0 0 0 0", 1)]
        {
            assert_eq!(text.parse::<RegisterDump>().map_err(|bad| bad.line), Err(line), "{text}");
        }
        let dump: RegisterDump = "# a comment\n\n1 0 a b c d # and another\nxcr0 e7\n".parse().unwrap();
        assert_eq!((dump.leaves.len(), dump.xcr0), (1, 0xe7));
        assert_eq!("".parse(), Ok(RegisterDump::default()));
    }
}
