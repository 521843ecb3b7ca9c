//! Captured machines with drivers: the kernel's files and both libraries together.

use expect_test::{Expect, expect};

use crate::{bundle, child, cuda, lines, nvml};

fn check(name: &str, text: &str, settings: &[(&str, &str)], expected: Expect) {
    let root = bundle::laid_out(&format!("driven-{name}"), text);
    let Some(mut child) = child("machine", &[cuda(&[]), nvml(&[])], settings) else { return };
    expected.assert_eq(&lines(child.env("FAKE_ROOT", root)));
}

#[test]
fn a_desktop_with_two_kinds_of_cores_and_one_card() {
    check(
        "hybrid-desktop",
        include_str!("../fixtures/hybrid-desktop.txt"),
        &[("FAKE_CUDA", "4090"), ("FAKE_NVML", "4090")],
        expect![[r#""#]],
    );
}

#[test]
fn a_board_with_one_memory_whose_library_has_no_figures() {
    check(
        "unified-board",
        include_str!("../fixtures/unified-board.txt"),
        &[("FAKE_CUDA", "gb10"), ("FAKE_NVML", "gb10")],
        expect![[r#""#]],
    );
}

#[test]
fn a_server_whose_card_is_divided() {
    check(
        "mig-server",
        include_str!("../fixtures/mig-server.txt"),
        &[("FAKE_CUDA", "1g"), ("FAKE_NVML", "a100"), ("FAKE_MIG", "a100"), ("FAKE_SLICES", "2g,1g")],
        expect![[r#""#]],
    );
}
