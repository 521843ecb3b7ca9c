"""What the Python package `gguf` says of types and files, as plain lines to compare with.

types        every type: number, name, values in a block, bytes of a block
read FILE    every tensor of FILE: name, number of the type, bytes, sides with the contiguous one first
write FOLDER files of several kinds, and their tensors in the form of `read` after the name of the file
"""

import sys
from pathlib import Path

import numpy as np
import gguf


def types():
    for kind, (values, size) in gguf.GGML_QUANT_SIZES.items():
        print(int(kind), kind.name, values, size)


def read(path):
    reader = gguf.GGUFReader(path)
    for field in reader.fields.values():
        kinds = field.types
        if field.name.startswith("GGUF.") or not kinds:
            continue
        if len(kinds) == 1 and kinds[0] not in (gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY):
            print("fact", field.name, repr(field.contents()).lower())
    for tensor in reader.tensors:
        dims = ",".join(str(int(side)) for side in tensor.shape)
        print("tensor", tensor.name, int(tensor.tensor_type), int(tensor.n_bytes), dims)


def fill(writer, rng):
    writer.add_uint32("llama.block_count", 2)
    writer.add_bool("llama.flag", True)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(300)])
    writer.add_array("tokenizer.ggml.scores", [float(i) for i in range(300)])
    writer.add_array("llama.attention.head_count_kv", [8, 0])
    writer.add_tensor("token_embd.weight", rng.random((10, 64), dtype=np.float32))
    for block in range(2):
        for name, kind in (("attn_q", "Q4_0"), ("ffn_up", "Q8_0"), ("ffn_down", "BF16")):
            data = rng.random((3, 64), dtype=np.float32)
            kind = gguf.GGMLQuantizationType[kind]
            packed = gguf.quants.quantize(data, kind)
            writer.add_tensor(f"blk.{block}.{name}.weight", packed, raw_dtype=kind)
        writer.add_tensor(f"blk.{block}.attn_norm.weight", rng.random(7, dtype=np.float32))
    experts = rng.random((4, 2, 32), dtype=np.float32).astype(np.float16)
    writer.add_tensor("blk.1.ffn_up_exps.weight", experts)


def write(folder):
    folder = Path(folder)
    for name, options in {
        "little.gguf": {},
        "big.gguf": {"endianess": gguf.GGUFEndian.BIG},
        "split.gguf": {"split_max_tensors": 4},
    }.items():
        writer = gguf.GGUFWriter(folder / name, "llama", **options)
        if name == "little.gguf":
            writer.add_custom_alignment(64)
        fill(writer, np.random.default_rng(7))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    for path in sorted(folder.glob("*.gguf")):
        print("file", path.name)
        read(path)


if __name__ == "__main__":
    {"types": types, "read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
