//! The hyperparameters of a GGUF header.

use std::collections::{BTreeMap, BTreeSet};

use crate::arch::rules::{Mixer, Rule, WindowRule};
use crate::arch::{Cache, Compressed, LayerShape, MOST_LAYERS, Row, Shape, Window, windowed_by_period};
use crate::header::Value;
use crate::spec::SpecError;

/// The facts of one architecture.
pub(crate) struct Facts<'a> {
    /// All facts of the header.
    pub(crate) metadata: &'a BTreeMap<String, Value>,
    /// What stands before each key.
    pub(crate) architecture: &'a str,
}

impl Facts<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(&self.key(key))
    }

    fn bad(&self, key: &str, value: &Value, expected: &'static str) -> SpecError {
        SpecError::BadKey { key: self.key(key), found: value.spoken(), expected }
    }

    /// A count, where the header tells it.
    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(n) => Ok(Some(n)),
            None => Err(self.bad(key, value, "a count")),
        }
    }

    /// What an architecture does not tell of its recurrent state.
    fn state_not_told(&self) -> SpecError {
        let needed: &[&str] = match self.architecture {
            name if name.contains("rwkv") => &["wkv.head_size"],
            name if name.starts_with("lfm2") => &["shortconv.l_cache"],
            name if name.starts_with("kimi") => &["kda.head_dim"],
            _ => &["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size"],
        };
        let told = |key: &str| self.get(key).and_then(Value::as_u64).is_some_and(|n| n > 0);
        let missing = needed.iter().filter(|key| !told(key)).map(|key| self.key(key)).collect();
        SpecError::MissingKeys { architecture: self.architecture.to_owned(), missing }
    }

    fn number_or(&self, key: &str, otherwise: u64) -> Result<u64, SpecError> {
        Ok(self.number(key)?.unwrap_or(otherwise))
    }

    /// A count for each block: one for all, or a list.
    fn per_block(&self, key: &str, blocks: Blocks) -> Result<Option<Vec<u64>>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        if let Some(n) = value.as_u64() {
            return Ok(Some(vec![n; blocks.all]));
        }
        let items = self.list(key, value, blocks)?;
        let count = |item: &Value| item.as_u64().ok_or_else(|| self.bad(key, item, "a count"));
        let mut counts: Vec<u64> = items.iter().map(count).collect::<Result<_, _>>()?;
        // Blocks for next-token prediction are made like the last layer.
        let last = counts.last().copied().unwrap_or(0);
        counts.resize(blocks.all, last);
        Ok(Some(counts))
    }

    /// A yes or no for each block, from a list.
    fn flags(&self, key: &str, blocks: Blocks) -> Result<Option<Vec<bool>>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let items = self.list(key, value, blocks)?;
        let flag = |item: &Value| match (item.as_bool(), item.as_u64()) {
            (Some(flag), _) => Ok(flag),
            (None, Some(n)) => Ok(n != 0),
            _ => Err(self.bad(key, item, "a list of yes and no")),
        };
        let mut flags: Vec<bool> = items.iter().map(flag).collect::<Result<_, _>>()?;
        flags.resize(blocks.all, false);
        Ok(Some(flags))
    }

    /// A list with an item for each block, or for each that is a layer.
    fn list<'v>(&self, key: &str, value: &'v Value, blocks: Blocks) -> Result<&'v [Value], SpecError> {
        let items = value.as_list().ok_or_else(|| self.bad(key, value, "a count, or a list of them"))?;
        if items.len() == blocks.all || items.len() == blocks.layers {
            return Ok(items);
        }
        Err(SpecError::WrongLength { key: self.key(key), found: items.len(), expected: blocks.all })
    }
}

/// All blocks, and those of them that are layers.
#[derive(Clone, Copy)]
struct Blocks {
    all: usize,
    layers: usize,
}

/// What the tensors of a header tell beside its keys.
pub(crate) struct Evidence {
    /// The blocks with tensors of a recurrent mixer.
    pub(crate) recurrent: BTreeSet<u64>,
    /// The second side of the token embedding.
    pub(crate) vocabulary: Option<u64>,
}

