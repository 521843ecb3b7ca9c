//! What the processor's registers say.

#[cfg(not(all(
    feature = "cpu",
    any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")
)))]
use crate::Absence;
use crate::{Cache, CpuFeatures, Presence, RegisterDump};

/// Who made the processor, its name, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) vendor: Option<String>,
    pub(crate) brand: Option<String>,
    pub(crate) features: CpuFeatures,
    /// From the smallest level to the largest.
    pub(crate) caches: Vec<Cache>,
}

/// Asks the processor that this runs on, or looks into a recording of another.
#[cfg(all(feature = "cpu", any(target_arch = "x86", target_arch = "x86_64")))]
pub(crate) fn read(recorded: Option<&RegisterDump>) -> Presence<Registers> {
    if let Some(dump) = recorded {
        return Presence::Found(x86::recorded(dump));
    }
    let id = raw_cpuid::CpuId::new();
    let saves_state = id.get_feature_info().is_some_and(|f| f.has_oxsave());
    Presence::Found(x86::decode(&id, crate::xcr0::read(saves_state)))
}

/// Every 64-bit Arm processor that runs a standard library has 128-bit vectors, and every system keeps them.
#[cfg(all(feature = "cpu", target_arch = "aarch64"))]
pub(crate) fn read(_recorded: Option<&RegisterDump>) -> Presence<Registers> {
    let features = CpuFeatures { neon: cfg!(target_feature = "neon"), ..CpuFeatures::default() };
    Presence::Found(Registers { vendor: None, brand: None, features, caches: Vec::new() })
}

/// A processor without such registers.
#[cfg(all(feature = "cpu", not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn read(_recorded: Option<&RegisterDump>) -> Presence<Registers> {
    Presence::Absent(Absence::NotHere)
}

/// The door without the feature.
#[cfg(not(feature = "cpu"))]
pub(crate) fn read(_recorded: Option<&RegisterDump>) -> Presence<Registers> {
    Presence::Absent(Absence::NotCompiled { feature: "cpu" })
}

#[cfg(all(feature = "cpu", any(target_arch = "x86", target_arch = "x86_64")))]
mod x86 {
    use plimsoll_units::Bytes;
    use raw_cpuid::{CacheType, CpuId, CpuIdReader, CpuIdResult};

    use super::{Cache, CpuFeatures, RegisterDump, Registers};
    use crate::CacheKind;

    /// The registers that the operating system must keep for 256-bit vectors: SSE and AVX state.
    const AVX_STATE: u64 = 0x6;
    /// And for 512-bit vectors: also mask registers and both halves of the upper state.
    const AVX512_STATE: u64 = AVX_STATE | 0xe0;

    /// A processor from a recording.
    pub(super) fn recorded(dump: &RegisterDump) -> Registers {
        let answers = dump.clone();
        let read = move |leaf: u32, subleaf: u32| {
            let [eax, ebx, ecx, edx] = answers.answer(leaf, subleaf);
            CpuIdResult { eax, ebx, ecx, edx }
        };
        decode(&CpuId::with_cpuid_reader(read), dump.xcr0())
    }

    /// A processor from its registers and from `xcr0`, which says what state the operating system keeps.
    pub(super) fn decode<R: CpuIdReader>(id: &CpuId<R>, xcr0: u64) -> Registers {
        let extended = id.get_extended_feature_info();
        let has_avx = id.get_feature_info().is_some_and(|f| f.has_oxsave() && f.has_avx());
        let keeps = |state: u64| xcr0 & state == state;
        let features = CpuFeatures {
            avx2: has_avx && keeps(AVX_STATE) && extended.as_ref().is_some_and(|e| e.has_avx2()),
            avx512: has_avx && keeps(AVX512_STATE) && extended.as_ref().is_some_and(|e| e.has_avx512f()),
            neon: false,
        };
        let tidy = |text: &str| {
            let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
            (!text.is_empty()).then(|| text.to_owned())
        };
        Registers {
            vendor: id.get_vendor_info().and_then(|v| tidy(v.as_str())),
            brand: id.get_processor_brand_string().and_then(|b| tidy(b.as_str())),
            features,
            caches: caches(id),
        }
    }

