//! How fast devices read their memory and nodes reach each other, where nobody says.
//!
//! Figures are the peak rates that vendors publish, in gigabytes (10^9) in a second. They rank devices; they promise
//! nothing.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_profile::GpuBackend;
use plimsoll_units::BytesPerSec;

/// On what ground a speed was assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AssumedBy {
    /// The device's name is in the table.
    Name,
    /// Only what drives the device is known.
    Kind,
}

/// `by name`, `by kind`.
impl fmt::Display for AssumedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Name => "by name",
            Self::Kind => "by kind",
        })
    }
}

/// The speed of a way between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpeed {
    /// How much passes in a second.
    pub bandwidth: BytesPerSec,
    /// How long the first byte takes.
    pub latency: Duration,
}

/// What a way between two nodes is taken for when nothing is said: 1 Gbit/s, 200 µs.
pub const fn default_link() -> LinkSpeed {
    LinkSpeed { bandwidth: BytesPerSec::new(125_000_000), latency: Duration::from_micros(200) }
}

/// How fast a device is taken to read its memory when nothing is said: by its name, else by what drives it.
///
/// Case, spaces and the words around do not matter (`RTX 4090` is found in `NVIDIA GeForce RTX 4090`); of several names
/// that fit, the longest counts. A mobile part never takes the figure of the desktop card of the same number. A processor
/// takes only the figures of chips that share their memory. `None` for a neural processing unit of no known name.
///
/// ```
/// use plimsoll_cluster::GpuBackend;
/// use plimsoll_cluster::speeds::{AssumedBy, assumed_bandwidth};
///
/// let (rate, by) = assumed_bandwidth(Some("NVIDIA GeForce RTX 4090"), GpuBackend::Cuda).ok_or("unknown")?;
/// assert_eq!((rate.to_string().as_str(), by), ("1.008 TB/s", AssumedBy::Name));
/// # Ok::<(), &str>(())
/// ```
pub fn assumed_bandwidth(name: Option<&str>, backend: GpuBackend) -> Option<(BytesPerSec, AssumedBy)> {
    let shared_only = backend == GpuBackend::Cpu;
    if let Some(gigabytes) = name.and_then(|name| by_name(name, shared_only)) {
        return Some((gigabytes_per_second(gigabytes), AssumedBy::Name));
    }
    let gigabytes = match backend {
        // A card of the middle class.
        GpuBackend::Cuda | GpuBackend::Rocm => 448,
        // Often a small or an integrated one.
        GpuBackend::Vulkan | GpuBackend::Directml => 256,
        // The smallest chip of the second and third family.
        GpuBackend::Metal => 100,
        // Two channels of DDR4-3200: 2 × 8 bytes × 3.2·10^9 in a second, rounded down.
        GpuBackend::Cpu => 51,
        GpuBackend::Npu => return None,
    };
    Some((gigabytes_per_second(gigabytes), AssumedBy::Kind))
}

fn gigabytes_per_second(n: u32) -> BytesPerSec {
    BytesPerSec::new(u64::from(n) * 1_000_000_000)
}

/// An entry of the tables, taken apart once: a cluster may have thousands of devices to look up.
struct Entry {
    words: Vec<String>,
    /// How many letters and gaps: what makes one entry longer than another.
    length: usize,
    laptop: bool,
    shared: bool,
    gigabytes: u32,
}

fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let entry = |shared: bool| {
            move |(name, gigabytes): &(&str, u32)| {
                let words = words(name);
                let length = words.iter().map(|w| w.len() + 1).sum();
                let laptop = words.iter().any(|w| w == "laptop");
                Entry { words, length, laptop, shared, gigabytes: *gigabytes }
            }
        };
        CARDS.iter().map(entry(false)).chain(SHARED.iter().map(entry(true))).collect()
    })
}

/// The figure of the longest entry whose words stand in the name one after the other.
fn by_name(name: &str, shared_only: bool) -> Option<u32> {
    let name = words(name);
    let mobile = name.iter().any(|w| matches!(w.as_str(), "laptop" | "mobile"))
        || name.windows(2).any(|pair| pair == ["max", "q"]);
    let mut best: Option<&Entry> = None;
    for entry in entries() {
        let same_class = (entry.shared || !shared_only) && (entry.laptop || entry.shared || !mobile);
        if same_class
            && best.is_none_or(|longest| entry.length > longest.length)
            && name.windows(entry.words.len()).any(|part| part == entry.words.as_slice())
        {
            best = Some(entry);
        }
    }
    best.map(|entry| entry.gigabytes)
}

