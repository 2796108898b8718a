#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""`mcp`: the protocol's official client gets answers, hostile input gets errors, and nothing outside the folder is read."""
import json
import os
import shutil
import subprocess
import time

import harness
from harness import IS_ROOT, REPO, TOOL, Skip, check, equal, installed, made, nightly, python, run, scratch, spawn_job, tool

GUIDE = os.path.join(REPO, "tests", "data", "guide")
PARSE, INVALID, NO_METHOD, PARAMS = -32700, -32600, -32601, -32602
CLIENT = """
import asyncio, json, sys
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
async def main(tool, options, calls):
    async with Client(StdioServerParameters(command=tool, args=["mcp", *options])) as client:
        answers = [[t.name for t in (await client.list_tools()).tools]]
        for name, arguments in calls:
            answer = await client.call_tool(name, arguments)
            answers.append([answer.is_error, answer.content[0].text])
        print(json.dumps(answers))
asyncio.run(main(sys.argv[1], *json.load(sys.stdin)))
"""


def official(options, *calls):
    """The names of the tools, and the answers of the calls."""
    said = subprocess.run([installed("python", "tables", step="tables"), "-c", CLIENT, TOOL], input=json.dumps([options, calls]), capture_output=True, text=True,
                          check=False, timeout=120)
    equal(said.returncode, 0, "the official client: %s" % said.stderr[-1500:])
    return json.loads(said.stdout)


def folder():
    path = scratch("mcp")
    if not os.path.exists(path):
        shutil.copytree(GUIDE, path)
        with open(scratch("secret.mtr"), "wb") as f:
            f.write(b"secret")
        os.symlink(scratch("secret.mtr"), os.path.join(path, "link.mtr"))
        os.symlink(scratch(), os.path.join(path, "up"))
        with open(os.path.join(path, "damaged.mtr"), "wb") as f:
            f.write(b"\x89MTR\r\n\x1a\n" + b"x" * 100)
    return path


def talk(*messages, options=()):
    """The server's answers to lines, in order."""
    lines = b"".join((m if isinstance(m, bytes) else json.dumps(m).encode()) + b"\n" for m in messages)
    done = subprocess.run([TOOL, "mcp", "--folder", folder(), *options], input=lines, capture_output=True, check=False, timeout=60)
    equal(done.returncode, 0, "mcp: %r" % done.stderr[-500:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def call(name, **arguments):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def text(answer, failed=False):
    equal(answer["result"]["isError"], failed, "isError of %s" % answer)
    return answer["result"]["content"][0]["text"]


@nightly("programs")
def test_official_client():
    path = folder()
    names, listed, report, document, leaks, diff, job = official(
        ["--folder", path], ["list", {}], ["report", {"recording": "base.mtr", "top": 5}], ["report", {"recording": "base.mtr", "format": "json", "top": 3}],
        ["leaks", {"recording": "leak.mtr"}], ["diff", {"old": "base.mtr", "new": "checkpoint.mtr", "by": "module"}], ["report", {"recording": "job"}])
    equal(names, ["list", "diagnose", "report", "leaks", "diff"], "tools")
    equal(sorted(r["path"] for r in json.loads(listed[1])["recordings"]),
          ["base.mtr", "checkpoint.mtr", "damaged.mtr", *("job/rank-%d.mtr" % i for i in range(4)), "leak.mtr", "oom.mtr", "torch-2.15.pickle.gz", "torch-2.8.pickle.gz"], "recordings")
    _, out, _ = tool("report", "--top=5", "./base.mtr", cwd=path, prefix=("env", "LC_ALL=C.UTF-8"))
    equal(report, [False, out], "report")
    _, out, _ = tool("report", "--format", "json", "--top", "3", "./base.mtr", cwd=path)
    equal(json.loads(document[1]), json.loads(out), "report as JSON")
    check("history" in leaks[1] and "train.py" in diff[1] + report[1] and "rank" in job[1], "answers: %s", [leaks, diff, job])


def test_hostile_input():
    deep = b"[" * 100000
    cases = [(b"", None), (b"nonsense", PARSE), (b"\xff\xfe\x00", PARSE), (deep, PARSE), (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', PARSE),
             (b"[]", INVALID), (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID), (b"7", INVALID), (b"{}", INVALID), (b'"x"', INVALID),
             ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, INVALID), ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, INVALID),
             ({"jsonrpc": "2.0", "id": "x" * 300, "method": "ping"}, INVALID), ({"jsonrpc": "2.0", "id": 1}, INVALID),
             (b" " * (2 << 20), INVALID), ({"jsonrpc": "2.0", "id": 1, "method": "no/such"}, NO_METHOD),
             ({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}, NO_METHOD), ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, PARAMS),
             (call("no-such"), PARAMS), (call("estimate", script="x.py", vram=1), PARAMS), (call("attach", pid=1), PARAMS), (call("report"), PARAMS),
             (call("report", recording=7), PARAMS), (call("report", recording="base.mtr", top="5"), PARAMS), (call("report", recording="base.mtr", top=0), PARAMS),
             (call("report", recording="base.mtr", by="-x"), PARAMS), (call("report", recording="base.mtr", output="/tmp/x"), PARAMS),
             (call("report", recording="base.mtr", filter="a\nb"), PARAMS), (call("report", recording="base.mtr\0/etc"), PARSE),
             ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report", "arguments": "x"}}, PARAMS),
             ({"jsonrpc": "2.0", "method": "notifications/initialized"}, None), ({"jsonrpc": "2.0", "id": 9, "result": {}}, None)]
    cases += [(call("report", recording=p), PARAMS) for p in ("../secret.mtr", "/etc/passwd", scratch("secret.mtr"), "link.mtr", "up/secret.mtr", "-", "", ".." * 3000,
                                                              "job/../../secret.mtr", "/proc/self/mem")]
    answers = talk(*(m for m, _ in cases), {"jsonrpc": "2.0", "id": "last", "method": "ping"})
    expected = [(m, code) for m, code in cases if code]
    equal(len(answers), len(expected) + 1, "answers")
    for (message, code), answer in zip(expected, answers):
        equal(answer.get("error", {}).get("code"), code, "answer %s to %s" % (str(answer)[:300], str(message)[:120]))
        check("secret" not in json.dumps(answer), "%s", answer)
    equal(answers[-1], {"jsonrpc": "2.0", "id": "last", "result": {}}, "ping after all that")