    /// The caches of this processor. Ways × partitions × line × sets, each told as one less; what cannot be is left out.
    fn caches<R: CpuIdReader>(id: &CpuId<R>) -> Vec<Cache> {
        let cache = |told: raw_cpuid::CacheParameter| {
            let kind = match told.cache_type() {
                CacheType::Data => CacheKind::Data,
                CacheType::Instruction => CacheKind::Instruction,
                CacheType::Unified => CacheKind::Unified,
                CacheType::Null | CacheType::Reserved => return None,
            };
            let parts = [told.associativity(), told.physical_line_partitions(), told.coherency_line_size()];
            let parts = parts.into_iter().filter_map(|part| u64::try_from(part).ok());
            let sets = Bytes::new(u64::try_from(told.sets()).ok()?);
            let size = parts.into_iter().try_fold(sets, Bytes::checked_mul)?;
            Some(Cache { level: told.level().into(), kind, size })
        };
        let told = id.get_cache_parameters().into_iter().flatten();
        let mut found: Vec<Cache> = told.take(16).filter_map(cache).collect();
        found.sort_unstable();
        found
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;

        use super::*;

        type Leaf = (u32, u32, [u32; 4]);

        /// A server processor with 512-bit vectors, reduced to the leaves that are read.
        const SERVER: &[Leaf] = &[
            (0, 0, [0x16, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]),
            (1, 0, [0x0005_0657, 0, 0x7ffe_fbff, 0xbfeb_fbff]),
            (7, 0, [0, 0xd39f_fffb, 0x0000_0808, 0xbc00_0400]),
            (0x8000_0000, 0, [0x8000_0008, 0, 0, 0]),
            (0x8000_0002, 0, [0x6574_6e49, 0x2952_286c, 0x6f65_5820, 0x2952_286e]),
            (0x8000_0003, 0, [0x6c6f_4720, 0x3236_2064, 0x2052_3235, 0x2055_5043]),
            (0x8000_0004, 0, [0x2e33_2040, 0x4730_3031, 0x0000_7a48, 0]),
        ];

        /// A desktop processor of another maker, with 256-bit vectors only.
        const DESKTOP: &[Leaf] = &[
            (0, 0, [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
            (1, 0, [0x0087_0f10, 0, 0x7ed8_320b, 0x178b_fbff]),
            (7, 0, [0, 0x219c_91a9, 0x0040_0004, 0]),
        ];

        fn decode_leaves(leaves: &'static [Leaf], xcr0: u64) -> Registers {
            let read = move |eax: u32, ecx: u32| {
                let found = leaves.iter().find(|(leaf, sub, _)| (*leaf, *sub) == (eax, ecx));
                let [eax, ebx, ecx, edx] = found.map_or([0; 4], |(_, _, regs)| *regs);
                CpuIdResult { eax, ebx, ecx, edx }
            };
            decode(&CpuId::with_cpuid_reader(read), xcr0)
        }

        #[test]
        fn wide_vectors_count_only_when_the_system_keeps_their_state() {
            let features = |xcr0| {
                let f = decode_leaves(SERVER, xcr0).features;
                (f.avx2, f.avx512)
            };
            assert_eq!(features(0xe7), (true, true));
            assert_eq!(features(0x67), (true, false));
            assert_eq!(features(0x7), (true, false));
            assert_eq!(features(0x3), (false, false));
            assert_eq!(features(0), (false, false));
        }

        #[test]
        fn a_processor_is_known_by_its_registers() {
            let server = decode_leaves(SERVER, 0xe7);
            assert_eq!(server.vendor.as_deref(), Some("GenuineIntel"));
            assert_eq!(server.brand.as_deref(), Some("Intel(R) Xeon(R) Gold 6252R CPU @ 3.100GHz"));
            let desktop = decode_leaves(DESKTOP, 0x7);
            assert_eq!((desktop.vendor.as_deref(), desktop.brand), (Some("AuthenticAMD"), None));
            assert_eq!(desktop.features, CpuFeatures { avx2: true, avx512: false, neon: false });
        }

        #[test]
        fn a_processor_without_leaves_has_nothing() {
            let nothing = decode_leaves(&[], u64::MAX);
            assert_eq!(nothing.features, CpuFeatures::default());
            assert_eq!(nothing.brand, None);
        }

        #[test]
        fn this_processor_agrees_with_the_standard_library() {
            if let crate::Presence::Found(here) = super::super::read(None) {
                assert_eq!(here.features.avx2, std::arch::is_x86_feature_detected!("avx2"));
                assert_eq!(here.features.avx512, std::arch::is_x86_feature_detected!("avx512f"));
            }
        }

        proptest! {
            #[test]
            fn no_registers_panic(words: [u32; 16], xcr0: u64) {
                let read = move |eax: u32, ecx: u32| {
                    let word = |n: u32| words[usize::try_from((eax ^ ecx).wrapping_add(n) % 16).unwrap()];
                    CpuIdResult { eax: word(0), ebx: word(5), ecx: word(7), edx: word(11) }
                };
                let _ = decode(&CpuId::with_cpuid_reader(read), xcr0);
                let all = |_: u32, _: u32| CpuIdResult { eax: !0, ebx: !0, ecx: !0, edx: !0 };
                prop_assert!(decode(&CpuId::with_cpuid_reader(all), !0).features.avx512);
            }
        }
    }
}
