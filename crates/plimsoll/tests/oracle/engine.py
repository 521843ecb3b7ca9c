"""What llama.cpp takes for a model, as plain lines to compare with.

engine.py MODEL [adapter=FILE] SETTING ..

A setting is `cells,sequences,unified,micro-batch,key type,value type,flash attention`, all of them numbers as the library
knows them. The first line is the model's buffer; then comes one line for each setting: the buffers of the cache, of the
computation and of the output. An adapter gets a line of its own, the buffers of what it holds. All are in MiB with the digits that the library prints. Without the package the only line is
`absent`.
"""

import re
import sys

try:
    import cyllama.llama.llama_cpp as llama
except ImportError as error:
    print("absent", error)
    sys.exit()

LOG = []


def size(text, what):
    """The sum of what the log names a `what` buffer."""
    found = re.findall(what + r" buffer size = +([0-9.]+) MiB", text)
    return f"{sum(float(n) for n in found):.2f}"


def main(path, settings):
    llama.set_log_callback(lambda level, text: LOG.append(text))
    llama.llama_backend_init()
    llama.ggml_backend_load_all()
    params = llama.LlamaModelParams()
    params.use_mmap = False
    # Buffers of another layout have the same size, but take time to fill.
    params.use_extra_bufts = False
    model = llama.LlamaModel(path, params)
    print("model", size("".join(LOG), "model"))
    for setting in settings:
        if setting.startswith("adapter="):
            LOG.clear()
            adapter = model.lora_adapter_init(setting.removeprefix("adapter="))
            print("adapter", size("".join(LOG), "LoRA"))
            del adapter
            continue
        numbers = [int(n) for n in setting.split(",")]
        params = llama.LlamaContextParams()
        params.n_ctx, params.n_seq_max, params.kv_unified, params.n_ubatch = (
            numbers[0], numbers[1], bool(numbers[2]), numbers[3],
        )
        params.type_k, params.type_v, params.flash_attn_type = numbers[4:]
        LOG.clear()
        context = llama.LlamaContext(model, params)
        text = "".join(LOG)
        print("context", size(text, "KV"), size(text, "compute"), size(text, "output"))
        del context


main(sys.argv[1], sys.argv[2:])
