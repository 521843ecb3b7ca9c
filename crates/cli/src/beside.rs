//! The files of what is loaded beside a model.

use std::path::{Path, PathBuf};

use plimsoll::export::llama_cpp::BesideFlags;
use plimsoll::model::gguf::read_gguf;
use plimsoll::model::{GgufHeader, ModelSpec};
use plimsoll::{Adapted, Adapter, Beside, Draft, Engine, Projector};

use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::{input, refusal};

/// What was opened, with the names that were typed.
#[derive(Default)]
pub(crate) struct Files {
    projector: Option<(String, GgufHeader)>,
    draft: Option<(String, ModelSpec)>,
    adapters: Vec<(String, Option<f32>, GgufHeader)>,
}

impl Files {
    /// What the flags of a plan name.
    pub(crate) fn open(args: &PlanArgs, engine: Engine, json: bool) -> Result<Self, Failure> {
        for (flag, file) in [("--mmproj", &args.mmproj), ("--draft", &args.draft)] {
            if file.is_some() && engine != Engine::LlamaCpp {
                return Err(Failure::Input(format!("{flag} is for plans under llama.cpp")));
            }
        }
        let plain = args.lora.iter().map(|path| (path.clone(), None));
        let scaled = args.lora_scaled.iter().map(|scaled| (scaled.path.clone(), Some(scaled.scale)));
        let adapters: Vec<(PathBuf, Option<f32>)> = plain.chain(scaled).collect();
        if !adapters.is_empty() {
            engine.takes_adapters().map_err(|error| refusal::excluded(&error.to_string(), json))?;
        }
        Ok(Self {
            projector: args.mmproj.as_deref().map(projector).transpose()?,
            draft: args.draft.as_deref().map(draft).transpose()?,
            adapters: adapters_of(&adapters)?,
        })
    }

    /// What the flags of a command line name.
    pub(crate) fn named(flags: &BesideFlags) -> Result<Self, Failure> {
        let projector = flags.projector.as_deref().map(|path| projector(Path::new(path)));
        let draft = flags.draft.as_deref().map(|path| draft(Path::new(path)));
        let adapters: Vec<(PathBuf, Option<f32>)> =
            flags.adapters.iter().map(|(path, scale)| (PathBuf::from(path), *scale)).collect();
        Ok(Self {
            projector: projector.transpose()?,
            draft: draft.transpose()?,
            adapters: adapters_of(&adapters)?,
        })
    }

    pub(crate) fn beside(&self) -> Beside<'_> {
        Beside {
            projector: self.projector.as_ref().map(|(path, header)| Projector { path, header }),
            draft: self.draft.as_ref().map(|(path, model)| Draft { path, model }),
        }
    }

    /// The model with the adapters that were opened.
    pub(crate) fn adapted(&self, model: &ModelSpec) -> Result<Adapted, Failure> {
        let adapters = self.adapters.iter();
        let adapters: Vec<Adapter<'_>> =
            adapters.map(|(path, scale, header)| Adapter { path, scale: *scale, header }).collect();
        Adapted::new(model, &adapters).map_err(Failure::input)
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::Input(format!("{} is not UTF-8, so no command line can be printed for it", path.display()))
    })
}

fn projector(path: &Path) -> Result<(String, GgufHeader), Failure> {
    let header = read_gguf(path).map_err(Failure::input)?;
    let path = text(path)?;
    Projector::new(&path, &header).map_err(Failure::input)?;
    Ok((path, header))
}

fn draft(path: &Path) -> Result<(String, ModelSpec), Failure> {
    let model = input::open_model(path)?;
    let path = text(path)?;
    Draft::new(&path, &model).map_err(Failure::input)?;
    Ok((path, model))
}

fn adapters_of(named: &[(PathBuf, Option<f32>)]) -> Result<Vec<(String, Option<f32>, GgufHeader)>, Failure> {
    for (at, (path, _)) in named.iter().enumerate() {
        if let Some((first, _)) = named[..at].iter().find(|(other, _)| input::same_file(path, other)) {
            return Err(Failure::Input(format!(
                "{} and {} are one adapter: name it once, with the strength that it should have",
                first.display(),
                path.display()
            )));
        }
    }
    let opened = named.iter().map(|(path, scale)| {
        let header = read_gguf(path).map_err(Failure::input)?;
        Ok((text(path)?, *scale, header))
    });
    opened.collect()
}
