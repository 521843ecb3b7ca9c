//! Which start of the machine this is.

use super::Machine;
use crate::{Absence, Presence};

impl Machine {
    /// What the kernel drew at this boot (`/proc/sys/kernel/random/boot_id`): the same until the machine starts anew,
    /// and no two machines share it.
    pub fn boot_id(&self) -> Presence<String> {
        let usable = |text: String| {
            let id = text.trim();
            let plain = !id.is_empty() && id.len() <= 64 && id.chars().all(|c| c.is_ascii_graphic());
            if plain {
                Ok(id.to_owned())
            } else {
                Err(Absence::garbled("/proc/sys/kernel/random/boot_id", &text))
            }
        };
        self.text("proc/sys/kernel/random/boot_id").and_then(usable).into()
    }
}
