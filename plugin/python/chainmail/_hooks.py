# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Communication hooks for DistributedDataParallel."""

import contextlib
import math
import mmap
import os
import queue
import threading
import weakref

import torch
import torch.distributed as dist

from chainmail._backend import NAME, own_group

# Parameters of fewer elements, or of one dimension, travel as they are.
_LEAST_ROUNDED = 1024
# What one look finds to be zeros, or not, of memory of which most may be.
_CHUNK = 64 << 10


def mean_hook(group, bucket):
    """Averages gradients by ReduceOp.AVG, where DDP itself divides and then sums.

        model.register_comm_hook(None, chainmail.mean_hook)

    The same numbers but for rounding. A group with wire="float16" or "bfloat16" rounds means
    between nodes and leaves sums alone, so that DDP sends half the bytes with this hook only.
    `group` is the first argument of register_comm_hook: a process group, or None for the default.
    """
    _check_dense(bucket, "mean_hook")
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG,
                           group=own_group(group, "mean_hook"), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _check_dense(bucket, hook):
    if bucket.buffer().layout != torch.strided:
        raise ValueError(f"chainmail.{hook} makes means, and means of sparse gradients are not to be "
                         "had: give the embedding sparse=False, or register no hook")


class IntegerWire:
    """What integer_hook keeps: what rounding has lost of each gradient, added to the next one.

        wire = chainmail.IntegerWire("int8")    # or "int4", an eighth of the bytes
        model.register_comm_hook(wire, chainmail.integer_hook)

    `group` is the one of the DDP model, None for the default. Its calls go through a group of the
    same ranks of their own, beside those of backward: `calls`, made by new_group on all ranks of
    the job. For a group of all ranks it can be left out: one is made here, with `timeout`, which is
    collective. Takes (1 + 1/N)/P of the gradients' memory for N nodes of P ranks, with the algorithm
    two_dimensional. One for each model; close() frees a group that was made here.
    """

    def __init__(self, wire="int8", group=None, calls=None, timeout=None):
        if wire not in ("int8", "int4"):
            raise ValueError(f'chainmail.IntegerWire takes "int8" or "int4", not {wire!r}')
        self._ddp_group = own_group(group, "IntegerWire")
        if NAME not in str(dist.get_backend_config(self._ddp_group)):
            raise ValueError(f"chainmail.IntegerWire is for groups of the backend {NAME!r}, and this "
                             f"one is of {dist.get_backend(self._ddp_group)!r}: take mean_hook, or "
                             f"init_process_group({NAME!r})")
        self._reduce = getattr(torch.ops.chainmail, f"{wire}_all_reduce_")
        if calls is not None:
            self._group = _checked_calls(calls, self._ddp_group)
        else:
            self._group = _of_all_ranks(self._ddp_group, timeout)
        self._is_own = calls is None
        self._buckets = {}  # by DDP's index
        self._owed = {}  # by id of a parameter, and shaped like it: parts of a mean
        self._worker = _Worker()
        self._end = weakref.finalize(self, self._worker.end, self._group)

    @property
    def group(self):
        """The group of its calls, for chainmail.failure() and set_timeout()."""
        return self._group

    def close(self):
        """Waits for its calls, and destroys the group if it was made here. After the last backward,
        on all ranks of the group; what is owed can still be seen. A second call does nothing."""
        if not self._end.alive:
            return
        self._worker.wait()
        self._end()
        if self._is_own and self._group in dist.distributed_c10d._world.pg_map:
            dist.destroy_process_group(self._group)  # else it was, with the default group

    def __reduce__(self):
        raise TypeError("chainmail.IntegerWire belongs to a group and a model, and is not copied: "
                        "save state_dict(model), and make a new one")

    def rescale(self, factor):
        """Before the first backward with a loss scale `factor` times as large as before."""
        if not (math.isfinite(factor) and factor > 0):
            raise ValueError(f"chainmail.IntegerWire.rescale takes a positive factor, not {factor}")
        self._worker.wait()
        for bucket in self._buckets.values():
            for chunk in bucket.residual.view(-1).split(_CHUNK):
                if chunk.any():  # the rest has no memory
                    chunk.mul_(factor)
        for owed in self._owed.values():
            owed.mul_(factor)

    def state_dict(self, model):
        """What this rank owes, by names of `model`'s parameters; another rank owes something else.

        For a checkpoint of each rank; all of them together have lost nothing. Changes nothing.
        """
        self._worker.wait()
        owed = {key: value.clone() for key, value in self._owed.items()}
        for bucket in self._buckets.values():
            bucket.add_to(owed)
        return {name: owed[id(parameter)]
                for name, parameter in model.named_parameters() if id(parameter) in owed}

    def load_state_dict(self, model, state):
        """Owes what `state`, of state_dict(), says, and nothing else. On all ranks, between the same
        steps; a rank without a state gives {}. Raises ValueError where names, shapes or values are
        not those of a state of `model`, and changes nothing then."""
        if not isinstance(state, dict):
            raise TypeError("chainmail.IntegerWire.load_state_dict takes a model, and what state_dict() of "
                            f"one like it has returned, {{}} where a rank has none; not {state!r}")
        parameters = dict(model.named_parameters())
        for name, owed in state.items():
            if name not in parameters:
                raise ValueError(f"chainmail.IntegerWire: the state has {name!r}, and the model no such "
                                 f"parameter; it has {', '.join(map(repr, list(parameters)[:3]))}...: "
                                 "names are those of the model that state_dict() was given")
            if owed.shape != parameters[name].shape or owed.dtype != torch.float32:
                raise ValueError(f"chainmail.IntegerWire: of {name!r} the state has {owed.dtype} of shape "
                                 f"{tuple(owed.shape)}, and the parameter has shape "
                                 f"{tuple(parameters[name].shape)}: owed is float32")
            if not owed.isfinite().all():
                raise ValueError(f"chainmail.IntegerWire: what the state has of {name!r} is not finite")
        self._worker.wait()
        self._buckets.clear()
        self._owed = {id(parameters[name]): owed.detach().clone() for name, owed in state.items()}

    def _bucket(self, bucket):
        known = self._buckets.get(bucket.index())
        keys = [id(parameter) for parameter in bucket.parameters()]
        if known is not None and list(known.places) == keys:
            return known
        if known is not None:  # DDP has made all of them anew: what they keep is owed
            self._worker.wait()
            for old in self._buckets.values():
                old.add_to(self._owed)
            self._buckets.clear()
        self._buckets[bucket.index()] = made = _Bucket(bucket, keys)
        return made

    def _pay(self, bucket, known):
        """Adds to this rank's gradients what it owes. Returns that, by keys of the bucket."""
        paid = {}
        for key, place in known.places.items():
            owed = self._owed.pop(key, None)
            if owed is not None:  # of a mean, of which a rank's gradient is a part
                _part(bucket.buffer(), place).add_(owed, alpha=self._group.size())
                paid[key] = owed
        return paid

    @torch.no_grad()
    def _average(self, known, buffer, small, paid):
        flat = torch.cat([gradient.reshape(-1) for gradient in small]) if small else None
        for gradient in small:
            gradient.zero_()
        exchanges = known.exchanges
        known.exchanges += 1
        self._reduce(buffer, known.residual, exchanges, "avg", self._group.group_name)
        if flat is not None:
            dist.all_reduce(flat, group=self._group)  # a sum, which no group rounds
            flat.div_(self._group.size())
            begin = 0
            for gradient in small:
                gradient.copy_(flat[begin:begin + gradient.numel()].view_as(gradient))
                begin += gradient.numel()
        for key, owed in paid.items():  # what a mean that is not finite has not brought
            is_lost = ~_part(buffer, known.places[key]).isfinite()
            if is_lost.any():
                self._owed[key] = owed * is_lost


