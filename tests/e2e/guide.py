# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs the programs of the API guide unchanged, except for the host. The guide is not part of this repository: MEMTRACE_GUIDE
names its file (default: ../shared/reference/required/http-api.md next to the repository)."""
import os
import re
import shutil
import subprocess
import sys

import harness
from harness import REPO, Skip, check, installed, scratch

GUIDE = os.environ.get("MEMTRACE_GUIDE") or os.path.join(REPO, "..", "shared", "reference", "required", "http-api.md")
HOST = "http://localhost:8000"


def api_python():
    """The interpreter with requests, schemathesis and openapi-spec-validator."""
    return installed("python", "api", step="api")


def esbuild():
    if not shutil.which("node"):
        raise Skip("node is not here")
    program = os.path.join(installed("foreign", step="pages"), "node_modules", "esbuild", "bin", "esbuild")
    if not os.path.exists(program):
        raise Skip("no esbuild: run tools/deps.sh pages")
    return program


def blocks(language):
    """[(heading, code)] in the file's order."""
    if not os.path.exists(GUIDE):
        raise Skip("the guide is not here (MEMTRACE_GUIDE names it): clients of our own are what is left")
    with open(GUIDE, encoding="utf-8") as f:
        text = f.read()
    found, heading, inside, lines = [], "", None, []
    for line in text.split("\n"):
        if inside is None and line.startswith("#"):
            heading = line.lstrip("# ").strip()
        elif line.startswith("```"):
            if inside is not None:
                if inside == language:
                    found.append((heading, "\n".join(lines) + "\n"))
                inside = None
            else:
                inside, lines = line[3:].strip(), []
        elif inside is not None:
            lines.append(line)
    check(found, "%s has no %s", GUIDE, language)
    return found


def block(language, *words):
    """The only block that contains all these words."""
    fitting = [code for _, code in blocks(language) if all(w in code for w in words)]
    check(len(fitting) == 1, "%d blocks of %s with %s in %s", len(fitting), language, words, GUIDE)
    return fitting[0]


def at_host(code, url):
    return code.replace(HOST, url.replace("127.0.0.1", "localhost"))


def run_file(command, name, text, seconds=90, env=None):
    folder = scratch("client-" + re.sub(r"\W", "-", name))
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    try:
        done = subprocess.run([*command, path], capture_output=True, text=True, timeout=seconds, cwd=folder, check=False, env=env)
    except subprocess.TimeoutExpired as e:
        raise harness.Failure("%s did not end within %d s: %s" % (name, seconds, e.stdout)) from None
    check(done.returncode == 0, "%s ended with %d: %s %s", name, done.returncode, done.stdout[-800:], done.stderr[-2000:])
    return done.stdout


def run_python(name, code, url, seconds=90, torch=False):
    """Runs code; torch: in the environment with torch, plus the client's library."""
    program, env = api_python(), dict(os.environ)
    if torch:
        site = subprocess.run([program, "-c", "import requests, os; print(os.path.dirname(os.path.dirname(requests.__file__)))"],
                              capture_output=True, text=True, check=True).stdout.strip()
        program, env["PYTHONPATH"] = harness.python(), site
    return run_file([program], name, at_host(code, url), seconds, env)


def run_typescript(name, code, url, seconds=90):
    """Runs it with node, without its types."""
    compiler = esbuild()
    source = scratch(name + ".ts")
    with open(source, "w", encoding="utf-8") as f:
        f.write(at_host(code, url))
    done = subprocess.run(["node", compiler, source, "--format=esm"], capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == 0, "esbuild: %s", done.stderr[-800:])
    return run_file(["node"], name + ".mjs", done.stdout, seconds)


def run_shell(name, code, url, seconds=90):
    if not shutil.which("curl"):
        raise Skip("curl is not here")
    return run_file(["bash", "-euo", "pipefail"], name, at_host(code, url), seconds)


if __name__ == "__main__":
    for language in sys.argv[1:] or ("python", "typescript", "bash"):
        for heading, code in blocks(language):
            print("---- %s: %s\n%s" % (language, heading, code))
