//! The hyperparameters of a `config.json` as transformers writes it.

mod families;

use serde_json::{Map, Value};

use crate::arch::{Cache, LayerShape, MOST_LAYERS, Row, Shape, Window};
use crate::spec::{ModelWarning, SpecError};
use families::{Family, Mixes};

/// A config, or the part of it that is about text.
pub(crate) struct Config<'a> {
    /// The whole of it.
    outer: &'a Map<String, Value>,
    /// The part about text, where a model also sees or hears.
    inner: Option<&'a Map<String, Value>>,
}

impl<'a> Config<'a> {
    pub(crate) fn new(config: &'a Value) -> Result<Self, SpecError> {
        let outer = config.as_object().ok_or(SpecError::NoConfig)?;
        let inner = ["text_config", "llm_config", "language_config"]
            .iter()
            .find_map(|key| outer.get(*key)?.as_object());
        Ok(Self { outer, inner })
    }

    /// The first of `keys` that is there and not null.
    fn get(&self, keys: &[&str]) -> Option<(&'a str, &'a Value)> {
        let places = self.inner.into_iter().chain([self.outer]);
        let mut found = places.flat_map(|place| keys.iter().filter_map(|key| place.get_key_value(*key)));
        found.find(|(_, value)| !value.is_null()).map(|(key, value)| (key.as_str(), value))
    }

    /// The family's name.
    pub(crate) fn model_type(&self) -> Option<&'a str> {
        self.get(&["model_type"]).and_then(|(_, value)| value.as_str())
    }

    fn number(&self, keys: &[&str]) -> Result<Option<u64>, SpecError> {
        let Some((key, value)) = self.get(keys) else { return Ok(None) };
        value.as_u64().map(Some).ok_or_else(|| bad(key, value, "a count"))
    }

    fn number_or(&self, keys: &[&str], otherwise: u64) -> Result<u64, SpecError> {
        Ok(self.number(keys)?.unwrap_or(otherwise))
    }

    /// How many blocks for next-token prediction it tells of.
    pub(crate) fn next_token_blocks(&self) -> Result<usize, SpecError> {
        let told =
            self.number_or(&["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"], 0)?;
        Ok(usize::try_from(told).unwrap_or(usize::MAX))
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.get(&[key]).and_then(|(_, value)| value.as_bool())
    }

    fn list(&self, key: &str) -> Option<&'a [Value]> {
        self.get(&[key]).and_then(|(_, value)| value.as_array()).map(Vec::as_slice)
    }

    /// A list of words, one for each layer.
    fn words(&self, key: &str, layers: usize) -> Result<Option<Vec<&'a str>>, SpecError> {
        let Some(items) = self.list(key) else { return Ok(None) };
        if items.len() != layers {
            return Err(SpecError::WrongLength { key: key.to_owned(), found: items.len(), expected: layers });
        }
        let word = |item: &'a Value| item.as_str().ok_or_else(|| bad(key, item, "a word"));
        items.iter().map(word).collect::<Result<_, _>>().map(Some)
    }

    /// A count for each layer: one for all, or a list.
    fn per_layer(&self, keys: &[&str], layers: usize) -> Result<Option<Vec<u64>>, SpecError> {
        let Some((key, value)) = self.get(keys) else { return Ok(None) };
        let Some(items) = value.as_array() else {
            return Ok(self.number(keys)?.map(|n| vec![n; layers]));
        };
        if items.len() != layers {
            return Err(SpecError::WrongLength { key: key.to_owned(), found: items.len(), expected: layers });
        }
        let count = |item: &Value| match item {
            Value::Null => Ok(0),
            item => item.as_u64().ok_or_else(|| bad(key, item, "a count")),
        };
        items.iter().map(count).collect::<Result<_, _>>().map(Some)
    }
}

fn bad(key: &str, value: &Value, expected: &'static str) -> SpecError {
    let found = value.to_string().chars().take(40).collect();
    SpecError::BadKey { key: key.to_owned(), found, expected }
}

