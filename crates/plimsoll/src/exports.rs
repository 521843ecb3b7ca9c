//! A plan in its engine's words.

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_export::exo::RingModel;
use plimsoll_export::llama_cpp::{self, Command, ExportError, ModelFacts};
use plimsoll_export::vllm::{self, ServedModel, Server};
use plimsoll_export::{
    CommandRecord, EngineError, Export, FileRecord, FormatError, PlanFile, accelerate, exo, mistral_rs,
    petals,
};
use plimsoll_model::{Footprint, ModelFormat};
use plimsoll_units::Bytes;

use crate::engine::Engine;
use crate::job::Planned;
use crate::ranks;

/// Why a plan cannot be said in its engine's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordsError {
    /// llama.cpp's.
    #[error(transparent)]
    LlamaCpp(#[from] ExportError),
    /// Another engine's.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Planned {
    /// Everything to type and to write, where the engine runs this form of model. `path` is the model as the person gave it.
    ///
    /// # Errors
    ///
    /// The engine has no words for the plan; see [`ExportError`] and [`EngineError`].
    pub fn export(&self, path: &str, snapshot: &ClusterSnapshot) -> Result<Option<Export>, WordsError> {
        let snapshot = &*ranks::seen(self.engine, self.request.ranks, snapshot);
        let Some(footprint) = self.workload.footprints.first() else { return Ok(None) };
        if self.format == ModelFormat::List || !self.engine.runs(self.format) {
            return Ok(None);
        }
        let request = &self.request;
        let served = ServedModel { path, context: footprint.context };
        let export = match self.engine {
            Engine::None => return Ok(None),
            Engine::LlamaCpp | Engine::IkLlamaCpp => {
                return Ok(self.command(path, snapshot)?.map(Export::from));
            }
            Engine::Vllm => vllm::command(Server::Vllm, &self.plan, snapshot, request, &served)?,
            Engine::Sglang => vllm::command(Server::Sglang, &self.plan, snapshot, request, &served)?,
            Engine::MistralRs => {
                let gguf = self.format == ModelFormat::Gguf;
                mistral_rs::export(&self.plan, snapshot, request, path, gguf)?
            }
            Engine::Accelerate => {
                let modules = self.modules.as_ref();
                let modules = modules.ok_or(EngineError::NoNames { engine: self.engine.name() })?;
                accelerate::export(&self.plan, snapshot, request, modules, path)?
            }
            Engine::Petals => petals::export(&self.plan, snapshot, request, &footprint.context, path)?,
            Engine::Exo => exo::export(&self.plan, snapshot, request, &self.in_a_ring(footprint))?,
        };
        Ok(Some(export))
    }

    fn in_a_ring<'a>(&'a self, footprint: &Footprint) -> RingModel<'a> {
        let layers = footprint.layers.iter().map(|layer| layer.weights_bytes);
        RingModel {
            id: self.name(),
            architecture: self.architecture(),
            layers: u32::try_from(footprint.layers.len()).unwrap_or(u32::MAX),
            bytes: Bytes::saturating_sum(layers.chain([footprint.each_device_bytes])),
            embedding_length: self.workload.activation_bytes.get() / 4,
        }
    }

    /// llama.cpp's command line for a GGUF file, in the engine's present or older form.
    ///
    /// # Errors
    ///
    /// The cluster does not say where a remote node listens.
    pub fn command(&self, path: &str, snapshot: &ClusterSnapshot) -> Result<Option<Command>, ExportError> {
        let footprint = self.workload.footprints.first();
        let Some(footprint) = footprint.filter(|_| self.format == ModelFormat::Gguf) else { return Ok(None) };
        let facts = ModelFacts {
            path,
            nextn: footprint.nextn,
            context: footprint.context,
            cache_ram: self.cache_ram,
        };
        match self.engine {
            Engine::LlamaCpp => {
                let mut command = llama_cpp::command(&self.plan, snapshot, &self.request, &facts)?;
                command.server.words.extend(self.beside.iter().cloned());
                Ok(Some(command))
            }
            Engine::IkLlamaCpp => {
                llama_cpp::older_command(&self.plan, snapshot, &self.request, &facts).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The plan as it lies in a file, with everything that carries it out, sealed. `path` is the model as the person gave
    /// it.
    ///
    /// # Errors
    ///
    /// A number that JSON cannot carry; the planner gives none.
    pub fn to_file_with(&self, export: Option<&Export>, path: &str) -> Result<PlanFile, FormatError> {
        let mut file = self.unsealed();
        if let Some(export) = export {
            let record = |line: &llama_cpp::LaunchLine| CommandRecord {
                node: line.node.clone(),
                line: line.to_string(),
            };
            file.commands = export.lines.iter().map(record).collect();
            file.files = export.files.iter().map(FileRecord::of).collect();
            if !self.engine.is_llama_cpp() {
                file.model.path = Some(path.to_owned());
            }
        }
        file.sealed()
    }
}
