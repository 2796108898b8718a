#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes calls.def: the dry run's answer to each CUDA library function without a model.

A development tool outside of the build: it reads the prototypes in the headers of PyTorch's CUDA wheels with clang, and its
output is in the repository. Run it again when a PyTorch wheel imports a name that is not in the table
(tests/e2e/test_dryrun_libs.py finds that):

    tools/dryrun/gen/gen_calls.py ENVIRONMENT ... >tools/dryrun/gen/calls.def

ENVIRONMENT is a Python environment with PyTorch for CUDA, the newest first. If several versions declare a function, the first
prototype is used, and stderr names differences that matter here.

A function's answer follows from its name and prototype:
  done     launches work, or creates, sets or destroys something: success. Results in host memory are zeroed, as every kernel's
  result is; handles are given out.
  zero     has no status: 0, the answer for something empty; failed is -1, for a count that was not read.
  unknown  asks for something that only the real library knows: "not supported" of the library, and results are zeroed for
  callers that ignore the status.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

# Library as in calls.def: prefix of its functions, type of its status, headers with its prototypes.
LIBRARIES = {
    "cudart": (r"cuda[A-Z]|__cuda", {"cudaError_t"}, ["cuda_runtime_api.h"]),
    "driver": (r"cu[A-Z]", {"CUresult"}, ["cuda.h"]),
    "cublas": (r"cublas(?!Lt|Xt)", {"cublasStatus_t"}, ["cublas_v2.h"]),
    "cublaslt": (r"cublasLt", {"cublasStatus_t"}, ["cublasLt.h"]),
    "cudnn": (r"cudnn", {"cudnnStatus_t"}, ["cudnn.h"]),
    "cufft": (r"cufft", {"cufftResult"}, ["cufft.h", "cufftXt.h"]),
    "curand": (r"curand", {"curandStatus_t"}, ["curand.h"]),
    "cusolver": (r"cusolver(?!Mg)", {"cusolverStatus_t"}, ["cusolverDn.h", "cusolverSp.h"]),
    "cusparse": (r"cusparse(?!Lt)", {"cusparseStatus_t"}, ["cusparse.h"]),
    "cusparselt": (r"cusparseLt", {"cusparseStatus_t"}, ["cusparseLt.h"]),
    "nccl": (r"nccl", {"ncclResult_t"}, ["nccl.h"]),
    "cupti": (r"cupti[A-Z]", {"CUptiResult"}, ["cupti.h"]),
    "cufile": (r"cuFile", {"CUfileError_t"}, ["cufile.h"]),
}

# Minimal replacements for headers that the wheels lack or that are not needed.
SHIMS = {
    "crt/host_config.h": "",
    "crt/host_defines.h": "\n".join("#define " + name for name in (
        "__host__ __device__ __global__ __device_builtin__ __device_builtin_texture_type__ "
        "__device_builtin_surface_type__ __cudart_builtin__ __noinline__ CUDARTAPI CUDARTAPI_CDECL").split()) + """
#define __forceinline__ inline
#define __specialization_static static
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
""",
    "cuda_fp16.h": "#pragma once\ntypedef struct { unsigned short x; } __half;\ntypedef __half half;\n",
    "cuda_bf16.h": "#pragma once\ntypedef struct { unsigned short x; } __nv_bfloat16;\n",
    "cuda_fp8.h": "#pragma once\n",
    "cstddef": "#include <stddef.h>\n",
    "cstdint": "#include <stdint.h>\n",
}

# Declarations that the wheels' headers lack or have for C++ only.
MISSING = {
    "cudart": "cudaError_t cudaProfilerStart(void);\ncudaError_t cudaProfilerStop(void);\n",
    "nccl": """ncclResult_t ncclDevCommCreate(ncclComm_t, const void *, void *);
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void *);
ncclResult_t ncclGetLsaMultimemDevicePointer(const void *, size_t, void **);
ncclResult_t ncclGetPeerDevicePointer(const void *, size_t, int, void **);
""",
}

SIZES = {"char": 1, "signed char": 1, "unsigned char": 1, "_Bool": 1, "bool": 1, "short": 2, "unsigned short": 2,
         "int": 4, "unsigned int": 4, "float": 4, "double": 8, "long": 8, "unsigned long": 8, "long long": 8,
         "unsigned long long": 8}
COMPLEX = {"struct float2": 8, "struct double2": 16}

ASKS = re.compile(r"Get|Query|Find|Search|Estimat|Check|[bB]ufferSize|[wW]orkspace|Size2?$|Size_64$|MakePlan|"
                  r"Ext$|_analysis|Export|Import|Properties|zeroPivot|"
                  r"SpGEMM|[nN]nz")
