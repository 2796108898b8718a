# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Programs of tests/serving/run.py: programs.py NAME. Each prints "ready", does its work after a line of input, prints JSON with its own
figures in bytes, and waits for another line. "bytes": what its calls into CUDA or its tensors hold. "driver": what the driver says."""
import json
import sys


def cupy_pool():
    import cupy
    pool = cupy.get_default_memory_pool()
    cupy.zeros(1)
    pool.free_all_blocks()

    def alpha():
        return cupy.zeros((1 << 20, 8), dtype=cupy.float32)  # the line of alpha

    def beta():
        return [cupy.empty(3 << 20, dtype=cupy.uint8) for _ in range(4)]

    def work():
        before, (free, _) = pool.total_bytes(), cupy.cuda.runtime.memGetInfo()
        held.append((alpha(), beta(), alpha() + 1))
        return {"bytes": pool.total_bytes() - before, "driver": free - cupy.cuda.runtime.memGetInfo()[0]}
    return work


def numba_arrays():
    import numpy
    from numba import cuda
    context = cuda.current_context()

    @cuda.jit
    def add(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    def work():
        free = context.get_memory_info().free
        arrays = [cuda.device_array((1 << 20, 8), dtype=numpy.float32), cuda.to_device(numpy.zeros(3 << 20, dtype=numpy.uint8))]
        add[64, 64](arrays[1])
        cuda.synchronize()
        held.append(arrays)
        return {"bytes": sum(a.nbytes for a in arrays), "driver": free - context.get_memory_info().free}
    return work


def jax_arrays():
    import jax
    from jax import numpy
    device = jax.devices("cuda")[0]

    def alpha():
        return numpy.zeros((1 << 20, 8), dtype=numpy.float32)  # the line of alpha

    def work():
        before = device.memory_stats()["pool_bytes"]
        held.extend((alpha(), alpha() + 1))
        held[-1].block_until_ready()
        return {"bytes": device.memory_stats()["pool_bytes"] - before}
    return work


def onnx():
    import numpy
    import onnx as model
    import torch  # loads CUDA's libraries
    import onnxruntime
    helper = model.helper
    weights = model.numpy_helper.from_array(numpy.random.rand(1024, 4096).astype(numpy.float32), "w")
    shape = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], "g",
                              [shape("x", 1, [64, 1024])], [shape("z", 1, [64, 4096])], [weights])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    torch.cuda.init()

    def work():
        free, _ = torch.cuda.mem_get_info()
        session = onnxruntime.InferenceSession(data, providers=["CUDAExecutionProvider"])
        if session.get_providers()[0] != "CUDAExecutionProvider":
            raise SystemExit("onnxruntime runs on the CPU")
        session.run(None, {"x": numpy.ones((64, 1024), numpy.float32)})
        held.append(session)
        return {"driver": free - torch.cuda.mem_get_info()[0]}
    return work


def generate(**how):
    import torch
    import transformers
    config = transformers.LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=2048)
    model = transformers.LlamaForCausalLM(config).half().cuda().eval()
    prompt = torch.randint(0, 1000, (4, 32), device="cuda")

    def work():
        torch.cuda.reset_peak_memory_stats()
        shapes = [list(model.generate(prompt, max_new_tokens=new, pad_token_id=0, **how).shape) for new in (64, 16, 64)]
        if shapes != [[4, 96], [4, 48], [4, 96]]:
            raise SystemExit("lengths: %s" % shapes)
        return {"peak": torch.cuda.max_memory_allocated(), "bytes": torch.cuda.memory_allocated()}
    return work


def server():
    import threading
    import time
    import urllib.request

    import fastapi
    import torch
    import uvicorn
    app, model, kept = fastapi.FastAPI(), torch.nn.Linear(512, 512).cuda(), []

    @app.get("/work")
    def answer():
        with torch.no_grad():
            kept.append(model(torch.ones(64, 512, device="cuda")))
        return {"kept": len(kept)}
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=running.run, daemon=True).start()
    while not running.started:
        time.sleep(0.05)
    url = "http://127.0.0.1:%d/work" % running.servers[0].sockets[0].getsockname()[1]

    def ask():
        for _ in range(20):
            urllib.request.urlopen(url, timeout=30).read()

    def work():
        torch.cuda.reset_peak_memory_stats()
        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return {"bytes": torch.cuda.memory_allocated()}
    return work


PROGRAMS = {"cupy": cupy_pool, "numba": numba_arrays, "jax": jax_arrays, "onnxruntime": onnx, "generate-dynamic": generate,
            "generate-static": lambda: generate(cache_implementation="static", disable_compile=True), "uvicorn": server}
held = []
job = PROGRAMS[sys.argv[1]]()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(job()), flush=True)
sys.stdin.readline()