def test_answers_are_bounded():
    whole, cut, document, damaged, option = talk(call("report", recording="oom.mtr", top=500)) + talk(
        call("report", recording="oom.mtr", top=500), call("report", recording="oom.mtr", format="json"), call("report", recording="damaged.mtr"),
        call("leaks", recording="base.mtr", device="--fail"), options=("--max-answer", "2K"))
    whole, cut = text(whole), text(cut)
    kept, _, last = cut.rstrip("\n").rpartition("\n")
    check(len(whole) > 2048 > len(kept) and whole.startswith(kept.rstrip("\n")), "cut: %s", cut)
    check("of %d bytes" % len(whole.encode()) in last, "the last line: %s", last)
    check("at most 2048" in text(document, failed=True), "a long document: %s", document)
    check("damaged.mtr" in text(damaged, failed=True), "a damaged recording: %s", damaged)
    check("--fail" in text(option, failed=True), "an option as a value: %s", option)


def test_values_of_the_command_line():
    """`at` and `by` take what the options take, and a refusal names it."""
    marks = made(os.path.join(folder(), "marks.mtr"), "marks")
    asked = [("report", {"recording": "marks.mtr", "at": "mark:memory unmapped*", "by": "module,category"}), ("report", {"recording": "base.mtr", "at": "0.5s", "by": "segment"}),
             ("diff", {"old": "marks.mtr", "new": "marks.mtr", "at": "mark:memory unmapped*,end"}), ("report", {"recording": "job", "by": "module,category"})]
    answers = talk(*(call(name, format="json", top=2, **arguments) for name, arguments in asked), options=("--max-answer", "1M"))
    for (name, arguments), answer in zip(asked, answers):
        paths = ["./" + arguments[key] for key in ("recording", "old", "new") if key in arguments]
        options = ["--%s=%s" % (key, arguments[key]) for key in ("by", "at") if key in arguments]
        code, out, err = tool(name, "--format=json", "--top=2", *options, *paths, cwd=folder())
        equal((code, json.loads(text(answer))), (0, json.loads(out)), "%s %s (%s)" % (name, arguments, err))
    os.unlink(marks)
    for arguments, said in (({"at": "0,end"}, "mark:NAME"), ({"at": "mark:" + "a" * 128}, "127 bytes"), ({"at": "mark:"}, "seconds"), ({"by": "module,stack"}, "such as module,category")):
        [answer] = talk(call("report", recording="base.mtr", **arguments))
        equal(answer["error"]["code"], PARAMS, "%s" % answer)
        check(said in answer["error"]["message"], "%s: %s", arguments, answer)
    [answer] = talk(call("diff", old="base.mtr", new="base.mtr", at="0,end,oom"))
    check("OLD,NEW" in answer["error"]["message"], "%s", answer)
    [answer] = talk(call("report", recording="base.mtr", at="mark:../../secret"))
    check("no mark" in text(answer, failed=True), "%s", answer)