MAKES = re.compile(r"[cC]reate|Init|Plan(1d|2d|3d|Many)")
# Functions without a possible answer: structures read by kernels, other processes' memory.
NEVER = {"ncclDevCommCreate", "ncclGetLsaMultimemDevicePointer", "ncclGetPeerDevicePointer"}
# Functions that the real library answers rightly without a device.
LEFT = {"cudaRuntimeGetVersion"}
# Parameters with floating-point results in host memory; other writable ones are device arrays.
RESULTS = {"result", "ms", "norm", "residual", "mu", "min_norm"}


class Unreadable(Exception):
    pass


def declarations(include, headers, missing):
    """The functions that the headers declare, as {name: (return type, [parameter types])}, and their typedefs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SHIMS.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        source = os.path.join(folder, "all.c")
        with open(source, "w", encoding="utf-8") as f:
            f.write("#include <stdbool.h>\n#include <stdalign.h>\n#include <stdint.h>\n#include <stddef.h>\n")
            f.writelines("#include <%s>\n" % h for h in headers)
            f.write(missing)
        done = subprocess.run(["clang", "-fsyntax-only", "-w", "-x", "c", "-Xclang", "-ast-dump=json", "-I", folder,
                               *("-I" + i for i in include), source], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unreadable(next((e for e in done.stderr.splitlines() if "error:" in e), done.stderr.strip()))
        tree = json.loads(done.stdout)
    functions, types = {}, {}
    complete = {n["name"] for n in tree["inner"]
                if n["kind"] == "RecordDecl" and n.get("completeDefinition") and "name" in n}
    for node in tree["inner"]:
        if node["kind"] == "TypedefDecl":
            types[node["name"]] = node["type"].get("desugaredQualType", node["type"]["qualType"])
            if types[node["name"]] == node["name"]:  # of an anonymous type
                tag = json.dumps(node.get("inner", ()))
                types[node["name"]] = ("enum " if '"EnumDecl"' in tag else "struct ") + node["name"]
                complete.add(node["name"])
        elif node["kind"] == "FunctionDecl":
            parameters = [p["type"] for p in node.get("inner", ()) if p["kind"] == "ParmVarDecl"]
            names = [p.get("name", "") for p in node.get("inner", ()) if p["kind"] == "ParmVarDecl"]
            functions[node["name"]] = (node["type"]["qualType"].split("(")[0].strip(),
                                       [p["qualType"] for p in parameters], names, node.get("variadic", False))
    return functions, types, complete


class Prototypes:
    """The functions of one library in one environment."""

    def __init__(self, functions, types, complete):
        self.functions, self.types, self.complete = functions, types, complete

    def resolve(self, text):
        """A type with its typedefs replaced; function pointers and arrays become pointers."""
        text = re.sub(r"\b(restrict|__restrict|volatile|__restrict__)\b", "", text).strip()
        text = re.sub(r"\[[^]]*\]", "*", text)
        if "(*" in text:
            return "void *"
        for _ in range(20):
            m = re.match(r"(const\s+)?((?:struct|enum|union)\s+)?([A-Za-z_][\w ]*?)\s*((?:\*|const|\s)*)$", text)
            if not m or m[2] or m[3] not in self.types:
                return re.sub(r"\s+", " ", text).replace("* *", "**").strip()
            inner = self.types[m[3]]
            if "(*" in inner:
                inner = "void *"
            const = m[1] or ""
            if const and "*" in inner:      # const of a pointer type binds to the pointer, not to what it points to
                inner, const = inner + " const", ""
            text = "%s%s %s" % (const, inner, m[4])
        raise Unreadable("endless type " + text)

    def passes_in_memory(self, text):
        """True for a structure passed by value: such a function needs a handwritten definition."""
        t = self.resolve(text)
        return "*" not in t and re.match(r"(const )?(struct|union) ", t) is not None

    def target(self, text):
        """Type of the object that the callee may write through a parameter: (kind, size), or None."""
        t = self.resolve(text)
        if not t.endswith("*") and not re.search(r"\*\s*const$", t):
            return None
        t = re.sub(r"\s*const$", "", t)
        inner = t[:-1].strip()
        if inner.endswith("const") or (inner.startswith("const ") and "*" not in inner):
            return None
        if inner.endswith("*"):
            return ("pointer", 8)
        if inner == "void":
            return None
        if inner in SIZES:
            return ("real" if inner in ("float", "double") else "number", SIZES[inner])
        if inner in COMPLEX:
            return ("real", COMPLEX[inner])
        if inner.startswith("enum "):
            return ("number", 4)
        if inner.startswith("struct ") or inner.startswith("union "):
            return ("struct", 0) if inner.split()[1] in self.complete else None  # an opaque object
        if inner in self.types:
            raise Unreadable("unknown type " + inner)
        return ("struct", 0)

    def call(self, library, name):
        """The table's line without its comment: (answer, [action]); None with the reason: no answer."""
        returns, parameters, names, variadic = self.functions[name]
        own = library in ("cudart", "driver")
        status = {self.resolve(s) for s in LIBRARIES[library][1]} | LIBRARIES[library][1]
        floats = [p for p in parameters if self.resolve(p) in ("float", "double")]
        if variadic:
            return None, "takes any arguments"
        if self.resolve(returns).endswith("*"):
            return None, "returns text or a pointer"
        if returns not in status and not any("*" in self.resolve(p) for p in parameters):
            return None, "needs no device"
        asks_library = re.search("Get(Version|Property)$", name) and not any("struct" in self.resolve(p) for p in parameters)
        if name in LEFT or (asks_library and not own and library != "cupti"):
            return None, "needs no device"
        if any(self.passes_in_memory(p) for p in parameters) and any(self.target(p) for p in parameters):
            # The number of arguments alone does not determine their places then.
            return ("unknown", []), ""
        if len(floats) > 8:
            return None, "too many arguments"
        integers = [(n, p) for n, p in zip(names, parameters) if self.resolve(p) not in ("float", "double")]
        if len(integers) > 32:
            return None, "too many arguments"
        actions, struct = [], False
        makes = MAKES.search(name) and not own
        for i, (n, p) in enumerate(integers, 1):
            kind = self.target(p)
            if kind is None:
                continue
            if kind[0] == "struct":
                struct = True
            elif kind[0] == "pointer" and makes:
                actions.append("GIVE(%d)" % i)
            elif kind[0] != "real" or n in RESULTS:
                actions.append("OUT(%d, %d)" % (i, kind[1]))
        if returns not in status and self.resolve(returns) not in status:
            return ("zero" if library != "cufile" or self.resolve(returns) == "void" else "failed", actions), ""
        if library in ("cufile", "cupti"):  # file access and profiling of a device that does not exist
            unknown = True
        elif own:
            unknown = bool(actions) or struct or "Get" in name
        else:
            unknown = bool(ASKS.search(name) and not name.startswith(("cublasSet", "cudnnSet"))) and (bool(actions) or struct)
            unknown = unknown or (struct and not re.search(r"Create|Init|Set|Destroy", name))
        if name in NEVER:
            unknown = True
        return ("unknown" if unknown else "done", actions), ""