class _Bucket:
    def __init__(self, bucket, keys):
        buffer = bucket.buffer()
        self.residual = _lazy_zeros(2 * buffer.numel()).view(2, -1)
        self.exchanges = 0
        # bucket.gradients() are rows in the order of memory, whatever that of their indices is.
        self.places = {
            key: (parameter.shape,
                  parameter.stride() if _is_dense(parameter) else gradient.stride(),
                  gradient.storage_offset() - buffer.storage_offset())
            for key, parameter, gradient in zip(keys, bucket.parameters(), bucket.gradients())}

    def add_to(self, owed):
        lost = self.residual.sum(0)
        for key, place in self.places.items():
            part = _part(lost, place)
            if key in owed:
                owed[key].add_(part)
            elif part.any():
                owed[key] = part.clone()


class _Worker:
    """Makes calls one after the other, beside those that ask for them; does not keep the process."""

    def __init__(self):
        self._calls = queue.SimpleQueue()
        self._lock = threading.RLock()  # end() may be called in any call, by the collector
        self._has_ended = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="chainmail_wire", daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            call = self._calls.get()
            if call is None:
                return
            call()
            del call  # it may have the last handle to what we wait for

    def call(self, function):
        """False after end(), which makes all calls before it."""
        if os.getpid() != self._process:
            raise RuntimeError("chainmail.IntegerWire: this process was forked from the one that made it, "
                               "and has neither its thread nor its connections: make groups and an "
                               "IntegerWire in each process")
        with self._lock:
            if not self._has_ended:
                self._calls.put(function)
            return not self._has_ended

    def wait(self):
        is_done = threading.Event()
        if self.call(is_done.set):
            is_done.wait()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def end(self, group):
        """At the latest when the interpreter ends, when nobody waits for the calls any more."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._has_ended = True
            self._calls.put(None)
        if threading.current_thread() is self._thread:
            return
        self._thread.join(1)
        if self._thread.is_alive():
            group.abort()
            self._thread.join(10)


def _of_all_ranks(group, timeout):
    """A new group of the ranks of `group`, which are those of the job."""
    if group.size() != dist.get_world_size():
        raise ValueError("chainmail.IntegerWire: a group of some ranks needs a second one of the same ranks "
                         f"for its calls: dist.new_group({dist.get_process_group_ranks(group)}, "
                         f"backend={NAME!r}), on all ranks of the job, passed as calls=")
    known = [None] * group.size()
    # new_group names groups by how many a rank has seen.
    dist.all_gather_object(known, dist.distributed_c10d._world.group_count, group)
    if len(set(known)) > 1:
        raise ValueError("chainmail.IntegerWire: ranks have seen different numbers of groups, so that they "
                         "cannot name a new one; call new_group on all ranks, members or not")
    return dist.new_group(dist.get_process_group_ranks(group), timeout=timeout, backend=NAME)


def _checked_calls(calls, group):
    calls = own_group(calls, "IntegerWire")
    ranks, wanted = dist.get_process_group_ranks(calls), dist.get_process_group_ranks(group)
    if ranks != wanted or NAME not in str(dist.get_backend_config(calls)):
        raise ValueError(f"chainmail.IntegerWire: calls= is a group of ranks {ranks} of the backend "
                         f"{dist.get_backend(calls)!r}, and takes one of ranks {wanted}, those of the "
                         f"model's group, in their order, of {NAME!r}")
    if calls == group:
        raise ValueError("chainmail.IntegerWire: calls= is the model's own group, where calls beside those "
                         "of backward would come in another order on each rank; make a second one")
    return calls


def _is_dense(parameter):
    """Whether its elements lie in a row; then its gradients have the same strides in DDP."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _part(row, place):
    size, stride, begin = place
    return row.as_strided(size, stride, row.storage_offset() + begin)


