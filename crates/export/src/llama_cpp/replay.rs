//! What `-ngl` and `-ts` mean to the engine, in its own arithmetic.

/// Where the engine puts one index: a block, or the output layer behind the last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the host's memory.
    Host,
    /// On the n-th device of `--device`.
    Device(usize),
}

/// Where the engine puts each of `blocks` blocks and, as the last item, the output layer.
///
/// `gpu_layers` is `-ngl` (negative: all), `split` is `-ts` with one share for each device of `--device`. The sums and
/// the comparison are done in 32-bit floating point, as the engine does them: that is why fractions with two digits put
/// layers where nobody asked for them. An empty split, or one that adds up to nothing, puts everything on the host (the
/// engine would ask its devices for their free memory, which no line can tell).
pub fn assign(blocks: u32, gpu_layers: i64, split: &[f32]) -> Vec<Place> {
    let indices = i64::from(blocks) + 1;
    let act = if gpu_layers < 0 { indices } else { gpu_layers.min(indices) };
    let start = (indices - act).max(0);
    let total: f32 = split.iter().fold(0.0, |sum, share| sum + share);
    let mut sum = 0.0_f32;
    let bounds: Vec<f32> = split
        .iter()
        .map(|share| {
            sum += share;
            sum / total
        })
        .collect();
    (0..indices)
        .map(|index| {
            if index < start || total.is_nan() || total <= 0.0 {
                return Place::Host;
            }
            let probe = to_f32(index - start) / to_f32(act);
            // `upper_bound`: the first device whose cumulated share is above the probe.
            let device = bounds.iter().position(|bound| probe < *bound);
            device.map_or(Place::Host, Place::Device)
        })
        .collect()
}

/// As C converts an integer to `float`.
#[expect(
    clippy::cast_precision_loss,
    reason = "the engine computes in 32 bits; block counts stay below 2^24"
)]
fn to_f32(n: i64) -> f32 {
    n as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(blocks: u32, gpu_layers: i64, split: &[f32]) -> (usize, Vec<usize>) {
        let places = assign(blocks, gpu_layers, split);
        let on = |p: Place| places.iter().filter(|&&q| q == p).count();
        (on(Place::Host), (0..split.len()).map(|d| on(Place::Device(d))).collect())
    }

    #[test]
    fn the_obvious_even_split_is_not_even() {
        // With the head counted, 16,16 gives 17 blocks to the first card and 15 and the head to the second.
        for wrong in [[16.0, 16.0], [17.0, 16.0], [0.5, 0.5], [0.49, 0.51]] {
            assert_eq!(counts(32, 33, &wrong), (0, vec![17, 16]), "{wrong:?}");
        }
        for right in [[16.0, 17.0], [0.48, 0.52]] {
            assert_eq!(counts(32, 33, &right), (0, vec![16, 17]), "{right:?}");
        }
    }

    #[test]
    fn fractions_with_two_digits_move_layers() {
        assert_eq!(counts(80, 81, &[34.0, 31.0, 16.0]), (0, vec![34, 31, 16]));
        assert_eq!(counts(80, 81, &[0.42, 0.38, 0.20]), (0, vec![35, 30, 16]));
    }

    #[test]
    fn one_gpu_layer_is_the_head() {
        // `-ngl N` offloads from the end and counts the output layer: N = 1 is the head alone.
        let places = assign(16, 1, &[1.0]);
        assert_eq!(places.iter().filter(|p| **p == Place::Host).count(), 16);
        assert_eq!(places[16], Place::Device(0));
        // 33 of 32 blocks is everything; so is any larger number, and a negative one.
        for all in [33, 99, -1] {
            assert!(assign(32, all, &[1.0]).iter().all(|p| *p == Place::Device(0)), "{all}");
        }
        assert!(assign(32, 0, &[1.0]).iter().all(|p| *p == Place::Host));
    }

    #[test]
    fn shares_of_nothing_leave_everything_on_the_host() {
        assert_eq!(counts(4, -1, &[0.0, 0.0]), (5, vec![0, 0]));
        assert_eq!(counts(4, -1, &[]), (5, vec![]));
        assert_eq!(counts(4, -1, &[f32::NAN]), (5, vec![0]));
    }

    #[test]
    fn a_device_with_a_share_of_zero_gets_nothing() {
        assert_eq!(counts(10, 11, &[5.0, 0.0, 6.0]), (0, vec![5, 0, 6]));
    }
}
