//! A cluster's devices kept ready for many questions.

use std::collections::BTreeMap;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::{Bytes, BytesPerSec, DeviceRef};

use crate::error::PlanError;
use crate::fleet::{Candidate, Fleet};
use crate::index::ModelIndex;
use crate::workload::{EngineRules, PlanOptions};

/// A cluster's devices in the orders that planners walk: built once, kept sorted when one changes, asked often.
///
/// Asking costs a walk over the devices that are used and no pass over the layers. A change costs two searches and a move
/// of memory. Devices that share a pool must not be here together: every one is taken to have its budget to itself.
///
/// ```
/// use plimsoll_balance::{ClusterIndex, LayerSpec, ModelIndex};
/// use plimsoll_units::{Bytes, BytesPerSec, DeviceId, DeviceRef, NodeId};
///
/// let card = |node: &str| -> Result<DeviceRef, plimsoll_units::IdError> {
///     Ok(DeviceRef { node: NodeId::new(node)?, device: DeviceId::new("CUDA0")? })
/// };
/// let layers = [5, 3, 3].into_iter().zip(0..).map(|(n, i)| LayerSpec::of_weights(i, Bytes::new(n)));
/// let model = ModelIndex::new(&layers.collect::<Vec<_>>())?;
/// let mut cluster = ClusterIndex::new();
/// cluster.set(card("a")?, Bytes::new(6), BytesPerSec::new(900));
/// cluster.set(card("b")?, Bytes::new(5), BytesPerSec::new(400));
///
/// let mut ends = Vec::new();
/// assert!(!cluster.fit(&model, &mut ends));
/// cluster.set(card("a")?, Bytes::new(8), BytesPerSec::new(900));
/// assert!(cluster.fit(&model, &mut ends));
/// assert_eq!(ends, [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClusterIndex {
    devices: BTreeMap<DeviceRef, (Bytes, BytesPerSec)>,
    by_room: Ranked,
    by_speed: Ranked,
    kinds: BTreeMap<(Bytes, BytesPerSec), usize>,
}

/// Devices in one order, with what a walk reads of them side by side.
#[derive(Clone, Debug, Default)]
struct Ranked {
    names: Vec<DeviceRef>,
    rooms: Vec<Bytes>,
    rates: Vec<BytesPerSec>,
}

/// Which order: what comes first is largest.
#[derive(Clone, Copy)]
enum By {
    Room,
    Speed,
}

impl By {
    /// What a device is ordered by, before its name.
    fn key(self, room: Bytes, rate: BytesPerSec) -> (u64, u64) {
        match self {
            Self::Room => (room.get(), rate.get()),
            Self::Speed => (rate.get(), room.get()),
        }
    }
}

impl Ranked {
    fn place(&self, by: By, name: &DeviceRef, room: Bytes, rate: BytesPerSec) -> Result<usize, usize> {
        let wanted = by.key(room, rate);
        let mut low = 0;
        let mut high = self.names.len();
        while low < high {
            let middle = low + (high - low) / 2;
            let here = by.key(self.rooms[middle], self.rates[middle]);
            // The largest first, and names in order among equals.
            match wanted.cmp(&here).then_with(|| self.names[middle].cmp(name)) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Less => low = middle + 1,
            }
        }
        Err(low)
    }

    fn insert(&mut self, by: By, name: &DeviceRef, room: Bytes, rate: BytesPerSec) {
        let (Ok(at) | Err(at)) = self.place(by, name, room, rate);
        self.names.insert(at, name.clone());
        self.rooms.insert(at, room);
        self.rates.insert(at, rate);
    }

    fn remove(&mut self, by: By, name: &DeviceRef, room: Bytes, rate: BytesPerSec) {
        if let Ok(at) = self.place(by, name, room, rate) {
            self.names.remove(at);
            self.rooms.remove(at);
            self.rates.remove(at);
        }
    }

    fn sort(by: By, devices: &BTreeMap<DeviceRef, (Bytes, BytesPerSec)>) -> Self {
        let mut all: Vec<_> =
            devices.iter().map(|(name, &(room, rate))| (by.key(room, rate), name)).collect();
        // Names are in order already, and a stable sort leaves equals so.
        all.sort_by_key(|&(key, _)| std::cmp::Reverse(key));
        Self {
            rooms: all.iter().map(|(_, name)| devices[*name].0).collect(),
            rates: all.iter().map(|(_, name)| devices[*name].1).collect(),
            names: all.into_iter().map(|(_, name)| name.clone()).collect(),
        }
    }
}

impl ClusterIndex {
    /// No devices.
    pub fn new() -> Self {
        Self::default()
    }

