//! A file with a strength.

use std::path::PathBuf;
use std::str::FromStr;

/// A file with a strength (`terms.gguf:0.5`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScaledFile {
    pub(crate) path: PathBuf,
    pub(crate) scale: f32,
}

impl FromStr for ScaledFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':').and_then(|(path, scale)| Some((path, scale.parse::<f32>().ok()?)));
        match parts.filter(|(path, scale)| !path.is_empty() && scale.is_finite()) {
            Some((path, scale)) => Ok(Self { path: path.into(), scale }),
            None => Err(format!("'{text}' is not FILE:SCALE, such as terms.gguf:0.5")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_colon_ends_the_name() {
        let parsed: ScaledFile = "a:b.gguf:-0.5".parse().unwrap();
        assert_eq!(parsed, ScaledFile { path: "a:b.gguf".into(), scale: -0.5 });
        for bad in ["", "a.gguf", "a.gguf:", ":1", "a.gguf:much", "a.gguf:inf", "a.gguf:NaN"] {
            assert!(bad.parse::<ScaledFile>().unwrap_err().contains(bad), "{bad}");
        }
    }
}
