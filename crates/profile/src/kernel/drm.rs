//! Graphics cards as the kernel's files tell them: AMD's and Intel's.

use std::fs;

use plimsoll_units::Bytes;

use super::Machine;
use crate::{
    Absence, Accelerator, AcceleratorKind, DeviceMetrics, GpuBackend, Health, MemoryLayout, Presence,
};

/// Where the kernel lists cards.
const CARDS: &str = "sys/class/drm";

/// Cards that are looked at, at most.
const MOST_CARDS: usize = 256;

/// More memory than a card has: a pebibyte.
const MOST_BYTES: u64 = 1 << 50;

/// Who made a card, by the bus's number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Amd,
    Intel,
}

impl Maker {
    const fn number(self) -> &'static str {
        match self {
            Self::Amd => "0x1002",
            Self::Intel => "0x8086",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Amd => "AMD",
            Self::Intel => "Intel",
        }
    }
}

/// A card's directory, and where it sits.
struct Card {
    directory: String,
    pci: Option<String>,
}

/// The cards of one maker, in the order of their places.
fn cards(machine: &Machine, maker: Maker) -> Result<Vec<Card>, Absence> {
    let path = machine.root.join(CARDS);
    let entries = fs::read_dir(path).map_err(|_| Absence::NoFile { path: format!("/{CARDS}") })?;
    let mut found = Vec::new();
    for entry in entries.flatten().take(MOST_CARDS * 8) {
        let name = entry.file_name();
        // Connectors (`card0-DP-1`) and render nodes stand beside the cards.
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix("card")) else { continue };
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let directory = format!("{CARDS}/card{number}");
        let vendor = machine.text(format!("{directory}/device/vendor")).unwrap_or_default();
        if vendor.trim().eq_ignore_ascii_case(maker.number()) {
            let events = machine.text(format!("{directory}/device/uevent")).unwrap_or_default();
            let pci = events.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
            found.push(Card { directory, pci: pci.map(|pci| pci.trim().to_ascii_lowercase()) });
        }
    }
    // Numbers of cards change from start to start, places do not.
    found.sort_by(|a, b| (&a.pci, &a.directory).cmp(&(&b.pci, &b.directory)));
    found.truncate(MOST_CARDS);
    if found.is_empty() { Err(Absence::NoDevice) } else { Ok(found) }
}

impl Card {
    /// A card that says nothing yet but where it is and what model it is.
    fn plain(&self, machine: &Machine, maker: Maker, ordinal: u32) -> Accelerator {
        let told = machine.text(format!("{}/device/product_name", self.directory)).unwrap_or_default();
        let name = match told.trim() {
            "" => {
                let model = machine.text(format!("{}/device/device", self.directory)).unwrap_or_default();
                let model = model.trim().trim_start_matches("0x").to_owned();
                (!model.is_empty()).then(|| format!("{} GPU {model}", maker.name()))
            }
            name => Some(name.chars().take(80).collect()),
        };
        let number = format!("{}-{ordinal}", maker.name().to_ascii_lowercase());
        Accelerator {
            ordinal,
            id: self.pci.clone().unwrap_or(number),
            uuid: None,
            pci: self.pci.clone(),
            name,
            backend: match maker {
                Maker::Amd => GpuBackend::Rocm,
                Maker::Intel => GpuBackend::Vulkan,
            },
            kind: AcceleratorKind::Discrete,
            total: None,
            layout: MemoryLayout::default(),
            compute_capability: None,
            multiprocessors: None,
            bandwidth: None,
            health: Health::Healthy,
        }
    }

    /// A count of bytes in one of the card's files, where that can be.
    fn bytes(&self, machine: &Machine, name: &str) -> Result<Bytes, Absence> {
        let path = format!("{}/{name}", self.directory);
        let text = machine.text(&path)?;
        match text.trim().parse::<u64>() {
            Ok(bytes @ 0..=MOST_BYTES) => Ok(Bytes::new(bytes)),
            _ => Err(Absence::garbled(format!("/{path}"), text)),
        }
    }