    /// These devices, each with what it may hold and how fast it reads; of a name that comes twice, the last.
    pub fn from_devices(devices: impl IntoIterator<Item = (DeviceRef, Bytes, BytesPerSec)>) -> Self {
        let named = devices.into_iter().map(|(name, room, rate)| (name, (room, rate)));
        let devices: BTreeMap<_, _> = named.collect();
        let mut kinds = BTreeMap::new();
        for kind in devices.values() {
            *kinds.entry(*kind).or_insert(0) += 1;
        }
        let (by_room, by_speed) = (Ranked::sort(By::Room, &devices), Ranked::sort(By::Speed, &devices));
        Self { devices, by_room, by_speed, kinds }
    }

    /// The devices of a snapshot that may take layers under these rules and options, with their budgets: those of drained
    /// and failed nodes, those not asked for, and those whose free memory is not known are left out. Of several devices
    /// on one pool the one with the largest budget is kept. A speed that nobody knows is zero.
    ///
    /// # Errors
    ///
    /// An inconsistent snapshot, a cap on a device that it does not have, or no main node where the rules need one.
    pub fn from_snapshot(
        snapshot: &ClusterSnapshot,
        rules: &EngineRules,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        snapshot.validate().map_err(PlanError::Snapshot)?;
        let fleet = Fleet::new(snapshot, rules, options)?;
        let mut of_pools: BTreeMap<usize, (u64, &Candidate)> = BTreeMap::new();
        for candidate in &fleet.devices {
            let budget = fleet.budget(candidate);
            let kept = of_pools.entry(candidate.pool).or_insert((budget, candidate));
            if budget > kept.0 {
                *kept = (budget, candidate);
            }
        }
        Ok(Self::from_devices(of_pools.into_values().map(|(budget, candidate)| {
            let rate = candidate.speed.map_or(BytesPerSec::new(0), |speed| speed.rate);
            (candidate.device.clone(), Bytes::new(budget), rate)
        })))
    }

    /// How many devices there are.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// What a device may hold and how fast it reads.
    pub fn get(&self, device: &DeviceRef) -> Option<(Bytes, BytesPerSec)> {
        self.devices.get(device).copied()
    }

    /// Adds a device, or changes what it may hold and how fast it reads.
    pub fn set(&mut self, device: DeviceRef, room: Bytes, rate: BytesPerSec) {
        if self.get(&device) == Some((room, rate)) {
            return;
        }
        self.remove(&device);
        self.by_room.insert(By::Room, &device, room, rate);
        self.by_speed.insert(By::Speed, &device, room, rate);
        *self.kinds.entry((room, rate)).or_insert(0) += 1;
        self.devices.insert(device, (room, rate));
    }

    /// Takes a device out; whether it was there.
    pub fn remove(&mut self, device: &DeviceRef) -> bool {
        let Some((room, rate)) = self.devices.remove(device) else { return false };
        self.by_room.remove(By::Room, device, room, rate);
        self.by_speed.remove(By::Speed, device, room, rate);
        if let Some(count) = self.kinds.get_mut(&(room, rate)) {
            *count -= 1;
            if *count == 0 {
                self.kinds.remove(&(room, rate));
            }
        }
        true
    }

    /// Devices that are alike: what each may hold, how fast it reads, and how many there are.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = (Bytes, BytesPerSec, usize)> + '_ {
        self.kinds.iter().map(|(&(room, rate), &count)| (room, rate, count))
    }

    /// The devices, the one that may hold most first; then the faster one, then names in order.
    pub fn largest_first(&self) -> &[DeviceRef] {
        &self.by_room.names
    }

    /// The devices, the fastest first; then the one that may hold more, then names in order.
    pub fn fastest_first(&self) -> &[DeviceRef] {
        &self.by_speed.names
    }

    /// Fills the devices [`largest_first`](Self::largest_first), each as far as it goes; whether everything fits so.
    ///
    /// `ends` becomes, for each device in that order, how many layers lie on it or before it. Where this fails another
    /// order may still do: [`plan`](crate::plan()) finds out.
    pub fn fit(&self, model: &ModelIndex, ends: &mut Vec<u32>) -> bool {
        model.fit_in_order(&self.by_room.rooms, ends)
    }

    /// The smallest largest stage time over the devices [`fastest_first`](Self::fastest_first), in seconds: exact for
    /// that order. `None` where the order does not fit.
    ///
    /// `ends` becomes, for each device in that order, how many layers lie on it or before it.
    pub fn min_max(&self, model: &ModelIndex, ends: &mut Vec<u32>) -> Option<f64> {
        model.min_max_in_order(&self.by_speed.rooms, &self.by_speed.rates, ends)
    }
}
