//! The files of what is loaded beside a model.

use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use plimsoll::model::{GgufHeader, ModelSpec};
use plimsoll::{Adapted, Adapter, Beside, Draft, Engine, Projector};

use super::ask::PlanRequest;
use crate::error::{ApiError, chain};
use crate::models::{Models, NameError};

/// What was opened, with where it lies.
#[derive(Debug, Default)]
pub(super) struct Files {
    projector: Option<(String, GgufHeader)>,
    draft: Option<(String, Arc<ModelSpec>)>,
    adapters: Vec<(String, Option<f32>, GgufHeader)>,
    /// What the files were when they were read.
    pub(super) state: String,
}

impl Files {
    /// What a request names; blocks.
    pub(super) fn open(
        asked: &PlanRequest,
        models: Option<&Models>,
        engine: Engine,
    ) -> Result<Self, ApiError> {
        for (key, file) in [("mmproj", &asked.mmproj), ("draft", &asked.draft)] {
            if file.is_some() && engine != Engine::LlamaCpp {
                return Err(ApiError::input(format!("{key} is for plans under llama.cpp")));
            }
        }
        let mut files = Self::default();
        if let Some(name) = &asked.mmproj {
            files.projector = Some(files.piece(models, name)?);
        }
        if let Some(name) = &asked.draft {
            let found = folder(models, name)?.open(name).map_err(|error| wrong(&error))?;
            files.state.push_str(&found.state.key());
            files.draft = Some((text(name, &found.path)?, found.spec));
        }
        let plain = asked.lora.iter().map(|name| Ok((name.as_str(), None)));
        for named in plain.chain(asked.lora_scaled.iter().map(|text| scaled(text))) {
            let (name, scale) = named?;
            let (path, header) = files.piece(models, name)?;
            files.adapters.push((path, scale, header));
        }
        Ok(files)
    }

    fn piece(&mut self, models: Option<&Models>, name: &str) -> Result<(String, GgufHeader), ApiError> {
        let piece = folder(models, name)?.piece(name).map_err(|error| wrong(&error))?;
        self.state.push_str(&piece.state.key());
        Ok((text(name, &piece.path)?, piece.header))
    }

    /// What lies beside the layers.
    pub(super) fn beside(&self) -> Result<Beside<'_>, ApiError> {
        let projector = self.projector.as_ref().map(|(path, header)| Projector::new(path, header));
        let draft = self.draft.as_ref().map(|(path, model)| Draft::new(path, model));
        let projector = projector.transpose().map_err(|error| ApiError::because(&error))?;
        let draft = draft.transpose().map_err(|error| ApiError::because(&error))?;
        Ok(Beside { projector, draft })
    }

    /// The model with its adapters; `None` without any.
    pub(super) fn adapted(&self, model: &ModelSpec) -> Result<Option<Adapted>, ApiError> {
        let adapters = self.adapters.iter();
        let adapters: Vec<Adapter<'_>> =
            adapters.map(|(path, scale, header)| Adapter { path, scale: *scale, header }).collect();
        if adapters.is_empty() {
            return Ok(None);
        }
        Adapted::new(model, &adapters).map(Some).map_err(|error| ApiError::because(&error))
    }
}

/// The folder of models; a name without one means nothing.
pub(super) fn folder<'a>(models: Option<&'a Models>, name: &str) -> Result<&'a Models, ApiError> {
    models.ok_or_else(|| {
        ApiError::input(format!(
            "the model '{name}' is named by path, and this agent was started without a folder of models"
        ))
    })
}

/// What a name that names nothing is answered with.
pub(super) fn wrong(error: &NameError) -> ApiError {
    match error {
        NameError::Missing { .. } => ApiError::new(StatusCode::NOT_FOUND, chain(error)),
        _ => ApiError::because(error),
    }
}

/// A path as it stands on a command line.
pub(super) fn text(name: &str, path: &Path) -> Result<String, ApiError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        ApiError::input(format!("the path of the model '{name}' is not UTF-8: no command line can name it"))
    })
}

fn scaled(text: &str) -> Result<(&str, Option<f32>), ApiError> {
    let parts = text.rsplit_once(':').and_then(|(name, scale)| Some((name, scale.parse::<f32>().ok()?)));
    let parts = parts.filter(|(name, scale)| !name.is_empty() && scale.is_finite());
    let (name, scale) = parts.ok_or_else(|| {
        ApiError::input(format!("lora_scaled: '{text}' is not FILE:SCALE, such as terms.gguf:0.5"))
    })?;
    Ok((name, Some(scale)))
}
