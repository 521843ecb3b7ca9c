//! Which tensors a command line sends to a buffer of its own choice.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use super::flags::FlagsError;
use super::overrides::{CPU, is_dense_tensor, is_expert_tensor};

/// The most overrides that the engine takes.
const MOST: usize = 4096;

/// The largest compiled pattern that is taken.
const LARGEST: usize = 1 << 20;

/// What the engine calls the memory of the host, as a place for tensors.
pub const HOST_BUFFER: &str = CPU;

/// The tensors that a command line sends to a buffer of its own choice: the first rule that finds something in a tensor's
/// name decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorRules {
    rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    picks: Picks,
    buffer: String,
}

/// Which tensors a rule picks.
#[derive(Clone)]
enum Picks {
    /// Those in whose name a pattern finds something.
    Found { pattern: String, compiled: Regex },
    /// The experts, or the dense feed-forward blocks, of the first layers.
    FirstLayers { layers: u32, dense: bool },
    /// All experts.
    Experts,
}

impl PartialEq for Picks {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Found { pattern: a, .. }, Self::Found { pattern: b, .. }) => a == b,
            (Self::FirstLayers { layers: a, dense: c }, Self::FirstLayers { layers: b, dense: d }) => {
                (a, c) == (b, d)
            }
            (Self::Experts, Self::Experts) => true,
            _ => false,
        }
    }
}

impl fmt::Debug for Picks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { pattern, .. } => write!(f, "{pattern:?}"),
            Self::FirstLayers { layers, dense } => write!(f, "first {layers} (dense: {dense})"),
            Self::Experts => f.write_str("experts"),
        }
    }
}

impl TensorRules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The buffer that a tensor is sent to; `None` where it stays with its layer.
    pub fn buffer(&self, tensor: &str) -> Option<&str> {
        self.rules.iter().find(|rule| rule.picks(tensor)).map(|rule| rule.buffer.as_str())
    }

    /// The names of all buffers that are named.
    pub fn buffers(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.buffer.as_str())
    }

    /// Adds what `-ot` says: `pattern=buffer`, several of them with commas between.
    pub(super) fn add(&mut self, flag: &str, value: &str) -> Result<(), FlagsError> {
        for one in value.split(',') {
            let wrong = |expected: &'static str| FlagsError::Value {
                flag: flag.to_owned(),
                value: one.to_owned(),
                expected,
            };
            let (pattern, buffer) = one.split_once('=').ok_or_else(|| {
                wrong("it takes pattern=buffer; a comma ends a pattern, so that none can stand in one")
            })?;
            let pattern_error = |why: String| FlagsError::Pattern { pattern: pattern.to_owned(), why };
            if let Some(why) = not_portable(pattern) {
                return Err(pattern_error(why));
            }
            let compiled = RegexBuilder::new(pattern).unicode(false).size_limit(LARGEST).build();
            let compiled = compiled.map_err(|error| pattern_error(last_line(&error.to_string())))?;
            let picks = Picks::Found { pattern: pattern.to_owned(), compiled };
            self.push(flag, Rule { picks, buffer: buffer.to_owned() })?;
        }
        Ok(())
    }

    /// Adds `--n-cpu-moe` or, for dense blocks, `--n-cpu-ffn`.
    pub(super) fn add_first_layers(
        &mut self,
        flag: &str,
        layers: u32,
        dense: bool,
    ) -> Result<(), FlagsError> {
        self.push(flag, Rule { picks: Picks::FirstLayers { layers, dense }, buffer: CPU.to_owned() })
    }

    /// Adds `--cpu-moe`.
    pub(super) fn add_experts(&mut self, flag: &str) -> Result<(), FlagsError> {
        self.push(flag, Rule { picks: Picks::Experts, buffer: CPU.to_owned() })
    }

    fn push(&mut self, flag: &str, rule: Rule) -> Result<(), FlagsError> {
        // The engine keeps a rule for each layer.
        let of = |rule: &Rule| match rule.picks {
            Picks::FirstLayers { layers, .. } => usize::try_from(layers).unwrap_or(usize::MAX),
            Picks::Found { .. } | Picks::Experts => 1,
        };
        let all = self.rules.iter().chain([&rule]).map(of).fold(0_usize, usize::saturating_add);
        if all > MOST {
            return Err(FlagsError::TooManyOverrides { flag: flag.to_owned(), most: MOST });
        }
        self.rules.push(rule);
        Ok(())
    }
}

impl Rule {
    fn picks(&self, tensor: &str) -> bool {
        match &self.picks {
            Picks::Found { compiled, .. } => compiled.is_match(tensor.as_bytes()),
            Picks::FirstLayers { layers, dense } => {
                let of_kind = if *dense { is_dense_tensor(tensor) } else { is_expert_tensor(tensor) };
                of_kind && block(tensor).is_some_and(|block| block < *layers)
            }
            Picks::Experts => is_expert_tensor(tensor),
        }
    }
}

