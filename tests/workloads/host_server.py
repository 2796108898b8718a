# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A server on the CPU, for bench.py: answers requests over HTTP on threads, one a connection, each with a forward of a small model and
some JSON, or without PyTorch with a text that is built, searched and dropped. A client process sends requests one after the other and appends [begin, end, CPU seconds of the server] to a file. The two
share a core, on which one of them waits for the other: no wake-up of another core is in the figures.

    host_server.py TIMES [--seconds N] [--without-torch]
"""
import argparse
import http.client
import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading
import time

WIDTH = 256


def cpu_of(pid):
    with open("/proc/%d/schedstat" % pid, encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def client(port, pid, path, seconds):
    """Two connections in turn, so that two of the server's threads answer. CPU time: of all its threads."""
    connections = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(2)]
    body = json.dumps({"rows": [[i / WIDTH for i in range(WIDTH)]] * 8})
    threads = "/proc/%d/task" % pid
    with open(path, "w", encoding="ascii") as f:
        end_at = time.monotonic() + seconds
        while time.monotonic() < end_at:
            cpu = sum(cpu_of(int(t)) for t in os.listdir(threads))
            begin = time.monotonic()
            for i in range(20):
                connections[i % 2].request("POST", "/", body)
                connections[i % 2].getresponse().read()
            end = time.monotonic()
            f.write(json.dumps([begin, end, sum(cpu_of(int(t)) for t in os.listdir(threads)) - cpu]) + "\n")
            f.flush()
            time.sleep(0.01)


def forward():
    """A function that answers with a model."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64))

    def answer(rows):
        with torch.no_grad():
            return model(torch.tensor(rows)).tolist()
    return answer


def count_words(rows):
    """Takes and frees about 1 MiB in one piece, and small objects."""
    text = (" ".join("%.6f" % value for row in rows for value in row) + " ") * 50
    found = {}
    for word in text[:40000].split():
        found[word] = found.get(word, 0) + 1
    return sorted(found.items())[:64]


def serve(path, seconds, without_torch):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    work = count_words if without_torch else forward()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # headers and body in one piece

        def do_POST(self):
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["rows"]
            answer = json.dumps(work(rows)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sender = subprocess.Popen([sys.executable, __file__, path, "--seconds", str(seconds), "--client", str(server.server_port), "--pid", str(os.getpid())])
    print("ready", flush=True)
    sender.wait()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("times")
    args.add_argument("--seconds", type=float, default=3600)
    args.add_argument("--without-torch", action="store_true")
    args.add_argument("--client", type=int)
    args.add_argument("--pid", type=int)
    args = args.parse_args()
    if args.client:
        client(args.client, args.pid, args.times, args.seconds)
    else:
        serve(args.times, args.seconds, args.without_torch)


if __name__ == "__main__":
    main()