/// Reads the hyperparameters.
pub(crate) fn shape(facts: &Facts<'_>, rule: Rule, evidence: &Evidence) -> Result<Shape, SpecError> {
    let all = facts.number_or("block_count", 0)?;
    if all > MOST_LAYERS {
        return Err(SpecError::TooManyLayers { found: all, most: MOST_LAYERS });
    }
    let nextn = facts.number_or("nextn_predict_layers", 0)?;
    if nextn > all {
        return Err(SpecError::TooManyNextn { nextn, blocks: all });
    }
    // Both are at most 65,536.
    let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let blocks = Blocks { all: whole(all), layers: whole(all - nextn) };
    let embedding = facts.number_or("embedding_length", 0)?;
    let experts = facts.number_or("expert_count", 0)?;
    let mut shape = Shape {
        trained_context: facts.number("context_length")?.filter(|&n| n > 0),
        embedding,
        vocabulary: facts.number("vocab_size")?.or(evidence.vocabulary).unwrap_or(0),
        experts,
        experts_used: facts.number_or("expert_used_count", 0)?,
        expert_feed_forward: facts.number_or("expert_feed_forward_length", 0)?,
        layers: Vec::new(),
        nextn: whole(nextn),
    };
    shape.layers = layers(facts, rule, evidence, blocks, embedding)?;
    if shape.expert_feed_forward == 0 && experts > 0 {
        shape.expert_feed_forward = shape.layers.iter().map(|l| l.feed_forward).max().unwrap_or(0);
    }
    Ok(shape)
}

/// Widths of heads, for layers with and without a window.
struct Heads {
    keys: [u64; 2],
    values: [u64; 2],
    latent: bool,
    indexer: u64,
}

impl Heads {
    fn read(facts: &Facts<'_>, heads: &[u64], embedding: u64) -> Result<Self, SpecError> {
        let most = heads.iter().copied().find(|&h| h > 0);
        let natural = most.map_or(0, |heads| embedding / heads);
        let keys = facts.number_or("attention.key_length", natural)?;
        let values = facts.number_or("attention.value_length", natural)?;
        Ok(Self {
            keys: [keys, facts.number_or("attention.key_length_swa", keys)?],
            values: [values, facts.number_or("attention.value_length_swa", values)?],
            latent: facts.number_or("attention.key_length_mla", 0)? > 0,
            indexer: facts.number_or("attention.indexer.key_length", 0)?,
        })
    }
}

fn layers(
    facts: &Facts<'_>,
    rule: Rule,
    evidence: &Evidence,
    blocks: Blocks,
    embedding: u64,
) -> Result<Vec<LayerShape>, SpecError> {
    let none = || vec![0; blocks.all];
    let heads = facts.per_block("attention.head_count", blocks)?.unwrap_or_else(none);
    let kv_heads = match facts.per_block("attention.head_count_kv", blocks)? {
        Some(kv_heads) => kv_heads,
        None => heads.clone(),
    };
    let feed_forward = facts.per_block("feed_forward_length", blocks)?.unwrap_or_else(none);
    let widths = Heads::read(facts, &heads, embedding)?;
    let few = rule.windowed_layers.is_some_and(|n| usize::try_from(n) != Ok(blocks.all));
    let windows = if few { vec![None; blocks.all] } else { windows(facts, rule.window, blocks)? };
    let mixes = mixes(facts, rule.mixer, evidence, &kv_heads, &feed_forward, blocks)?;
    let any_recurrent = mixes.iter().any(|mix| mix.recurrent);
    let state = match rule.mixer {
        _ if !any_recurrent => [0, 0],
        Mixer::Lightning => [0, square_heads(&heads, widths.keys[0])?],
        _ => state(facts, &heads, embedding)?,
    };
    let own_kv = own_kv(facts, rule, blocks)?;
    let ratios = facts.per_block("attention.compress_ratios", blocks)?;
    let layer = |i: usize| {
        let swa = usize::from(windows[i].is_some());
        let too_wide = || SpecError::TooLarge { what: "a row of key-value heads" };
        let row = |width: u64| match kv_heads[i].checked_mul(width) {
            Some(_) => Ok(Row::new(kv_heads[i], width)),
            None => Err(too_wide()),
        };
        let (keys, values) = (row(widths.keys[swa])?, row(widths.values[swa])?);
        let attends = mixes[i].attention && i < own_kv;
        let indexer = Row::new(1, widths.indexer).filter(|_| attends && keys.is_some());
        let mut cache = Cache {
            entry: attends,
            keys: keys.filter(|_| attends),
            values: values.filter(|_| attends && !widths.latent),
            indexer,
            latent: widths.latent && attends,
            window: windows[i],
            recurrent: if mixes[i].recurrent { state } else { [0, 0] },
            ..Cache::default()
        };
        if let (Some(ratios), Some(keys)) = (&ratios, cache.keys) {
            compress(&mut cache, ratios[i], keys, indexer)?;
        }
        Ok(LayerShape {
            heads: heads[i],
            kv_heads: kv_heads[i],
            feed_forward: feed_forward[i],
            value_width: values.map_or(0, |row| row.width),
            cache,
        })
    };
    (0..blocks.all).map(layer).collect()
}

