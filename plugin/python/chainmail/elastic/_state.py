# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The state of a job: what its objects' state_dict() give, as bytes that another rank goes on from."""

import base64
import copy
import ctypes
import json
import pickle
from collections import OrderedDict

import torch

import chainmail

# Of the header's length, and of the place of each tensor.
_WORD = 8
_ALIGNMENT = 64


class StateError(RuntimeError):
    """Ranks have different states, or one cannot go on from what the others have sent. Ends the job."""


def _bytes_of(tensor, path):
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"'{path}' is a {tensor.layout} tensor: the state of a job has dense ones")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8)


def _flatten(value, path, tensors):
    """`value` as JSON that is equal where values are; tensors are put into `tensors`, by path."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {"tensor": path}
    if value is None or isinstance(value, (bool, int, float, str)) and type(value).__module__ == "builtins":
        return value
    if isinstance(value, dict):
        if all(isinstance(key, (str, int, bool, type(None))) for key in value):
            # A dict that was loaded may have another order than one that has grown.
            pairs = [[key, _flatten(value[key], f"{path}/{key}", tensors)]
                     for key in sorted(value, key=json.dumps)]
            # Versions of modules, which load_state_dict() looks at.
            return {"dict": pairs, "metadata": getattr(value, "_metadata", None)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_flatten(one, f"{path}/{place}", tensors)
                                       for place, one in enumerate(value)]}
    return {"object": base64.b64encode(pickle.dumps(value)).decode()}


def _build(node, tensors):
    if not isinstance(node, dict):
        return node
    if "tensor" in node:
        return tensors[node["tensor"]]
    if "dict" in node:
        built = OrderedDict((key, _build(one, tensors)) for key, one in node["dict"])
        if node["metadata"] is None:
            return dict(built)
        built._metadata = OrderedDict(node["metadata"])
        return built
    if "object" in node:
        return pickle.loads(base64.b64decode(node["object"]))
    (kind, items), = node.items()
    return {"list": list, "tuple": tuple}[kind](_build(one, tensors) for one in items)


def _digest(data):
    return torch.ops.chainmail.digest(data)


def _digest_of_text(text):
    return _digest(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8))


def _up(size):
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class State:
    """`parts`: name -> object with state_dict() and load_state_dict()."""

    def __init__(self, parts):
        for name, part in parts.items():
            if not all(callable(getattr(part, method, None))
                       for method in ("state_dict", "load_state_dict")):
                raise TypeError(f"chainmail.elastic.Job: '{name}' is a {type(part).__name__}, which has "
                                "no state_dict() and load_state_dict()")
        self.parts = parts
        self.modules = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
        self.optimizers = [part for part in parts.values()
                           if isinstance(part, torch.optim.Optimizer)]

    def buffers(self):
        return [buffer for module in self.modules for buffer in module.buffers()]

    def describe(self):
        """A line for everything that must be alike on all ranks from the beginning on."""
        lines = [f"torch {torch.__version__}, chainmail {chainmail.__version__}"]
        for name, part in self.parts.items():
            if isinstance(part, torch.nn.Module):
                for key, value in part.state_dict().items():
                    what = (f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor)
                            else type(value).__name__)
                    lines.append(f"'{name}/{key}' is {what}")
            elif isinstance(part, torch.optim.Optimizer):
                sizes = [len(group["params"]) for group in part.param_groups]
                lines.append(f"'{name}' is {type(part).__name__} of {sizes} parameters")
            else:
                what = getattr(part, "describe", None)
                lines.append(f"'{name}' is {type(part).__name__}"
                             + (f" of {what()}" if callable(what) else ""))
        return "\n".join(lines)

    def _flat(self):
        tensors = {}
        tree = {name: _flatten(part.state_dict(), name, tensors)
                for name, part in self.parts.items()}
        return tree, tensors

    def digests(self):
        """Of everything: name -> number. Equal states have equal ones, in the same order."""
        tree, tensors = self._flat()
        digests = {name: _digest_of_text(json.dumps(node)) for name, node in tree.items()}
        digests.update((path, _digest(_bytes_of(tensor, path))) for path, tensor in tensors.items())
        return digests

    def save(self):
        """All of it as one tensor of bytes, the same on ranks with the same state."""
        tree, tensors = self._flat()
        entries, places, end = [], [], 0
        for path, tensor in tensors.items():
            data = _bytes_of(tensor, path)
            entries.append([path, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), end,
                            data.numel(), _digest(data)])
            places.append(data)
            end += _up(data.numel())
        header = json.dumps({"tree": tree, "tensors": entries}).encode()
        begin = _up(_WORD + len(header))
        saved = torch.zeros(begin + end, dtype=torch.uint8)
        head = len(header).to_bytes(_WORD, "little") + header
        saved[:len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        for (_, _, _, offset, size, _), data in zip(entries, places):
            saved[begin + offset:begin + offset + size] = data
        return saved

    def load(self, saved):
        """Makes the state that of `saved`, which another rank has given."""
        length = int.from_bytes(ctypes.string_at(saved.data_ptr(), _WORD), "little")
        header = json.loads(ctypes.string_at(saved.data_ptr() + _WORD, length))
        begin = _up(_WORD + length)
        tensors = {}
        for path, dtype, shape, offset, size, digest in header["tensors"]:
            data = saved[begin + offset:begin + offset + size]
            if _digest(data) != digest:
                raise StateError(f"'{path}' came from the other ranks with other bytes than they have")
            tensors[path] = data.clone().view(getattr(torch, dtype)).reshape(shape)
        if header["tree"].keys() != self.parts.keys():
            raise StateError(f"the other ranks have {list(header['tree'])} in the state of the job, this "
                             f"one {list(self.parts)}")
        for name, part in self.parts.items():
            part.load_state_dict(_build(header["tree"][name], tensors))

    def take_copy(self, of_all):
        """What a step may change before its commit: buffers, and what is neither module nor optimizer;
        or all of it."""
        buffers = [] if of_all else [buffer.detach().clone() for buffer in self.buffers()]
        known = () if of_all else (torch.nn.Module, torch.optim.Optimizer)
        return buffers, {name: copy.deepcopy(part.state_dict())
                         for name, part in self.parts.items() if not isinstance(part, known)}

    def put_back(self, copies):
        buffers, states = copies
        with torch.no_grad():
            for buffer, old in zip(self.buffers(), buffers):
                buffer.copy_(old)
        for name, state in states.items():
            self.parts[name].load_state_dict(state)
