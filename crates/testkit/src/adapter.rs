//! Writes adapters: pairs of small matrices beside the tensors of a model.

use crate::gguf::Writer;

/// Values of 32 bits, 16 bits, and blocks of 32 in 34 bytes: their numbers, with values and bytes of a block.
const TYPES: [(u32, u64, u64); 3] = [(0, 1, 4), (1, 1, 2), (8, 32, 34)];

/// An adapter that says it is one for an architecture, and changes nothing so far.
pub fn adapter(architecture: &str) -> Writer {
    Writer::new()
        .fact("general.type", "adapter")
        .fact("adapter.type", "lora")
        .fact("general.architecture", architecture)
        .fact("adapter.lora.alpha", crate::gguf::Value::F32(16.0))
}

impl Writer {
    /// Adds the pair that changes a tensor of these sides, in a type by its number (0, 1 or 8). The first half of a pair for
    /// the token embedding lies the other way round; a stack of matrices gets a pair for each.
    ///
    /// # Panics
    ///
    /// Another type.
    #[must_use]
    pub fn pair(self, base: &str, dims: &[u64], rank: u64, type_id: u32) -> Self {
        let (wide, high) = (dims[0], dims.get(1).copied().unwrap_or(1));
        let deep = dims.get(2..).unwrap_or_default();
        let embeds = base.ends_with("token_embd.weight");
        let (a, b) = if embeds { ([rank, high], [rank, wide]) } else { ([wide, rank], [rank, high]) };
        let half = |writer: Self, name: &str, sides: [u64; 2]| {
            let sides: Vec<u64> = sides.iter().chain(deep).copied().collect();
            let bytes = bytes(&sides, type_id);
            writer.tensor(&format!("{base}.{name}"), &sides, type_id, bytes)
        };
        let writer = half(self, "lora_a", a);
        half(writer, "lora_b", b)
    }
}

fn bytes(sides: &[u64], type_id: u32) -> u64 {
    let kind = TYPES.iter().find(|(id, ..)| *id == type_id);
    let (_, values, bytes) = kind.unwrap_or_else(|| panic!("type {type_id} is not written here"));
    let rows: u64 = sides[1..].iter().product();
    sides[0].div_ceil(*values) * bytes * rows
}
