//! How a balancer is set.

use std::time::Duration;

use plimsoll_profile::{AccelerationMode, RuntimeProfile};

use crate::workload::Strategy;

/// Whether layers may lie in the hosts' own memory. A processor that a node lists as a device of its own is a device like
/// any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostLayers {
    /// No: what does not fit on the accelerators does not fit.
    #[default]
    Never,
    /// Where the accelerators alone do not hold everything.
    LastResort,
}

/// How a balancer is set.
///
/// ```
/// use plimsoll_balance::LoadBalanceConfig;
///
/// let config = LoadBalanceConfig { min_load_threshold: 1.5, ..LoadBalanceConfig::default() };
/// assert!(config.validate().is_ok());
/// let config = LoadBalanceConfig { min_load_threshold: f64::NAN, ..config };
/// assert_eq!(config.validate().unwrap_err().to_string(), "a load threshold of NaN is no number above 1");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalanceConfig {
    /// How long [`LoadBalancer::distribute_with_deadlock_prevention`](crate::LoadBalancer) tries.
    pub lock_timeout: Duration,
    /// From which ratio of the largest to the smallest available share on the load counts as skewed; above 1.
    pub min_load_threshold: f64,
    /// The most layers in one slice; at least 1.
    pub max_layers_per_assignment: u32,
    /// The most transfers at once; at least 1.
    pub max_concurrent_rebalances: u32,
    /// In which orders devices are tried.
    pub strategy: Strategy,
    /// Whether hosts take layers.
    pub hosts: HostLayers,
}

impl Default for LoadBalanceConfig {
    /// 1 ms, 1.25, 100 layers, one transfer; every order, no hosts.
    fn default() -> Self {
        Self {
            lock_timeout: Duration::from_millis(1),
            min_load_threshold: 1.25,
            max_layers_per_assignment: 100,
            max_concurrent_rebalances: 1,
            strategy: Strategy::Portfolio,
            hosts: HostLayers::Never,
        }
    }
}

/// A setting that makes no sense. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Everything, or nothing, would count as skewed.
    #[error("a load threshold of {threshold} is no number above 1")]
    Threshold {
        /// What was asked for.
        threshold: f64,
    },
    /// Nothing could be assigned or moved.
    #[error("{what} is 0; at least 1 is needed")]
    Zero {
        /// Which setting.
        what: &'static str,
    },
}

impl LoadBalanceConfig {
    /// What suits a machine: patience and threshold by what does the work, sizes by its workers.
    pub fn autotuned(runtime: &RuntimeProfile) -> Self {
        let (micros, min_load_threshold) = match runtime.acceleration_mode {
            AccelerationMode::Gpu => (500, 1.15),
            AccelerationMode::Avx512 => (750, 1.05),
            AccelerationMode::Avx2 | AccelerationMode::Neon | AccelerationMode::Generic => (1000, 1.02),
        };
        let workers = runtime.recommended_workers.max(1);
        Self {
            lock_timeout: Duration::from_micros(micros),
            min_load_threshold,
            max_layers_per_assignment: workers.saturating_mul(2),
            max_concurrent_rebalances: workers.min(8),
            ..Self::default()
        }
    }

    /// Whether the settings make sense.
    ///
    /// # Errors
    ///
    /// A threshold that is not finite or not above 1, or a count of zero.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let threshold = self.min_load_threshold;
        if !threshold.is_finite() || threshold <= 1.0 {
            return Err(ConfigError::Threshold { threshold });
        }
        for (what, count) in [
            ("max_layers_per_assignment", self.max_layers_per_assignment),
            ("max_concurrent_rebalances", self.max_concurrent_rebalances),
        ] {
            if count == 0 {
                return Err(ConfigError::Zero { what });
            }
        }
        Ok(())
    }
}
