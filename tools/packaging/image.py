#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Makes a container image from the staged tree without a container tool: `make STATIC=1 image` calls it. The archive follows the OCI
image layout, and has the manifest.json that `docker load` before release 25 reads. The one layer has the program, what it loads, and
its documents; nothing of a distribution.
"""
import gzip
import hashlib
import io
import json
import os
import tarfile

import release
import system
import tree

INSTALLED = ("bin/memtrace-bpf", "lib/memtrace-bpf/", "share/doc/memtrace-bpf/")
FOLDERS = (("run", 0o755), ("tmp", 0o1777), ("var/lib/memtrace-bpf", 0o700), ("var/tmp", 0o1777))
GO_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image."


def add(tar, name, content=None, mode=0o755, link=None):
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = mode, release.epoch()
    if link is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, link, 0o777
    elif content is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = len(content)
    tar.addfile(info, io.BytesIO(content) if content is not None else None)


def parents(names):
    """Folders that these paths lie in, each before what is in it."""
    found = set()
    for name in names:
        while os.path.dirname(name):
            name = os.path.dirname(name)
            found.add(name)
    return sorted(found)


def layer():
    """The layer as an uncompressed tar."""
    usr = os.path.join(release.stage(), "usr")
    chosen = [entry for entry in tree.files(usr) if entry[0].startswith(INSTALLED)]
    own = dict(FOLDERS)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in sorted(set(parents([f"usr/{n}" for n, _, _ in chosen] + list(own))) | set(own)):
            add(tar, folder, mode=own.get(folder, 0o755))
        for name, path, mode in chosen:
            if os.path.islink(path):
                add(tar, f"usr/{name}", link=os.readlink(path))
            else:
                with open(path, "rb") as f:
                    add(tar, f"usr/{name}", f.read(), mode)
    return out.getvalue()


def config(diff_id):
    when = f"{release.day():%Y-%m-%dT%H:%M:%SZ}"
    return {
        "created": when, "architecture": GO_ARCH[release.arch()], "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/memtrace-bpf"], "Cmd": ["serve", "--all"], "WorkingDir": "/",
            "Env": ["PATH=/usr/bin"],
            "Labels": {
                "org.opencontainers.image.title": "memtrace-bpf", "org.opencontainers.image.description": release.SUMMARY,
                "org.opencontainers.image.version": release.pep440(), "org.opencontainers.image.revision": release.commit(),
                "org.opencontainers.image.created": when, "org.opencontainers.image.licenses": release.LICENSE_WITH_LIBRARIES,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": when, "created_by": "tools/packaging/image.py", "comment": "memtrace-bpf " + release.pep440()}],
    }


def as_json(value):
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


class Archive:
    """Blobs by their digests."""
    def __init__(self):
        self.blobs = {}

    def put(self, kind, content, **more):
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": OCI + kind, "digest": "sha256:" + digest, "size": len(content), **more}


def archive():
    """{name: content} of the image's archive."""
    files, tag = Archive(), release.debian().replace("+", "-")
    tar = layer()
    layer_entry = files.put("layer.v1.tar+gzip", gzip.compress(tar, 9, mtime=0))
    config_entry = files.put("config.v1+json", as_json(config("sha256:" + hashlib.sha256(tar).hexdigest())))
    manifest = files.put("manifest.v1+json", as_json({"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config_entry, "layers": [layer_entry]}),
                         platform={"architecture": GO_ARCH[release.arch()], "os": "linux"},
                         annotations={"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": f"docker.io/library/memtrace-bpf:{tag}"})
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [manifest]}
    path = {entry["digest"]: f"blobs/sha256/{entry['digest'][7:]}" for entry in (layer_entry, config_entry)}
    docker = [{"Config": path[config_entry["digest"]], "RepoTags": [f"memtrace-bpf:{tag}"], "Layers": [path[layer_entry["digest"]]]}]
    return {**files.blobs, "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), "index.json": as_json(index), "manifest.json": as_json(docker)}


def main():
    system.static_only("image")
    path = os.path.join(release.packages_dir(), f"memtrace-bpf-{release.pep440()}-{release.arch()}.oci.tar")
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in ("blobs", "blobs/sha256"):
            add(tar, folder)
        for name, content in sorted(archive().items()):
            add(tar, name, content, 0o644)
    release.made(path)


main()