def include_folders(environment):
    found = []
    for folder, folders, _ in os.walk(environment, followlinks=True):
        if os.path.basename(folder) == "include" and os.sep + "nvidia" + os.sep in folder:
            found.append(folder)
            folders[:] = []
        elif folder.count(os.sep) - environment.count(os.sep) > 7:
            folders[:] = []
    return sorted(found)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    environments = [os.path.realpath(e) for e in sys.argv[1:]]
    print("""/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is answered to calls that nobody modelled by hand: CALL(library, function, answer, actions). OUT(n, size)
 * zeroes what the n-th integer or pointer argument points to, GIVE(n) stores a handle there. Written by
 * gen_calls.py, which says how; do not edit. A function that is written by hand takes the place of its line here.
 */""")
    include = [include_folders(e) for e in environments]
    for library, (prefix, _, headers) in LIBRARIES.items():
        known, left, differs = {}, {}, 0
        for folders in include:
            headers_here = [h for h in headers if any(os.path.exists(os.path.join(f, h)) for f in folders)]
            if not headers_here:
                continue
            try:
                p = Prototypes(*declarations(folders, headers_here, MISSING.get(library, "")))
            except Unreadable as e:
                sys.exit("gen_calls: %s: %s" % (folders[0], e))
            for name in p.functions:
                if not re.match(prefix, name):
                    continue
                call, why = p.call(library, name)
                if call is None:
                    left.setdefault(name, why)
                elif name not in known:
                    known[name] = call
                elif known[name] != call:
                    differs += 1
                    sys.stderr.write("gen_calls: %s: %s here, %s in %s\n" % (name, known[name], call, folders[0]))
        for name in left:
            known.pop(name, None)
        print("\n/* %s */" % library)
        for name in sorted(known):
            answer, actions = known[name]
            print("CALL(%s)" % ", ".join([library, name, answer, " ".join(actions)]).rstrip())
        if left:
            print("/* left to the library itself:")
            for name in sorted(left):
                print(" * %s: %s" % (name, left[name]))
            print(" */")
        sys.stderr.write("gen_calls: %s: %d functions, %d left, %d differ\n" % (library, len(known), len(left), differs))


if __name__ == "__main__":
    main()
