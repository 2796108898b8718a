// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The filter box: words and key:value terms. Terms of one key are alternatives, all else must hold together.
"use strict";
(() => {
	const KEYS = ["category", "module", "line", "file", "function", "phase", "source", "name", "thread"];

	// [{not, key, value}]; quotes keep spaces together. A key that is not one of ours is a word with a colon.
	function parse(text) {
		const terms = [];
		for (const [, not, key, quoted, plain] of text.matchAll(/(-?)(?:([a-z]+):)?(?:"([^"]*)"?|(\S+))/g)) {
			const value = (quoted ?? plain).toLowerCase();
			if (key && !KEYS.includes(key))
				terms.push({ not: not === "-", key: "", value: key + ":" + value });
			else if (key || value)
				terms.push({ not: not === "-", key: key ?? "", value });
		}
		return terms;
	}

	// blocks.3 is in blocks.3.mlp and in encoder.blocks.3, and not in blocks.31; * is any one part.
	function moduleTest(value) {
		if (!value)
			return m => !m;
		const parts = value.split(".").map(p => p === "*" ? "[^.]+" : p.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
		const re = new RegExp("(^|\\.)" + parts.join("\\.") + "($|\\.)");
		return m => re.test(m);
	}

	function lineTest(value) {
		const at = /^(.*?):?(\d+)$/.exec(value);
		const file = at ? at[1] : value, line = at ? Number(at[2]) : 0;
		return r => r.line === line || !line ? !file || fileIs(r.file, file) : false;
	}

	function fileIs(file, wanted) {
		const f = (file ?? "").toLowerCase();
		return f === wanted || f.endsWith("/" + wanted) || (!wanted.includes("/") && f.slice(f.lastIndexOf("/") + 1).includes(wanted));
	}

	function testOf({ key, value }) {
		switch (key) {
		case "module": {
			const test = moduleTest(value);
			return r => test((r.module ?? "").toLowerCase());
		}
		case "line": return lineTest(value);
		case "file": return r => fileIs(r.file, value);
		case "category": case "phase": case "source":
			return r => (r[key] ?? "").startsWith(value);
		case "": return r => textOf(r).includes(value);
		default: return r => (r[key] ?? "").toLowerCase().includes(value);
		}
	}

	// All that a row says, with all of its frames: made once, and small, since rows of a stack share its text.
	const texts = new Map();
	function textOf(r) {
		let stack = texts.get(r.stack);
		if (stack === undefined) {
			const frames = Page.frames;
			stack = Array.from(Page.stack(r.stack), f => frames[f].name + "\n" + (frames[f].file ?? "") + (frames[f].line ? ":" + frames[f].line : "")).join("\n").toLowerCase();
			texts.set(r.stack, stack);
		}
		r.words ??= [r.file ? r.file + ":" + r.line : "", r.function, r.module, r.module_class, r.phase, r.category, r.name, r.thread,
			r.before_attach ? "before attach" : ""].join("\n").toLowerCase();
		return r.words + "\n" + stack;
	}

	function compile(text) {
		const terms = parse(text);
		const by = new Map();
		for (const t of terms) {
			const k = t.not ? "-" : t.key === "" ? "w" + by.size : t.key;
			by.set(k, [...(by.get(k) ?? []), testOf(t)]);
		}
		const groups = [...by].map(([k, tests]) => k === "-" ? r => !tests.some(t => t(r)) : r => tests.some(t => t(r)));
		return { terms, test: r => groups.every(g => g(r)) };
	}

	// A term as one would type it.
	function term(key, value) {
		return key + ":" + (/[\s"]|^$/.test(value) ? `"${value.replace(/"/g, "")}"` : value);
	}

	Page.filter = { compile, parse, term };
})();