def test_snapshots():
    """PyTorch's own memory snapshots are listed, and each tool that takes a recording takes one, also a folder of them."""
    ranks = os.path.join(folder(), "ranks")
    os.mkdir(ranks)
    for rank in (0, 1):
        code, _, err = tool("export", "snapshot", os.path.join(GUIDE, "base.mtr"), "-o", os.path.join(ranks, "oom_rank%d.pickle" % rank))
        equal(code, 0, "export: %s" % err)
    with open(os.path.join(ranks, "bad.pickle.gz"), "wb") as f:
        f.write(b"\x80\x02cos\nsystem\n(S'echo'\ntR.")
    listed, bad, tools = talk(call("list"), call("report", recording="ranks/bad.pickle.gz"), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    paths = [r["path"] for r in json.loads(text(listed))["recordings"]]
    equal([p for p in paths if p.startswith("ranks/")], ["ranks/" + n for n in ("bad.pickle.gz", "oom_rank0.pickle", "oom_rank1.pickle")], "listed")
    check("it would import code" in text(bad, failed=True), "%s", bad)
    os.unlink(os.path.join(ranks, "bad.pickle.gz"))
    one = "ranks/oom_rank0.pickle"
    asked = [("report", {"recording": one}), ("leaks", {"recording": one}), ("diagnose", {"recording": one}), ("diff", {"old": "base.mtr", "new": one}),
             ("report", {"recording": "ranks"}), ("diagnose", {"recording": "ranks"})]
    for (name, arguments), answer in zip(asked, talk(*(call(name, format="json", **({} if name == "diagnose" else {"top": 2}), **arguments) for name, arguments in asked),
                                                     options=("--max-answer", "1M"))):
        top = () if name == "diagnose" else ("--top=2",)
        code, out, err = tool(name, "--format=json", *top, *("./" + arguments[key] for key in ("recording", "old", "new") if key in arguments), cwd=folder())
        equal((code in (0, 4), json.loads(text(answer))), (True, json.loads(out)), "%s %s (%s)" % (name, arguments, err))
    named = {t["name"]: t["inputSchema"]["properties"] for t in tools["result"]["tools"]}
    for name, keys in (("report", ["recording"]), ("leaks", ["recording"]), ("diagnose", ["recording"]), ("diff", ["old", "new"])):
        for key in keys:
            check("snapshot" in named[name][key]["description"], "%s of %s: %s", key, name, named[name][key])
    shutil.rmtree(ranks)


def test_attach_is_offered_on_request():
    if not IS_ROOT:
        raise Skip("needs root")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "leak.py"), "list", "--steps", "100000", "--pause", "0.02"])
    p.wait_line("step 2")
    [answer] = talk(call("attach", pid=p.pid, seconds=1), options=("--allow-attach",))
    p.stop()
    name = [f for f in os.listdir(folder()) if str(p.pid) in f]
    check(len(name) == 1 and name[0] in text(answer), "recordings: %s, answer %s", name, answer)
    [answer] = talk(call("report", recording=name[0], device="cpu"))
    check("leak.py" in text(answer), "report: %s", answer)
    os.unlink(os.path.join(folder(), name[0]))


def test_an_answer_that_is_not_read():
    """A client that ends before its answer is no error."""
    p = subprocess.Popen([TOOL, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.close()
    p.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    p.stdin.close()
    equal((p.wait(30), p.stderr.read()), (0, b""), "exit and what it says")
    p.stderr.close()


def test_a_client_that_ends():
    """The command of a call ends with the client."""
    p = subprocess.Popen([TOOL, "mcp", "--folder", folder(), "--allow-attach"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        p.stdin.write(json.dumps(call("attach", pid=os.getpid(), seconds=300)).encode() + b"\n")  # has no PyTorch, and is waited for
        p.stdin.flush()
        limit = time.monotonic() + 30
        while not harness.children_of(p.pid) and time.monotonic() < limit:
            time.sleep(0.02)
        [child] = harness.children_of(p.pid)
        p.stdout.close()
        equal(p.wait(30), 0, "exit after the client")
        check(not os.path.exists("/proc/%d" % child), "the recorder runs on")
    finally:
        p.kill()
        p.wait()


if __name__ == "__main__":
    run(globals())
