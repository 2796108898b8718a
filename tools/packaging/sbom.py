#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes what the packages consist of, as an SPDX 2.3 document: the program's files with their checksums, the libraries that are linked
into it, and the JavaScript libraries in its pages. `make STATIC=1 sbom` calls it.
"""
import hashlib
import json
import os
import re

import linked
import release
import system
import tree

ROOT_ID = "SPDXRef-memtrace-bpf"


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def staged_files():
    entries = []
    for name, path, _ in tree.files(release.stage()):
        if os.path.islink(path):
            continue
        with open(path, "rb") as f:
            content = f.read()
        entries.append({
            "SPDXID": identifier("file-" + name), "fileName": "./" + name, "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
            "fileTypes": ["BINARY" if tree.is_elf(path) else "TEXT"],
            "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(content, usedforsecurity=False).hexdigest()},
                          {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}],
        })
    return entries


def verification_code(files):
    """As SPDX 2.3, 7.9 says: of the sorted SHA1s."""
    sums = sorted(f["checksums"][0]["checksumValue"] for f in files)
    return hashlib.sha1("".join(sums).encode(), usedforsecurity=False).hexdigest()


def program(files):
    return {
        "SPDXID": ROOT_ID, "name": "memtrace-bpf", "versionInfo": release.pep440(), "downloadLocation": "NOASSERTION", "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": verification_code(files)}, "licenseInfoFromFiles": ["NOASSERTION"],
        "licenseConcluded": release.LICENSE_WITH_LIBRARIES, "licenseDeclared": release.LICENSE, "copyrightText": "NOASSERTION", "summary": release.SUMMARY,
        "primaryPackagePurpose": "APPLICATION", "sourceInfo": f"git commit {release.commit()}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:generic/memtrace-bpf@{release.pep440()}"}],
    }


def licence_of(part):
    """The name of its licence in the document: SPDX's if the registry has that, otherwise a reference to the text."""
    if part.source == "npm" and part.licences:
        return part.licences
    return "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", part.name) if part.text else "NOASSERTION"


def component(part):
    entry = {
        "SPDXID": identifier(part.name), "name": part.name, "versionInfo": part.version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION", "licenseDeclared": licence_of(part), "copyrightText": "NOASSERTION", "sourceInfo": part.source,
        "primaryPackagePurpose": "LIBRARY",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}],
    }
    if part.licences:
        entry["licenseComments"] = "Its copyright file names: " + part.licences
    return entry


def related(kind, parts):
    return [{"spdxElementId": ROOT_ID, "relationshipType": kind, "relatedSpdxElement": identifier(p.name)} for p in parts]


def document():
    files, libraries, scripts = staged_files(), linked.libraries(), linked.scripts()
    parts = libraries + scripts
    name = f"memtrace-bpf-{release.pep440()}-{release.arch()}"
    content = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        "creationInfo": {"created": f"{release.day():%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: memtrace-bpf-sbom.py"]},
        "packages": [program(files)] + [component(p) for p in parts], "files": files,
        "hasExtractedLicensingInfos": [{"licenseId": licence_of(p), "name": p.name, "extractedText": p.text} for p in libraries if p.text],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": ROOT_ID}]
        + [{"spdxElementId": ROOT_ID, "relationshipType": "CONTAINS", "relatedSpdxElement": f["SPDXID"]} for f in files]
        + related("STATIC_LINK", libraries) + related("CONTAINS", scripts),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    content["documentNamespace"] = f"https://spdx.org/spdxdocs/{name}-{digest[:16]}"
    return name, content


def main():
    system.static_only("sbom")
    name, content = document()
    path = os.path.join(release.packages_dir(), name + ".spdx.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, indent=1, sort_keys=True)
        f.write("\n")
    release.made(path)


main()
