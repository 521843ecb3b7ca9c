//! What every model did when, as a picture.

use std::time::Duration;

use plimsoll::simulate::{Mood, Report, Span};

use super::text::{clock, count, span};
use crate::svg::{LEGEND, Look, MARK, Picture, SUBTITLE, TITLE};

const WIDTH: u32 = 960;
const LEFT: u32 = 190;
const BAR: u32 = 730;
const ROW: u32 = 40;
const TOP: u32 = 100;

/// Models beyond these have no row.
const MOST_ROWS: usize = 60;

/// Marks of things that happened beyond these would be a wall.
const MOST_MARKS: usize = 400;

const NAME: Look = Look { size: 14, colour: "#16242e", weight: "bold" };
const AXIS: Look = Look { size: 12, colour: "#51626e", weight: "normal" };

/// How a mood looks: colour and height both say which.
const fn look(mood: Mood) -> (&'static str, u32) {
    match mood {
        Mood::Serving => ("#2f6f8f", 24),
        Mood::Moving => ("#e0a030", 24),
        Mood::Loading => ("#8fb7c9", 14),
        Mood::Stalled => ("#a0566f", 8),
        Mood::Waiting => ("#8a98a2", 3),
    }
}

pub(super) fn draw(report: &Report) -> String {
    let shown = report.models.len().min(MOST_ROWS);
    let rows = u32::try_from(shown).unwrap_or(0);
    let bottom = TOP + rows * ROW;
    let height = bottom + 84;
    let mut picture = Picture::new(WIDTH, height, &format!("Simulation of {}", report.name));
    picture.text([30, 42], &TITLE, &report.name);
    picture.text([30, 68], &SUBTITLE, &subtitle(report));
    for (row, model) in (0_u32..).zip(&report.models[..shown]) {
        let y = TOP + row * ROW;
        picture.text([30, y + 17], &NAME, &crate::show::shorten(&model.name, 18));
        for part in &model.spans {
            draw_span(&mut picture, part, report.duration, y);
        }
    }
    let nodes = report.noted.iter().filter(|noted| noted.what.starts_with("node '")).take(MOST_MARKS);
    for noted in nodes {
        let x = at(noted.at, report.duration);
        let title = format!("{} {}", clock(noted.at), noted.what);
        picture.rect([x, TOP - 14, 1, 9], "#16242e", &title);
    }
    axis(&mut picture, report.duration, bottom);
    legend(&mut picture, bottom + 62);
    picture.finish()
}

fn draw_span(picture: &mut Picture, part: &Span, whole: Duration, y: u32) {
    let (from, until) = (at(part.from, whole), at(part.until, whole));
    let (colour, height) = look(part.mood);
    let title = format!("{} from {} to {}", part.mood.name(), clock(part.from), clock(part.until));
    // What is shorter than a point is still to be seen.
    picture.rect([from, y + 12 - height / 2, (until - from).max(1), height], colour, &title);
}

/// Where on the axis a time is.
fn at(time: Duration, whole: Duration) -> u32 {
    let part = time.as_millis() * u128::from(BAR) / whole.as_millis().max(1);
    LEFT + u32::try_from(part).unwrap_or(BAR).min(BAR)
}

fn axis(picture: &mut Picture, whole: Duration, y: u32) {
    picture.rect([LEFT, y, BAR, 1], "#8a98a2", "time");
    for tenth in [0_u32, 2, 4, 6, 8, 10] {
        let time = whole * tenth / 10;
        let x = at(time, whole);
        picture.rect([x, y, 1, 5], "#8a98a2", "time");
        picture.text([x.saturating_sub(if tenth == 0 { 0 } else { 22 }), y + 20], &AXIS, &clock(time));
    }
}

fn legend(picture: &mut Picture, y: u32) {
    let mut x = LEFT;
    for mood in [Mood::Serving, Mood::Moving, Mood::Loading, Mood::Stalled, Mood::Waiting] {
        let (colour, height) = look(mood);
        picture.rect([x, y - 5 - height / 2, 16, height], colour, mood.name());
        picture.text([x + 22, y], &LEGEND, mood.name());
        x += 110;
    }
    picture.rect([x + 8, y - 10, 1, 9], "#16242e", "a node changes");
    picture.text([x + 16, y], &LEGEND, "a node changes");
    picture.text([30, y], &MARK, "plimsoll");
}

fn subtitle(report: &Report) -> String {
    format!(
        "{}, {}: {} of {}, {} loaded, out of balance for {}",
        span(report.duration),
        count(report.nodes, "node"),
        count(usize::try_from(report.moves()).unwrap_or(usize::MAX), "move"),
        report.moved_bytes().scaled(),
        report.loaded_bytes().scaled(),
        span(report.out_of_balance)
    )
}
