"""Asks accelerate itself about device maps.

Reads a JSON list from a file; each entry has `shapes` (tensor name -> shape), `tied` (the output module that shares the
embedding, or null), `embedding` (the embedding's tensor) and `map` (the device map). Prints one line for each: `ok`, or what
accelerate objects to. Exits with 77 where accelerate or torch is not there.
"""
import json
import logging
import os
import sys
import tempfile

try:
    import torch
    from accelerate import load_checkpoint_and_dispatch
    from accelerate.utils import check_device_map
    from accelerate.utils.modeling import check_tied_parameters_on_same_device, find_tied_parameters
    from safetensors.torch import save_file
except ImportError as error:
    print(error)
    sys.exit(77)


class Complaints(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def module_at(root, parts):
    for part in parts:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root._modules[part]
    return root


def model_of(entry, device):
    root = torch.nn.Module()
    for name, shape in entry["shapes"].items():
        *path, last = name.split(".")
        value = torch.nn.Parameter(torch.zeros(shape, device=device), requires_grad=False)
        module_at(root, path).register_parameter(last, value)
    if entry["tied"]:
        *path, last = entry["embedding"].split(".")
        shared = module_at(root, path)._parameters[last]
        module_at(root, entry["tied"].split(".")).register_parameter("weight", shared)
    return root


def ask(entry):
    device_map = entry["map"]
    model = model_of(entry, "meta")
    check_device_map(model, device_map)
    # Without any one of its keys the map must not pass, or the check above says nothing.
    covers = [key for key in device_map if any(n == key or n.startswith(key + ".") or key == "" for n in model.state_dict())]
    for key in covers:
        try:
            check_device_map(model, {k: v for k, v in device_map.items() if k != key})
        except ValueError:
            continue
        return f"the map passes without {key!r} as well"
    complaints = Complaints()
    logger = logging.getLogger("accelerate.utils.modeling")
    logger.addHandler(complaints)
    check_tied_parameters_on_same_device(find_tied_parameters(model_of(entry, "cpu")), device_map)
    logger.removeHandler(complaints)
    if complaints.texts:
        return complaints.texts[0]
    # There is no GPU here: the same map, loaded to the processor.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        save_file({name: torch.ones(shape) for name, shape in entry["shapes"].items()}, path)
        loaded = load_checkpoint_and_dispatch(
            model_of(entry, "meta"), path, device_map={key: "cpu" for key in device_map}
        )
        for name, value in loaded.state_dict().items():
            if value.device.type != "cpu" or not bool((value == 1).all()):
                return f"{name} was not loaded"
    return "ok"


for entry in json.load(open(sys.argv[1])):
    try:
        print(ask(entry))
    except Exception as error:  # every objection is an answer
        print(f"{type(error).__name__}: {error}".replace("\n", " "))
