//! What was asked, and under whose rules: as records, and back.

use std::collections::BTreeMap;

use plimsoll_balance::{Charges, EngineRules, HostUse, Pipelines, PlanOptions, StageCharges, Transfers};
use plimsoll_model::{ContextLength, Request};
use plimsoll_units::{Bytes, DeviceRef};

use super::words::{
    AUTO, cache_type, engine, flash, flash_word, objective, objective_word, pipelines, strategy,
    strategy_word, transfers, transfers_word,
};
use super::{
    ChargesRecord, EngineRecord, FormatError, PartRecord, PinRecord, PipelinesRecord, PlanFile,
    RequestRecord, Saved,
};

impl PlanFile {
    /// What was asked of the model.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn request(&self) -> Result<Request, FormatError> {
        let request = &self.request;
        let context = if request.unified_kv || request.parallel == 1 {
            ContextLength::PerSequence(request.ctx)
        } else {
            ContextLength::Total(request.ctx_total)
        };
        Ok(Request {
            context: Some(context),
            parallel: request.parallel,
            unified_kv: request.unified_kv,
            cache_type_k: cache_type("request.cache_type_k", &request.cache_type_k)?,
            cache_type_v: cache_type("request.cache_type_v", &request.cache_type_v)?,
            flash_attention: flash(&request.flash_attn)?,
            micro_batch: request.ubatch,
            batch: request.batch,
            full_window: request.swa_full,
            ranks: request.tensor_parallel.unwrap_or(1),
            engine: engine(&request.engine.name)?,
        })
    }

    /// Under whose rules it was made.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn rules(&self) -> Result<EngineRules, FormatError> {
        let engine = &self.request.engine;
        let host = match engine.host.as_str() {
            "ordinary" => HostUse::Ordinary,
            "first-layers-of-main" => HostUse::FirstLayersOfMain,
            other => {
                let known = "ordinary, first-layers-of-main";
                return Err(FormatError::Word { key: "request.engine.host", value: other.to_owned(), known });
            }
        };
        let charges = &engine.charges;
        let staged = |[each, first_more, last_more]: [u64; 3]| StageCharges {
            each: Bytes::new(each),
            first_more: Bytes::new(first_more),
            last_more: Bytes::new(last_more),
        };
        Ok(EngineRules {
            host,
            max_devices: engine.max_devices,
            margin: Bytes::new(engine.margin_bytes),
            charges: Charges {
                host: Bytes::new(charges.host),
                host_alone: Bytes::new(charges.host_alone),
                alone: Bytes::new(charges.alone),
                split: staged(charges.split),
                partial: staged(charges.partial),
            },
        })
    }

    /// With which options it was made.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn options(&self) -> Result<PlanOptions, FormatError> {
        let request = &self.request;
        let mut caps = BTreeMap::new();
        for (name, cap) in &request.caps {
            let device = name.split_once('/').and_then(|(node, device)| {
                Some(DeviceRef { node: node.parse().ok()?, device: device.parse().ok()? })
            });
            let device = device.ok_or_else(|| FormatError::Word {
                key: "request.caps",
                value: name.clone(),
                known: "names of the form node/device",
            })?;
            caps.insert(device, Bytes::new(*cap));
        }
        Ok(PlanOptions {
            objective: objective(&request.objective)?,
            strategy: strategy(&request.strategy)?,
            max_devices: request.max_devices,
            only: request.only.as_ref().map(|nodes| nodes.iter().cloned().collect()),
            caps,
            reserve: request.reserve.map(Bytes::new),
            pins: request.pins.iter().map(PinRecord::to_pin).collect(),
            parts: self.parts.iter().map(PartRecord::to_part).collect(),
            pipelines: pipelines(request.pipelines.as_ref())?,
            transfers: request.transfers.as_deref().map_or(Ok(Transfers::default()), transfers)?,
        })
    }
}

pub(super) fn request_record(saved: &Saved<'_>) -> RequestRecord {
    let (request, options, rules) = (saved.request, saved.options, saved.rules);
    let context = saved.workload.footprints.first().map(|f| f.context);
    let staged = |s: &StageCharges| [s.each.get(), s.first_more.get(), s.last_more.get()];
    let charges = &rules.charges;
    RequestRecord {
        ctx: context.map_or(0, |c| c.per_sequence),
        ctx_total: context.map_or(0, |c| c.total),
        parallel: request.parallel,
        unified_kv: request.unified_kv,
        cache_type_k: request.cache_type_k.to_string(),
        cache_type_v: request.cache_type_v.to_string(),
        flash_attn: flash_word(request.flash_attention).to_owned(),
        ubatch: request.micro_batch,
        batch: request.batch,
        swa_full: request.full_window,
        tensor_parallel: (request.ranks > 1).then_some(request.ranks),
        objective: objective_word(options.objective).to_owned(),
        strategy: strategy_word(options.strategy).to_owned(),
        max_devices: options.max_devices,
        only: options.only.as_ref().map(|nodes| nodes.iter().cloned().collect()),
        caps: options.caps.iter().map(|(device, cap)| (device.to_string(), cap.get())).collect(),
        reserve: options.reserve.map(Bytes::get),
        pins: options.pins.iter().map(PinRecord::from_pin).collect(),
        pipelines: match options.pipelines {
            Pipelines::One => None,
            Pipelines::Exactly(count) => Some(PipelinesRecord::Count(count)),
            Pipelines::Auto => Some(PipelinesRecord::Word(AUTO.to_owned())),
        },
        transfers: (options.transfers != Transfers::default())
            .then(|| transfers_word(options.transfers).to_owned()),
        engine: EngineRecord {
            name: request.engine.name.to_owned(),
            version: crate::engine_version(request.engine.name).to_owned(),
            host: match rules.host {
                HostUse::Ordinary => "ordinary".to_owned(),
                HostUse::FirstLayersOfMain => "first-layers-of-main".to_owned(),
            },
            max_devices: rules.max_devices,
            margin_bytes: rules.margin.get(),
            charges: ChargesRecord {
                host: charges.host.get(),
                host_alone: charges.host_alone.get(),
                alone: charges.alone.get(),
                split: staged(&charges.split),
                partial: staged(&charges.partial),
            },
            cache_ram_bytes: saved.cache_ram.map(Bytes::get),
        },
    }
}
