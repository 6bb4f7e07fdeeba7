#!/usr/bin/env python3
"""The rows of benchmarks/cuda_kernels.cpp in PyTorch on the first card: prints "NAME SECONDS", the median of a call.

Calls are timed as there: many between two waits, until they take a millisecond. f32 stays f32: no TF32.
"""
import time

import torch
from torch.nn import functional as F

torch.backends.cuda.matmul.allow_tf32 = False
CARD = "cuda:0"
random = torch.Generator(device=CARD).manual_seed(1)


def numbers(*shape, dtype=torch.float32):
    return (torch.rand(shape, device=CARD, generator=random) * 2 - 1).to(dtype)


def seconds(calls, call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def row(name, call):
    seconds(3, call)
    repeats = int(min(max(1e-3 / seconds(1, call), 1), 1000))
    times = sorted(seconds(repeats, call) for _ in range(15))
    print(f"cuda/{name} {times[len(times) // 2]:.9g}", flush=True)


def both(name, xs, f):
    for x in xs:
        x.requires_grad_()

    def call():
        y = f()
        y.backward(torch.ones_like(y) if y.dim() == 0 else y.detach())
        for x in xs:
            x.grad = None

    row(name, call)


def pointwise():
    for size, n in (("64K", 1 << 16), ("8M", 1 << 23), ("64M", 1 << 26)):
        x, y = numbers(n // 1024, 1024), numbers(n // 1024, 1024)
        b = x.to(torch.bfloat16)
        for name, f in (
            ("pointwise/add", lambda: x + y), ("pointwise/relu", lambda: F.relu(x)), ("pointwise/gelu", lambda: F.gelu(x)),
            ("pointwise/gelu_bf16", lambda: F.gelu(b)), ("pointwise/add_row", lambda: x + x[0]),
            ("pointwise/dropout", lambda: F.dropout(x, 0.1)), ("copy/clone", lambda: x.clone()),
            ("copy/transpose", lambda: x.t().contiguous()), ("reduce/sum_all", lambda: x.sum()),
            ("reduce/sum_rows", lambda: x.sum(1)), ("reduce/sum_columns", lambda: x.sum(0)),
        ):
            row(f"{name}/{size}", f)


def rows():
    for height, width in ((65536, 256), (16384, 1024), (8192, 8000), (512, 131072)):
        at, x, shape = f"/{height}x{width}", numbers(height, width), (width,)
        row("softmax" + at, lambda: x.softmax(-1))
        row("layer_norm" + at, lambda: F.layer_norm(x, shape))
        both("softmax_backward" + at, [x], lambda: x.softmax(-1))
        both("layer_norm_backward" + at, [x], lambda: F.layer_norm(x, shape))
        targets = torch.randint(width, (height,), device=CARD)
        both("cross_entropy" + at, [x], lambda: F.cross_entropy(x, targets))


def attention():
    for suffix, dtype in (("", torch.float32), ("_bf16", torch.bfloat16)):
        for length in (512, 2048):
            batch = 16384 // length
            q, k, v = (numbers(batch, 16, length, 64, dtype=dtype) for _ in range(3))
            at, f = f"{suffix}/{batch}x16x{length}x64", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
            row("attention" + at, f)
            both("attention_backward" + at, [q, k, v], f)


def updates():
    for size, n in (("11M", 11_000_000), ("124M", 124_000_000)):
        p = numbers(n).requires_grad_()
        p.grad = numbers(n)
        row(f"adam/{size}", torch.optim.Adam([p], 1e-3, fused=True).step)
        row(f"gradient_norm/{size}", lambda: p.grad.norm())
    table, places = numbers(8000, 512), torch.randint(8000, (16384,), device=CARD)
    both("embedding_backward/8000x512", [table], lambda: F.embedding(places, table))
    x = numbers(1)
    row("overhead/add/1", lambda: x + x)


for part in (pointwise, rows, attention, updates):
    part()
