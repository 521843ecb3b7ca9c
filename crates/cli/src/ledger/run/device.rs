//! The device that a command is shown.

use crate::failure::Failure;
use crate::input;

/// A device by the name that no order of devices changes.
#[derive(Debug)]
pub(super) struct Pinned {
    uuid: String,
}

impl Pinned {
    /// What the command's environment says of it.
    pub(super) fn environment(&self) -> [(&'static str, &str); 2] {
        [("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", &self.uuid)]
    }
}

/// The device of this name on this machine.
pub(super) fn find(name: &str) -> Result<Pinned, Failure> {
    let machine = input::this_machine_without_free();
    let devices: Vec<_> =
        machine.nodes.iter().flat_map(|node| &node.devices).filter(|device| !device.is_host()).collect();
    let Some(device) = devices.iter().find(|device| device.id.as_str() == name) else {
        let known: Vec<String> = devices.iter().map(|device| device.id.to_string()).collect();
        let known = if known.is_empty() { "no CUDA device".to_owned() } else { known.join(", ") };
        return Err(Failure::Input(format!("--device {name}: this machine has {known}")));
    };
    let uuid = device.uuid.clone().ok_or_else(|| {
        Failure::Input(format!("--device {name}: the driver tells no UUID of it, so it cannot be pinned"))
    })?;
    Ok(Pinned { uuid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_shown_by_its_unique_name_whatever_the_order() {
        let pinned = Pinned { uuid: "GPU-00112233-4455-6677-8899-aabbccddeeff".to_owned() };
        let expected = [
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            ("CUDA_VISIBLE_DEVICES", "GPU-00112233-4455-6677-8899-aabbccddeeff"),
        ];
        assert_eq!(pinned.environment(), expected);
    }
}