    /// A count of bytes that is not nothing.
    fn memory(&self, machine: &Machine, name: &str) -> Result<Bytes, Absence> {
        match self.bytes(machine, name)? {
            Bytes::ZERO => Err(Absence::garbled(format!("/{}/{name}", self.directory), 0)),
            bytes => Ok(bytes),
        }
    }

    fn has(&self, machine: &Machine, name: &str) -> bool {
        machine.root.join(&self.directory).join(name).exists()
    }
}

fn numbered(count: usize) -> impl Iterator<Item = u32> {
    (0..).take(count)
}

/// AMD's cards. `host` is the host's memory, of which no card can map more.
pub(super) fn amd(machine: &Machine, host: Option<Bytes>) -> Result<Vec<Accelerator>, Absence> {
    let cards = cards(machine, Maker::Amd)?;
    let of = |(card, ordinal): (&Card, u32)| {
        let mut found = card.plain(machine, Maker::Amd, ordinal);
        match card.memory(machine, "device/mem_info_vram_total") {
            Ok(total) => found.total = Some(total),
            Err(why) => found.health = Health::Unhealthy(why),
        }
        if is_part_of_the_processor(machine, card) {
            found.kind = AcceleratorKind::Integrated;
            let mapped = card.memory(machine, "device/mem_info_gtt_total").ok();
            found.layout.host_share = mapped.map(|mapped| host.map_or(mapped, |host| mapped.min(host)));
        }
        found
    };
    Ok(cards.iter().zip(numbered(cards.len())).map(of).collect())
}

/// No file says whether a card is a part of the processor. The driver counts the traffic of a card's own memory and has no
/// such counter where the memory is the host's; and of such memory the processor sees all.
fn is_part_of_the_processor(machine: &Machine, card: &Card) -> bool {
    let counts = card.has(machine, "device/gpu_busy_percent");
    let counts_memory = card.has(machine, "device/mem_busy_percent");
    let total = card.bytes(machine, "device/mem_info_vram_total");
    let visible = card.bytes(machine, "device/mem_info_vis_vram_total");
    counts && !counts_memory && total.is_ok() && total == visible
}

/// Live figures of one of AMD's cards.
pub(super) fn amd_metrics(machine: &Machine, accelerator: &Accelerator) -> DeviceMetrics {
    let read = || {
        let cards = cards(machine, Maker::Amd)?;
        let card = cards.into_iter().find(|card| card.pci.is_some() && card.pci == accelerator.pci);
        let card = card.ok_or(Absence::NoDevice)?;
        let total = card.memory(machine, "device/mem_info_vram_total")?;
        let used = card.bytes(machine, "device/mem_info_vram_used")?;
        let free = total.checked_sub(used).ok_or_else(|| {
            Absence::garbled(format!("/{}/device/mem_info_vram_used", card.directory), used.get())
        })?;
        Ok((card, free))
    };
    match read() {
        Ok((card, free)) => {
            let path = format!("{}/device/gpu_busy_percent", card.directory);
            let busy = machine.text(&path).and_then(|text| match text.trim().parse() {
                Ok(percent @ 0..=100) => Ok(percent),
                _ => Err(Absence::garbled(format!("/{path}"), text)),
            });
            DeviceMetrics { free: Presence::Found(free), busy: busy.into() }
        }
        Err(why) => DeviceMetrics::unknown(why),
    }
}

/// Intel's cards. One at the processor's own place shares the host's memory; what another has is told by few kernels, and
/// then by one of these files.
pub(super) fn intel(machine: &Machine) -> Result<Vec<Accelerator>, Absence> {
    let cards = cards(machine, Maker::Intel)?;
    let of = |(card, ordinal): (&Card, u32)| {
        let mut found = card.plain(machine, Maker::Intel, ordinal);
        let own = card
            .memory(machine, "lmem_total_bytes")
            .or_else(|_| card.memory(machine, "device/tile0/physical_vram_size_bytes"));
        if card.pci.as_deref() == Some("0000:00:02.0") {
            found.kind = AcceleratorKind::Integrated;
        } else {
            found.total = own.ok();
        }
        found
    };
    Ok(cards.iter().zip(numbered(cards.len())).map(of).collect())
}
