//! The files of what is loaded beside a model.

use std::path::Path;

use plimsoll::model::gguf::read_gguf;
use plimsoll::model::{GgufHeader, ModelFormat, ModelSpec};
use plimsoll::{Beside, Draft, Engine, Projector};

use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::input;

/// What was opened, with the names that were typed.
pub(super) struct Files<'a> {
    projector: Option<(&'a str, GgufHeader)>,
    draft: Option<(&'a str, ModelSpec)>,
}

impl<'a> Files<'a> {
    pub(super) fn open(args: &'a PlanArgs, engine: Engine) -> Result<Self, Failure> {
        for (flag, file) in [("--mmproj", &args.mmproj), ("--draft", &args.draft)] {
            if file.is_some() && engine != Engine::LlamaCpp {
                return Err(Failure::Input(format!("{flag} is for plans under llama.cpp")));
            }
        }
        let projector = args.mmproj.as_deref().map(projector).transpose()?;
        let draft = args.draft.as_deref().map(draft).transpose()?;
        Ok(Self { projector, draft })
    }

    pub(super) fn beside(&self) -> Beside<'_> {
        Beside {
            projector: self.projector.as_ref().map(|(path, header)| Projector { path, header }),
            draft: self.draft.as_ref().map(|(path, model)| Draft { path, model }),
        }
    }
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::Input(format!("{} is not UTF-8, so no command line can be printed for it", path.display()))
    })
}

fn projector(path: &Path) -> Result<(&str, GgufHeader), Failure> {
    let header = read_gguf(path).map_err(Failure::input)?;
    let fact = |key: &str| header.metadata.get(key).and_then(|value| value.as_text());
    let is_one = fact("general.type") == Some("mmproj") || fact("general.architecture") == Some("clip");
    if !is_one {
        let kind = fact("general.architecture").unwrap_or("of no architecture");
        return Err(Failure::Input(format!("{} is no projector: it is {kind}", path.display())));
    }
    Ok((text(path)?, header))
}

fn draft(path: &Path) -> Result<(&str, ModelSpec), Failure> {
    let model = input::open_model(path)?;
    if model.format() != ModelFormat::Gguf {
        return Err(Failure::Input(format!(
            "{} is no GGUF file, and llama.cpp drafts with no other",
            path.display()
        )));
    }
    Ok((text(path)?, model))
}