const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
const EMBEDDING: &[&str] = &["hidden_size", "n_embd", "d_model"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads"];

/// Reads the hyperparameters; blocks for next-token prediction are left to the tensors.
pub(crate) fn shape(
    config: &Config<'_>,
    warnings: &mut Vec<ModelWarning>,
) -> Result<(Shape, Family), SpecError> {
    let model_type = config.model_type().ok_or(SpecError::NoModelType)?;
    let known = families::family(model_type);
    let family = known.unwrap_or(Family::ORDINARY);
    check_keys(config, model_type, known)?;
    if known.is_none() {
        warnings.push(ModelWarning::OrdinaryRule { architecture: model_type.to_owned() });
    }
    let pattern = config.get(&["hybrid_override_pattern"]).and_then(|(_, value)| value.as_str());
    let told = pattern.map(|pattern| u64::try_from(pattern.chars().count()).unwrap_or(u64::MAX));
    let found = config.number_or(LAYERS, told.unwrap_or(0))?;
    if found > MOST_LAYERS {
        return Err(SpecError::TooManyLayers { found, most: MOST_LAYERS });
    }
    let layers = usize::try_from(found).unwrap_or(usize::MAX);
    let embedding = config.number_or(EMBEDDING, 0)?;
    let experts =
        config.number_or(&["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"], 0)?;
    let feed_forward = feed_forward(config, layers)?;
    let widest = feed_forward.iter().copied().max().unwrap_or(0);
    let mut shape = Shape {
        trained_context: config.number(&[
            "max_position_embeddings",
            "n_positions",
            "max_sequence_length",
            "seq_length",
        ])?,
        embedding,
        vocabulary: config.number_or(&["vocab_size"], 0)?,
        experts,
        experts_used: config
            .number_or(&["num_experts_per_tok", "num_experts_per_token", "moe_k", "top_k_experts"], 0)?,
        expert_feed_forward: match experts {
            0 => 0,
            _ => config.number_or(
                &["moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"],
                widest,
            )?,
        },
        layers: Vec::new(),
        nextn: 0,
    };
    let mixes = families::mixes(config, model_type, &family, layers)?;
    shape.layers = layer_shapes(config, model_type, embedding, &feed_forward, &mixes)?;
    Ok((shape, family))
}

fn check_keys(config: &Config<'_>, model_type: &str, known: Option<Family>) -> Result<(), SpecError> {
    let mut needed = vec![EMBEDDING];
    if config.get(&["hybrid_override_pattern"]).is_none() {
        needed.push(LAYERS);
    }
    if known.is_none_or(|family| family.attends()) {
        needed.push(HEADS);
    }
    let absent = needed.iter().filter(|keys| config.get(keys).is_none());
    let missing: Vec<String> = absent.map(|keys| keys[0].to_owned()).collect();
    let architecture = model_type.to_owned();
    match (missing.is_empty(), known) {
        (true, _) => Ok(()),
        (false, Some(_)) => Err(SpecError::MissingKeys { architecture, missing }),
        (false, None) => Err(SpecError::UnknownArchitecture { architecture, missing }),
    }
}

fn feed_forward(config: &Config<'_>, layers: usize) -> Result<Vec<u64>, SpecError> {
    // Llama 4 calls the width of its experts `intermediate_size`.
    let keys = [
        "intermediate_size_mlp",
        "ffn_per_layer",
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "ffn_dim",
    ];
    Ok(config.per_layer(&keys, layers)?.unwrap_or_else(|| vec![0; layers]))
}

/// Key-value heads of each layer.
fn kv_heads(config: &Config<'_>, heads: u64, layers: usize) -> Result<Vec<u64>, SpecError> {
    if let Some(blocks) = config.list("block_configs") {
        // A pruned model tells for each layer how many query heads share a key-value head.
        let of_block = |block: &Value| {
            let group = block.get("attention")?.get("n_heads_in_group")?.as_u64()?;
            heads.checked_div(group)
        };
        let counts: Vec<u64> = blocks.iter().map(|block| of_block(block).unwrap_or(0)).collect();
        if counts.len() == layers {
            return Ok(counts);
        }
        let key = "block_configs".to_owned();
        return Err(SpecError::WrongLength { key, found: counts.len(), expected: layers });
    }
    if let Some(counts) = config.per_layer(&["kv_heads_per_layer", "num_key_value_heads"], layers)? {
        return Ok(counts);
    }
    // Falcon tells its key-value heads only to count in its newer form.
    let counts = match (config.flag("new_decoder_architecture"), config.flag("multi_query")) {
        (Some(false) | None, Some(true)) => 1,
        (_, _) => config.number_or(&["num_kv_heads", "n_head_kv"], heads)?,
    };
    Ok(vec![counts; layers])
}

fn layer_shapes(
    config: &Config<'_>,
    model_type: &str,
    embedding: u64,
    feed_forward: &[u64],
    mixes: &Mixes,
) -> Result<Vec<LayerShape>, SpecError> {
    let layers = feed_forward.len();
    let heads = config.number_or(HEADS, 0)?;
    let kv_heads = kv_heads(config, heads, layers)?;
    let natural = embedding.checked_div(heads).unwrap_or(0);
    let head = config.number_or(&["head_dim", "attention_head_dim", "kv_channels"], natural)?;
    let global_head = config.number_or(&["global_head_dim"], head)?;
    let global_kv_heads = config.number(&["num_global_key_value_heads"])?;
    let latent = latent(config, model_type)?;
    let windows = families::windows(config, model_type, layers)?;
    let shared = config.number_or(&["num_kv_shared_layers"], 0)?;
    let own_kv = layers.saturating_sub(usize::try_from(shared).unwrap_or(usize::MAX));
    let layer = |i: usize| {
        let window: Option<Window> = windows[i];
        let (head, kv_heads) = match window {
            Some(_) => (head, kv_heads[i]),
            None => (global_head, global_kv_heads.unwrap_or(kv_heads[i])),
        };
        let too_wide = || SpecError::TooLarge { what: "a row of key-value heads" };
        let (keys, values) = match latent {
            Some(Latent::Compressed { width }) => (Row::new(u64::from(kv_heads > 0), width), None),
            Some(Latent::Expanded { keys, values }) => (Row::new(kv_heads, keys), Row::new(kv_heads, values)),
            None => {
                kv_heads.checked_mul(head).ok_or_else(too_wide)?;
                (Row::new(kv_heads, head), Row::new(kv_heads, head))
            }
        };
        let attends = mixes.attention[i] && i < own_kv;
        let cache = Cache {
            entry: attends,
            keys: keys.filter(|_| attends),
            values: values.filter(|_| attends),
            latent: attends && matches!(latent, Some(Latent::Compressed { .. })),
            window,
            recurrent: if mixes.recurrent[i] { mixes.state } else { [0, 0] },
            ..Cache::default()
        };
        Ok(LayerShape {
            heads: if kv_heads > 0 { heads } else { 0 },
            kv_heads,
            feed_forward: feed_forward[i],
            value_width: values.map_or(0, |row| row.width),
            cache,
        })
    };
    (0..layers).map(layer).collect()
}

/// Keys and values that are projected from a compressed form.
#[derive(Clone, Copy)]
enum Latent {
    /// Stored as they are: one row holds both.
    Compressed { width: u64 },
    /// Stored as projected.
    Expanded { keys: u64, values: u64 },
}

fn latent(config: &Config<'_>, model_type: &str) -> Result<Option<Latent>, SpecError> {
    let rank = config.number_or(&["kv_lora_rank"], 0)?;
    let rope = config.number_or(&["qk_rope_head_dim"], 0)?;
    if rank == 0 || rope == 0 {
        return Ok(None);
    }
    let too_wide = || SpecError::TooLarge { what: "a row of keys" };
    if model_type == "minicpm3" {
        let keys = config.number_or(&["qk_nope_head_dim"], 0)?.checked_add(rope).ok_or_else(too_wide)?;
        return Ok(Some(Latent::Expanded { keys, values: config.number_or(&["v_head_dim"], keys)? }));
    }
    let width = rank.checked_add(rope).ok_or_else(too_wide)?;
    Ok(Some(Latent::Compressed { width }))
}
