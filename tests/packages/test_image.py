#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The container image: its archive is whole, a foreign program reads it, and its layer runs in an empty root file system."""
import gzip
import hashlib
import json
import os
import shutil
import tarfile

import packages
from packages import Skip, check, equal, harness, run, scratch


def blob(archive, entry):
    """The content of a blob, checked against the digest and the size that refer to it."""
    content = archive.extractfile("blobs/sha256/" + entry["digest"].removeprefix("sha256:")).read()
    equal("sha256:" + hashlib.sha256(content).hexdigest(), entry["digest"], "digest")
    equal(len(content), entry["size"], "size of " + entry["digest"])
    return content


def test_layer_runs():
    with tarfile.open(packages.package("*.oci.tar")) as archive:
        index = json.load(archive.extractfile("index.json"))
        manifest = json.loads(blob(archive, index["manifests"][0]))
        config = json.loads(blob(archive, manifest["config"]))
        layer = gzip.decompress(blob(archive, manifest["layers"][0]))
    equal(["sha256:" + hashlib.sha256(layer).hexdigest()], config["rootfs"]["diff_ids"], "digest of the unpacked layer")
    check(config["config"]["Labels"]["org.opencontainers.image.revision"], "no revision")
    if not harness.IS_ROOT:
        raise Skip("needs root to run it")
    root = scratch("image")
    os.makedirs(root)
    with open(scratch("layer.tar"), "wb") as f:
        f.write(layer)
    packages.execute("tar", "-xf", scratch("layer.tar"), "-C", root)
    program = config["config"]["Entrypoint"][0]
    said = packages.execute("chroot", root, program, "version")
    packages.version_of(said)
    check(config["config"]["Labels"]["org.opencontainers.image.revision"] in said, "the program is of another commit: %s", said)


def test_skopeo():
    """skopeo reads it, as an image of either kind."""
    if not shutil.which("skopeo"):
        raise Skip("no skopeo")
    path = packages.package("*.oci.tar")
    for kind in ("oci-archive", "docker-archive"):
        seen = json.loads(packages.execute("skopeo", "inspect", "%s:%s" % (kind, path)))
        equal((seen["Os"], len(seen["Layers"])), ("linux", 1), kind)


run(globals())
