#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Counts sentences that must be read twice, by the patterns of docs/internals/STYLE.md ("Words"), in documents, the manual, help and
messages, and comments. Prints the share for each document and folder. Exits with 1 if a share is above its limit in words.txt;
without an entry there, the limit is 2 %.

    tools/dev/check_words.py                 prints the shares
    tools/dev/check_words.py --list [PART]   prints the sentences of parts with this prefix
    tools/dev/check_words.py --update        writes words.txt with lower limits
    tools/dev/check_words.py --sample SEED       prints 60 random comments, to be read by a person
    tools/dev/check_words.py --sample-text SEED  prints 45 random sentences of what users read
"""
import argparse
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = pathlib.Path(__file__).with_name("words.txt")

PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in {
    "passive telling": r"\b(is|are|was|were|be|been|being) (also |not |never |then |only )?(told|said|meant|asked|spoken|heard)\b",
    "headless clause": r"^(what|who|whom|whose|where|whatever|whoever) [^?]*$",
    "of what": r"\b(of|for|to|by|in|from|with|on|at|than|as|and|or) (what|whom|who) (is|are|was|were|has|have|had|it|they|we|can|may|one|comes?|goes)\b",
    "begins with of": r"^of ",
    "of which": r"\b(of|in|from|by|with|to) which\b",
    "else": r"(^|, |; |and |or )else\b",
    "some for about": r"[^-]\bsome [0-9]",
    "calque": r"\b(anew|beside|at the most|may be had|is to be had|to and fro|in vain|comes? to hold|let be|stands? there|save for)\b",
    "nobody": r"\bnobody\b(?! \(|'?s? (user|uid|group))",
    "whom": r"\bwhom\b",
    "any is": r"\bthat there (is|are|was|were) any\b",
    "is none": r"\b(is|are|was|were) (none|no one)( of)?\b",
    "such a one": r"\b(one|those|that) (of|from) (it|them|its|those|these)\b",
}.items()}
MIN_WORDS = 4  # words per sentence; shorter ones are labels
GOAL = 2.0  # percent
SAMPLE = 60
SAMPLE_TEXT = 45
HELP = ("user/cmd/", "user/capture/")  # files with the option tables


def clean_markdown(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ {4,}\S.*$", "", text, flags=re.M)
    text = re.sub(r"^\|[-| :]+\|$", "", text, flags=re.M)
    text = re.sub(r"^(#+|[*-]|\d+\.)\s", "\n\n", text, flags=re.M)
    text = text.replace("|", "\n\n").replace("**", "").replace("*", "")
    return text


def clean_manual(text):
    text = re.sub(r"^\.\\\".*$", "", text, flags=re.M)
    text = re.sub(r"^\.Bd.*?^\.Ed$", "\n\n", text, flags=re.M | re.S)
    text = re.sub(r"^\.(It|Sh|Ss|Pp|Bl|El|Xr|Op)\b.*$", "\n\n", text, flags=re.M)
    text = re.sub(r"^\.(Fl|Ar|Pa|Nm|Cm|Ev|Dv|Er|Li|Ql|Dq|Sq|Qq)\s.*?([.,;:]?)$", r"CODE\2", text, flags=re.M)
    return re.sub(r"^\.\w+.*$", "CODE", text, flags=re.M)


def sentences(text):
    for paragraph in re.split(r"\n\s*\n", text):
        words = re.sub(r"\s+", " ", paragraph).strip()
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"'(])", words):
            sentence = sentence.strip(" .\"'")
            if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= MIN_WORDS:
                yield sentence


def comments(text):
    """Comments of C and JavaScript; adjacent line comments are one."""
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    for block in re.findall(r"/\*(.*?)\*/|((?:^[ \t]*//[^\n]*\n)+)|//([^\n]*)", text, flags=re.S | re.M):
        body = re.sub(r"^\s*(\*|//)", "", "".join(block), flags=re.M)
        if "SPDX-License" not in body:
            yield body


def literals(text):
    """C string literals; adjacent ones are one."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^#include.*$", "", text, flags=re.M)
    for run in re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*(?:PRI\w+\s*)?)+', text):
        yield re.sub(r"%[-+ #0-9.*]*[a-zA-Z]+", "N", "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run))).replace("\\n", "\n").replace("\\t", " ")


def tracked():
    return subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def folder(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def parts():
    """Sentences by part."""
    out = {}
    for name in tracked():
        path = ROOT / name
        if name.startswith(("vmlinux/", "tests/data/")) or not path.is_file():
            continue
        if name.endswith(".md"):
            out.setdefault(name, []).extend(sentences(clean_markdown(path.read_text(encoding="utf-8"))))
        elif re.fullmatch(r"docs/.*\.[1-8](\.in)?", name):
            out.setdefault(name, []).extend(sentences(clean_manual(path.read_text(encoding="utf-8"))))
        elif name.endswith((".c", ".h", ".cc", ".js")):
            text = path.read_text(encoding="utf-8")
            for comment in comments(text):
                out.setdefault("comments of " + folder(name), []).extend(sentences(comment))
            if name.startswith("user/") and not name.endswith(".js"):
                for literal in literals(text):
                    out.setdefault("messages of " + folder(name), []).extend(sentences(literal))
    return out


def sample(seed):
    """Whole comments of C code, with the file that each is in."""
    found = []
    for name in tracked():
        if name.endswith((".c", ".h")) and name.startswith(("user/", "bpf/", "tools/")) and (ROOT / name).is_file():
            for comment in comments((ROOT / name).read_text(encoding="utf-8")):
                words = re.sub(r"\s+", " ", comment).strip()
                if len(re.findall(r"[A-Za-z]{2,}", words)) >= MIN_WORDS:
                    found.append((name, words))
    return random.Random(seed).sample(found, min(SAMPLE, len(found)))


def is_sentence(text):
    """False for code, format strings and lists of names, which no one reads as a sentence."""
    words = re.findall(r"(?<![\w./_-])[A-Za-z]{2,}(?![\w/_=(])", text)
    return len(words) >= MIN_WORDS and not re.match(r"[\[{.*/]|_Z", text) and not re.search(r"charset=|\\\\r|':|-src '", text)


def sample_text(seed):
    """Sentences of README, guide, help and messages, with the file that each is in: a quarter from each."""
    kinds = {"README": [], "guide": [], "help": [], "messages": []}
    for name in tracked():
        path = ROOT / name
        if not path.is_file():
            continue
        if name == "README.md" or (name.startswith("docs/guide/") and name.endswith(".md")):
            found = sentences(clean_markdown(path.read_text(encoding="utf-8")))
            kinds["README" if name == "README.md" else "guide"] += [(name, s) for s in found]
        elif name.startswith("user/") and name.endswith((".c", ".h")):
            for literal in literals(path.read_text(encoding="utf-8")):
                kind = "help" if name.startswith(HELP) and literal[:1].isupper() else "messages"
                kinds[kind] += [(name, s) for s in sentences(literal) if is_sentence(s)]
    draw = random.Random(seed)
    out = []
    for left, found in zip(range(len(kinds), 0, -1), kinds.values()):
        out += draw.sample(found, min((SAMPLE_TEXT - len(out)) // left, len(found)))
    return out


def flaws(sentence):
    return [name for name, pattern in PATTERNS.items() if pattern.search(sentence)]


def read_baseline():
    if not BASELINE.exists():
        return {}
    lines = [line.split("\t") for line in BASELINE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {name: float(share) for share, name in lines}


def percent(bad, n):
    return 100 * bad / max(n, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="?", const="", metavar="PART")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--sample", type=int, metavar="SEED")
    parser.add_argument("--sample-text", type=int, metavar="SEED")
    args = parser.parse_args()
    for seed, draw in ((args.sample, sample), (args.sample_text, sample_text)):
        if seed is not None:
            for name, words in draw(seed):
                print("%s: %s" % (name, words))
            return 0
    found = {name: [(s, flaws(s)) for s in all_of] for name, all_of in sorted(parts().items()) if all_of}
    if args.list is not None:
        for name, all_of in found.items():
            for sentence, why in all_of:
                if why and name.startswith(args.list):
                    print("%s: %s: %s" % (name, ", ".join(why), sentence))
        return 0
    before, worse = read_baseline(), []
    sums = {name: (sum(bool(why) for _, why in all_of), len(all_of)) for name, all_of in found.items()}
    for name, (bad, n) in sums.items():
        limit = before.get(name, GOAL)
        is_worse = percent(bad, n) > limit + 0.05
        print("%-34s %5d of %5d  %4.1f %%%s" % (name, bad, n, percent(bad, n), "  more than %.1f %%" % limit if is_worse else ""))
        worse += [name] * is_worse
    bad, n = (sum(column) for column in zip(*sums.values()))
    print("%-34s %5d of %5d  %4.1f %%" % ("all", bad, n, percent(bad, n)))
    if args.update:
        lines = ["%.1f\t%s\n" % (percent(*x), name) for name, x in sums.items() if percent(*x) > GOAL]
        BASELINE.write_text("# Percent of sentences that tools/dev/check_words.py finds, where above the goal. May only fall.\n" + "".join(lines),
                            encoding="utf-8")
        return 0
    for name in worse:
        print("%s got worse: tools/dev/check_words.py --list '%s'" % (name, name))
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
