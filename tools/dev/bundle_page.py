#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Makes one template of the parts of the page that export html fills:

  tools/dev/bundle_page.py PAGE.html -o TEMPLATE.html --style A.css ... --script B.js ... --notice LICENSE

Each file becomes an element of its own where PAGE.html has <!--STYLES--> and <!--SCRIPTS-->, and its hash goes into the
content security policy, in place of @@STYLE_HASHES@@ and @@SCRIPT_HASHES@@: the browser runs what was here at build
time and nothing else, whatever a recording has in its names. The notice, of what others wrote, goes in as a comment.
"""
import argparse
import base64
import hashlib
import sys
from pathlib import Path



def fail(text):
    sys.exit("bundle_page.py: " + text)


def element(name, path):
    """The element, and its hash for the content security policy: over everything between the tags."""
    # The parser turns \r\n into \n before it hashes.
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    if "</" + name in text.lower() or "<!--" in text:
        fail(f"{path}: has </{name} or <!-- in it, which would end it, or hide its end")
    text = "\n" + text.strip() + "\n"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"<{name}>{text}</{name}>", f"'sha256-{digest}'"


def put(page, mark, text):
    if page.count(mark) != 1:
        fail(f"{mark} must be there once, not {page.count(mark)} times")
    return page.replace(mark, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("--style", type=Path, nargs="+", default=[])
    parser.add_argument("--script", type=Path, nargs="+", default=[])
    parser.add_argument("--notice", type=Path)
    parser.add_argument("--holes", nargs="+", default=["HEAD", "DATA"], help="what is filled in later")
    args = parser.parse_args()
    page = args.page.read_text(encoding="utf-8")
    notice = args.notice.read_text(encoding="utf-8").strip() if args.notice else ""
    if "--" in notice:
        fail(f"{args.notice}: has -- in it, which ends a comment")
    styles = [element("style", path) for path in args.style]
    scripts = [element("script", path) for path in args.script]
    page = put(page, "@@STYLE_HASHES@@", " ".join(h for _, h in styles))
    page = put(page, "@@SCRIPT_HASHES@@", " ".join(h for _, h in scripts))
    page = put(page, "<!--NOTICE-->", f"<!--\n{notice}\n-->" if notice else "")
    page = put(page, "<!--STYLES-->", "\n".join(e for e, _ in styles))
    page = put(page, "<!--SCRIPTS-->", "\n".join(e for e, _ in scripts))
    for hole in args.holes:
        if page.count(f"<!--{hole}-->") != 1:
            fail(f"<!--{hole}--> must be there once")
    args.out.write_text(page, encoding="utf-8")


main()