def _lazy_zeros(elements):
    """A tensor whose memory is taken as it is written to."""
    if elements == 0:
        return torch.zeros(0, dtype=torch.float32)
    memory = mmap.mmap(-1, 4 * elements, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32, count=elements)


def integer_hook(wire, bucket):
    """Averages gradients that travel between nodes as 8 or 4 bits; see IntegerWire, its state.

    For float32 on CPUs; gradients of other types travel as they are. Runs beside backward.
    """
    if not isinstance(wire, IntegerWire):
        raise TypeError("chainmail.integer_hook takes a chainmail.IntegerWire as the first argument of "
                        f"register_comm_hook, not {wire!r}")
    _check_dense(bucket, "integer_hook")
    buffer = bucket.buffer()
    if buffer.device.type != "cpu":
        raise ValueError(f"chainmail.integer_hook is for CPUs, and gradients are on {buffer.device}: "
                         "take mean_hook")
    if buffer.dtype != torch.float32:
        return mean_hook(wire._ddp_group, bucket)
    with torch.no_grad():
        known = wire._bucket(bucket)
        paid = wire._pay(bucket, known)
    small = [gradient for gradient, parameter in zip(bucket.gradients(), bucket.parameters())
             if parameter.dim() <= 1 or parameter.numel() < _LEAST_ROUNDED]
    done = torch.futures.Future()

    def average():
        error = None
        try:
            wire._average(known, buffer, small, paid)
        except Exception as failure:
            error = failure
            wire._owed.update(paid)  # nobody has got it
        done.set_result((error,))

    def result(future):
        (error,) = future.value()
        if error is not None:  # raised here it is an error for DDP, too
            raise error
        return buffer

    if not wire._worker.call(average):
        wire._owed.update(paid)
        raise ValueError("chainmail.integer_hook: its IntegerWire is closed; make a new one for this "
                         "model")
    return done.then(result)
