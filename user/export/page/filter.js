// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The filter box, with the terms of report --filter (docs/reference/report.md), combined with "and". While typing, the
// beginning of a category, phase or source matches. stack: exists only here and matches any frame; size: is missing,
// because rows have blocks of different sizes.
"use strict";
(() => {
	const KEYS = { text: "", line: "line", file: "line", func: "function", function: "function", module: "module", class: "module_class",
		category: "category", role: "category", phase: "phase", source: "source", thread: "thread", name: "name", scope: "scope", stack: "stack" };

	// Parses a value up to an unquoted |. Returns the value and the remaining text.
	function value(text) {
		let out = "", quoted = false, i = 0;
		for (; i < text.length && (quoted || !/[\s|]/.test(text[i])); i++)
			if (text[i] === '"')
				quoted = !quoted;
			else
				out += text[i];
		return [out.toLowerCase(), text.slice(i)];
	}

	// Returns [{not, key, values, unknown}]. unknown: the word before a colon that is no field; it is searched as text.
	function parse(text) {
		const terms = [];
		let rest = text.trim(), v;
		while (rest) {
			const [all, not, key] = /^([-!]?)(?:([a-z]+):)?/.exec(rest), known = key !== undefined && key in KEYS;
			rest = rest.slice(known ? all.length : not.length);
			const values = [];
			do {
				[v, rest] = value(rest);
				values.push(v);
			} while (rest.startsWith("|") && (rest = rest.slice(1)) !== null);
			rest = rest.trimStart();
			if (known || values.some(x => x))
				terms.push({ not: not !== "", key: known ? KEYS[key] : "", values, unknown: known ? "" : key ?? "" });
		}
		return terms;
	}

	// blocks.3 matches blocks.3.mlp and encoder.blocks.3, but not blocks.31. In a part, * matches any text and ?
	// one character.
	function moduleTest(wanted) {
		if (!wanted)
			return m => !m;
		const parts = wanted.split(".").map(p => p.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "[^.]*").replace(/\?/g, "[^.]"));
		const re = new RegExp("(^|\\.)" + parts.join("\\.") + "($|\\.)");
		return m => re.test(m);
	}

	// Matches part of a path and, if given, the line number.
	function lineTest(wanted) {
		const at = /^(.*?):?(\d+)$/.exec(wanted), file = at ? at[1] : wanted, line = at ? Number(at[2]) : 0;
		if (!wanted)
			return r => !r.file;
		return r => !!r.file && r.file.toLowerCase().includes(file) && (!line || r.line === line);
	}

	function testOf(key, wanted) {
		switch (key) {
		case "module": {
			const test = moduleTest(wanted);
			return r => test((r.module ?? "").toLowerCase());
		}
		case "line": return lineTest(wanted);
		case "category": {
			const words = wanted.replaceAll("_", " ");
			return r => wanted ? (r.category ?? "").startsWith(wanted) || Words.role(r.category).toLowerCase().startsWith(words) : !r.category;
		}
		case "phase": case "source":
			return r => wanted ? (r.before_attach && key === "phase" ? "" : r[key] ?? "").startsWith(wanted) : !r[key];
		case "": return r => textOf(r).includes(wanted);
		case "stack": return r => stackOf(r.stack).includes(wanted);
		default: return r => wanted ? (r[key] ?? "").toLowerCase().includes(wanted) : !r[key];
		}
	}

	// All text of a row; for stack:, the text of its frames, cached per stack.
	const WORDS = ["function", "module", "module_class", "category", "phase", "name", "thread", "source", "node_class", "scope"];
	function textOf(r) {
		return r.words ??= [r.file ? r.file + (r.line ? ":" + r.line : "") : "", ...WORDS.map(k => r[k] ?? "")].join("\n").toLowerCase();
	}

	const stacks = new Map();
	function stackOf(id) {
		let text = stacks.get(id);
		if (text === undefined) {
			text = Array.from(Page.stack(id), i => {
				const f = Page.frames[i];
				return f.name + "\n" + (f.file ?? "") + (f.line ? ":" + f.line : "");
			}).join("\n").toLowerCase();
			stacks.set(id, text);
		}
		return text;
	}

	function compile(text) {
		const terms = parse(text), tests = terms.map(t => {
			const any = t.values.map(v => testOf(t.key, v));
			return r => any.some(test => test(r)) !== t.not;
		});
		const unknown = terms.find(t => t.unknown)?.unknown;
		return { terms, unknown, test: r => tests.every(test => test(r)) };
	}

	// A term as typed in the filter box.
	function term(key, wanted) {
		return key + ":" + (/[\s"|]|^$/.test(wanted) ? `"${wanted.replace(/"/g, "")}"` : wanted);
	}

	// The row's line with the shortest path that is unique among all files.
	let files = null;
	function line(r) {
		files ??= [...new Set(Page.rows.map(x => (x.file ?? "").toLowerCase()))];
		const parts = r.file.split("/"), paths = [parts[parts.length - 1]];
		for (let i = parts.length - 1; i > 0; i--)
			paths.push("/" + parts.slice(i).join("/"));
		const path = paths.find(p => files.filter(f => f.includes(p.toLowerCase())).length === 1) ?? r.file;
		return term("line", path + (r.line ? ":" + r.line : ""));
	}

	const fields = ["line", "func", "module", "class", "role", "phase", "source", "thread", "name", ...Page.head.scopes ? ["scope"] : [], "stack"];
	Page.filter = { compile, parse, term, line, fields };
})();
