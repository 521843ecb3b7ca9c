//! NVIDIA's libraries, as they exist only in tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with both of NVIDIA's libraries, compiled from the tests of the crate that looks; `None` without a compiler.
pub(crate) fn drivers(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("drivers").join(name);
    fs::create_dir_all(&folder).unwrap();
    for (source, file) in
        [("cuda.c", "libcuda.so.1"), ("cuda.c", "libcuda.so"), ("nvml.c", "libnvidia-ml.so.1")]
    {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profile/tests/fake").join(source);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(file)).arg(source);
        match cc.output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(why) => {
                let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty());
                assert!(!in_ci, "no C compiler: {why}");
                eprintln!("skipped: no C compiler ('cc': {why}), so no driver can be made");
                return None;
            }
        }
    }
    Some(folder)
}