/// Runs of letters and runs of digits, in lower case: `RTX4070Ti` and `rtx 4070 ti` are the same.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in text.chars() {
        let class = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
        if c.is_alphanumeric() {
            let c = c.to_ascii_lowercase();
            match words.last_mut() {
                Some(word) if class(last) == class(c) => word.push(c),
                _ => words.push(c.to_string()),
            }
        }
        last = c;
    }
    words
}

/// Cards with memory of their own.
#[rustfmt::skip]
const CARDS: &[(&str, u32)] = &[
    // GeForce, desktop.
    ("5090", 1792), ("5080", 960), ("5070 Ti", 896), ("5070", 672), ("5060 Ti", 448), ("5060", 448), ("5050", 320),
    ("4090", 1008), ("4080 SUPER", 736), ("4080", 717), ("4070 Ti SUPER", 672), ("4070 Ti", 504),
    ("4070 SUPER", 504), ("4070", 504), ("4060 Ti", 288), ("4060", 272),
    ("3090 Ti", 1008), ("3090", 936), ("3080 Ti", 912), ("3080", 760), ("3070 Ti", 608), ("3070", 448),
    ("3060 Ti", 448), ("3060", 360), ("3050", 224),
    ("2080 Ti", 616), ("2080 SUPER", 496), ("2080", 448), ("2070 SUPER", 448), ("2070", 448),
    ("2060 SUPER", 448), ("2060", 336), ("TITAN RTX", 672), ("TITAN V", 653), ("1080 Ti", 484),
    // GeForce, mobile.
    ("5090 Laptop", 896), ("5080 Laptop", 896), ("5070 Ti Laptop", 672), ("5070 Laptop", 384), ("5060 Laptop", 384),
    ("4090 Laptop", 576), ("4080 Laptop", 432), ("4070 Laptop", 256), ("4060 Laptop", 256), ("4050 Laptop", 192),
    // NVIDIA, workstation.
    ("RTX PRO 6000 Blackwell", 1792), ("RTX PRO 6000", 1792), ("RTX PRO 5000", 1344), ("RTX PRO 4500", 896),
    ("RTX PRO 4000", 672),
    ("6000 Ada", 960), ("5000 Ada", 576), ("4500 Ada", 432), ("4000 Ada", 360), ("2000 Ada", 224),
    ("A6000", 768), ("A5500", 768), ("A5000", 768), ("A4500", 640), ("A4000", 448), ("A2000", 288),
    ("Quadro RTX 8000", 672), ("Quadro RTX 6000", 672), ("Quadro RTX 5000", 448), ("Quadro RTX 4000", 416),
    // NVIDIA, datacenter.
    ("B200", 8000), ("H200", 4800), ("H100 80GB HBM3", 3350), ("H100 SXM", 3350), ("H100 NVL", 3900),
    ("H100 PCIe", 2000), ("H100", 3350), ("H800", 3350), ("H20", 4000), ("GH200", 4000),
    ("A100 SXM4 80GB", 2039), ("A100 80GB", 1935), ("A100", 1555), ("A800", 1935), ("A40", 696), ("A30", 933),
    ("A16", 200), ("A10G", 600), ("A10", 600), ("A2", 200), ("L40S", 864), ("L40", 864), ("L4", 300), ("L20", 864),
    ("T4", 320), ("V100", 900), ("P100", 732), ("P40", 346),
    // Radeon.
    ("RX 9070 XT", 640), ("RX 9070", 640), ("RX 9060 XT", 320),
    ("RX 7900 XTX", 960), ("RX 7900 XT", 800), ("RX 7900 GRE", 576), ("RX 7800 XT", 624), ("RX 7700 XT", 432),
    ("RX 7600 XT", 288), ("RX 7600", 288),
    ("RX 6950 XT", 576), ("RX 6900 XT", 512), ("RX 6800 XT", 512), ("RX 6800", 512), ("RX 6750 XT", 432),
    ("RX 6700 XT", 384), ("RX 6650 XT", 280), ("RX 6600 XT", 256), ("RX 6600", 224),
    ("7900 XTX", 960), ("7900 XT", 800), ("W7900", 864), ("W7800", 576), ("W6800", 512), ("Radeon VII", 1024),
    // Instinct.
    ("MI355X", 8000), ("MI325X", 6000), ("MI300X", 5300), ("MI300A", 5300), ("MI250X", 3277), ("MI250", 3277),
    ("MI210", 1638), ("MI100", 1229), ("MI60", 1024), ("MI50", 1024),
    // Arc.
    ("Arc B580", 456), ("Arc B570", 380), ("Arc A770", 560), ("Arc A750", 512), ("Arc A580", 512), ("Arc A380", 186),
];