/// The engine compresses groups of this many tokens with their neighbours, and chooses among the results.
const OVERLAPPING: u64 = 4;

/// Turns the cache of a layer into one that holds a window, and the whole context with `ratio` tokens in one.
///
/// Keys hold the values. Two states of 32-bit values are kept of the tokens that are not compressed yet, one of keys and
/// one of weights; small groups overlap, so that theirs are twice as long and twice as wide.
fn compress(cache: &mut Cache, ratio: u64, keys: Row, indexer: Option<Row>) -> Result<(), SpecError> {
    (cache.values, cache.latent, cache.indexer) = (None, true, None);
    if ratio == 0 {
        return Ok(());
    }
    let (times, indexer) = if ratio == OVERLAPPING { (4, indexer) } else { (1, None) };
    let state = |row: Option<Row>| {
        let width = row.map_or(0, |row| row.width);
        let values = ratio.checked_mul(times * 2).and_then(|n| n.checked_mul(width));
        values.ok_or(SpecError::TooLarge { what: "the state of a compressor" })
    };
    cache.recurrent = [state(Some(keys))?, state(indexer)?];
    cache.compressed = Some(Compressed { tokens: ratio, keys, indexer });
    Ok(())
}

/// How many blocks from the start keep keys and values of their own; later ones use those.
fn own_kv(facts: &Facts<'_>, rule: Rule, blocks: Blocks) -> Result<usize, SpecError> {
    let shared = facts.number("attention.shared_kv_layers")?;
    let own = match (rule.kv_from_start, shared) {
        (Some(own), _) => usize::try_from(own).unwrap_or(usize::MAX),
        (None, Some(shared)) => blocks.all.saturating_sub(usize::try_from(shared).unwrap_or(usize::MAX)),
        (None, None) => blocks.all,
    };
    Ok(own)
}

fn windows(facts: &Facts<'_>, rule: WindowRule, blocks: Blocks) -> Result<Vec<Option<Window>>, SpecError> {
    let told = facts.number("attention.sliding_window")?;
    let (tokens, often_ignored, period, dense_first) = match rule {
        WindowRule::Ignored => (told.unwrap_or(0), true, 0, false),
        WindowRule::Told => (told.unwrap_or(0), false, 1, false),
        WindowRule::Every { period, dense_first, unless_told, always } => {
            let tokens = match (told, always) {
                (Some(told), Some(always)) if told > 0 => always,
                (told, _) => told.unwrap_or(unless_told),
            };
            (tokens, false, period, dense_first)
        }
    };
    if tokens == 0 {
        return Ok(vec![None; blocks.all]);
    }
    let pattern = "attention.sliding_window_pattern";
    let slides = match facts.get(pattern) {
        None => windowed_by_period(blocks.all, period, dense_first),
        Some(Value::List(_) | Value::Skipped { .. }) => facts.flags(pattern, blocks)?.unwrap_or_default(),
        Some(_) => windowed_by_period(blocks.all, facts.number_or(pattern, period)?, dense_first),
    };
    let window = Window { tokens, often_ignored };
    Ok(slides.into_iter().map(|slides| slides.then_some(window)).collect())
}

/// How one block mixes tokens.
#[derive(Clone, Copy)]
struct Mix {
    attention: bool,
    recurrent: bool,
}

