//! What a driver may say and be believed.

use plimsoll_units::Bytes;
#[cfg(any(feature = "cuda", feature = "nvml"))]
use plimsoll_units::BytesPerSec;

/// More devices than a driver lists.
#[cfg(any(feature = "cuda", feature = "nvml"))]
pub(super) const MOST_DEVICES: u32 = 1024;

/// More memory than a device has: a pebibyte.
pub(super) const MOST_BYTES: u64 = 1 << 50;

/// More than a memory reads in a second: 100 terabytes.
#[cfg(any(feature = "cuda", feature = "nvml"))]
const MOST_BYTES_PER_SECOND: u64 = 100_000_000_000_000;

/// More multiprocessors than a device has.
#[cfg(any(feature = "cuda", feature = "nvml"))]
const MOST_MULTIPROCESSORS: u32 = 100_000;

/// All of a device's memory, where that can be true.
pub(crate) fn memory(bytes: u64) -> Option<Bytes> {
    (1..=MOST_BYTES).contains(&bytes).then(|| Bytes::new(bytes))
}

/// Twice the clock (in kHz; both edges count) times the width of the bus (in bits).
#[cfg(any(feature = "cuda", feature = "nvml"))]
pub(super) fn bandwidth(kilohertz: Option<u32>, bits: Option<u32>) -> Option<BytesPerSec> {
    let bytes_per_edge = u64::from(bits?) / 8;
    let rate = (u64::from(kilohertz?) * 2_000).checked_mul(bytes_per_edge)?;
    (1..=MOST_BYTES_PER_SECOND).contains(&rate).then(|| BytesPerSec::new(rate))
}

/// How many multiprocessors there are, where that can be true.
#[cfg(any(feature = "cuda", feature = "nvml"))]
pub(super) fn multiprocessors(count: u32) -> Option<u32> {
    (1..=MOST_MULTIPROCESSORS).contains(&count).then_some(count)
}

/// Major and minor, where they can be true.
#[cfg(any(feature = "cuda", feature = "nvml"))]
pub(super) fn capability(major: i64, minor: i64) -> Option<(u32, u32)> {
    let number = |n: i64, least: i64| u32::try_from(n).ok().filter(|_| (least..=99).contains(&n));
    Some((number(major, 1)?, number(minor, 0)?))
}

/// An address as the kernel writes it (`0000:01:00.0`), where it can be one. Cards answer at function 0.
#[cfg(any(feature = "cuda", feature = "nvml", feature = "vulkan"))]
pub(super) fn pci(domain: u32, bus: u32, slot: u32) -> Option<String> {
    (bus <= 0xff && slot <= 0x1f).then(|| format!("{domain:04x}:{bus:02x}:{slot:02x}.0"))
}

/// `GPU-00112233-4455-6677-8899-aabbccddeeff`, as drivers' tools write unique names; a slice's begins with `MIG`.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(super) fn uuid(prefix: &str, bytes: [u8; 16]) -> String {
    let mut text = String::from(prefix);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Text that says something, in one line.
#[cfg(any(feature = "cuda", feature = "nvml", feature = "vulkan"))]
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidth_is_twice_the_clock_times_the_width() {
        let rate = |khz, bits| bandwidth(Some(khz), Some(bits)).map(BytesPerSec::get);
        assert_eq!(rate(10_501_000, 384), Some(1_008_096_000_000));
        assert_eq!(rate(2_619_000, 5120), Some(3_352_320_000_000));
        assert_eq!(rate(0, 384), None);
        assert_eq!(rate(u32::MAX, u32::MAX), None);
        assert_eq!(bandwidth(None, Some(384)), None);
    }

    #[test]
    fn uuids_are_written_in_five_groups() {
        let bytes: [u8; 16] = std::array::from_fn(|n| u8::try_from(n * 17).unwrap());
        assert_eq!(uuid("GPU", bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(uuid("MIG", bytes), "MIG-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        assert_eq!(memory(0), None);
        assert_eq!(memory(u64::MAX), None);
        assert_eq!(memory(24 << 30), Some(Bytes::gib(24)));
        assert_eq!(capability(8, 9), Some((8, 9)));
        assert_eq!((capability(0, 1), capability(-1, 0), capability(9, 100)), (None, None, None));
        assert_eq!((multiprocessors(0), multiprocessors(u32::MAX)), (None, None));
        assert_eq!(pci(0, 1, 0).as_deref(), Some("0000:01:00.0"));
        assert_eq!(pci(0x1_0000, 0xff, 0x1f).as_deref(), Some("10000:ff:1f.0"));
        assert_eq!((pci(0, 0x100, 0), pci(0, 0, 0x20)), (None, None));
        assert_eq!((text(b" \n"), text(b" a ")), (None, Some("a".to_owned())));
        assert_eq!((text(b"a\nb"), text(&[0xff; 9])), (None, None));
    }
}