/// The number of the layer in a tensor's name.
fn block(tensor: &str) -> Option<u32> {
    tensor.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// What of a pattern the engine's kind of regular expression (ECMAScript, as C++ has it) reads otherwise than ours does, or
/// does not read at all.
fn not_portable(pattern: &str) -> Option<String> {
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    let mut first_in_class = false;
    let mut before = '\0';
    while let Some(c) = rest.next() {
        let opens = std::mem::take(&mut first_in_class);
        match c {
            '\\' => {
                let next = rest.next()?;
                if next.is_ascii_digit() && next != '0' {
                    return Some(format!("\\{next} refers back to a group, which is not understood here"));
                }
                let known = "dDwWsSbBfnrtv".contains(next) || !next.is_ascii_alphanumeric();
                if !known || "<>".contains(next) || !next.is_ascii() {
                    return Some(format!("\\{next} means different things to different programs"));
                }
                before = '\0';
                continue;
            }
            ']' if in_class && opens => return Some("a class in it is empty".to_owned()),
            ']' => in_class = false,
            '[' if in_class && !matches!(rest.peek(), Some(':')) => {
                return Some("a [ inside of a class needs a backslash before it".to_owned());
            }
            '[' if in_class => {
                // A named class such as [:digit:] ends with its own bracket.
                while rest.next().is_some_and(|c| c != ']') {}
            }
            '[' => {
                in_class = true;
                first_in_class = true;
                if rest.peek() == Some(&'^') {
                    rest.next();
                }
            }
            '&' | '~' | '-' if in_class && before == c => {
                return Some(format!(
                    "{c}{c} inside of a class means different things to different programs"
                ));
            }
            '(' if !in_class && rest.peek() == Some(&'?') => {
                rest.next();
                if rest.peek() != Some(&':') {
                    return Some("(? is understood only as (?:".to_owned());
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}

/// The sentence at the end of a report of several lines.
fn last_line(report: &str) -> String {
    let last = report.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(report);
    last.trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(values: &[&str]) -> TensorRules {
        let mut rules = TensorRules::default();
        for value in values {
            rules.add("-ot", value).unwrap();
        }
        rules
    }

    fn refused(value: &str) -> String {
        TensorRules::default().add("-ot", value).unwrap_err().to_string()
    }

    #[test]
    fn the_first_rule_that_finds_something_decides() {
        let rules = rules(&[r"blk\.(3|4)\.ffn_.*_exps=CPU,exps=CUDA1", "attn=CPU"]);
        assert_eq!(rules.buffer("blk.3.ffn_up_exps.weight"), Some("CPU"));
        assert_eq!(rules.buffer("blk.13.ffn_up_exps.weight"), Some("CUDA1"));
        assert_eq!(rules.buffer("blk.13.attn_q.weight"), Some("CPU"));
        assert_eq!(rules.buffer("output.weight"), None);
    }

    #[test]
    fn a_number_of_layers_counts_from_the_first_one() {
        let mut rules = TensorRules::default();
        rules.add_first_layers("-ncmoe", 2, false).unwrap();
        assert_eq!(rules.buffer("blk.1.ffn_gate_exps.bias"), Some("CPU"));
        assert_eq!(rules.buffer("blk.2.ffn_gate_exps.weight"), None);
        assert_eq!(rules.buffer("blk.12.ffn_gate_exps.weight"), None);
        assert_eq!(rules.buffer("blk.1.ffn_gate_shexp.weight"), None);
        assert_eq!(rules.buffer("blk.1.ffn_gate.weight"), None);
        let mut rules = TensorRules::default();
        rules.add_first_layers("--n-cpu-ffn", 1, true).unwrap();
        assert_eq!(rules.buffer("blk.0.ffn_gate.weight"), Some("CPU"));
        assert_eq!(rules.buffer("blk.0.ffn_gate_inp.weight"), None);
    }

    #[test]
    fn an_rpc_buffer_keeps_its_address() {
        let rules = rules(&["exps=RPC0[10.0.0.7:50052]"]);
        assert_eq!(rules.buffer("blk.0.ffn_up_exps.weight"), Some("RPC0[10.0.0.7:50052]"));
    }

    #[test]
    fn patterns_that_would_mean_something_else_to_the_engine_are_refused() {
        for (value, what) in [
            ("exps", "it takes pattern=buffer"),
            (r"blk\.{1,3}=CPU", "it takes pattern=buffer"),
            ("(=CPU", "unclosed group"),
            (r"(a)\1=CPU", "refers back"),
            ("(?i)exps=CPU", "(? is understood only as (?:"),
            ("a(?!b)=CPU", "(? is understood only as (?:"),
            (r"\Aexps=CPU", "different things"),
            (r"\<exps=CPU", "different things"),
            ("[a&&b]=CPU", "different things"),
            ("[[a]]=CPU", "inside of a class"),
            ("[]a]=CPU", "empty"),
            ("[^]a]=CPU", "empty"),
        ] {
            assert!(refused(value).contains(what), "{value}: {}", refused(value));
        }
        // And these are the same to both.
        for fine in
            [r"blk\.(?:1|2)\.ffn_[[:alpha:]]+_exps\.weight$=CPU", r"[^a\]b-]+\d=CPU", "exps|shexp=CPU"]
        {
            TensorRules::default().add("-ot", fine).unwrap();
        }
    }

    #[test]
    fn no_more_rules_are_taken_than_the_engine_takes() {
        let mut rules = TensorRules::default();
        rules.add_first_layers("-ncmoe", 4096, false).unwrap();
        assert!(matches!(rules.add_experts("-cmoe"), Err(FlagsError::TooManyOverrides { .. })));
    }
}