fn mixes(
    facts: &Facts<'_>,
    mixer: Mixer,
    evidence: &Evidence,
    kv_heads: &[u64],
    feed_forward: &[u64],
    blocks: Blocks,
) -> Result<Vec<Mix>, SpecError> {
    let told = facts.flags("attention.recurrent_layers", blocks)?;
    let interval = facts.number("full_attention_interval")?.filter(|&n| n > 0);
    let mix = |i: usize, block: u64| {
        // A list that names the recurrent layers is more exact than any rule.
        if let Some(recurrent) = told.as_ref().map(|told| told[i]) {
            return Mix { attention: !recurrent || mixer == Mixer::Both, recurrent };
        }
        match (mixer, interval) {
            (Mixer::Encoder | Mixer::Diffusion, _) => Mix { attention: false, recurrent: false },
            (Mixer::Recurrent, _) => Mix { attention: false, recurrent: true },
            (Mixer::Both, _) => Mix { attention: true, recurrent: true },
            (Mixer::ByHeads, _) => Mix { attention: kv_heads[i] > 0, recurrent: kv_heads[i] == 0 },
            (Mixer::ByHeadsWithoutFeedForward, _) => {
                let mixes = feed_forward[i] == 0;
                Mix { attention: mixes && kv_heads[i] > 0, recurrent: mixes && kv_heads[i] == 0 }
            }
            (Mixer::Lightning, told) => {
                let attention = (block + 1).is_multiple_of(told.unwrap_or(LIGHTNING_PERIOD));
                Mix { attention, recurrent: !attention }
            }
            (Mixer::Attention | Mixer::ByInterval, Some(interval)) => {
                let attention = (block + 1).is_multiple_of(interval) || i >= blocks.layers;
                Mix { attention, recurrent: !attention }
            }
            (Mixer::ByInterval, None) => {
                let recurrent = evidence.recurrent.contains(&block);
                Mix { attention: !recurrent, recurrent }
            }
            (Mixer::Attention, None) => Mix { attention: true, recurrent: false },
        }
    };
    Ok((0..blocks.all).zip(0_u64..).map(|(i, block)| mix(i, block)).collect())
}

/// How many layers of lightning attention one with full attention follows, itself counted, where nothing is told.
const LIGHTNING_PERIOD: u64 = 8;

/// A square matrix for each head.
pub(crate) fn square_heads(heads: &[u64], width: u64) -> Result<u64, SpecError> {
    let most = heads.iter().copied().max().unwrap_or(0);
    let matrix = width.checked_mul(width).and_then(|n| n.checked_mul(most));
    matrix.ok_or(SpecError::TooLarge { what: "a recurrent state" })
}

/// The 32-bit values that a recurrent layer keeps for one sequence: those of its convolution, those of its state.
fn state(facts: &Facts<'_>, heads: &[u64], embedding: u64) -> Result<[u64; 2], SpecError> {
    let sizes = if let Some(head) = facts.number("wkv.head_size")?.filter(|&n| n > 0) {
        // RWKV: the tokens that are mixed in, and a square matrix for each head.
        let shifted = facts.number_or("token_shift_count", 2)?;
        [shifted.checked_mul(embedding), head.checked_mul(embedding)]
    } else if let Some(cached) = facts.number("shortconv.l_cache")?.filter(|&n| n > 0) {
        // LFM2: a short convolution alone.
        [embedding.checked_mul(cached - 1), Some(0)]
    } else if let Some(head) = facts.number("kda.head_dim")?.filter(|&n| n > 0) {
        // Kimi's delta attention: convolutions of queries, keys and values, and a square matrix for each head.
        let inner = heads.iter().copied().find(|&h| h > 0).unwrap_or(0).checked_mul(head);
        let kernel = facts.number_or("ssm.conv_kernel", 4)?.saturating_sub(1);
        [
            inner.and_then(|n| n.checked_mul(kernel)).and_then(|n| n.checked_mul(3)),
            inner.and_then(|n| n.checked_mul(head)),
        ]
    } else {
        // Mamba and what descends from it.
        let known = |key: &str| facts.number(key).map(|n| n.filter(|&n| n > 0));
        let sizes = (known("ssm.conv_kernel")?, known("ssm.inner_size")?, known("ssm.state_size")?);
        let (Some(kernel), Some(inner), Some(state)) = sizes else { return Err(facts.state_not_told()) };
        // The first Mamba knows no groups, and what its header tells of them is not read.
        let groups = match facts.architecture {
            "mamba" | "jamba" => 0,
            _ => facts.number_or("ssm.group_count", 0)?,
        };
        mamba_state(kernel - 1, inner, state, groups)
    };
    match sizes {
        [Some(convolution), Some(state)] => Ok([convolution, state]),
        _ => Err(SpecError::TooLarge { what: "a recurrent state" }),
    }
}

/// `kernel` columns of the inner values and of two rows of state for each group; and the state itself.
pub(crate) fn mamba_state(kernel: u64, inner: u64, state: u64, groups: u64) -> [Option<u64>; 2] {
    let of_groups = groups.checked_mul(2).and_then(|n| n.checked_mul(state));
    let column = of_groups.and_then(|n| n.checked_add(inner));
    [column.and_then(|n| n.checked_mul(kernel)), state.checked_mul(inner)]
}