/// Chips whose processors and graphics share one memory.
#[rustfmt::skip]
const SHARED: &[(&str, u32)] = &[
    ("M1", 68), ("M1 Pro", 200), ("M1 Max", 400), ("M1 Ultra", 800),
    ("M2", 100), ("M2 Pro", 200), ("M2 Max", 400), ("M2 Ultra", 800),
    ("M3", 100), ("M3 Pro", 150), ("M3 Max", 400), ("M3 Ultra", 819),
    ("M4", 120), ("M4 Pro", 273), ("M4 Max", 546),
    ("GB10", 273), ("Jetson AGX Orin", 205), ("Ryzen AI Max", 256), ("Radeon 8060S", 256),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn gigabytes(name: &str, backend: GpuBackend) -> (u64, AssumedBy) {
        let (rate, by) = assumed_bandwidth(Some(name), backend).unwrap();
        (rate.get() / 1_000_000_000, by)
    }

    #[test]
    fn the_longest_name_that_fits_counts() {
        for (name, rate) in [
            ("RTX 4090", 1008),
            ("NVIDIA GeForce RTX 4090", 1008),
            ("nvidia geforce rtx4070ti super", 672),
            ("RTX 4070 Ti SUPER", 672),
            ("RTX 4070 Ti", 504),
            ("4070", 504),
            ("NVIDIA GeForce RTX 3060 Ti", 448),
            ("NVIDIA A100-SXM4-80GB", 2039),
            ("NVIDIA A100-SXM4-40GB", 1555),
            ("NVIDIA A100 80GB PCIe", 1935),
            ("NVIDIA H100 PCIe", 2000),
            ("NVIDIA H100 80GB HBM3", 3350),
            ("NVIDIA H200", 4800),
            ("NVIDIA L40S", 864),
            ("NVIDIA L4", 300),
            ("NVIDIA RTX A6000", 768),
            ("NVIDIA RTX 6000 Ada Generation", 960),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", 576),
        ] {
            assert_eq!(gigabytes(name, GpuBackend::Cuda), (rate, AssumedBy::Name), "{name}");
        }
        assert_eq!(gigabytes("AMD Radeon RX 7900 XTX", GpuBackend::Vulkan), (960, AssumedBy::Name));
        assert_eq!(gigabytes("AMD Radeon RX 7900 XT", GpuBackend::Rocm), (800, AssumedBy::Name));
        assert_eq!(gigabytes("Apple M1", GpuBackend::Metal), (68, AssumedBy::Name));
        assert_eq!(gigabytes("Apple M3 Ultra", GpuBackend::Metal), (819, AssumedBy::Name));
        assert_eq!(gigabytes("Apple M4 Max", GpuBackend::Cpu), (546, AssumedBy::Name));
    }

    #[test]
    fn a_number_inside_another_is_not_a_name() {
        for name in
            ["RTX 40900", "X14090", "NVIDIA GeForce RTX 3080 Laptop GPU", "GTX 1070 with Max-Q", "", "Ω"]
        {
            assert_eq!(gigabytes(name, GpuBackend::Cuda).1, AssumedBy::Kind, "{name}");
        }
        // A processor whose number is that of a card.
        assert_eq!(gigabytes("AMD Ryzen 5 RX 7600", GpuBackend::Cpu), (51, AssumedBy::Kind));
    }

    #[test]
    fn without_a_name_the_kind_counts() {
        for backend in GpuBackend::ALL {
            let assumed = assumed_bandwidth(None, backend);
            assert_eq!(assumed.is_none(), backend == GpuBackend::Npu);
            assert!(assumed.is_none_or(|(rate, by)| !rate.is_zero() && by == AssumedBy::Kind));
        }
        assert_eq!(default_link().bandwidth, "1Gbit/s".parse().unwrap());
    }

    #[test]
    fn every_entry_is_found_by_its_own_name_and_stands_once() {
        let mut seen = std::collections::BTreeSet::new();
        for (name, rate) in CARDS.iter().chain(SHARED) {
            assert!(seen.insert(words(name)), "{name} stands twice");
            assert_eq!(gigabytes(name, GpuBackend::Vulkan), (u64::from(*rate), AssumedBy::Name), "{name}");
        }
    }
}
