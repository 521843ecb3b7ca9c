//! A plan as a picture that people can share.

use std::fmt::Write;

use plimsoll::Planned;
use plimsoll::balance::{Objective, Stage};
use plimsoll::units::Bytes;

use crate::show;

const WIDTH: u32 = 860;
const LEFT: u32 = 30;
const NAME: u32 = 220;
const BAR: u32 = 400;
const ROW: u32 = 44;
const TOP: u32 = 96;

const WEIGHTS: &str = "#2f6f8f";
const CONTEXT: &str = "#e0a030";
const ENGINE: &str = "#a0566f";
const FREE: &str = "#e8ecef";

/// The picture, as SVG text.
pub(crate) fn draw(planned: &Planned) -> String {
    let stages = &planned.plan.stages;
    let rows = u32::try_from(stages.len()).unwrap_or(u32::MAX);
    let height = TOP.saturating_add(rows.saturating_mul(ROW)).saturating_add(64);
    let mut picture = Picture::new(WIDTH, height, &format!("Plan for {}", planned.name()));
    picture.text([LEFT, 42], &TITLE, planned.name());
    picture.text([LEFT, 68], &SUBTITLE, &subtitle(planned));
    for (row, stage) in (0_u32..).zip(stages) {
        draw_stage(&mut picture, stage, TOP + row * ROW);
    }
    legend(&mut picture, height - 26);
    picture.finish()
}

/// How a line of text looks.
pub(crate) struct Look {
    pub(crate) size: u32,
    pub(crate) colour: &'static str,
    pub(crate) weight: &'static str,
}

pub(crate) const TITLE: Look = Look { size: 22, colour: "#16242e", weight: "bold" };
pub(crate) const SUBTITLE: Look = Look { size: 14, colour: "#51626e", weight: "normal" };
const DEVICE: Look = Look { size: 15, colour: "#16242e", weight: "bold" };
const FIGURES: Look = Look { size: 13, colour: "#16242e", weight: "normal" };
const SMALL: Look = Look { size: 12, colour: "#51626e", weight: "normal" };
pub(crate) const LEGEND: Look = Look { size: 13, colour: "#51626e", weight: "normal" };
pub(crate) const MARK: Look = Look { size: 13, colour: "#8a98a2", weight: "normal" };

/// SVG under construction.
pub(crate) struct Picture {
    text: String,
}

impl Picture {
    /// An empty white sheet.
    pub(crate) fn new(width: u32, height: u32, title: &str) -> Self {
        let mut picture = Self { text: String::new() };
        picture.line(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">"
        ));
        picture.line(&format!("<title>{}</title>", escape(title)));
        picture.line(&format!("<rect width=\"{width}\" height=\"{height}\" rx=\"10\" fill=\"#ffffff\"/>"));
        picture
    }

    /// The text of it.
    pub(crate) fn finish(mut self) -> String {
        self.line("</svg>");
        self.text
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(crate) fn text(&mut self, [x, y]: [u32; 2], look: &Look, text: &str) {
        let Look { size, colour, weight } = look;
        let text = escape(text);
        self.line(&format!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" font-weight=\"{weight}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    pub(crate) fn rect(&mut self, [x, y, width, height]: [u32; 4], colour: &str, title: &str) {
        let title = escape(title);
        self.line(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"><title>{title}</title></rect>"
        ));
    }
}

fn draw_stage(picture: &mut Picture, stage: &Stage, y: u32) {
    picture.text([LEFT, y + 15], &DEVICE, &stage.device.to_string());
    picture.text([LEFT, y + 31], &SMALL, &show::holds(stage, "layers ").join(", "));
    let left = LEFT + NAME;
    let used = stage.used_bytes();
    let whole = u128::from(used.max(stage.budget_bytes).get()).max(1);
    picture.rect([left, y + 2, BAR, 26], FREE, &format!("free {}", stage.slack_bytes.scaled()));
    let mut sum: u128 = 0;
    let mut filled: u32 = 0;
    let kinds = [
        (stage.weights_bytes, WEIGHTS, "weights"),
        (stage.kv_bytes, CONTEXT, "context"),
        (stage.overhead_bytes, ENGINE, "engine"),
    ];
    for (bytes, colour, name) in kinds {
        sum += u128::from(bytes.get());
        let end = u32::try_from(sum * u128::from(BAR) / whole).unwrap_or(BAR).min(BAR);
        if end > filled {
            picture.rect(
                [left + filled, y + 2, end - filled, 26],
                colour,
                &format!("{name} {}", bytes.scaled()),
            );
            filled = end;
        }
    }
    let figures = format!(
        "{} of {}  ({})",
        used.scaled(),
        stage.budget_bytes.scaled(),
        show::per_cent(used, stage.budget_bytes)
    );
    picture.text([left + BAR + 14, y + 15], &FIGURES, &figures);
    if let Some(seconds) = stage.seconds.filter(|s| *s > 0.0) {
        picture.text([left + BAR + 14, y + 31], &SMALL, &format!("{} per token", show::seconds(seconds)));
    }
}

fn legend(picture: &mut Picture, y: u32) {
    let mut x = LEFT + NAME;
    for (colour, name) in [(WEIGHTS, "weights"), (CONTEXT, "context"), (ENGINE, "engine"), (FREE, "free")] {
        picture.rect([x, y - 11, 13, 13], colour, name);
        picture.text([x + 19, y], &LEGEND, name);
        x += 100;
    }
    picture.text([LEFT, y], &MARK, "plimsoll");
}

fn subtitle(planned: &Planned) -> String {
    let mut text = String::new();
    if let Some(footprint) = planned.workload.footprints.first() {
        let layers = &footprint.layers;
        let kv = Bytes::saturating_sum(layers.iter().map(|l| l.kv_bytes));
        // Writing to a string does not fail.
        let _ = write!(text, "{} layers", layers.len());
        if footprint.context.per_sequence > 0 {
            let _ = write!(text, ", context {} ({})", footprint.context.per_sequence, kv.scaled());
        }
    }
    let speed = match (planned.plan.objective, planned.plan.value.value) {
        (Objective::Latency, Some(s)) if s > 0.0 => format!(", {:.1} tokens/s for one stream", 1.0 / s),
        (Objective::Throughput, Some(s)) if s > 0.0 => format!(", up to {:.1} tokens/s", 1.0 / s),
        _ => String::new(),
    };
    text + &speed
}

/// Text that means nothing to XML; what XML cannot carry is left out.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_picture() {
        assert_eq!(escape("a<b>&\"\u{0}\n\u{ffff}c"), "a&lt;b&gt;&amp;&quot;c");
    }
}
