//! What is charged for compute buffers, against what was measured.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeMap;

use plimsoll_export::llama_cpp::{Blocks, ComputeFacts, most_above, rules};
use plimsoll_model::{FlashAttention, Request, ResolvedContext};
use plimsoll_units::Bytes;

/// One buffer: of which model and kind, what was measured, what is charged.
struct Sample {
    model: String,
    blocks: Blocks,
    flash: bool,
    /// Which of the figures of its run.
    place: usize,
    host: bool,
    measured: u64,
    charged: u64,
}

impl Sample {
    /// Measured over charged, in hundredths of a per cent.
    fn ratio(&self) -> u64 {
        self.measured * 10_000 / self.charged
    }
}

fn samples() -> Vec<Sample> {
    let text = include_str!("fixtures/compute-buffers.txt");
    let mut samples = Vec::new();
    let mut model = (String::new(), None);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["model", name, d, ff, vocabulary, heads, kind] = words[..] {
            let number = |text: &str| text.parse().unwrap();
            let facts = ComputeFacts {
                embedding_length: number(d),
                feed_forward_length: number(ff),
                vocabulary: number(vocabulary),
                heads: number(heads),
                blocks: match kind {
                    "dense" => Blocks::Dense,
                    "experts" => Blocks::Experts,
                    "windows" => Blocks::Windows,
                    "windowed-experts" => Blocks::WindowedExperts,
                    "latent" => Blocks::Latent,
                    "recurrent" => Blocks::Recurrent,
                    other => panic!("no family is called {other}"),
                },
            };
            model = (name.to_owned(), Some(facts));
            continue;
        }
        let facts = model.1.unwrap();
        let (settings, figures) = words.split_at(3);
        let flash = settings[2] == "on";
        let request = Request {
            micro_batch: settings[0].parse().unwrap(),
            flash_attention: if flash { FlashAttention::On } else { FlashAttention::Off },
            ..Request::default()
        };
        let cells = settings[1].parse().unwrap();
        let context = ResolvedContext { total: cells, per_sequence: cells, streams: 1 };
        let charges = rules(Some(&facts), &request, &context, Bytes::ZERO).charges;
        let add = |a: Bytes, b: Bytes| a.checked_add(b).unwrap().get();
        let split = charges.split;
        let charged = match figures.len() {
            3 => vec![charges.alone.get(), 0, charges.host.get()],
            5 => vec![
                add(split.each, split.first_more),
                split.each.get(),
                add(split.each, split.last_more),
                0,
                charges.host.get(),
            ],
            other => panic!("{other} figures in {line}"),
        };
        for (place, (figure, charged)) in
            figures.iter().zip(charged).enumerate().filter(|(_, (figure, _))| **figure != "|")
        {
            let measured = figure.parse().unwrap();
            let host = place + 1 == figures.len();
            samples.push(Sample {
                model: model.0.clone(),
                blocks: facts.blocks,
                flash,
                place,
                host,
                measured,
                charged,
            });
        }
    }
    samples
}

#[test]
fn no_measured_buffer_is_further_above_its_charge_than_is_told() {
    let samples = samples();
    assert_eq!(samples.len(), 156 * 2 + 156 * 4, "312 runs, half with one device and half with three");
    let mut by_model: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut above_band = Vec::new();
    for sample in &samples {
        let most = 10_000 + u64::from(most_above(sample.blocks)) * 100;
        let Sample { model, place, measured, charged, flash, .. } = sample;
        if sample.ratio() > most {
            above_band
                .push(format!("{model} {place}, flash {flash}: measured {measured}, charged {charged}"));
        }
        by_model.entry(model).or_default().push(sample.ratio());
    }
    assert!(above_band.is_empty(), "{}", above_band.join("\n"));
    println!("{} models", by_model.len());
}

/// Least, median and most of what was measured over what is charged, in hundredths of a per cent.
fn spread(samples: &[&Sample]) -> [u64; 3] {
    let mut ratios: Vec<u64> = samples.iter().map(|sample| sample.ratio()).collect();
    ratios.sort_unstable();
    [ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]]
}

/// A family's charges are as tight as what was measured of it allows. Prints the table of `docs/estimates.md`.
#[test]
fn charges_of_every_family_are_close_to_what_was_measured_of_it() {
    let samples = samples();
    let families = [
        (Blocks::Dense, "dense"),
        (Blocks::Experts, "experts"),
        (Blocks::Windows, "windows"),
        (Blocks::WindowedExperts, "windows and experts"),
        (Blocks::Latent, "latent attention"),
        (Blocks::Recurrent, "recurrent"),
    ];
    println!(
        "| family | models | flash | place | buffers | least | median | most |\n|---|---|---|---|---|---|---|---|"
    );
    for (blocks, name) in families {
        let of_family: Vec<&Sample> = samples.iter().filter(|s| s.blocks == blocks).collect();
        let mut models: Vec<&str> = of_family.iter().map(|s| s.model.as_str()).collect();
        models.dedup();
        for flash in [true, false] {
            for (host, place) in [(false, "devices"), (true, "host")] {
                let those: Vec<&Sample> =
                    of_family.iter().copied().filter(|s| s.flash == flash && s.host == host).collect();
                let spread @ [_, median, _] = spread(&those);
                let [least, middle, most] = spread.map(|n| format!("{}.{:01} %", n / 100, n % 100 / 10));
                let (count, flash_word) = (models.len(), if flash { "on" } else { "off" });
                let buffers = those.len();
                println!(
                    "| {name} | {count} | {flash_word} | {place} | {buffers} | {least} | {middle} | {most} |"
                );
                if flash && !host {
                    assert!(median >= 8_000, "{name}: the median is {median}/10000");
                }
            }
        }
    }
}

#[test]
fn devices_of_dense_models_with_flash_attention_are_charged_what_they_take() {
    // The host is charged the larger of two regimes, so it may well take less.
    let devices = samples().into_iter().filter(|s| s.blocks == Blocks::Dense && s.flash && !s.host);
    let devices: Vec<Sample> = devices.collect();
    let [least, median, most] = spread(&devices.iter().collect::<Vec<_>>());
    assert!(least >= 9_500, "the least is {least}/10000");
    assert!((9_900..=10_100).contains(&median), "the median is {median}/10000");
    assert!(most <= 10_700, "the most is {most}/10000");
}
