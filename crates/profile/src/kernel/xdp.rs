//! Whether the kernel can hand packets to a program before its own network stack does.

use super::Machine;
use crate::{Absence, Presence};

/// The first kernel with the express data path.
const FIRST: (u32, u32) = (4, 8);

impl Machine {
    /// Whether the kernel is new enough for the express data path (XDP, Linux 4.8). Whether a network card's driver has
    /// it as well, only an attempt can tell.
    pub fn xdp(&self) -> Presence<bool> {
        self.text("proc/sys/kernel/osrelease").and_then(|text| since(&text)).into()
    }
}

fn since(release: &str) -> Result<bool, Absence> {
    let garbled = || Absence::garbled("/proc/sys/kernel/osrelease", release);
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor) >= FIRST),
        _ => Err(garbled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_from_4_8_on_have_the_express_data_path() {
        for (release, has) in
            [("4.7.10", false), ("4.8.0-rc1", true), ("3.99", false), ("6.1.0-18-amd64\n", true)]
        {
            assert_eq!(since(release), Ok(has), "{release}");
        }
        for garbage in ["", "linux", "6", "99999999999.1"] {
            assert!(matches!(since(garbage), Err(Absence::Garbled { .. })), "{garbage:?}");
        }
    }
}
