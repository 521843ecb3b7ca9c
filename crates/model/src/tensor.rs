//! How values are stored in blocks.

use std::fmt;

/// Writes the enum and its tables from one list, so that a type without a size cannot exist.
macro_rules! tensor_types {
    ($($name:ident $values:literal / $bytes:literal $(, ggml $id:literal)? $(, dtype $dtype:literal)?;)*) => {
        /// How the values of a tensor are stored: GGML's types by number, and those that only safetensors knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(non_camel_case_types, reason = "these are the names that the formats use")]
        #[expect(missing_docs, reason = "a name says all there is; sizes stand in `block`")]
        pub enum TensorType { $($name,)* }

        impl TensorType {
            /// Every type, in the order of the enum.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// (values in a block, bytes of a block). Neither is zero.
            pub const fn block(self) -> (u64, u64) {
                match self { $(Self::$name => ($values, $bytes),)* }
            }

            /// The name that the formats use (`Q4_K`, `BF16`).
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The type with this number in a GGUF file; `None` for numbers that were never given out or were taken back.
            pub const fn from_ggml(id: u32) -> Option<Self> {
                match id { $($($id => Some(Self::$name),)?)* _ => None }
            }

            /// Its number in a GGUF file; `None` where only safetensors knows it.
            pub const fn ggml_id(self) -> Option<u32> {
                match self {
                    $($(Self::$name => Some($id),)?)*
                    #[allow(unreachable_patterns, reason = "only the types without a number are left")]
                    _ => None,
                }
            }

            /// The type that a safetensors header calls `dtype`.
            pub fn from_dtype(dtype: &str) -> Option<Self> {
                match dtype { $($($dtype => Some(Self::$name),)?)* _ => None }
            }
        }
    };
}

// GGML's numbers 4, 5, 31 to 33 and 36 to 38 were taken back. GGML stores a block of Q8_1 in 36 bytes (two halves and 32
// values); it is an intermediate form that no file holds.
tensor_types! {
    F32 1/4, ggml 0, dtype "F32";
    F16 1/2, ggml 1, dtype "F16";
    BF16 1/2, ggml 30, dtype "BF16";
    F64 1/8, ggml 28, dtype "F64";
    I8 1/1, ggml 24, dtype "I8";
    I16 1/2, ggml 25, dtype "I16";
    I32 1/4, ggml 26, dtype "I32";
    I64 1/8, ggml 27, dtype "I64";
    Q4_0 32/18, ggml 2;
    Q4_1 32/20, ggml 3;
    Q5_0 32/22, ggml 6;
    Q5_1 32/24, ggml 7;
    Q8_0 32/34, ggml 8;
    Q8_1 32/36, ggml 9;
    Q2_K 256/84, ggml 10;
    Q3_K 256/110, ggml 11;
    Q4_K 256/144, ggml 12;
    Q5_K 256/176, ggml 13;
    Q6_K 256/210, ggml 14;
    Q8_K 256/292, ggml 15;
    IQ1_S 256/50, ggml 19;
    IQ1_M 256/56, ggml 29;
    IQ2_XXS 256/66, ggml 16;
    IQ2_XS 256/74, ggml 17;
    IQ2_S 256/82, ggml 22;
    IQ3_XXS 256/98, ggml 18;
    IQ3_S 256/110, ggml 21;
    IQ4_NL 32/18, ggml 20;
    IQ4_XS 256/136, ggml 23;
    TQ1_0 256/54, ggml 34;
    TQ2_0 256/66, ggml 35;
    MXFP4 32/17, ggml 39;
    NVFP4 64/36, ggml 40;
    Q1_0 128/18, ggml 41;
    Q2_0 64/18, ggml 42;
    U8 1/1, dtype "U8";
    U16 1/2, dtype "U16";
    U32 1/4, dtype "U32";
    U64 1/8, dtype "U64";
    BOOL 1/1, dtype "BOOL";
    F8_E4M3 1/1, dtype "F8_E4M3";
    F8_E5M2 1/1, dtype "F8_E5M2";
    F8_E8M0 1/1, dtype "F8_E8M0";
    F8_E4M3FNUZ 1/1, dtype "F8_E4M3FNUZ";
    F8_E5M2FNUZ 1/1, dtype "F8_E5M2FNUZ";
    F4 2/1, dtype "F4";
    F6_E2M3 4/3, dtype "F6_E2M3";
    F6_E3M2 4/3, dtype "F6_E3M2";
    C64 1/8, dtype "C64";
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
