//! One row a benchmark.

use super::figures::{Figure, Figures, Id, name};
use super::targets::Targets;

/// A benchmark of one of these names stands for somebody else's answer to the same input.
const PEERS: &[&str] = &["ghostlink", "peer"];

/// The peer that answered the same input in the same group.
pub(super) fn peer<'f>(figures: &'f Figures, (group, function, input): &Id) -> Option<&'f Figure> {
    let is_peer = |name: &str| PEERS.iter().any(|peer| name.starts_with(peer));
    let same = figures.iter().filter(|((g, f, i), _)| g == group && i == input && is_peer(f));
    same.map(|(_, figure)| figure).next().filter(|_| !is_peer(function))
}

/// The rows, the heading first. A ratio above one means that we are faster than what stands in its heading.
pub(super) fn rows(figures: &Figures, targets: &Targets, compare: Option<&str>) -> Vec<Vec<String>> {
    let saved = compare.map_or(String::new(), |compare| format!("{compare} / now"));
    let heading = ["benchmark", "median", "p5", "peer", "peer / ours", "target", "met", &saved];
    let mut ids: Vec<&Id> = figures.keys().collect();
    // Sizes in the order of numbers, so that growth is read from top to bottom.
    ids.sort_by_key(|(group, function, input)| (group, function, sizes(input), input));
    let rows = ids.into_iter().map(|id| {
        let figure = &figures[id];
        let peer = peer(figures, id);
        let verdict = targets.verdict(figures, id);
        vec![
            name(id),
            duration(figure.median),
            duration(figure.p5),
            peer.map_or(String::new(), |peer| duration(peer.median)),
            ratio(peer.map(|peer| peer.median), figure.median),
            verdict.target,
            verdict.met,
            ratio(figure.saved, figure.median),
        ]
    });
    let heading = heading.map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let filled: Vec<bool> =
        (0..rows[0].len()).map(|column| rows.iter().skip(1).any(|row| !row[column].is_empty())).collect();
    for row in &mut rows {
        let mut column = filled.iter();
        row.retain(|_| *column.next().unwrap_or(&true));
    }
    rows
}

/// The numbers of `10000x100`.
fn sizes(input: &str) -> Vec<u64> {
    input.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn ratio(other: Option<f64>, ours: f64) -> String {
    other.map_or(String::new(), |other| format!("{:.2}x", other / ours))
}

/// Names to the left, figures to the right.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

pub(super) fn duration(nanoseconds: f64) -> String {
    let (amount, unit) = match nanoseconds {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{amount:.2} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rows: &[(&str, &str, &str, f64, Option<f64>)]) -> Figures {
        let figure = |median: f64, saved| Figure { median, p5: median / 2.0, saved };
        let id = |g: &str, f: &str, i: &str| (g.to_owned(), f.to_owned(), i.to_owned());
        rows.iter().map(|(g, f, i, median, saved)| (id(g, f, i), figure(*median, *saved))).collect()
    }

    #[test]
    fn ratios_are_taken_within_a_group_and_an_input() {
        let figures = figures(&[
            ("warm", "plimsoll", "1000x10", 8_000.0, Some(4_000.0)),
            ("warm", "ghostlink-core", "1000x10", 56_000.0, None),
            ("warm", "plimsoll", "80x9", 900.0, None),
            ("cold", "plimsoll", "1000x10", 2e9, None),
        ]);
        assert_eq!(
            aligned(&rows(&figures, &Targets::default(), Some("monday"))),
            "\
benchmark                       median         p5      peer  peer / ours  monday / now
cold/plimsoll/1000x10           2.00 s     1.00 s
warm/ghostlink-core/1000x10   56.00 µs   28.00 µs
warm/plimsoll/80x9           900.00 ns  450.00 ns
warm/plimsoll/1000x10          8.00 µs    4.00 µs  56.00 µs        7.00x         0.50x
"
        );
    }

    #[test]
    fn durations_have_the_unit_of_their_size() {
        let shown = [0.5, 999.0, 1e3, 1e6, 1e9].map(duration);
        assert_eq!(shown, ["0.50 ns", "999.00 ns", "1.00 µs", "1.00 ms", "1.00 s"]);
    }
}
